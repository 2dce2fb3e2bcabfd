//! What this machine has: programs, lanes, logins, its box. Put together once from the settings
//! and handed to the rooms that need it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use relay_lanes::{VENDORS, Vendor, fx};
use relay_sandbox::{STORES, Tools};

use super::config::Config;
use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use crate::forge::github::{Accounts, Login, PersonsLogin, host_of};
use crate::model::{Clock, ForgeProblem, Secret, WorkerName};
use crate::work::boxing::{Boxing, try_box};
use crate::work::egress::Egress;
use crate::work::lane::{Installed, Lanes, chosen_model};
use crate::work::login::{Logins, Place};
use crate::work::probe::Versions;

/// The lanes of this machine, with its box tried. `sandbox` is false with `--no-sandbox`.
pub async fn lanes(context: &Context, sandbox: bool, secrets: Vec<Secret>) -> Lanes {
    lanes_with(context, boxing(context).await, sandbox, secrets)
}

/// The same with what was found out of its box.
pub(super) fn lanes_with(
    context: &Context,
    boxing: Boxing,
    sandbox: bool,
    secrets: Vec<Secret>,
) -> Lanes {
    let config = &context.config;
    Lanes {
        vendors: VENDORS.iter().map(|vendor| installed(config, vendor)).collect(),
        process_dir: config.lanes_folder(),
        boxing,
        sandbox,
        parent_env: config.environment.clone(),
        pass_env: config.lane_env.clone(),
        extra_domains: config.lane_domains.clone(),
        home: without_links(&config.user_home),
        relay_home: without_links(&config.home),
        stores: stores(context),
        given: config.lane_paths.clone(),
        secrets,
        egress: egress(config),
        versions: Versions::default(),
    }
}

/// How lanes get out of their boxes.
pub(super) fn egress(config: &Config) -> Egress {
    // Where the system does not say, a run with a box fails by name.
    let relay = own_program().unwrap_or_else(|_| PathBuf::from("relay"));
    Egress::new(relay, config.outward.clone(), config.lane_network_shared)
}

/// What serves a vendor's lane: its own program, or fx where that alone has a login which a run
/// would find.
pub(super) fn installed(config: &Config, vendor: &'static Vendor) -> Installed {
    let own = of(config, vendor);
    let through = || fx::VENDORS.iter().find(|fx| fx.lane == vendor.lane).map(|fx| of(config, fx));
    let has_key = vendor.secret_keys().any(|key| {
        let given = config.environment.get(OsStr::new(key)).is_some_and(|key| !key.is_empty());
        given && config.lane_env.iter().any(|name| name == key)
    });
    let path = config.path_variable();
    let serves = own.can_start(Some(&path)) && (own.has_login() || has_key);
    let fx = through().filter(|fx| !serves && fx.program.is_some() && fx.has_login());
    fx.unwrap_or(own)
}

/// The logins of all programs that could serve a lane, whether they do or not.
pub(super) fn logins(config: &Config) -> impl Iterator<Item = Logins> {
    let all = VENDORS.iter().chain(fx::VENDORS);
    all.filter_map(|vendor| of(config, vendor).logins)
}

/// A program, with the person's login of it where that is a file.
fn of(config: &Config, vendor: &'static Vendor) -> Installed {
    let variable = vendor.home.variable.map(OsStr::new);
    let moved = variable.and_then(|name| config.environment.get(name)).filter(|v| !v.is_empty());
    let root = without_links(&config.home).join("vendor");
    let logins = || Logins::new(root, vendor, &config.user_home, moved.map(Path::new));
    let is_file = !vendor.home.keychain || cfg!(target_os = "linux");
    Installed {
        vendor,
        program: config.program(vendor.program),
        model: config.models.get(vendor.lane).cloned(),
        chosen: vendor.through().and_then(|_| chosen_model(&config.user_home, vendor)),
        place: Place::new(vendor, &config.user_home, moved.map(Path::new), is_file),
        logins: is_file.then(logins),
    }
}

/// The stores of the package programs that are here: nobody else's home gets new folders.
fn stores(context: &Context) -> Vec<PathBuf> {
    let here = |program: &str| context.config.program(program).is_some();
    let (npm, pnpm) = (here("npm"), here("pnpm"));
    let of_this_system = |store: &&&str| store.starts_with("Library") == cfg!(target_os = "macos");
    STORES
        .iter()
        .filter(of_this_system)
        .filter(|store| if store.contains("pnpm") { pnpm } else { npm })
        .map(|store| without_links(&context.config.user_home).join(store))
        .collect()
}

/// The folder itself: what is hidden from a lane by its name is hidden where it really is.
pub(super) fn without_links(folder: &Path) -> PathBuf {
    std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}

/// How a lane is kept in its box here, found out by trying.
pub async fn boxing(context: &Context) -> Boxing {
    let tools = Tools {
        bwrap: context.config.program("bwrap"),
        unshare: context.config.program("unshare"),
        setpriv: context.config.program("setpriv"),
    };
    let root = rustix::process::geteuid().is_root();
    try_box(&tools, root, &context.config.path_variable(), Path::new("/")).await
}

/// The logins this machine's person has.
#[must_use]
pub fn accounts(config: &Config, clock: Arc<dyn Clock>) -> Accounts {
    let login = PersonsLogin {
        given: config.github_token.clone().map(|token| (host_of(&config.github_api), token)),
        gh: config.program("gh"),
        env: config.environment.clone(),
    };
    Accounts::new(Arc::new(login), clock)
}

/// The GitHub login of this machine: RELAY_GITHUB_TOKEN, else what `gh` has. `None` where there
/// is none; that is no error until a task needs it.
pub async fn github(context: &Context) -> Option<Login> {
    match context.accounts.login(&context.config.github_api).await {
        Ok(login) => Some(login),
        Err(error) if error.problem() == ForgeProblem::Unauthorized => None,
        Err(error) => {
            tracing::warn!(%error, "the GitHub login cannot be used");
            None
        }
    }
}

/// relay's own program, which supervises lanes and is the demo's lane.
///
/// # Errors
/// When the system does not say where it is.
pub fn own_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    // Linux says so of a program that was replaced while it runs; the new one is at the old place.
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map_or_else(|| path.clone(), |p| Path::new(p).to_owned()))
}

/// The machine's name with what cannot stand in a worker's name left out.
pub fn worker_name(host: &str) -> anyhow::Result<WorkerName> {
    let kept: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(64).collect();
    kept.parse().map_err(|_| {
        Failure::new(Exit::Usage, format!("`{host}` cannot be a worker's name"))
            .hint("name it: --name NAME")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_name_is_made_a_workers() {
        let name = |host| worker_name(host).map(|n| n.to_string()).ok();
        assert_eq!(name("Ann's-MacBook.local"), Some("Anns-MacBook.local".to_owned()));
        assert_eq!(name("…"), None);
    }
}
