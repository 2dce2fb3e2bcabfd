//! `relay token`: what other machines and programs show to the site.

use clap::{Args, Subcommand};

use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use super::output::Tone;
use super::site::Site;
use super::table::{Cell, Table};
use super::time::{ago, date};
use crate::api::{CreateToken, RevokedToken, Tokens};
use crate::model::{Timestamp, Token, TokenId, TokenName, TokenScope, WorkerName};

/// Options of `relay token`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token and print it, this once
    Create(Create),
    /// List tokens, without themselves
    Ls(Ls),
    /// Make a token good for nothing: what is held with it is let go, its worker's runs end
    Revoke(Revoke),
}

#[derive(Debug, Args)]
#[command(after_help = "Scopes:\n  \
    work:claim   what a worker does; needs --worker\n  \
    memory:read  read briefs and notes\n  \
    feed:read    read tasks, logs, workers, events\n  \
    tasks:write  make, cancel, retry and end tasks\n  \
    admin        everything")]
struct Create {
    /// What it is called in lists
    #[arg(long)]
    name: TokenName,
    /// What it may; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<TokenScope>,
    /// The worker it speaks for
    #[arg(long, value_name = "NAME")]
    worker: Option<WorkerName>,
    /// Print it and what is known of it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Ls {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Revoke {
    /// Its id, or its name where only one has that
    token: String,
    /// All that have this name
    #[arg(long)]
    all: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Makes, lists or revokes.
    ///
    /// # Errors
    /// When the site refuses, or there is no such token.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.command {
            Command::Create(create) => create.run(context).await,
            Command::Ls(ls) => ls.run(context).await,
            Command::Revoke(revoke) => revoke.run(context).await,
        }
    }
}

impl Create {
    async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let has = |scope| self.scopes.contains(&scope);
        if self.worker.is_none() && has(TokenScope::WorkClaim) && !has(TokenScope::Admin) {
            return Err(Failure::new(Exit::Usage, "a token with work:claim is one worker's")
                .hint("name the worker: --worker NAME")
                .into());
        }
        let request = CreateToken {
            name: self.name,
            scopes: self.scopes,
            worker: self.worker,
            by: context.config.user.clone(),
        };
        let created = context.ask(async |site| site.create_token(&request).await).await?;
        if self.json {
            context.output.json(&created)?;
        } else {
            context
                .output
                .note("this is told once; `relay token revoke` makes it good for nothing");
            context.output.line(created.secret.secret().expose())?;
        }
        Ok(Exit::Ok)
    }
}

impl Ls {
    async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let tokens = context.ask(async |site| site.tokens().await).await?;
        if self.json {
            context.output.json(&Tokens { tokens })?;
        } else if tokens.is_empty() {
            context.output.note("no tokens");
        } else {
            let table = table(&tokens, context.clock.now());
            context.output.text(&table.show(context.output))?;
        }
        Ok(Exit::Ok)
    }
}

impl Revoke {
    async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let tokens = context.ask(async |site| site.tokens().await).await?;
        let mut revoked = Vec::new();
        for id in find(&tokens, &self.token, self.all)? {
            let revoking = async |site: &Site| site.revoke_token(&id, &context.config.user).await;
            revoked.push(context.ask(revoking).await?);
        }
        if self.json {
            match &revoked[..] {
                [one] if !self.all => context.output.json(one)?,
                all => context.output.json(&serde_json::json!({ "revoked": all }))?,
            }
            return Ok(Exit::Ok);
        }
        for RevokedToken { token, released } in &revoked {
            let released = match &released[..] {
                [] => String::new(),
                tasks => {
                    let tasks: Vec<String> = tasks.iter().map(|l| l.task.to_string()).collect();
                    format!("; queued again: {}", tasks.join(", "))
                }
            };
            context.output.line(format!("{} is revoked{released}", token.name))?;
        }
        Ok(Exit::Ok)
    }
}

/// The token of that id, or the one, or with `all` each, that has the name and is not revoked.
fn find(tokens: &[Token], named: &str, all: bool) -> anyhow::Result<Vec<TokenId>> {
    if let Some(token) = tokens.iter().find(|token| token.id.as_str() == named) {
        return Ok(vec![token.id.clone()]);
    }
    let live = |token: &&Token| token.revoked_at.is_none() && token.name.as_str() == named;
    let found: Vec<&Token> = tokens.iter().filter(live).collect();
    let ids: Vec<TokenId> = found.iter().map(|token| token.id.clone()).collect();
    match found[..] {
        [_] => Ok(ids),
        [_, ..] if all => Ok(ids),
        [] => Err(Failure::new(Exit::NotFound, format!("no token `{named}`"))
            .hint("`relay token ls` lists them")
            .into()),
        [_, ..] => {
            let message = format!("{} tokens are called `{named}`", found.len());
            let each = found.iter().map(|token| {
                let made = date(token.created_at);
                let used = token
                    .last_used
                    .map_or_else(|| "never used".to_owned(), |at| format!("used {}", date(at)));
                format!("\n  {}  made {made}, {used}", token.id)
            });
            let each: String = each.collect();
            let hint = format!(
                "name one by its id, or all of them: `relay token revoke {named} --all`{each}"
            );
            Err(Failure::new(Exit::Conflict, message).hint(hint).into())
        }
    }
}

fn table(tokens: &[Token], now: Timestamp) -> Table {
    let mut table = Table::new(["ID", "NAME", "SCOPES", "WORKER", "MADE", "USED", "STATE"]);
    for token in tokens {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        let state = match token.revoked_at {
            None => Cell::toned(Tone::Good, "good"),
            Some(_) => Cell::toned(Tone::Faint, "revoked"),
        };
        table.row([
            token.id.as_str().into(),
            token.name.as_str().into(),
            scopes.join(" ").into(),
            token.worker.as_ref().map_or("-", WorkerName::as_str).into(),
            date(token.created_at).into(),
            used(token, now).into(),
            state,
        ]);
    }
    table
}

/// When it was last used. A site keeps that in memory, and of a revoked one no longer.
fn used(token: &Token, now: Timestamp) -> String {
    match token.last_used {
        Some(at) => ago(now, at),
        None if token.revoked_at.is_some() => "-".to_owned(),
        None => "never".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Actor;

    fn token(n: u8, name: &str, revoked: bool) -> Token {
        Token {
            id: format!("00000000-0000-7000-8000-0000000000{n:02}").parse().unwrap(),
            name: name.parse().unwrap(),
            scopes: vec![TokenScope::Admin],
            worker: None,
            created_by: Actor::site(),
            created_at: Timestamp(1),
            last_used: None,
            revoked_at: revoked.then_some(Timestamp(2)),
            revoked_by: revoked.then(Actor::site),
        }
    }

    #[test]
    fn nobody_says_that_a_revoked_token_was_never_used() {
        let mut token = token(1, "desk", true);
        assert_eq!(used(&token, Timestamp(1)), "-");
        token.revoked_at = None;
        assert_eq!(used(&token, Timestamp(1)), "never");
        token.last_used = Some(Timestamp(1));
        assert_eq!(used(&token, Timestamp(60_001)), "1m ago");
    }

    #[test]
    fn a_name_that_two_have_is_not_guessed() {
        let tokens =
            || vec![token(1, "desk", true), token(2, "desk", false), token(3, "lap", false)];
        let found = |named: &str| find(&tokens(), named, false).map(|ids| ids[0].to_string());
        assert!(found("desk").unwrap().ends_with("02"), "a revoked one is not meant");
        assert!(found("00000000-0000-7000-8000-000000000001").unwrap().ends_with("01"));
        assert_eq!(found("gone").unwrap_err().to_string(), "no token `gone`");
        let twice = vec![token(1, "desk", false), token(2, "desk", false)];
        let refused = find(&twice, "desk", false).unwrap_err();
        assert_eq!(refused.to_string(), "2 tokens are called `desk`");
        let hint = format!("{:?}", refused.downcast_ref::<Failure>().unwrap());
        assert!(hint.contains("01  made 1970-01-01 00:00:00 UTC, never used"), "{hint}");
        assert!(hint.contains("02  made ") && hint.contains("--all"), "{hint}");
        assert_eq!(find(&twice, "desk", true).unwrap().len(), 2);
    }
}
