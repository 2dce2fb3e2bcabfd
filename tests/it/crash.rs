//! The worker is killed at every fault point and started again: the end is right without a person.

mod github;
mod matrix;
mod owner;
mod scene;
mod tokens;
