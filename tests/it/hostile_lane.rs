//! A hostile lane, whole: the real program runs a lane that plants a trap in its copy, and pushes
//! to a real git server with a token. Nothing of the trap runs in the worker, no byte from outside
//! the copy is committed, and the push goes where it should or is refused by name.
//!
//! There is no wall around these lanes: whatever they can write, they may.

mod elsewhere;
mod execution;
mod files;
mod stage;
