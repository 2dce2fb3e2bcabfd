//! The way to the site: RELAY_SITE, or the owner of this home, or this very process for a moment.

use std::ops::Deref;

use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use crate::client::{Client, Endpoint};

/// A site to speak to. Where nobody owned the home, this process does until [`Site::close`].
#[derive(Debug)]
pub struct Site {
    client: Client,
}

impl Deref for Site {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Site {
    pub(super) async fn reach(context: &Context) -> anyhow::Result<Self> {
        let config = &context.config;
        if let Some(endpoint) = &config.site {
            return Ok(Self { client: Client::new(endpoint.clone())? });
        }
        let client = Client::new(Endpoint::Unix(config.socket()))?;
        match client.status().await {
            Ok(_) => Ok(Self { client }),
            Err(error) => Err(anyhow::Error::from(error)
                .context(Failure::new(Exit::Unreachable, "nobody owns this home"))),
        }
    }

    /// Whether this process owns the home until [`Site::close`]: nobody runs tasks then.
    #[must_use]
    pub fn is_for_a_moment(&self) -> bool {
        false
    }

    /// Gives the home back, where it was taken.
    pub async fn close(self) {}
}
