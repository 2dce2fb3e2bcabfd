//! An error on the wire: RFC 9457, with a code for programs and a hint for people.

use serde::{Deserialize, Serialize};

/// What went wrong, for a program. Closed; a client that meets a new one shows its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request is not what the route takes.
    BadRequest,
    /// No token, or one that is not known.
    Unauthorized,
    /// The token may not do this.
    Forbidden,
    /// There is no such task, project, worker or route.
    NotFound,
    /// The lease named is not the live one.
    LeaseLost,
    /// The worker is unknown, or another instance has its name.
    WorkerUnknown,
    /// What was asked does not fit the state things are in.
    Conflict,
    /// The forge refused or could not be reached.
    Forge,
    /// Client and site are of different versions of relay.
    VersionMismatch,
    /// The body is too large.
    TooLarge,
    /// The site's disk is full, read-only or failing. Nothing was changed; the same request may
    /// succeed once that is mended.
    Disk,
    /// Another program holds the site's database. The same request may succeed a little later.
    Busy,
    /// The site's database cannot be reached. The site goes on by itself once it can; whether a
    /// request that changes something was done is not known, and asking again is safe.
    DatabaseAway,
    /// The site failed; its log says how.
    Internal,
    /// A code of a newer site.
    #[serde(other)]
    Unknown,
}

impl Code {
    /// The HTTP status that goes with it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::LeaseLost | Self::Conflict | Self::WorkerUnknown | Self::VersionMismatch => 409,
            Self::TooLarge => 413,
            Self::Forge => 502,
            Self::Busy | Self::DatabaseAway => 503,
            Self::Disk => 507,
            Self::Internal | Self::Unknown => 500,
        }
    }
}

/// `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// For programs.
    pub code: Code,
    /// For people: what happened, naming the thing it happened to.
    pub detail: String,
    /// For people: the command that helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// In how many seconds it is worth asking again. It goes as the header `Retry-After`.
    #[serde(skip)]
    pub retry_after: Option<u32>,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { status: code.status(), code, detail: detail.into(), hint: None, retry_after: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
