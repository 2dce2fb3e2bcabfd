//! The machine under relay: its disk, its database file, its paths, its other users.

mod database;
mod home;
