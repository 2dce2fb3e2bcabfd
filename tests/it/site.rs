//! The site as its clients see it: an owner in this process, real HTTP over a real unix socket.

mod bell;
mod bounds;
mod budgets;
mod clock;
pub mod fixture;
mod idle;
mod logs;
mod orders;
mod owner;
mod refusals;
mod routes;
mod setup;
pub mod tokens;
mod watch;
