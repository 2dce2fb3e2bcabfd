//! The outer wall of a run: a pid namespace of its own, which dies whole.
//!
//! | here | wall | when the supervisor is killed |
//! |---|---|---|
//! | Linux, ordinary user, bubblewrap | bwrap's pid namespace | everything in it dies |
//! | Linux, root, util-linux | unshare's pid namespace | everything in it dies |
//! | Linux, neither | none | the program dies; what left its session may live on |
//! | macOS | none | nothing dies |
//!
//! In every row nothing outlives the run while the supervisor lives (relay's room `process`).
//! root gets `unshare`, since claude's own sandbox cannot mount its /proc inside a bwrap of root's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What was found on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// bubblewrap's `bwrap`.
    pub bwrap: Option<PathBuf>,
    /// util-linux's `unshare`.
    pub unshare: Option<PathBuf>,
    /// util-linux's `setpriv`.
    pub setpriv: Option<PathBuf>,
}

/// What stands between the supervisor and the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// bubblewrap: all of the disk, a pid namespace, its own init.
    Bubblewrap {
        /// Its path.
        bwrap: PathBuf,
    },
    /// `unshare` with a pid namespace, for root.
    Unshare {
        /// Its path.
        unshare: PathBuf,
        /// Where it is missing, the namespace outlives a supervisor that is killed.
        setpriv: Option<PathBuf>,
    },
    /// No namespace.
    Bare {
        /// Where it is there, the program dies with a supervisor that is killed.
        setpriv: Option<PathBuf>,
    },
}

/// The strongest wall that works for this user.
#[must_use]
pub fn choose(tools: &Tools, root: bool) -> Confinement {
    let Tools { bwrap, unshare, setpriv } = tools.clone();
    match (root, bwrap, unshare) {
        (true, _, Some(unshare)) => Confinement::Unshare { unshare, setpriv },
        (false, Some(bwrap), _) => Confinement::Bubblewrap { bwrap },
        _ => Confinement::Bare { setpriv },
    }
}

/// The program and the arguments that run `program` with `args` behind the wall.
#[must_use]
pub fn wrap(c: &Confinement, program: &Path, args: &[OsString]) -> (PathBuf, Vec<OsString>) {
    let mut line: Vec<OsString> = Vec::new();
    match c {
        Confinement::Bubblewrap { bwrap } => {
            line.push(bwrap.into());
            line.extend(["--die-with-parent", "--unshare-pid"].map(OsString::from));
            line.extend(["--dev-bind", "/", "/", "--proc", "/proc", "--"].map(OsString::from));
        }
        Confinement::Unshare { unshare, setpriv } => {
            line.extend(dying_with_parent(setpriv.as_deref()));
            line.push(unshare.into());
            line.extend(["--pid", "--fork", "--kill-child=SIGKILL"].map(OsString::from));
            line.extend(["--mount-proc", "--"].map(OsString::from));
            line.extend(INIT.map(OsString::from));
        }
        Confinement::Bare { setpriv } => line.extend(dying_with_parent(setpriv.as_deref())),
    }
    line.push(program.into());
    line.extend_from_slice(args);
    let program = line.remove(0);
    (program.into(), line)
}

/// The first process of a pid namespace. Without it the program would be that process: signals
/// it does not handle would not reach it, not even its own `kill -9`, and orphans that have
/// ended would stay in its process table (a `pg_ctl stop` waits for them in vain).
const INIT: [&str; 4] = ["/bin/sh", "-c", r#""$@"; exit "$?""#, "init"];

fn dying_with_parent(setpriv: Option<&Path>) -> Vec<OsString> {
    setpriv.map_or_else(Vec::new, |setpriv| {
        let mut line = vec![setpriv.into()];
        line.extend(["--pdeathsig", "KILL", "--"].map(OsString::from));
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        Tools {
            bwrap: Some("/usr/bin/bwrap".into()),
            unshare: Some("/usr/bin/unshare".into()),
            setpriv: Some("/usr/bin/setpriv".into()),
        }
    }

    #[test]
    fn root_gets_unshare_and_an_ordinary_user_bubblewrap() {
        let setpriv = tools().setpriv;
        assert_eq!(
            choose(&tools(), true),
            Confinement::Unshare { unshare: "/usr/bin/unshare".into(), setpriv: setpriv.clone() }
        );
        assert_eq!(
            choose(&tools(), false),
            Confinement::Bubblewrap { bwrap: "/usr/bin/bwrap".into() }
        );
        let bare = Confinement::Bare { setpriv };
        assert_eq!(choose(&Tools { unshare: None, ..tools() }, true), bare);
        assert_eq!(choose(&Tools { bwrap: None, ..tools() }, false), bare);
        assert_eq!(choose(&Tools::default(), false), Confinement::Bare { setpriv: None });
    }

    #[test]
    fn the_command_lines() {
        let line = |c: &Confinement| {
            let args = ["-p".into(), "two words".into()];
            let (program, args) = wrap(c, Path::new("/opt/agent"), &args);
            let args = args.iter().map(|arg| arg.display().to_string());
            std::iter::once(program.display().to_string()).chain(args).collect::<Vec<_>>().join("|")
        };
        assert_eq!(
            line(&choose(&tools(), false)),
            "/usr/bin/bwrap|--die-with-parent|--unshare-pid|--dev-bind|/|/|--proc|/proc|--\
             |/opt/agent|-p|two words"
        );
        assert_eq!(
            line(&choose(&tools(), true)),
            "/usr/bin/setpriv|--pdeathsig|KILL|--|/usr/bin/unshare|--pid|--fork\
             |--kill-child=SIGKILL|--mount-proc|--|/bin/sh|-c|\"$@\"; exit \"$?\"|init\
             |/opt/agent|-p|two words"
        );
        let bare = Confinement::Bare { setpriv: tools().setpriv };
        assert_eq!(line(&bare), "/usr/bin/setpriv|--pdeathsig|KILL|--|/opt/agent|-p|two words");
        assert_eq!(line(&Confinement::Bare { setpriv: None }), "/opt/agent|-p|two words");
    }
}
