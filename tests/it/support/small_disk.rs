//! A home on a disk of its own, small, in a mount namespace that goes with the test.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and waits for their real end"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::full::{full, skip};
use super::house::House;

/// A house whose home is a `tmpfs`; unmounted with the value.
pub struct SmallDisk {
    pub house: House,
    holder: Child,
}

impl SmallDisk {
    /// Moves the home of `house` to a disk of `size` (`100m`). `None` where the full tier does not
    /// run, or this machine has no mount namespaces for us.
    pub fn under(mut house: House, size: &str) -> Option<Self> {
        if !full() {
            skip("a disk of its own needs RELAY_TEST_FULL=1");
            return None;
        }
        let root = rustix::process::geteuid().is_root();
        let own: &[&str] =
            if root { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
        let script = format!(
            r#"set -e
stage=$(mktemp -d)
cp -a "$1/." "$stage"
mount -t tmpfs -o size={size},mode=0700 none "$1"
cp -a "$stage/." "$1"
rm -rf "$stage"
echo ready
read -r _"#
        );
        let mut holder = Command::new("unshare")
            .args(own)
            .args(["sh", "-c", &script, "sh", house.home.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "no disk could be mounted");
        let pid = holder.id().to_string();
        let enter = ["nsenter", "--target", &pid, "--mount"];
        house.through = enter.iter().map(ToString::to_string).collect();
        if !root {
            house.through.extend(["--user".to_owned(), "--preserve-credentials".to_owned()]);
        }
        let seen = PathBuf::from(format!("/proc/{pid}/root"));
        house.seen_home = Some(seen.join(house.home.strip_prefix("/").unwrap()));
        Some(Self { house, holder })
    }

    /// Hands the house on; the disk stays, as long as this does.
    pub fn lend(&mut self) -> House {
        let house = std::mem::replace(&mut self.house, House::new());
        self.house.home = house.home.clone();
        self.house.through = house.through.clone();
        house
    }

    /// Runs a shell line beside relay, with the home as `$H`.
    pub fn shell(&self, line: &str) -> String {
        let through = &self.house.through;
        let out = Command::new(&through[0])
            .args(&through[1..])
            .args(["sh", "-c", line])
            .env("H", &self.house.home)
            .output()
            .unwrap();
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
    }

    /// Gives the disk another size. With its source named, mount does not repeat the options that
    /// stand, of which an ordinary user may not say the owner.
    pub fn resize(&self, size: &str) {
        self.shell(&format!("mount -o remount,size={size} none \"$H\""));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _gone_already = self.holder.stdin.take().map(|mut line| line.write_all(b"\n"));
        let _gone_already = self.holder.wait();
    }
}
