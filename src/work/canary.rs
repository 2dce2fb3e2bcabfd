//! The walls, tried from inside: a file and a socket are put where no lane may reach, and a
//! program in the box looks for them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use relay_sandbox::{Confinement, wall_in};

use super::boxing::LIMITS;
use super::walls::View;
use crate::process::{Program, run};

/// What a program in the box could do that no lane may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hole {
    /// Read a file of relay's.
    File,
    /// See a socket of this machine's.
    Socket,
    /// Write in the home.
    Home,
    /// See the processes outside.
    Processes,
    /// Be in the network outside.
    Network,
}

impl Hole {
    /// As a person reads it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::File => "reads relay's folder",
            Self::Socket => "reaches sockets of this machine",
            Self::Home => "writes in your home",
            Self::Processes => "sees your processes",
            Self::Network => "is in this machine's network",
        }
    }
}

/// Says each thing that it can do by its word.
const LOOK: &str = r#"
(: >"$1/made") 2>/dev/null && echo copy
[ -e "$2" ] && echo file
[ -e "$3" ] && echo socket
(: >"$4") 2>/dev/null && echo home
[ "$(readlink /proc/self/ns/pid)" = "$5" ] && echo processes
[ "$(readlink /proc/self/ns/net)" = "$6" ] && echo network
exit 0
"#;

/// Puts the canaries out, looks for them from behind the walls that `view` gives a lane, and
/// takes them in again. `view`'s own folders and working folder are not used.
///
/// # Errors
/// What kept it from being tried, in words.
pub async fn holes(confinement: &Confinement, view: &View<'_>) -> Result<Vec<Hole>, String> {
    let canaries = Canaries::put_out(view).map_err(|error| error.to_string())?;
    let own = [canaries.copy.clone()];
    let walls = View { cwd: &canaries.copy, own: &own, ..*view }.walls();
    let namespace = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
    let (outside, network) = (namespace("pid"), namespace("net"));
    let mut args: Vec<OsString> = ["-c", LOOK, "look"].map(OsString::from).into();
    let places = [&canaries.copy, &canaries.file, &canaries.socket, &canaries.in_home];
    args.extend(places.into_iter().chain([&outside, &network]).map(OsString::from));
    let (path, args) = wall_in(confinement, &walls, Path::new("/bin/sh"), &args);
    let env = view.environment.get(std::ffi::OsStr::new("PATH")).cloned();
    let env = env.map(|path| ("PATH".into(), path)).into_iter().collect();
    let program = Program { path, args, env, cwd: "/".into(), stdin: Vec::new() };
    let output = run(&program, &LIMITS).await.map_err(|error| error.to_string())?;
    read(&String::from_utf8_lossy(&output.stdout), &String::from_utf8_lossy(&output.stderr))
}

fn read(said: &str, complaint: &str) -> Result<Vec<Hole>, String> {
    if !said.lines().any(|word| word == "copy") {
        let why = complaint.lines().next_back().unwrap_or("it could not write its own copy");
        return Err(why.to_owned());
    }
    let hole = |word| match word {
        "file" => Some(Hole::File),
        "socket" => Some(Hole::Socket),
        "home" => Some(Hole::Home),
        "processes" => Some(Hole::Processes),
        "network" => Some(Hole::Network),
        _ => None,
    };
    Ok(said.lines().filter_map(hole).collect())
}

/// What stands outside while the box is tried.
struct Canaries {
    folder: PathBuf,
    copy: PathBuf,
    file: PathBuf,
    socket: PathBuf,
    in_home: PathBuf,
    _listener: UnixListener,
}

impl Canaries {
    fn put_out(view: &View<'_>) -> io::Result<Self> {
        let name = format!("relay-canary-{}", std::process::id());
        let folder = view.relay_home.join(&name);
        let (copy, file) = (folder.join("copy"), folder.join("file"));
        // Relay's folder may be too long a path for a socket.
        let socket = Path::new("/tmp").join(&name);
        let in_home = view.home.join(format!(".{name}"));
        fs::create_dir_all(&copy)?;
        fs::write(&file, "canary")?;
        let _left_by_an_earlier_one = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        Ok(Self { folder, copy, file, socket, in_home, _listener: listener })
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        let _never_made = fs::remove_file(&self.in_home);
        let _gone_already = fs::remove_file(&self.socket);
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(path = %self.folder.display(), %error, "a canary stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_no_proof() {
        assert_eq!(read("copy\n", ""), Ok(Vec::new()));
        assert_eq!(read("copy\nfile\nhome\n", ""), Ok(vec![Hole::File, Hole::Home]));
        assert_eq!(read("copy\nsocket\nprocesses\n", ""), Ok(vec![Hole::Socket, Hole::Processes]));
        assert_eq!(read("", "bwrap: not permitted\n"), Err("bwrap: not permitted".to_owned()));
        assert!(read("file\n", "").is_err());
    }

    #[tokio::test]
    async fn without_walls_every_hole_is_found_and_nothing_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (home, relay_home) = (root.join("home"), root.join("relay"));
        fs::create_dir_all(&home).unwrap();
        let environment = [("PATH".into(), "/usr/bin:/bin".into())].into();
        let view = View {
            home: &home,
            relay_home: &relay_home,
            environment: &environment,
            cwd: &home,
            own: &[],
            programs: &[],
            given: &[],
            replaced: &[],
            fixed: &[],
        };
        let found = holes(&Confinement::Bare { setpriv: None }, &view).await.unwrap();
        let mut all = vec![Hole::File, Hole::Socket, Hole::Home];
        if cfg!(target_os = "linux") {
            all.extend([Hole::Processes, Hole::Network]);
        }
        assert_eq!(found, all);
        for folder in [&home, &relay_home] {
            assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "{}", folder.display());
        }
    }
}
