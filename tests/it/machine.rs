//! The machine under relay: its disk, its database file, its paths, its other users.

mod database;
mod follow;
#[cfg(target_os = "linux")]
mod full_disk;
#[cfg(target_os = "linux")]
mod full_users;
mod growth;
mod home;
mod log;
mod names;
mod owner;
