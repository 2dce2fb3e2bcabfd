//! One file a command. The only room that reads configuration and prints.
//!
//! Each command has an `Options` that clap fills and a `run(self, &Context)`.

mod at_work;
mod completions;
mod config;
mod context;
mod credentials;
mod db;
mod demo;
mod descriptors;
mod doctor;
mod error;
mod events;
mod exit;
mod invite;
mod lane;
mod link;
mod log;
mod logins;
mod machine;
mod open;
mod output;
mod prefer;
mod probe;
mod progress;
mod serve;
mod setup;
mod site;
mod table;
mod task;
mod time;
mod token;
mod words;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use config::{Config, ConfigError};
pub use credentials::{Kept, KeptError, KeptToken};
pub use demo::{DEMO_LANE, demo_lane_main};
pub use exit::Exit;

use context::Context;

/// Turns a labelled issue into a pull request, on machines you own, with the coding agents you
/// already pay for.
#[derive(Debug, Parser)]
#[command(name = "relay", version, about, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes are in docs/exit-codes.md.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Link a repository, so that its issues can become tasks
    Link(link::Options),
    /// Make, list, show and end tasks
    Task(task::Options),
    /// Take tasks and do them on this machine
    Work(work::Options),
    /// Serve one queue to many machines
    Serve(serve::Options),
    /// Make this machine a worker of a site
    Setup(setup::Options),
    /// Sign in to the site's pages
    Open(open::Options),
    /// Make codes with which other machines become workers of this site
    Invite(invite::Options),
    /// Make, list and revoke what other machines show to the site
    Token(token::Options),
    /// Back the database up, put a backup back, copy it to another database
    Db(db::Options),
    /// See the whole flow on a scratch repository: no login, no network
    Demo(demo::Options),
    /// Show the lanes of this machine, and the settings claude runs under
    Lane(lane::Options),
    /// Make one tiny real run of a vendor's lane: tokens, cost, time, and a login that stays fresh
    Probe(probe::Options),
    /// Check this machine: logins, programs, the box, the disk
    Doctor(doctor::Options),
    /// List what happened
    Events(events::Options),
    /// Show, set and unset preferences
    Prefer(prefer::Options),
    /// Print a shell's completion script
    Completions(completions::Options),
}

/// Runs the program with `args` (the first is its own name) and gives its exit code.
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with 0, mistakes to stderr with 2; a reader that is
            // gone is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Ok }.into();
        }
    };
    match run(cli.command) {
        Ok(exit) => exit.into(),
        Err(error) => error::report(&error).into(),
    }
}

fn run(command: Command) -> anyhow::Result<Exit> {
    // Scripts of completions need no settings, and must work where those are wrong.
    if let Command::Completions(options) = command {
        return options.run();
    }
    // Before a token is in memory.
    crate::process::keep_private()?;
    let context = Context::new(Config::read()?);
    context.start_log();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // A job's steps nest deep, and an unoptimised build keeps each step's values apart:
        // tokio's 2 MiB were within sight. Pages that are not touched cost nothing.
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()?;
    let looks = matches!(command, Command::Doctor(_));
    let ended = runtime.block_on(async {
        match command {
            Command::Link(options) => options.run(&context).await,
            Command::Task(options) => options.run(&context).await,
            Command::Work(options) => options.run(&context).await,
            Command::Serve(options) => options.run(&context).await,
            Command::Setup(options) => options.run(&context).await,
            Command::Open(options) => options.run(&context).await,
            Command::Invite(options) => options.run(&context).await,
            Command::Token(options) => options.run(&context).await,
            Command::Db(options) => options.run(&context).await,
            Command::Demo(options) => options.run(&context).await,
            Command::Lane(options) => options.run(&context).await,
            Command::Probe(options) => options.run(&context).await,
            Command::Doctor(options) => options.run(&context).await,
            Command::Events(options) => options.run(&context).await,
            Command::Prefer(options) => options.run(&context).await,
            Command::Completions(options) => options.run(),
        }
    });
    if looks {
        // A disk or a name server that does not answer is told by then, and not waited for.
        runtime.shutdown_background();
    }
    ended
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn verify_cli() {
        super::Cli::command().debug_assert();
    }
}
