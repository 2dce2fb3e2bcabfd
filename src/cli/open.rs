//! `relay open`: a link that signs you in to the site's pages, once.

use clap::Args;

use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use super::site::Site;
use crate::api::CreateSignIn;

/// Options of `relay open`.
#[derive(Debug, Args)]
pub struct Options {
    /// Print the link as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Prints the link.
    ///
    /// # Errors
    /// When nothing is served here, or the site refuses.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let request = CreateSignIn { by: context.config.user.clone() };
        let signing_in = async |site: &Site| match site.is_for_a_moment() {
            true => Ok(None),
            false => site.sign_in(&request).await.map(Some),
        };
        let link = context.ask(signing_in).await?;
        // Through the URL that this machine reaches it by, where there is one.
        let elsewhere = context.config.site.as_ref().map(ToString::to_string);
        let served = link.and_then(|link| {
            let base = elsewhere.filter(|url| url.starts_with("http")).or(link.site)?;
            Some((format!("{base}{}", link.path.secret().expose()), link.expires_in))
        });
        let Some((url, expires_in)) = served else {
            return Err(Failure::new(Exit::Conflict, "no `relay serve` runs on this home")
                .hint("start it, or set RELAY_SITE and an admin's RELAY_TOKEN")
                .into());
        };
        if self.json {
            context.output.json(&serde_json::json!({ "url": url, "expires_in": expires_in }))?;
        } else {
            let minutes = expires_in.div_ceil(60);
            context
                .output
                .note(format!("good once, for {minutes} minutes; it signs in whoever has it"));
            context.output.line(url)?;
        }
        Ok(Exit::Ok)
    }
}
