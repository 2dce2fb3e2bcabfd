//! The refusal matrix: what a run can be refused for, each under its own name, with the work kept.

mod base;
mod copy;
mod host;
mod lfs;
mod local;
mod page;
mod pulls;
mod repository;
mod shop;
