//! `relay invite`: a code that makes another machine a worker of this site.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::time::date;
use crate::api::CreateInvite;
use crate::model::WorkerName;

/// Options of `relay invite`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an invite and print its code, this once: `relay setup --site URL --invite CODE`
    Create(Create),
}

#[derive(Debug, Args)]
struct Create {
    /// The worker it is for, also one that works now; without it the machine may take any name
    /// that nobody has
    #[arg(long, value_name = "NAME")]
    worker: Option<WorkerName>,
    /// For how long it is good: 30m, 1h, 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    expires: Duration,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Makes an invite.
    ///
    /// # Errors
    /// When the site refuses.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let Command::Create(create) = self.command;
        let request = CreateInvite {
            worker: create.worker,
            expires_in: create.expires.as_secs(),
            by: context.config.user.clone(),
        };
        let invite = context.ask(async |site| site.invite(&request).await).await?;
        if create.json {
            context.output.json(&invite)?;
        } else {
            let until = date(invite.expires_at);
            context.output.note(format!("good for one machine until {until}; told this once"));
            context.output.line(invite.code.secret().expose())?;
        }
        Ok(Exit::Ok)
    }
}

/// `90s`, `30m`, `1h`, `7d`.
fn time(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time such as 30m, 1h or 7d");
    let unit = match text.chars().next_back() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Err(bad()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| bad())?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(time("7d"), Ok(Duration::from_secs(604_800)));
        for text in ["", "1", "h", "-1h", "1.5h", "1é", "99999999999999999999d"] {
            assert!(time(text).is_err(), "{text} was taken");
        }
    }
}
