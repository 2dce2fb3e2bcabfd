//! The worker: its loop, its heartbeats, and the job with its steps.
//!
//! Architecture invariant: a worker reaches tasks only through `client`, on one machine as well;
//! `store`, `queue` and `site` are unknown here.

pub mod away;
pub mod backoff;
mod beat;
mod beginning;
pub mod boxing;
pub mod canary;
pub mod claims;
pub mod copies;
pub mod courier;
pub mod egress;
mod ended;
pub mod errand;
mod found;
pub mod gate;
pub mod heartbeat;
pub mod job;
pub mod lane;
pub mod limits;
pub mod linked;
pub mod local_pulls;
pub mod log;
pub mod login;
pub mod misfit;
pub mod observer;
pub mod outbox;
pub mod persist;
pub mod ping;
pub mod probe;
pub mod prompt;
pub mod prune;
pub mod quota;
pub mod renewal;
pub mod rest;
pub mod ring;
pub mod room;
mod stamp;
pub mod stop;
pub mod transcript;
pub mod verdict;
pub mod walls;
pub mod worker;

pub use ended::WorkError;
pub use found::Found;
pub use limits::Limits;
pub use observer::{Observer, Step, StepEvent};
pub use stamp::Stamp;
pub use stop::{Shutdown, StopSignal};
pub use worker::{Worker, WorkerConfig};
