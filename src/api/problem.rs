//! An error on the wire: RFC 9457, with a code for programs and a hint for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, for a program. Closed; a client that meets a new one shows its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The body, the path or the headers are too large.
    TooLarge,
    /// The route does not take this method; the answer's `allow` names those it takes.
    MethodNotAllowed,
    /// The body is said to be of another type than JSON.
    UnsupportedType,
    /// The request did not arrive in time.
    Timeout,
    /// Too many requests; the answer's `retry-after` says how many seconds to wait.
    TooMany,
    /// The site's disk is full, read-only or failing. Nothing was changed; the same request may
    /// succeed once that is mended.
    Disk,
    /// Another program holds the site's database. The same request may succeed a little later.
    Busy,
    /// The site's database cannot be reached. The site goes on by itself once it can; whether a
    /// request that changes something was done is not known: a worker's may be asked again, `task
    /// create` without an issue would make a second task.
    DatabaseAway,
    /// Nobody has answered the machine that asks for a token (RFC 8628 §3.5).
    AuthorizationPending,
    /// The same, and it asks too often.
    SlowDown,
    /// A person answered that it gets none.
    AccessDenied,
    /// Its code is over, or was used.
    ExpiredToken,
    /// The site failed; its log says how.
    Internal,
    /// A code of a newer site.
    #[serde(other)]
    Unknown,
}

impl Code {
    /// Every code, in the order of the page.
    pub const ALL: [Self; 22] = [
        Self::BadRequest,
        Self::AuthorizationPending,
        Self::SlowDown,
        Self::AccessDenied,
        Self::ExpiredToken,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Timeout,
        Self::LeaseLost,
        Self::WorkerUnknown,
        Self::Conflict,
        Self::VersionMismatch,
        Self::TooLarge,
        Self::UnsupportedType,
        Self::TooMany,
        Self::Internal,
        Self::Forge,
        Self::Busy,
        Self::DatabaseAway,
        Self::Disk,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::AccessDenied => "access_denied",
            Self::ExpiredToken => "expired_token",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Timeout => "timeout",
            Self::LeaseLost => "lease_lost",
            Self::WorkerUnknown => "worker_unknown",
            Self::Conflict => "conflict",
            Self::VersionMismatch => "version_mismatch",
            Self::TooLarge => "too_large",
            Self::UnsupportedType => "unsupported_type",
            Self::TooMany => "too_many",
            Self::Internal => "internal",
            Self::Forge => "forge",
            Self::Busy => "busy",
            Self::DatabaseAway => "database_away",
            Self::Disk => "disk",
            Self::Unknown => "unknown",
        }
    }

    /// Whether RFC 8628 knows the word, as the `error` of a problem.
    #[must_use]
    pub const fn is_of_device_flow(self) -> bool {
        use Code::{AccessDenied, AuthorizationPending, ExpiredToken, SlowDown};
        matches!(self, AccessDenied | AuthorizationPending | ExpiredToken | SlowDown)
    }

    /// What it means, the same for every problem with this code.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "The request is not what the route takes",
            Self::AuthorizationPending => "Nobody has answered yet",
            Self::SlowDown => "Asked too often",
            Self::AccessDenied => "A person said no",
            Self::ExpiredToken => "The code is over, or was used",
            Self::Unauthorized => "A token that is known here is needed",
            Self::Forbidden => "The token may not do this",
            Self::NotFound => "There is no such thing",
            Self::MethodNotAllowed => "The route does not take this method",
            Self::Timeout => "The request did not arrive in time",
            Self::LeaseLost => "The lease named is not the live one",
            Self::WorkerUnknown => "The worker is unknown, or another instance has its name",
            Self::Conflict => "It does not fit the state things are in",
            Self::VersionMismatch => "Client and site are too far apart in version",
            Self::TooLarge => "The request is too large",
            Self::UnsupportedType => "The body is not JSON",
            Self::TooMany => "Too many requests",
            Self::Internal | Self::Unknown => "The site failed",
            Self::Forge => "The forge refused or could not be reached",
            Self::DatabaseAway => "The site's database cannot be reached",
            Self::Busy => "The site cannot do it now, and may a little later",
            Self::Disk => "The site's disk refused",
        }
    }

    /// The HTTP status that goes with it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest
            | Self::AuthorizationPending
            | Self::SlowDown
            | Self::AccessDenied
            | Self::ExpiredToken => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::LeaseLost | Self::Conflict | Self::WorkerUnknown | Self::VersionMismatch => 409,
            Self::MethodNotAllowed => 405,
            Self::Timeout => 408,
            Self::TooLarge => 413,
            Self::UnsupportedType => 415,
            Self::TooMany => 429,
            Self::Forge => 502,
            Self::Busy | Self::DatabaseAway => 503,
            Self::Disk => 507,
            Self::Internal | Self::Unknown => 500,
        }
    }
}

/// `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, JsonSchema)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_the_serialised_one_and_every_code_is_listed() {
        for code in Code::ALL {
            let json = serde_json::to_string(&code).expect("a word");
            assert_eq!(json, format!("\"{}\"", code.as_str()));
            assert_eq!(serde_json::from_str::<Code>(&json).expect("a code"), code);
        }
        assert_eq!(serde_json::from_str::<Code>("\"of_tomorrow\"").expect("a code"), Code::Unknown);
    }

    #[test]
    fn the_page_for_people_lists_every_code() {
        let page = include_str!("../../docs/api.md");
        for code in Code::ALL {
            let row = format!("| `{}` | {}", code.as_str(), code.status());
            assert!(page.contains(&row), "{row} is not in docs/api.md");
        }
    }
}
