//! What confines a lane, as values: the environment it is given, the wall around it, the
//! settings document of its vendor. Nothing here spawns or touches a disk.

mod claude;
mod domains;
pub mod egress;
mod env;
mod hidden;
mod seatbelt;
mod shell;
mod walls;
mod wrap;

pub use claude::{ClaudeSettings, STORES, STUBS, claude_settings};
pub use domains::{DomainError, domains, parse_domains};
pub use env::{
    EnvRequest, PROCESS, PROXIES, Refused, SWITCHES, VENDOR, clean_env, refused, refused_pattern,
};
pub use hidden::{hidden_paths, moved_logins, moving_names};
pub use seatbelt::seatbelt_profile;
pub use shell::{SHELL, shell};
pub use walls::{Network, TMPDIR, Walls};
pub use wrap::{Confinement, Tools, choose, wall_in, wrap};
