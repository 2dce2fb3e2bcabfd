//! How a machine gets a token: by an invite, or by the device flow (RFC 8628).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Plaintext;
use crate::model::{Timestamp, WorkerName};

/// `POST /invites`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateInvite {
    /// The worker it is for. Without one it is for a name that nobody has.
    #[serde(default)]
    pub worker: Option<WorkerName>,
    /// For how many seconds it is good, 60 to 604,800.
    pub expires_in: u64,
    /// Who invites.
    pub by: String,
}

/// A new invite. This answer is the only place where it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Invite {
    /// Itself.
    pub code: Plaintext,
    /// The worker it is for.
    pub worker: Option<WorkerName>,
    /// Until when it is good, on the site's clock.
    pub expires_at: Timestamp,
}

/// `POST /invites/redeem`, without a token. The answer is [`super::CreatedToken`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedeemInvite {
    /// The invite.
    pub code: Plaintext,
    /// What the worker is to be called, where its person says so.
    #[serde(default)]
    pub name: Option<WorkerName>,
    /// Else this, where the invite names none.
    pub host: WorkerName,
}

/// `POST /device/code`, without a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskDevice {
    /// What the worker is to be called.
    pub worker: WorkerName,
    /// The machine.
    pub host: String,
}

/// The words of RFC 8628 §3.2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceCode {
    /// What the machine polls with.
    pub device_code: Plaintext,
    /// What a person compares.
    pub user_code: String,
    /// Where the person does; a path where the site does not know its own URL.
    pub verification_uri: String,
    /// For how many seconds both are good.
    pub expires_in: u64,
    /// Seconds between two polls.
    pub interval: u64,
}

/// `POST /device/token`, without a token. The answer is [`super::CreatedToken`], or a problem with
/// the code `authorization_pending`, `slow_down`, `access_denied` or `expired_token`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PollDevice {
    /// From [`DeviceCode`].
    pub device_code: Plaintext,
}

/// `POST /sign-ins`: a link that signs a person in to the site's pages, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSignIn {
    /// Who.
    pub by: String,
}

/// The link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignIn {
    /// Its path on the site.
    pub path: Plaintext,
    /// The site's URL, where it is served.
    pub site: Option<String>,
    /// For how many seconds it is good.
    pub expires_in: u64,
}
