//! The way to the site: RELAY_SITE, or the owner of this home, or this very process, for a moment
//! or for as long as it works.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use crate::api::StatusAnswer;
use crate::client::{Client, ClientError, Endpoint};
use crate::site::forges::KnownForges;
use crate::site::owner::{Access, Living, OwnerConfig, Role, connect};
use crate::site::watch::Watch;

/// So many owners may close in front of a command.
const TRIES: u32 = 50;
/// An owner that says nothing for so long is named.
const SILENT: Duration = Duration::from_secs(3);
/// Before the next is looked for.
const PAUSE: Duration = Duration::from_millis(20);

/// The site at `endpoint`, with this machine's token and by its way out.
pub(super) fn elsewhere(context: &Context, endpoint: &Endpoint) -> Result<Client, ClientError> {
    let client = Client::outward(endpoint.clone(), context.config.outward.as_ref())?;
    Ok(match &context.config.token {
        Some(token) => client.with_token(token.clone()),
        None => client,
    })
}

/// A site to speak to. Where nobody owned the home, this process does until [`Site::close`].
#[derive(Debug)]
pub struct Site {
    client: Client,
    /// `None` with RELAY_SITE.
    access: Option<Access>,
}

impl Deref for Site {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Site {
    /// For a command: the living owner, or this process for the command's moment.
    ///
    /// # Errors
    /// When there is none, or it is another version.
    pub(super) async fn reach(context: &Context) -> anyhow::Result<Self> {
        Self::open(context, Role::Moment).await
    }

    /// For a worker: RELAY_SITE, or this process, which also watches the linked repositories.
    ///
    /// # Errors
    /// When another worker owns the home.
    pub(super) async fn to_work(context: &Context) -> anyhow::Result<Self> {
        Self::open(context, Role::Work).await
    }

    async fn open(context: &Context, role: Role) -> anyhow::Result<Self> {
        if let Some(endpoint) = &context.config.site {
            if let Some(why) = &context.config.token_held_back {
                context.output.note(why);
            }
            return Ok(Self { client: elsewhere(context, endpoint)?, access: None });
        }
        let mut tries = 0;
        loop {
            let access = connect(owner(context, role)).await?;
            let client = Client::new(Endpoint::Unix(access.socket().to_owned()))?;
            // An owner may close between being found and being asked. Once it has answered, this
            // client's connection keeps it until the command is through.
            match &access {
                Access::Own(_) => {}
                Access::Living(living) => match asked(&client, living, context).await {
                    Err(ClientError::Unreachable { .. }) if tries < TRIES => {
                        tries += 1;
                        context.clock.sleep_until(context.clock.now() + PAUSE).await;
                        continue;
                    }
                    answer => drop(answer?),
                },
            }
            return Ok(Self { client, access: Some(access) });
        }
    }

    /// The way itself, for what outlives a borrow.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether it is RELAY_SITE's, and not this home's.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.access.is_none()
    }

    /// Whether this process owns the home until [`Site::close`]: nobody runs tasks then.
    #[must_use]
    pub fn is_for_a_moment(&self) -> bool {
        matches!(self.access, Some(Access::Own(_)))
    }

    /// Whether workers of other homes take its tasks: it is elsewhere, or this home's `relay serve`.
    #[must_use]
    pub fn serves_others(&self) -> bool {
        match &self.access {
            None => true,
            Some(Access::Living(living)) => living.role == Role::Serve,
            Some(Access::Own(_)) => false,
        }
    }

    /// The command that owns this home, where one does and stays.
    #[must_use]
    pub fn kept_by(&self) -> Option<&'static str> {
        match &self.access {
            Some(Access::Living(living)) if living.role == Role::Serve => Some("relay serve"),
            Some(Access::Living(living)) if living.role == Role::Work => Some("relay work"),
            _ => None,
        }
    }

    /// Gives the home back, where it was taken.
    pub async fn close(self) {
        if let Some(access) = self.access {
            access.close().await;
        }
    }
}

/// The owner's first answer. One that is stopped, or hangs, is named while it is waited for.
async fn asked(
    client: &Client,
    living: &Living,
    context: &Context,
) -> Result<StatusAnswer, ClientError> {
    let mut asking = Box::pin(client.status());
    if let Ok(answer) = tokio::time::timeout(SILENT, &mut asking).await {
        return answer;
    }
    let pid = living.pid;
    context.output.note(format!(
        "the owner of this home (pid {pid}) does not answer; waiting. Is it stopped? `kill -CONT {pid}` lets it go on"
    ));
    asking.await
}

pub(super) fn owner(context: &Context, role: Role) -> OwnerConfig {
    let config = &context.config;
    let accounts = Arc::clone(&context.accounts);
    OwnerConfig {
        home: config.home.clone(),
        role,
        database: None,
        many: false,
        listen: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: crate::api::REVISION,
        clock: Arc::clone(&context.clock),
        ids: context.ids(),
        faults: context.faults(),
        forges: Arc::new(KnownForges::new(Arc::clone(&accounts), config.github_api.clone())),
        watch: (role != Role::Moment).then(|| Watch {
            accounts,
            host: context.host(),
            allowed_senders: config.allowed_senders.clone(),
        }),
    }
}
