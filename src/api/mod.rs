//! What site and client say to each other, and nothing else. Both share these types.
//!
//! Every route is under [`PREFIX`]. Requests refuse unknown fields; answers may grow.

pub mod feed;
pub mod lenient;
pub mod problem;
pub mod route;
pub mod setup;
pub mod tasks;
pub mod tokens;
pub mod work;

pub use feed::{EventsAnswer, EventsQuery, HealthAnswer, LogAnswer, LogQuery, StatusAnswer};
pub use problem::{Code, Problem};
pub use route::{PREFIX, REQUEST_ID_HEADER, REVISION, REVISION_HEADER, VERSION_HEADER};
pub use setup::{
    AskDevice, CreateInvite, CreateSignIn, DeviceCode, Invite, PollDevice, RedeemInvite, SignIn,
};
pub use tasks::{
    CancelRequest, CreateTask, LinkProject, LocalPull, OpenLocalPull, PreferRequest, Preferences,
    Projects, SetDone, TaskDetail, Tasks, TasksQuery,
};
pub use tokens::{CreateToken, CreatedToken, Plaintext, RevokeToken, RevokedToken, Tokens, WhoAmI};
pub use work::{
    Claim, ClaimAnswer, ClaimRequest, Doorbell, DoorbellQuery, HeartbeatAnswer, HeartbeatRequest,
    LeaseAnswer, LogChunk, LogTaken, OrderRequest, RecordRequest, RegisterRequest, ReleaseAnswer,
    ReleaseRequest, StartRequest, Workers,
};
