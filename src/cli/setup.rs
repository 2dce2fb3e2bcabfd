//! `relay setup`: this machine gets a worker's token of a site.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::context::Context;
use super::credentials::{Kept, KeptToken};
use super::error::Failure;
use super::exit::Exit;
use super::machine::worker_name;
use super::output::one_line;
use super::time::{ago, date};
use crate::api::{AskDevice, Code, CreatedToken, Plaintext, PollDevice, RedeemInvite};
use crate::client::{Client, Endpoint};
use crate::model::{Secret, Timestamp, Token, TokenScope, WorkerName};

/// What a poll that came too early adds to the pause (RFC 8628 §3.5).
const SLOWER: Duration = Duration::from_secs(5);

/// The longest wait for a person, whatever a site says.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// What is said once of a site that goes away while a person is waited for.
const GOES_ON: &str = "still waiting";
/// And of one that comes back.
const BACK: &str = "the site answers again";

/// Options of `relay setup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    relay setup --site https://relay.example                 a person approves it on the site\n  \
    relay setup --site https://relay.example --invite CODE   with what `relay invite create` told\n  \
    relay setup --forget                                     this machine forgets its site")]
pub struct Options {
    /// The site's URL
    #[arg(long, value_name = "URL", required_unless_present = "forget")]
    site: Option<Endpoint>,
    /// An invite of the site; without one a person approves this machine on the site's page
    // An earlier relay's codes may begin with a hyphen.
    #[arg(long, value_name = "CODE", requires = "site", allow_hyphen_values = true)]
    invite: Option<String>,
    /// What this machine's worker is called (default: this machine's name)
    #[arg(long, requires = "site")]
    name: Option<WorkerName>,
    /// Speak to a site of another machine without TLS: only where the network itself is encrypted
    /// (a VPN)
    #[arg(long, requires = "site")]
    plain_http: bool,
    /// Forget the site and the token
    #[arg(long, conflicts_with_all = ["site", "invite", "name", "plain_http"])]
    forget: bool,
    /// Print what was set up as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Done<'a> {
    site: String,
    worker: Option<&'a WorkerName>,
    scopes: &'a [TokenScope],
    /// The tokens of this worker that are revoked now.
    #[serde(skip_serializing_if = "<[Token]>::is_empty")]
    replaced: &'a [Token],
}

impl Options {
    /// Gets a token and keeps it.
    ///
    /// # Errors
    /// When the site refuses, nobody answers, or the files cannot be written.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let home = &context.config.home;
        if self.forget {
            context.output.note(if Kept::forget(home)? {
                "forgotten; the token itself is good until `relay token revoke` on the site"
            } else {
                "there was nothing to forget"
            });
            return Ok(Exit::Ok);
        }
        let Some(site) = self.site.clone() else {
            return Err(Failure::new(Exit::Usage, "which site?")
                .hint("relay setup --site URL")
                .into());
        };
        if !self.plain_http && !site.is_private() {
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "{site} is no https:// address: whoever is on the way would read the token"
                ),
            )
            .hint("use https://, or --plain-http where the network itself is encrypted (a VPN)")
            .into());
        }
        let client = Client::outward(site.clone(), context.config.outward.as_ref())?;
        let host = worker_name(&context.host())?;
        let created = match &self.invite {
            Some(code) => {
                let code = Plaintext::of(&Secret::new(code));
                client.redeem(&RedeemInvite { code, name: self.name.clone(), host }).await?
            }
            None => self.ask(context, &client, &site, host).await?,
        };
        let CreatedToken { token, secret, replaced } = created;
        let plain = secret.secret().expose().bytes().all(|byte| byte.is_ascii_graphic());
        let Some(worker) = token.worker.clone().filter(|_| plain) else {
            return Err(Failure::new(Exit::Failed, format!("{site} gave no worker's token"))
                .hint("is it the URL of a relay site?")
                .into());
        };
        let kept =
            KeptToken { site: site.clone(), token: secret.secret(), worker: Some(worker.clone()) };
        Kept::write(home, &kept, self.plain_http)?;
        if self.json {
            let done = Done {
                site: site.to_string(),
                worker: Some(&worker),
                scopes: &token.scopes,
                replaced: &replaced,
            };
            context.output.json(&done)?;
        } else {
            context.output.line(format!("this machine is worker {worker} of {site}"))?;
            context.output.note("`relay work` takes its tasks; `relay doctor` shows how it stands");
        }
        let now = context.clock.now();
        for token in &replaced {
            context.output.note(taken_over(token, now));
        }
        let set = context.config.site.as_ref().filter(|_| context.config.site_is_of_environment);
        if let Some(other) = set.filter(|set| **set != site) {
            context.output.note(format!(
                "RELAY_SITE is set to {other} and beats what was set up here: unset RELAY_SITE"
            ));
        }
        Ok(Exit::Ok)
    }

    /// The device flow.
    async fn ask(
        &self,
        context: &Context,
        client: &Client,
        site: &Endpoint,
        host: WorkerName,
    ) -> anyhow::Result<CreatedToken> {
        let worker = self.name.clone().unwrap_or(host);
        let asked = client.ask_device(&AskDevice { worker, host: context.host() }).await?;
        let place = if asked.verification_uri.starts_with('/') {
            format!("{site}{}", asked.verification_uri)
        } else {
            asked.verification_uri
        };
        // Words of a site that is not known yet.
        let (place, code) = (one_line(&place), one_line(&asked.user_code));
        let waits = Duration::from_secs(asked.expires_in).min(LONGEST);
        context.output.note(format!(
            "On the site, approve this machine:\n\n  page  {place}\n  code  {}\n\n\
             `relay open` on the site's machine signs you in. Waiting for up to {} minutes.",
            code,
            waits.as_secs().div_ceil(60)
        ));
        let request = PollDevice { device_code: asked.device_code };
        let end = context.clock.uptime() + waits;
        let mut pause = Duration::from_secs(asked.interval.clamp(1, 60));
        let mut away = false;
        loop {
            context.clock.sleep_until(context.clock.now() + pause).await;
            let polled = client.poll_device(&request).await;
            let failure = polled.as_ref().err().filter(|error| error.is_passing());
            if failure.is_some() != away {
                away = !away;
                let word =
                    failure.map_or_else(|| BACK.to_owned(), |why| format!("{why}; {GOES_ON}"));
                context.output.note(one_line(&word));
            }
            match polled {
                Ok(created) => return Ok(created),
                Err(error) => match error.code() {
                    Some(Code::AuthorizationPending) => {}
                    Some(Code::SlowDown) => pause += SLOWER,
                    _ if error.is_passing() => {}
                    _ => return Err(error.into()),
                },
            }
            if context.clock.uptime() >= end {
                return Err(nobody(site));
            }
        }
    }
}

/// Whoever had the token of this worker's name is out, and may not know.
fn taken_over(token: &Token, now: Timestamp) -> String {
    let used = token.last_used.map(|at| format!(" and used last {}", ago(now, at)));
    format!(
        "the token of {}, made at {}{}, is revoked: a machine that has it works no more",
        token.name,
        date(token.created_at),
        used.unwrap_or_default()
    )
}

fn nobody(site: &Endpoint) -> anyhow::Error {
    Failure::new(Exit::NotReady, "nobody approved this machine in time")
        .hint(format!("relay setup --site {site}"))
        .into()
}
