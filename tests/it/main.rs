//! Everything that needs more than one room: one binary, one module a subject.

// Tells clippy that helpers here are tests too: they may unwrap and print.
#![cfg(test)]

#[cfg(target_os = "linux")]
mod abi;
mod away;
mod canary;
mod cli;
mod corpus;
#[cfg(target_os = "linux")]
mod crash;
mod databases;
mod delivery;
mod demo;
mod doctor;
mod drain;
mod egress;
mod false_site;
#[cfg(target_os = "linux")]
mod full_claude;
#[cfg(target_os = "linux")]
mod full_codex;
#[cfg(target_os = "linux")]
mod full_cut;
#[cfg(target_os = "linux")]
mod full_egress;
mod full_github;
#[cfg(target_os = "linux")]
mod full_grok;
mod full_label;
mod full_lanes;
#[cfg(target_os = "linux")]
mod full_nginx;
#[cfg(target_os = "linux")]
mod full_outcomes;
#[cfg(target_os = "linux")]
mod full_outward;
mod full_private;
#[cfg(target_os = "linux")]
mod full_probe;
#[cfg(target_os = "linux")]
mod full_site;
#[cfg(target_os = "linux")]
mod full_walls;
mod git;
mod github;
mod hostile_lane;
mod intake;
mod lookout;
mod machine;
mod one_machine;
mod pauses;
mod preferences;
mod quarantine;
mod queue;
mod quota;
mod refusals;
mod serve;
mod service;
mod setup;
mod site;
#[cfg(target_os = "linux")]
mod sites;
mod support;
#[cfg(target_os = "linux")]
mod survivors;
mod through_fx;
mod tidy;
mod tokens;
#[cfg(target_os = "linux")]
mod transcript;
#[cfg(target_os = "linux")]
mod tree;
#[cfg(target_os = "linux")]
mod zombie;
