//! The login for GitHub: RELAY_GITHUB_TOKEN, or the one `gh` keeps.

use super::super::context::Context;
use super::Check;
use crate::forge::github::host_of;
use crate::forge::github::token::status;

/// Whether there is a login. Without one repositories of this disk still work.
pub async fn login(context: &Context) -> Check {
    let host = host_of(&context.config.github_api);
    let mend = format!("gh auth login --hostname {host} (needed for repositories there only)");
    if context.config.github_token.is_some() {
        return Check::ok("github", format!("{host}: RELAY_GITHUB_TOKEN is set"));
    }
    let Some(gh) = context.config.program("gh") else {
        let seen = format!("{host}: `gh` is not on PATH and RELAY_GITHUB_TOKEN is not set");
        return Check::warn("github", seen, format!("install gh, then {mend}"));
    };
    let logins = match status(&gh, &context.config.environment).await {
        Ok(logins) => logins,
        Err(error) => return Check::warn("github", error, "gh auth status"),
    };
    let here = logins.iter().find(|l| l.host.eq_ignore_ascii_case(&host) && l.active);
    match here {
        None => Check::warn("github", format!("{host}: gh has no login"), mend),
        Some(login) => match &login.error {
            None => Check::ok("github", format!("{host}: gh, as {}", login.login)),
            Some(error) => {
                Check::warn("github", format!("{host}: gh, as {}: {error}", login.login), mend)
            }
        },
    }
}
