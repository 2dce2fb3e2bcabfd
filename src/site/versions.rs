//! Site and client of different versions. On a home's socket the two are one program and have to
//! be the same; over the network they may be one revision apart, in either direction, so that a
//! site and its workers can be brought up to date one after another.

use axum::http::HeaderMap;

use super::caller::Door;
use super::problem::Refusal;
use super::state::Site;
use crate::api::{Code, Problem, REVISION_HEADER, VERSION_HEADER};

/// How a request's words are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// As this site would say them: a field that is not known is a mistake.
    Ours,
    /// A newer client's: fields that are not known are left out.
    Newer,
}

/// Compares what the request says of itself. One that says nothing is read as this site's own: a
/// person with curl.
pub(super) fn compare(
    site: &Site,
    door: Door,
    headers: &HeaderMap,
    any_version: bool,
) -> Result<Dialect, Refusal> {
    let said = |name| headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let Some(theirs) = said(VERSION_HEADER) else { return Ok(Dialect::Ours) };
    if any_version {
        return Ok(Dialect::Newer);
    }
    match door {
        Door::Socket if theirs == site.version => Ok(Dialect::Ours),
        Door::Socket => Err(apart(site, &theirs, "restart the older one".to_owned())),
        Door::Network => {
            let revision = said(REVISION_HEADER).and_then(|text| text.parse().ok());
            match revision.unwrap_or(site.revision) {
                same if same == site.revision => Ok(Dialect::Ours),
                newer if site.revision.checked_add(1) == Some(newer) => Ok(Dialect::Newer),
                older if older.checked_add(1) == Some(site.revision) => Ok(Dialect::Ours),
                newer if newer > site.revision => Err(apart(
                    site,
                    &theirs,
                    format!(
                        "bring the site up to date first, then its workers: it is relay {}",
                        site.version
                    ),
                )),
                _ => Err(apart(site, &theirs, format!("install relay {} there", site.version))),
            }
        }
    }
}

fn apart(site: &Site, theirs: &str, hint: String) -> Refusal {
    let theirs: String = theirs.chars().take(40).collect();
    let detail =
        format!("the site runs relay {}, the request came from relay {theirs}", site.version);
    Refusal(Problem::new(Code::VersionMismatch, detail).hint(hint))
}
