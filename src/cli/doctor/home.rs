//! The home: its folder, the disk under it, and the database in it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::super::context::Context;
use super::Check;

/// Below this a checkout fails soon.
const LEAST: u64 = 500 << 20;
/// Below this a large repository may not fit.
const LITTLE: u64 = 5 << 30;

/// Whether relay can keep its files, and whether others can read them.
pub fn folder(context: &Context) -> Check {
    let home = &context.config.home;
    let shown = home.display().to_string();
    let there = nearest(home);
    if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let seen = format!("{} is not writable", there.display());
        return Check::fail("home", seen, "set RELAY_HOME to a folder of your own");
    }
    let Ok(meta) = home.metadata() else {
        return Check::ok("home", format!("{shown} (made at first use)"));
    };
    if !meta.is_dir() {
        let seen = format!("{shown} is not a folder");
        return Check::fail("home", seen, "set RELAY_HOME to a folder of your own");
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let seen = format!("{shown} can be read by others (mode {mode:o})");
        return Check::warn("home", seen, format!("chmod 700 {shown}"));
    }
    Check::ok("home", shown)
}

/// How much room there is for caches and copies.
pub fn disk(context: &Context) -> Check {
    let there = nearest(&context.config.home);
    let free = match statvfs(there) {
        Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
        Err(error) => {
            return Check::warn("disk", error.to_string(), format!("df -h {}", there.display()));
        }
    };
    let seen = format!("{:.1} GB free", free as f64 / 1e9);
    let mend = format!("df -h {}", there.display());
    match free {
        0..LEAST => Check::fail("disk", seen, mend),
        LEAST..LITTLE => Check::warn("disk", seen, mend),
        _ => Check::ok("disk", seen),
    }
}

/// Whether the database opens, or its owner answers.
pub async fn database(context: &Context) -> Check {
    let site = match context.site().await {
        Ok(site) => site,
        Err(error) => return Check::fail("database", format!("{error:#}"), "relay work status"),
    };
    let status = site.status().await;
    let moment = site.is_for_a_moment();
    site.close().await;
    match status {
        Err(error) => Check::fail("database", error.to_string(), "relay work status"),
        Ok(_) if moment => Check::ok("database", "opens; no `relay work` runs on this home"),
        Ok(status) => Check::ok("database", format!("held by `relay work`, pid {}", status.pid)),
    }
}

/// The deepest folder on the way to `path` that is there.
fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|p| p.exists()).unwrap_or(path)
}
