//! A worker that sleeps past its lease and wakes: nothing of it lands, and it goes on working.
//! Real worker processes at the socket of an owner whose clock the test moves.

mod alone;
mod clock;
mod lane;
mod push;
pub mod stage;
