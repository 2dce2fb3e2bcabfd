//! The walls of a run as a profile for macOS's `sandbox-exec`: text, held by tests of the text. No
//! Mac has run it, so nothing uses it yet (docs/SECURITY.md).
//!
//! Seatbelt cannot nest: claude and codex bring one of their own, so that this is for lanes that
//! bring none. It puts nothing in the place of another, so what is empty or blank elsewhere is
//! refused here, and [`Walls::replaced`](super::Walls) and `fixed` have no meaning. The last rule that fits wins.

use std::ffi::OsStr;
use std::path::Path;

use super::walls::{Kind, Network, Walls};

/// The profile of a run behind `walls`, its temporary files in `temporary`. Where a run has a door,
/// relay's proxy listens on `door`, a port of this machine's own loopback: there is no other one.
///
/// # Errors
/// The path that cannot be said in a profile: one that is not UTF-8 or has a quote or a line end.
pub fn seatbelt_profile<'a>(
    walls: &'a Walls,
    temporary: &'a Path,
    door: u16,
) -> Result<String, &'a OsStr> {
    let mut text = String::from(
        "(version 1)\n\
         (allow default)\n\
         ; what is started cannot be looked into, ended or debugged from inside, unless it is its own\n\
         (deny process-info* (target others))\n\
         (deny signal (target others))\n\
         ; the disk is read-only\n\
         (deny file-write*)\n\
         (allow file-write* (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/tty\"))\n",
    );
    for (path, kind) in walls.mounts() {
        let said = said(path)?;
        text.push_str(&match kind {
            Kind::Shown => format!("(allow file-read* (subpath \"{said}\"))\n"),
            Kind::Blank => format!("(deny file* network-outbound (literal \"{said}\"))\n"),
            Kind::Empty => format!("(deny file* (subpath \"{said}\"))\n"),
            Kind::Writable | Kind::Replaced(_) => format!("(allow file* (subpath \"{said}\"))\n"),
            Kind::Fixed(_) => format!("(allow file-read* (subpath \"{said}\"))\n"),
            Kind::Held => continue,
        });
    }
    text.push_str(&format!("(allow file* (subpath \"{}\"))\n", said(temporary)?));
    match &walls.network {
        Network::Shared => {}
        Network::Apart => text.push_str("(deny network*)\n"),
        Network::Door { .. } => text.push_str(&format!(
            "; this machine's loopback is the only one: what listens on it can be reached at the door\n\
             ; alone, and what the run listens on by nobody outside\n\
             (deny network*)\n\
             (allow network-bind network-inbound (local ip \"localhost:*\"))\n\
             (allow network-outbound (remote ip \"localhost:{door}\"))\n"
        )),
    }
    Ok(text)
}

fn said(path: &Path) -> Result<&str, &OsStr> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\\', '\n', '\r', '\0']));
    text.ok_or(path.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    fn usual() -> Walls {
        Walls {
            empty: paths(&["/private/tmp", "/Users/ada/.ssh", "/Users/ada/.harness"]),
            blank: paths(&["/Users/ada/.netrc", "/var/run/docker.sock"]),
            shown: paths(&["/Users/ada", "/Users/ada/.harness/bin/tidy"]),
            writable: paths(&["/Users/ada/.harness/work/c"]),
            replaced: vec![(
                "/Users/ada/.npm".into(),
                "/Users/ada/.harness/work/c.stores/0".into(),
            )],
            fixed: Vec::new(),
            network: Network::Door { through: vec!["relay".into()], low_ports: false },
            cwd: "/Users/ada/.harness/work/c".into(),
        }
    }

    #[test]
    fn a_usual_run() {
        let walls = usual();
        let text = seatbelt_profile(&walls, Path::new("/Users/ada/.harness/work/c.tmp"), 18_123);
        let expected = r#"(version 1)
(allow default)
; what is started cannot be looked into, ended or debugged from inside, unless it is its own
(deny process-info* (target others))
(deny signal (target others))
; the disk is read-only
(deny file-write*)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty"))
(deny file* (subpath "/Users/ada/.harness"))
(allow file-read* (subpath "/Users/ada/.harness/bin/tidy"))
(allow file* (subpath "/Users/ada/.harness/work/c"))
(deny file* network-outbound (literal "/Users/ada/.netrc"))
(allow file* (subpath "/Users/ada/.npm"))
(deny file* (subpath "/Users/ada/.ssh"))
(deny file* (subpath "/private/tmp"))
(deny file* network-outbound (literal "/var/run/docker.sock"))
(allow file* (subpath "/Users/ada/.harness/work/c.tmp"))
; this machine's loopback is the only one: what listens on it can be reached at the door
; alone, and what the run listens on by nobody outside
(deny network*)
(allow network-bind network-inbound (local ip "localhost:*"))
(allow network-outbound (remote ip "localhost:18123"))
"#;
        assert_eq!(text.unwrap(), expected);
    }

    #[test]
    fn a_path_cannot_end_its_rule() {
        let walls = Walls { writable: paths(&["/tmp/\")) (allow file*"]), ..Walls::default() };
        let refused = seatbelt_profile(&walls, Path::new("/tmp/t"), 1).unwrap_err();
        assert_eq!(refused, OsStr::new("/tmp/\")) (allow file*"));
    }

    #[test]
    fn no_network_is_none_and_all_is_said_nothing_of() {
        let mut walls = Walls { network: Network::Apart, ..usual() };
        let of = |walls: &Walls| seatbelt_profile(walls, Path::new("/t"), 1).unwrap();
        assert!(of(&walls).ends_with("(deny network*)\n"));
        walls.network = Network::Shared;
        assert!(!of(&walls).contains("(deny network"));
    }
}
