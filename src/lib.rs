//! relay turns a labelled issue into a pull request, on machines people own, with the coding
//! agents they already pay for. Each module is a room; docs/ARCHITECTURE.md is the map, and
//! `tests/it/tidy/` holds the arrows between them.

// The wire types, shared by site and client.
pub mod api;
// One file a command; the only room that reads configuration and prints.
pub mod cli;
// The site's API as functions, over HTTP: a URL or a unix socket.
pub mod client;
// Files that are written whole or not at all.
pub mod files;
// Where issues and pull requests live: GitHub, or a repository on this disk.
pub mod forge;
// The worker's own repositories: mirror, checkout, snapshot, fence, push.
pub mod git;
// Turns what a forge says into queue calls: one reconcile, brought forward by a poll.
pub mod intake;
// Ids, task, lease, worker, run, usage, stop reason, preference, clock: values without I/O.
pub mod model;
// The only room that spawns: supervise, kill the whole tree, cap, redact, time out.
pub mod process;
// What may happen to a task: add, claim, renew, start, record, finish, sweep, park, prefer.
pub mod queue;
// The only room that knows axum: the owner of a home, its router, the bell, the run logs.
pub mod site;
// The only room that knows sqlx: migrations, and the statements.
pub mod store;
// The real clock and the real source of ids.
pub mod system;
// The worker: loop, doorbell, heartbeats, and the job with its steps.
pub mod work;
