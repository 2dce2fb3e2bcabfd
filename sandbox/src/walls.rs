//! The walls of a run in the file system: what of the disk a lane sees, and what of it it may
//! change. The deepest path decides: relay's folder is empty, the copy inside it is not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a lane sees that is not the disk as it is, read-only. Every path is absolute, without
/// links, and there is something at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walls {
    /// Folders that are empty inside. What is written there goes with the run.
    pub empty: Vec<PathBuf>,
    /// Files and sockets of which nothing is to be had.
    pub blank: Vec<PathBuf>,
    /// What is seen as it is though it stands in an empty folder.
    pub shown: Vec<PathBuf>,
    /// What the lane may write. A path below `/dev` is a device it may use.
    pub writable: Vec<PathBuf>,
    /// Another folder in the place of one, writable: the place, and what stands there instead.
    pub replaced: Vec<(PathBuf, PathBuf)>,
    /// The same, read-only, whatever the lane may write around it.
    pub fixed: Vec<(PathBuf, PathBuf)>,
    /// What of the network is there.
    pub network: Network,
    /// Where the program starts.
    pub cwd: PathBuf,
}

/// What a lane has of this machine's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None: a loopback of its own, and nobody else on it.
    #[default]
    Apart,
    /// The same with one door: a program is run through this command line, which leaves something
    /// behind that listens on that loopback.
    Door {
        /// The command and its arguments, before the program's own path.
        through: Vec<OsString>,
        /// Whether what it leaves behind listens on ports below 1024 as well, which takes a right
        /// over the run's network that the program itself never has.
        low_ports: bool,
    },
    /// This machine's own network, with all that listens on it.
    Shared,
}

/// The name for temporary files in the box, whatever it is outside.
pub const TMPDIR: &str = "/tmp";

/// What stands at one path. A later kind wins over an earlier one at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind<'a> {
    Shown,
    Blank,
    Empty,
    Writable,
    Replaced(&'a Path),
    Fixed(&'a Path),
    /// A folder in an empty one on the way to what stands below: nothing in it is moved, or else
    /// what is mounted there would be found by another name than the one it is hidden by later.
    Held,
}

impl Walls {
    /// Gives the run a door: `folder` is where it is met, seen by the lane and not to be written.
    pub fn add_door(&mut self, folder: PathBuf, through: Vec<OsString>) {
        self.blank.retain(|path| !path.starts_with(&folder));
        self.shown.push(folder);
        self.network = Network::Door { through, low_ports: false };
    }

    /// Gives the run the same with doors on low ports: the hosts that these lead to have their
    /// addresses from `hosts`, which stands in the place of the system's file at `at`.
    pub fn add_named_doors(
        &mut self,
        folder: PathBuf,
        through: Vec<OsString>,
        (at, hosts): (PathBuf, PathBuf),
    ) {
        self.add_door(folder, through.clone());
        self.fixed.push((at, hosts));
        self.network = Network::Door { through, low_ports: true };
    }

    /// bubblewrap's arguments. `proc` is a `/proc` of the run's own that is mounted already;
    /// without it bubblewrap makes one, and with it the process namespace.
    pub(crate) fn arguments(&self, proc_is_own: bool) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        let mut add = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
            line.extend(words.iter().map(|word| word.as_ref().to_owned()));
        };
        if self.network != Network::Shared {
            add(&[&"--unshare-net"]);
        }
        add(&[&"--unshare-ipc", &"--ro-bind", &"/", &"/", &"--dev", &"/dev"]);
        if proc_is_own {
            add(&[&"--bind", &"/proc", &"/proc"]);
        } else {
            add(&[&"--proc", &"/proc"]);
        }
        let mut held = Vec::new();
        for (path, kind) in self.mounts() {
            match kind {
                Kind::Shown => add(&[&"--ro-bind", &path, &path]),
                Kind::Blank => add(&[&"--ro-bind", &"/dev/null", &path]),
                Kind::Empty => add(&[&"--tmpfs", &path]),
                Kind::Writable if path.starts_with("/dev") => add(&[&"--dev-bind", &path, &path]),
                Kind::Writable => add(&[&"--bind", &path, &path]),
                Kind::Replaced(by) => add(&[&"--bind", &by, &path]),
                Kind::Fixed(by) => add(&[&"--ro-bind", &by, &path]),
                Kind::Held => {
                    add(&[&"--tmpfs", &path]);
                    held.push(path);
                }
            }
        }
        // What is mounted below has its place by now.
        held.iter().for_each(|path| add(&[&"--remount-ro", path]));
        add(&[&"--chdir", &self.cwd]);
        line
    }

    /// What is mounted, parents first, without what makes no difference.
    pub(crate) fn mounts(&self) -> Vec<(&Path, Kind<'_>)> {
        let mut all: Vec<(&Path, Kind<'_>)> = Vec::new();
        for (paths, kind) in [
            (&self.shown, Kind::Shown),
            (&self.blank, Kind::Blank),
            (&self.empty, Kind::Empty),
            (&self.writable, Kind::Writable),
        ] {
            all.extend(paths.iter().map(|path| (path.as_path(), kind)));
        }
        all.extend(self.replaced.iter().map(|(at, by)| (at.as_path(), Kind::Replaced(by))));
        all.extend(self.fixed.iter().map(|(at, by)| (at.as_path(), Kind::Fixed(by))));
        // By components, so that what a path stands in comes before it.
        all.sort();
        let mut mounts: Vec<(&Path, Kind<'_>)> = Vec::new();
        // Those of them that `path` stands in, the deepest last: thousands of sockets are no reason
        // to look through all for each.
        let mut around: Vec<(&Path, Kind<'_>)> = Vec::new();
        for (path, kind) in all {
            if mounts.last().is_some_and(|(last, _)| *last == path) {
                mounts.pop();
                around.pop();
            }
            while around.last().is_some_and(|(at, _)| !path.starts_with(at)) {
                around.pop();
            }
            let in_empty = matches!(around.last(), Some((_, Kind::Empty | Kind::Held)));
            let matters = match kind {
                Kind::Shown => in_empty,
                Kind::Blank | Kind::Empty => !in_empty,
                Kind::Writable | Kind::Replaced(_) | Kind::Fixed(_) | Kind::Held => true,
            };
            if matters {
                if let Some((empty, Kind::Empty)) = around.last()
                    && let Some(way) = first_below(empty, path)
                {
                    mounts.push((way, Kind::Held));
                    around.push((way, Kind::Held));
                }
                mounts.push((path, kind));
                around.push((path, kind));
            }
        }
        mounts
    }
}

/// The folder directly in `empty` that `path` stands in, where it is not `path` itself.
fn first_below<'a>(empty: &Path, path: &'a Path) -> Option<&'a Path> {
    path.ancestors().skip(1).find(|folder| folder.parent() == Some(empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    fn line(walls: &Walls) -> String {
        let words = walls.arguments(false);
        words.iter().map(|word| word.display().to_string()).collect::<Vec<_>>().join(" ")
    }

    const ALWAYS: &str = "--unshare-net --unshare-ipc --ro-bind / / --dev /dev --proc /proc";

    #[test]
    fn a_usual_run() {
        let walls = Walls {
            empty: paths(&["/tmp", "/run", "/home/ada/.ssh", "/home/ada/.harness"]),
            blank: paths(&["/home/ada/.netrc", "/var/lib/db.sock", "/run/docker.sock"]),
            shown: paths(&["/home/ada", "/run/resolv.conf", "/home/ada/.harness/bin/tidy"]),
            writable: paths(&["/home/ada/.harness/work/c", "/dev/kvm"]),
            replaced: vec![("/home/ada/.npm".into(), "/home/ada/.harness/work/c.box/npm".into())],
            fixed: vec![("/home/ada/.claude".into(), "/home/ada/.harness/work/c.box/set".into())],
            network: Network::Apart,
            cwd: "/home/ada/.harness/work/c".into(),
        };
        let expected = [
            ALWAYS,
            "--dev-bind /dev/kvm /dev/kvm",
            "--ro-bind /home/ada/.harness/work/c.box/set /home/ada/.claude",
            "--tmpfs /home/ada/.harness",
            "--tmpfs /home/ada/.harness/bin",
            "--ro-bind /home/ada/.harness/bin/tidy /home/ada/.harness/bin/tidy",
            "--tmpfs /home/ada/.harness/work",
            "--bind /home/ada/.harness/work/c /home/ada/.harness/work/c",
            "--ro-bind /dev/null /home/ada/.netrc",
            "--bind /home/ada/.harness/work/c.box/npm /home/ada/.npm",
            "--tmpfs /home/ada/.ssh",
            "--tmpfs /run",
            "--ro-bind /run/resolv.conf /run/resolv.conf",
            "--tmpfs /tmp",
            "--ro-bind /dev/null /var/lib/db.sock",
            "--remount-ro /home/ada/.harness/bin --remount-ro /home/ada/.harness/work",
            "--chdir /home/ada/.harness/work/c",
        ];
        assert_eq!(line(&walls), expected.join(" "));
    }

    #[test]
    fn a_home_in_an_emptied_folder_is_seen_and_its_logins_are_not() {
        let walls = Walls {
            empty: paths(&["/tmp", "/tmp/ada/.ssh", "/tmp/ada/relay"]),
            shown: paths(&["/tmp/ada", "/tmp/ada/bin"]),
            writable: paths(&["/tmp/ada/relay/work/c"]),
            cwd: "/tmp/ada/relay/work/c".into(),
            ..Walls::default()
        };
        let expected = [
            ALWAYS,
            "--tmpfs /tmp --ro-bind /tmp/ada /tmp/ada --tmpfs /tmp/ada/.ssh",
            "--tmpfs /tmp/ada/relay --tmpfs /tmp/ada/relay/work",
            "--bind /tmp/ada/relay/work/c /tmp/ada/relay/work/c",
            "--remount-ro /tmp/ada/relay/work --chdir /tmp/ada/relay/work/c",
        ];
        assert_eq!(line(&walls), expected.join(" "));
    }

    #[test]
    fn what_leads_to_a_mount_in_an_empty_folder_is_held_and_the_folder_stays_writable() {
        let walls = Walls {
            empty: paths(&["/r", "/tmp"]),
            shown: paths(&["/r/s/bash", "/tmp/x/ada"]),
            writable: paths(&["/r/direct", "/r/v/one.grok", "/r/v/two.grok", "/tmp/x/deep/c"]),
            fixed: vec![("/r/v/one.grok/in".into(), "/r/v/one.grok/in".into())],
            cwd: "/".into(),
            ..Walls::default()
        };
        let expected = [
            ALWAYS,
            "--tmpfs /r --bind /r/direct /r/direct",
            "--tmpfs /r/s --ro-bind /r/s/bash /r/s/bash",
            "--tmpfs /r/v --bind /r/v/one.grok /r/v/one.grok",
            "--ro-bind /r/v/one.grok/in /r/v/one.grok/in",
            "--bind /r/v/two.grok /r/v/two.grok",
            "--tmpfs /tmp --tmpfs /tmp/x --ro-bind /tmp/x/ada /tmp/x/ada",
            "--bind /tmp/x/deep/c /tmp/x/deep/c",
            "--remount-ro /r/s --remount-ro /r/v --remount-ro /tmp/x --chdir /",
        ];
        assert_eq!(line(&walls), expected.join(" "));
    }

    #[test]
    fn what_is_given_wins_over_what_is_hidden_at_the_same_path_and_not_above_it() {
        let walls = Walls {
            empty: paths(&["/srv/relay", "/home/ada/.docker"]),
            blank: paths(&["/srv/db.sock"]),
            writable: paths(&["/srv", "/srv/db.sock"]),
            cwd: "/srv".into(),
            ..Walls::default()
        };
        let expected = [
            ALWAYS,
            "--tmpfs /home/ada/.docker --bind /srv /srv --bind /srv/db.sock /srv/db.sock",
            "--tmpfs /srv/relay --chdir /srv",
        ];
        assert_eq!(line(&walls), expected.join(" "));
    }

    #[test]
    fn what_stands_in_what_is_found_among_very_many() {
        let blank: Vec<PathBuf> = (0..100_000).map(|n| format!("/srv/x/{n}.sock").into()).collect();
        let walls = Walls {
            blank,
            empty: paths(&["/srv/x/y"]),
            shown: paths(&["/srv/x/y/z"]),
            ..Walls::default()
        };
        assert_eq!(walls.mounts().len(), 100_002);
        let walls = Walls { empty: paths(&["/srv/x"]), ..walls };
        let expected =
            [("/srv/x", Kind::Empty), ("/srv/x/y", Kind::Held), ("/srv/x/y/z", Kind::Shown)];
        assert_eq!(walls.mounts(), expected.map(|(path, kind)| (Path::new(path), kind)));
    }

    #[test]
    fn a_proc_that_is_there_is_kept() {
        let words = Walls { cwd: "/".into(), ..Walls::default() }.arguments(true);
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(
            words.join(" "),
            "--unshare-net --unshare-ipc --ro-bind / / --dev /dev --bind /proc /proc --chdir /"
        );
    }

    #[test]
    fn a_network_is_shared_only_where_it_is_said_so_and_a_door_stands_open_in_what_is_hidden() {
        let mut walls = Walls {
            empty: paths(&["/srv/relay"]),
            blank: paths(&["/srv/relay/work/c.door/s", "/srv/other.sock"]),
            cwd: "/".into(),
            ..Walls::default()
        };
        walls.add_door("/srv/relay/work/c.door".into(), vec!["/bin/relay".into()]);
        let expected = [
            ALWAYS,
            "--ro-bind /dev/null /srv/other.sock --tmpfs /srv/relay --tmpfs /srv/relay/work",
            "--ro-bind /srv/relay/work/c.door /srv/relay/work/c.door",
            "--remount-ro /srv/relay/work --chdir /",
        ];
        assert_eq!(line(&walls), expected.join(" "));
        let shared = Walls { network: Network::Shared, cwd: "/".into(), ..Walls::default() };
        assert!(!line(&shared).contains("--unshare-net"), "{}", line(&shared));
    }
}
