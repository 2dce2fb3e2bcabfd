//! relay turns a labelled issue into a pull request, on machines people own, with the coding
//! agents they already pay for. Each module is a room; docs/ARCHITECTURE.md is the map, and
//! `tests/it/tidy/` holds the arrows between them.

pub mod api;
pub mod cli;
pub mod client;
pub mod forge;
pub mod git;
pub mod intake;
pub mod model;
pub mod process;
pub mod queue;
pub mod site;
pub mod store;
pub mod system;
pub mod work;
