//! The database as a whole: backed up, put back, copied to another.

mod backup;
mod copy;
mod elsewhere;
mod filled;
mod restore;
