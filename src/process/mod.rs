//! The only room that spawns: supervise, kill the whole tree, cap, redact, time out.
