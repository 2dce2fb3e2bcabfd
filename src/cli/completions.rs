//! `relay completions`: a shell's completion script.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::exit::Exit;
use super::output::Output;

/// Options of `relay completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: relay completions bash > ~/.local/share/bash-completion/completions/relay"
)]
pub struct Options {
    /// The shell.
    shell: Shell,
}

impl Options {
    /// Prints the script.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn run(self) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::Cli::command(), "relay", &mut script);
        Output::new(true).text(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Ok)
    }
}
