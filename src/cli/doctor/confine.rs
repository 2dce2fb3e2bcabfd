//! The box, really tried: once with a program that does nothing, and once with the sandbox that
//! claude makes for its commands inside it.

use std::ffi::OsString;
use std::path::Path;

use relay_sandbox::{Confinement, Tools, choose, wrap};

use super::super::context::Context;
use super::Check;
use super::programs::run;

const INSTALL: &str = "sudo apt install bubblewrap socat";

/// What bubblewrap is asked for by claude's sandbox, as far as a machine may refuse it.
const INNER: [&str; 11] = [
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--unshare-pid",
    "--unshare-net",
    "--proc",
    "/proc",
    "--die-with-parent",
    "--",
];

/// Whether a lane can be put in its box.
pub async fn outer(context: &Context) -> Check {
    let confinement = confinement(context);
    let kind = match &confinement {
        Confinement::Bubblewrap { .. } => "bubblewrap",
        Confinement::Unshare { .. } => "unshare",
        Confinement::Bare { .. } => {
            let seen = "none: what a lane leaves running is killed at its end, but not when relay is \
                        killed";
            return Check::warn("box", seen, INSTALL);
        }
    };
    match tried(context, &confinement, Path::new("/bin/true"), &[]).await {
        Ok(_) => Check::ok("box", format!("{kind}: a process namespace of its own (tried)")),
        Err(error) => Check::fail("box", format!("{kind}: {error}"), refused(context)),
    }
}

/// Whether claude's own sandbox can be made inside the box. Without it claude's jobs fail.
pub async fn inner(context: &Context) -> Option<Check> {
    const NAME: &str = "claude's sandbox";
    context.config.program("claude")?;
    let found = ["bwrap", "socat"].map(|name| (name, context.config.program(name)));
    let missing: Vec<&str> =
        found.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| *name).collect();
    let Some((_, Some(bwrap))) = found.first().filter(|_| missing.is_empty()) else {
        let seen = format!("not on PATH: {}", missing.join(", "));
        return Some(Check::fail(NAME, seen, INSTALL));
    };
    let mut args: Vec<OsString> = INNER.iter().map(OsString::from).collect();
    args.push("/bin/true".into());
    Some(match tried(context, &confinement(context), bwrap, &args).await {
        Ok(_) => Check::ok(NAME, "bubblewrap inside the box (tried), socat"),
        Err(error) => Check::fail(NAME, error, refused(context)),
    })
}

async fn tried(
    context: &Context,
    confinement: &Confinement,
    program: &Path,
    args: &[OsString],
) -> Result<String, String> {
    let (path, args) = wrap(confinement, program, args);
    run(context, &path, args).await
}

/// Where the kernel or a profile forbids namespaces, no package helps.
fn refused(context: &Context) -> &'static str {
    if context.config.program("bwrap").is_none() {
        INSTALL
    } else {
        "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0"
    }
}

fn confinement(context: &Context) -> Confinement {
    let tools = Tools {
        bwrap: context.config.program("bwrap"),
        unshare: context.config.program("unshare"),
        setpriv: context.config.program("setpriv"),
    };
    choose(&tools, rustix::process::geteuid().is_root())
}
