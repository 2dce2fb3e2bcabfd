//! The site that this machine is a worker of: whether it answers, and what its token may.

use super::super::context::Context;
use super::super::error::hint_of;
use super::Check;
use crate::model::{TokenScope, WorkerName};

/// Nothing where this home is a site of its own.
pub async fn site(context: &Context) -> Option<Check> {
    let site = context.config.site.as_ref()?;
    let setup = format!("relay setup --site {site}");
    if let Some(why) = &context.config.token_held_back {
        return Some(Check::warn("site", why, setup));
    }
    Some(match who(context).await {
        Err(error) => {
            let mend = hint_of(&error).unwrap_or(setup);
            Check::fail("site", format!("{site}: {error:#}"), mend)
        }
        Ok((scopes, worker)) => {
            let words: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
            let whose = worker.map(|name| format!("worker {name}, ")).unwrap_or_default();
            let seen = format!("{site} answers: {whose}{}", words.join(" "));
            let works = [TokenScope::WorkClaim, TokenScope::Admin];
            if works.iter().any(|scope| scopes.contains(scope)) {
                Check::ok("site", seen)
            } else {
                Check::warn("site", format!("{seen}; the token takes no tasks"), setup)
            }
        }
    })
}

async fn who(context: &Context) -> anyhow::Result<(Vec<TokenScope>, Option<WorkerName>)> {
    let who = context.ask(async |site| site.who_am_i().await).await?;
    Ok((who.scopes, who.worker))
}
