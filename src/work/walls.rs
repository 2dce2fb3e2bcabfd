//! What of this disk a lane sees, looked up at each run: what is there now, and where it really is.
//!
//! A name that is hidden is hidden by what stands at it when the run begins. docs/design/walls.md
//! says what that leaves.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use relay_lanes::{VENDORS, fx};
use relay_sandbox::{Walls, hidden_paths, moved_logins};

use super::login::lock_beside;

mod links;
mod sockets;

/// Where programs leave sockets and files for each other.
const SHARED: &[&str] = &["/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm"];

/// A folder with more sockets than this is hidden as a whole: a mount for each costs, and their paths
/// have to fit on a command line.
const CROWD: usize = 32;

/// Variables that name files which every program reads that reaches a network.
const NEEDED: &[&str] = &["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"];

/// The system's own folders: no login is hidden there for a link that leads into them, since all
/// programs are made of what is in them.
const SYSTEM: &[&str] = &[
    "/Applications",
    "/Library",
    "/System",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/gnu",
    "/lib",
    "/nix",
    "/proc",
    "/sbin",
    "/snap",
    "/sys",
    "/usr",
];

/// What one run's walls depend on.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The person's home.
    pub home: &'a Path,
    /// RELAY_HOME.
    pub relay_home: &'a Path,
    /// The worker's environment: where logins were moved to, and the PATH.
    pub environment: &'a BTreeMap<OsString, OsString>,
    /// Where the program starts.
    pub cwd: &'a Path,
    /// The lane's own folders, all of them writable.
    pub own: &'a [PathBuf],
    /// What the program is made of: itself, and files it is given as arguments.
    pub programs: &'a [&'a Path],
    /// What the operator gives the lane on top (RELAY_LANE_PATHS).
    pub given: &'a [PathBuf],
    /// Folders that are replaced by one of the run's own: the place, and what stands there.
    pub replaced: &'a [(PathBuf, PathBuf)],
    /// The same, read-only.
    pub fixed: &'a [(PathBuf, PathBuf)],
}

impl View<'_> {
    /// The walls, for what stands on the disk now.
    #[must_use]
    pub fn walls(&self) -> Walls {
        let mut walls = Walls { cwd: real(self.cwd), ..shared() };
        let hidden = hidden_paths(self.home, self.relay_home, &moved_logins(self.environment));
        let (mut places, relay_home) = (Vec::new(), real(self.relay_home));
        for path in hidden {
            // What a link leads to is hidden; what it leads to may be no place of logins.
            let Ok(path) = fs::canonicalize(path) else { continue };
            match fs::metadata(&path) {
                _ if self.home.starts_with(&path) && path != self.relay_home => {}
                Ok(meta) if meta.is_dir() => {
                    places.extend(Some(path.clone()).filter(|path| *path != relay_home));
                    walls.empty.push(path);
                }
                Ok(_) => walls.blank.push(path),
                Err(_) => {}
            }
        }
        let needed = self.needed();
        self.hide_linked_logins(&mut walls, &needed);
        hide_linked(&mut walls, &places, &needed);
        walls.writable.extend(self.own.iter().map(|path| real(path)));
        let given = self.given.iter().filter_map(|path| fs::canonicalize(path).ok());
        walls.writable.extend(given);
        self.start_in(&mut walls);
        self.hide_sockets(&mut walls, sockets::with_a_path());
        walls.shown.extend(self.shown());
        let really = |(at, by): &(PathBuf, PathBuf)| (real(at), real(by));
        walls.replaced.extend(self.replaced.iter().map(really));
        walls.fixed.extend(self.fixed.iter().map(really));
        walls
    }

    /// A vendor's login that is kept elsewhere and linked to (dotfiles) is hidden there, with relay's
    /// lock beside it, and with its whole folder: where a file is replaced, as by a refresh, what
    /// hides the file alone goes away.
    fn hide_linked_logins(&self, walls: &mut Walls, needed: &[PathBuf]) {
        for vendor in VENDORS.iter().chain(fx::VENDORS) {
            let variable = vendor.home.variable.map(OsStr::new);
            let moved = variable.and_then(|name| self.environment.get(name));
            let moved = moved.filter(|value| !value.is_empty()).map(PathBuf::from);
            let folder = moved.unwrap_or_else(|| self.home.join(vendor.home.folder));
            let Ok(file) = fs::canonicalize(folder.join(vendor.home.file)) else { continue };
            let Some(around) = file.parent().filter(|_| file.is_file()) else { continue };
            if around == real(&folder) {
                continue;
            }
            if may_be_emptied(around, needed) {
                walls.empty.push(around.to_owned());
            }
            let lock = lock_beside(file.clone());
            walls.blank.extend([file, lock].into_iter().filter(|path| path.is_file()));
        }
    }

    /// What the run cannot be without, by its path without links.
    fn needed(&self) -> Vec<PathBuf> {
        let mut needed = self.shown();
        needed.extend([self.home, self.relay_home, self.cwd].map(Path::to_owned));
        needed.extend(self.own.iter().cloned());
        needed.extend(self.programs.iter().map(|path| path.to_path_buf()));
        needed.iter().map(|path| real(path)).collect()
    }

    /// A working folder that is the operator's choice is writable, unless that would open the
    /// home or what is relay's.
    fn start_in(&self, walls: &mut Walls) {
        let cwd = walls.cwd.clone();
        if self.own.iter().any(|own| cwd == real(own)) {
            return;
        }
        let is_around = |path: &Path| path.starts_with(&cwd);
        if is_around(self.home) || is_around(self.relay_home) || cwd.starts_with(self.relay_home) {
            walls.shown.push(cwd);
        } else {
            walls.writable.push(cwd);
        }
    }

    /// Sockets are blank; of another worker's, its whole folder is empty, and a folder of many. The
    /// doors of a worker's runs come and go, and what is gone by the time the box is made would end
    /// this run.
    fn hide_sockets(&self, walls: &mut Walls, sockets: Vec<PathBuf>) {
        let opened = walls.writable.clone();
        let kept: Vec<PathBuf> =
            [self.home, self.relay_home, &walls.cwd].map(real).into_iter().collect();
        let mut crowds: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for folder in sockets.iter().filter_map(|socket| socket.parent()) {
            *crowds.entry(folder.to_owned()).or_default() += 1;
        }
        crowds.retain(|_, count| *count > CROWD);
        for socket in sockets {
            if opened.iter().any(|path| socket.starts_with(path)) {
                continue;
            }
            let crowd = || socket.parent().filter(|folder| crowds.contains_key(*folder));
            match sockets::relay_home_of(&socket).or_else(crowd) {
                Some(folder) if !kept.iter().any(|path| path.starts_with(folder)) => {
                    walls.empty.push(folder.to_owned());
                }
                _ => walls.blank.push(socket),
            }
        }
        walls.empty.sort();
        walls.empty.dedup();
    }

    /// What is needed though it may stand in a folder that is emptied.
    fn shown(&self) -> Vec<PathBuf> {
        let variable = |name: &str| self.environment.get(OsStr::new(name)).cloned();
        let listed = |name| std::env::split_paths(&variable(name).unwrap_or_default()).collect();
        let mut shown: Vec<PathBuf> = listed("PATH");
        shown.extend(NEEDED.iter().filter_map(|name| variable(name)).map(PathBuf::from));
        // systemd-resolved and others keep it under /run.
        shown.extend(fs::canonicalize("/etc/resolv.conf"));
        shown.push(self.home.to_owned());
        for program in self.programs {
            shown.extend(fs::canonicalize(program));
            shown.push(program.to_path_buf());
        }
        let is_there = |path: &PathBuf| path.is_absolute() && path.exists();
        // relay's own folder, and what is around it, is not shown as a place of programs.
        let whole = |path: &PathBuf| self.relay_home.starts_with(path) && path != self.home;
        shown.iter().map(|path| at(path)).filter(|p| is_there(p) && !whole(p)).collect()
    }
}

/// Walls that only empty what all programs share; with them the box is tried.
#[must_use]
pub fn shared() -> Walls {
    let mut empty: Vec<PathBuf> = SHARED
        .iter()
        .filter_map(|path| fs::canonicalize(path).ok())
        .filter(|path| path.is_dir() && !path.starts_with("/dev"))
        .collect();
    empty.dedup();
    Walls { empty, cwd: "/".into(), ..Walls::default() }
}

/// What links in `places` lead to is hidden where it is, but for what the run or all programs need.
/// Where very many lead into one folder, all of that is.
fn hide_linked(walls: &mut Walls, places: &[PathBuf], needed: &[PathBuf]) {
    let mut files: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    let is_known = |target: &Path| places.iter().any(|place| target.starts_with(place));
    let is_place = |folder: &Path| !is_known(folder) && may_be_emptied(folder, needed);
    for target in links::targets(places, is_place) {
        if is_known(&target) || is_systems(&target) {
            continue;
        }
        if !target.is_dir() {
            files.entry(target.parent().unwrap_or(&target).to_owned()).or_default().push(target);
        } else if may_be_emptied(&target, needed) {
            walls.empty.push(target);
        }
    }
    for (folder, mut files) in files {
        files.retain(|file| !needed.contains(file));
        match files.len() > CROWD && may_be_emptied(&folder, needed) {
            true => walls.empty.push(folder),
            false => walls.blank.extend(files),
        }
    }
}

/// Whether a run does well without all that is in `folder`.
fn may_be_emptied(folder: &Path, needed: &[PathBuf]) -> bool {
    let holds_systems = SYSTEM.iter().any(|path| Path::new(path).starts_with(folder));
    !holds_systems && !is_systems(folder) && !needed.iter().any(|path| path.starts_with(folder))
}

fn is_systems(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// The path itself, its folder without links.
#[must_use]
pub fn at(path: &Path) -> PathBuf {
    match (path.parent().map(real), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// What a program is made of and stands in a folder that another one takes the place of for a run.
pub fn within(place: &Path, programs: &[&Path]) -> impl Iterator<Item = PathBuf> {
    let place = real(place);
    let paths = programs.iter().flat_map(|path| [at(path), real(path)]);
    let mut parts: Vec<PathBuf> =
        paths.filter(|path| *path != place && path.starts_with(&place) && path.exists()).collect();
    parts.sort();
    parts.dedup();
    parts.into_iter()
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_workers_folder_is_hidden_as_a_whole() {
        let environment = BTreeMap::new();
        let view = View {
            home: Path::new("/nowhere/ada"),
            relay_home: Path::new("/nowhere/ada/one"),
            environment: &environment,
            cwd: Path::new("/nowhere/ada/one/work/c"),
            own: &[],
            programs: &[],
            given: &[],
            replaced: &[],
            fixed: &[],
        };
        let mut walls = Walls { cwd: view.cwd.to_owned(), ..Walls::default() };
        let sockets = [
            "/nowhere/ada/two/work/c.door/s",
            "/nowhere/ada/two/relay.sock",
            "/nowhere/ada/one/work/c.door/s",
            "/nowhere/relay.sock",
        ];
        view.hide_sockets(&mut walls, sockets.map(PathBuf::from).into());
        assert_eq!(walls.empty, ["/nowhere/ada/two"].map(PathBuf::from));
        assert_eq!(
            walls.blank,
            [sockets[2], sockets[3]].map(PathBuf::from),
            "what is around a home is not hidden"
        );
    }

    #[test]
    fn a_login_that_is_linked_to_is_hidden_where_it_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let home = root.join("home");
        for folder in [
            "home/.codex",
            "home/dotfiles/x",
            "home/dotfiles/keys/old",
            "home/.claude",
            "home/.config/gh",
            "home/.ssh/more",
            "vault",
            "moved",
            "relay",
            "tools/bin",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (link, file) in [
            ("home/.codex/auth.json", "home/dotfiles/x/codex-auth.json"),
            ("moved/auth.json", "vault/grok.json"),
            ("home/.claude/.credentials.json", "home/claude.json"),
            ("home/.config/gh/hosts.yml", "home/dotfiles/hosts.yml"),
            ("home/.ssh/more/id", "elsewhere.pem"),
            ("home/.ssh/program", "tools/bin/program"),
            ("home/.ssh/relay", "relay/relay.db"),
        ] {
            fs::write(root.join(file), "{}").unwrap();
            std::os::unix::fs::symlink(root.join(file), root.join(link)).unwrap();
        }
        fs::write(root.join("vault/grok.json.relay-lock"), "").unwrap();
        for (link, folder) in [("keys", "home/dotfiles/keys"), ("up", ""), ("tools", "tools")] {
            std::os::unix::fs::symlink(root.join(folder), home.join(".ssh").join(link)).unwrap();
        }
        std::os::unix::fs::symlink("/usr/bin/env", home.join(".ssh/env")).unwrap();
        let environment = [("GROK_HOME".into(), root.join("moved").into())].into();
        let relay_home = root.join("relay");
        let program = root.join("tools/bin/program");
        let view = View {
            home: &home,
            relay_home: &relay_home,
            environment: &environment,
            cwd: &relay_home,
            own: &[],
            programs: &[&program],
            given: &[],
            replaced: &[],
            fixed: &[],
        };
        let walls = view.walls();
        for folder in ["home/dotfiles/x", "vault", "home/dotfiles/keys"] {
            assert!(walls.empty.contains(&root.join(folder)), "{folder}: {walls:?}");
        }
        for folder in ["home", "home/dotfiles", "", "tools", "tools/bin"] {
            assert!(!walls.empty.contains(&root.join(folder)), "{folder} is more than a login");
        }
        for file in ["/usr/bin/env".into(), program.clone()] {
            assert!(!walls.blank.contains(&file), "programs are made of {}", file.display());
        }
        for file in [
            "home/dotfiles/x/codex-auth.json",
            "home/claude.json",
            "vault/grok.json",
            "vault/grok.json.relay-lock",
            "home/dotfiles/hosts.yml",
            "elsewhere.pem",
        ] {
            assert!(walls.blank.contains(&root.join(file)), "{file}: {walls:?}");
        }
    }

    #[test]
    fn what_is_there_is_hidden_where_it_really_is() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let home = root.join("home");
        let relay_home = root.join("relay");
        let copy = relay_home.join("work/c");
        for folder in ["home/.ssh", "home/.gnupg", "elsewhere/aws", "bin", "relay/work/c", "tools"]
        {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("elsewhere/aws"), home.join(".aws")).unwrap();
        // A link that leads to the home itself must not hide the home.
        std::os::unix::fs::symlink(&home, home.join(".docker")).unwrap();
        fs::write(home.join(".netrc"), "x").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("tools/s")).unwrap();
        let environment = [("PATH", root.join("bin")), ("HISTFILE", root.join("nothing"))];
        let environment = environment.map(|(k, v)| (k.into(), v.into())).into();
        let (given, own) = ([root.join("tools")], [copy.clone()]);
        let view = View {
            home: &home,
            relay_home: &relay_home,
            environment: &environment,
            cwd: &copy,
            own: &own,
            programs: &[],
            given: &[],
            replaced: &[],
            fixed: &[],
        };
        let walls = view.walls();
        for folder in ["home/.ssh", "home/.gnupg", "elsewhere/aws", "relay"] {
            assert!(walls.empty.contains(&root.join(folder)), "{folder}: {walls:?}");
        }
        assert!(walls.empty.contains(&"/tmp".into()) && !walls.empty.contains(&home));
        assert!(walls.blank.contains(&home.join(".netrc")), "{walls:?}");
        assert!(walls.blank.contains(&root.join("tools/s")), "{walls:?}");
        assert_eq!(walls.writable, own);
        assert!(walls.shown.contains(&home) && walls.shown.contains(&root.join("bin")));

        let walls = View { given: &given, cwd: &home, ..view }.walls();
        assert!(walls.writable.contains(&given[0]) && !walls.writable.contains(&home));
        assert!(!walls.blank.contains(&root.join("tools/s")), "given with all that is in it");
        let walls = View { cwd: &root.join("bin"), ..view }.walls();
        assert!(walls.writable.contains(&root.join("bin")), "a folder of the operator's choice");
    }
}
