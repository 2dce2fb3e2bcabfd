//! The box of a run: a pid namespace of its own, which dies whole, and [`Walls`] in the file system.
//!
//! | here | box | walls | when the supervisor is killed |
//! |---|---|---|---|
//! | Linux, ordinary user, bubblewrap | bwrap's | yes | everything in it dies |
//! | Linux, root, util-linux and bubblewrap | unshare's, with bwrap's walls in it | yes | everything in it dies |
//! | Linux, root, util-linux alone | unshare's | none | everything in it dies |
//! | Linux, neither | none | none | the program dies; what left its session may live on |
//! | macOS | none | none | nothing dies |
//!
//! In every row nothing outlives the run while the supervisor lives (relay's room `process`).
//! root's process namespace and its `/proc` are `unshare`'s: bwrap of root's covers parts of
//! `/proc`, and then the kernel lets no sandbox inside mount one. Last comes a user namespace,
//! since root would take the walls down: in it, it is root over nothing that was mounted before.
//!
//! A door on a low port takes a right over the network of the box. root has it until that last user
//! namespace, so such a door is opened before it. Of an ordinary user's box nobody inside has it:
//! bubblewrap makes its `/dev` in one user namespace, whose the network is, and ends in another. So
//! a second bubblewrap makes a network of its own in there, and gives the door that one capability.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::walls::{Network, Walls};

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
    /// bubblewrap: walls, a pid namespace, its own init.
    Bubblewrap {
        /// Its path.
        bwrap: PathBuf,
    },
    /// `unshare` with a pid namespace, for root.
    Unshare {
        /// Its path.
        unshare: PathBuf,
        /// Where it is missing, there are no walls.
        bwrap: Option<PathBuf>,
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
        (true, bwrap, Some(unshare)) => Confinement::Unshare { unshare, bwrap, setpriv },
        (false, Some(bwrap), _) => Confinement::Bubblewrap { bwrap },
        _ => Confinement::Bare { setpriv },
    }
}

impl Confinement {
    /// Whether it puts walls around a run.
    #[must_use]
    pub const fn has_walls(&self) -> bool {
        matches!(self, Self::Bubblewrap { .. } | Self::Unshare { bwrap: Some(_), .. })
    }

    /// Whether a door on a low port is opened in it without a sandbox inside of it.
    #[must_use]
    pub const fn opens_low_ports(&self) -> bool {
        matches!(self, Self::Unshare { bwrap: Some(_), .. })
    }

    /// The bubblewrap that puts up its walls.
    #[must_use]
    pub fn bwrap(&self) -> Option<&Path> {
        match self {
            Self::Bubblewrap { bwrap } => Some(bwrap),
            Self::Unshare { bwrap, .. } => bwrap.as_deref(),
            Self::Bare { .. } => None,
        }
    }

    /// The same box without walls. An ordinary user has none such that is of use: a sandbox
    /// that cannot be made inside bubblewrap cannot be made with more of the disk in it either.
    #[must_use]
    pub fn without_walls(&self) -> Option<Self> {
        match self.clone() {
            Self::Unshare { unshare, bwrap: Some(_), setpriv } => {
                Some(Self::Unshare { unshare, bwrap: None, setpriv })
            }
            _ => None,
        }
    }
}

/// The program and the arguments that run `program` with `args` in a box that shows all of the
/// disk: nothing is hidden, and nothing outlives it.
#[must_use]
pub fn wrap(c: &Confinement, program: &Path, args: &[OsString]) -> (PathBuf, Vec<OsString>) {
    boxed(c, None, program, args)
}

/// The program and the arguments that run `program` with `args` behind `walls`, where `c` has any.
#[must_use]
pub fn wall_in(
    c: &Confinement,
    walls: &Walls,
    program: &Path,
    args: &[OsString],
) -> (PathBuf, Vec<OsString>) {
    boxed(c, Some(walls), program, args)
}

fn boxed(
    c: &Confinement,
    walls: Option<&Walls>,
    program: &Path,
    args: &[OsString],
) -> (PathBuf, Vec<OsString>) {
    let mut line: Vec<OsString> = Vec::new();
    let (mut through, low_ports) = match walls.map(|walls| &walls.network) {
        Some(Network::Door { through, low_ports }) if c.has_walls() => (&through[..], *low_ports),
        _ => (&[][..], false),
    };
    match c {
        Confinement::Bubblewrap { bwrap } => {
            line.push(bwrap.into());
            line.extend(["--die-with-parent", "--unshare-pid"].map(OsString::from));
            match walls {
                Some(walls) => line.extend(walls.arguments(false)),
                None => line.extend(ALL_OF_IT.map(OsString::from)),
            }
            line.push("--".into());
            if low_ports {
                line.push(bwrap.into());
                line.extend(NETWORK_OF_ITS_OWN.map(OsString::from));
            }
        }
        Confinement::Unshare { unshare, bwrap, setpriv } => {
            line.extend(dying_with_parent(setpriv.as_deref()));
            line.push(unshare.into());
            line.extend(["--pid", "--fork", "--kill-child=SIGKILL"].map(OsString::from));
            line.extend(["--mount-proc", "--"].map(OsString::from));
            if let (Some(walls), Some(bwrap)) = (walls, bwrap) {
                // It is the first process, and waits for orphans as one has to.
                line.push(bwrap.into());
                line.extend(walls.arguments(true));
                line.push("--".into());
                if low_ports {
                    line.extend_from_slice(std::mem::take(&mut through));
                }
                line.push(unshare.into());
                line.extend(["--user", "--map-root-user", "--"].map(OsString::from));
            } else {
                line.extend(INIT.map(OsString::from));
            }
        }
        Confinement::Bare { setpriv } => line.extend(dying_with_parent(setpriv.as_deref())),
    }
    line.extend_from_slice(through);
    line.push(program.into());
    line.extend_from_slice(args);
    let program = line.remove(0);
    (program.into(), line)
}

/// A second bubblewrap's, with all of the box as it is.
const NETWORK_OF_ITS_OWN: [&str; 9] = [
    "--die-with-parent",
    "--unshare-user",
    "--unshare-net",
    "--dev-bind",
    "/",
    "/",
    "--cap-add",
    "CAP_NET_BIND_SERVICE",
    "--",
];

const ALL_OF_IT: [&str; 5] = ["--dev-bind", "/", "/", "--proc", "/proc"];

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
            Confinement::Unshare {
                unshare: "/usr/bin/unshare".into(),
                bwrap: tools().bwrap,
                setpriv: setpriv.clone()
            }
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

    fn line((program, args): (PathBuf, Vec<OsString>)) -> String {
        let args = args.iter().map(|arg| arg.display().to_string());
        std::iter::once(program.display().to_string()).chain(args).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn the_command_lines_of_a_box_without_walls() {
        let line = |c: &Confinement| {
            line(wrap(c, Path::new("/opt/agent"), &["-p".into(), "two words".into()]))
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

    #[test]
    fn the_command_lines_of_a_box_with_walls() {
        let walls = Walls { empty: vec!["/tmp".into()], cwd: "/w".into(), ..Walls::default() };
        let line = |c: &Confinement| line(wall_in(c, &walls, Path::new("/opt/agent"), &[]));
        assert_eq!(
            line(&choose(&tools(), false)),
            "/usr/bin/bwrap|--die-with-parent|--unshare-pid|--unshare-net|--unshare-ipc|--ro-bind|/|/\
             |--dev|/dev|--proc|/proc|--tmpfs|/tmp|--chdir|/w|--|/opt/agent"
        );
        assert_eq!(
            line(&choose(&tools(), true)),
            "/usr/bin/setpriv|--pdeathsig|KILL|--|/usr/bin/unshare|--pid|--fork\
             |--kill-child=SIGKILL|--mount-proc|--|/usr/bin/bwrap|--unshare-net|--unshare-ipc\
             |--ro-bind|/|/|--dev|/dev|--bind|/proc|/proc\
             |--tmpfs|/tmp|--chdir|/w|--|/usr/bin/unshare|--user|--map-root-user|--|/opt/agent"
        );
        let without = choose(&Tools { bwrap: None, ..tools() }, true);
        assert_eq!(line(&without), self::line(wrap(&without, Path::new("/opt/agent"), &[])));
        assert!(!without.has_walls() && choose(&tools(), true).has_walls());
        assert_eq!(choose(&tools(), true).without_walls(), Some(without));
        assert_eq!(choose(&tools(), false).without_walls(), None);
    }

    #[test]
    fn a_program_is_run_through_the_door_and_only_behind_walls() {
        let mut walls = Walls { cwd: "/w".into(), ..Walls::default() };
        walls.add_door("/w.door".into(), ["/bin/relay", "__door"].map(OsString::from).into());
        let line = |c: &Confinement| line(wall_in(c, &walls, Path::new("/opt/agent"), &[]));
        for root in [false, true] {
            let line = line(&choose(&tools(), root));
            assert!(line.ends_with("|--|/bin/relay|__door|/opt/agent"), "{line}");
        }
        let without = choose(&Tools { bwrap: None, ..tools() }, true);
        assert!(!line(&without).contains("__door"));
    }

    #[test]
    fn a_door_on_a_low_port_is_opened_by_who_may_and_the_program_may_not() {
        let mut walls = Walls { cwd: "/w".into(), ..Walls::default() };
        let through = ["/bin/relay", "__door"].map(OsString::from).into();
        let hosts = ("/etc/hosts".into(), "/w.door/hosts".into());
        walls.add_named_doors("/w.door".into(), through, hosts);
        let line = |root| {
            let line = line(wall_in(&choose(&tools(), root), &walls, Path::new("/opt/agent"), &[]));
            assert!(line.contains("|--ro-bind|/w.door/hosts|/etc/hosts|"), "{line}");
            line
        };
        let root = "|--chdir|/w|--|/bin/relay|__door\
                    |/usr/bin/unshare|--user|--map-root-user|--|/opt/agent";
        assert!(line(true).ends_with(root), "{}", line(true));
        let user = "|--chdir|/w|--|/usr/bin/bwrap|--die-with-parent|--unshare-user|--unshare-net\
                    |--dev-bind|/|/|--cap-add|CAP_NET_BIND_SERVICE|--|/bin/relay|__door|/opt/agent";
        assert!(line(false).ends_with(user), "{}", line(false));
    }
}
