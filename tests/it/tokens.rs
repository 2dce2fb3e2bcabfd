//! The real program: a site on a port of this machine, and what is shown to it.

use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::support::house::{House, Ran, Working};

/// A site in the background.
pub struct Site {
    pub working: Working,
    pub url: String,
    /// What a first start prints.
    pub token: Option<String>,
}

impl Site {
    /// Starts `relay serve` and waits until it says where.
    pub fn start(house: &House) -> Self {
        let log = house.dir.path().join("serve.out");
        let mut command = house.command(&["serve", "--addr", "127.0.0.1:0"]);
        let file = std::fs::File::create(&log).unwrap();
        let errors = std::fs::File::create(house.dir.path().join("serve.err")).unwrap();
        let child: Child = command
            .env("RELAY_DEBUG", "1")
            .stdout(Stdio::from(file))
            .stderr(Stdio::from(errors))
            .spawn()
            .unwrap();
        let working = Working { child, log };
        working.until("its address", || working.said().contains("relay serve: http"));
        let said = working.said();
        let after = |mark: &str| {
            let rest = said.split_once(mark)?.1;
            Some(rest.split_whitespace().next()?.to_owned())
        };
        Self { url: after("relay serve: ").unwrap(), token: after("told this once: "), working }
    }

    /// Runs relay against this site with that token, from a home that knows nothing.
    pub fn relay(&self, house: &House, token: &str, args: &[&str]) -> Ran {
        let out = house
            .command(args)
            .env("RELAY_HOME", house.dir.path().join("elsewhere"))
            .env("RELAY_SITE", &self.url)
            .env("RELAY_TOKEN", token)
            .output()
            .unwrap();
        Ran {
            code: out.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&out.stdout).into_owned(),
            err: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// Stops it in peace.
    pub fn stop(mut self) {
        self.working.signal(Signal::TERM);
        assert_eq!(self.working.ended(), 0, "{}", self.working.said());
    }
}

#[test]
fn the_first_start_prints_one_admin_token_once_and_in_no_log() {
    let house = House::new();
    let site = Site::start(&house);
    let token = site.token.clone().expect("a first start tells a token");
    let listed = site.relay(&house, &token, &["token", "ls", "--json"]).ok();
    assert!(listed.contains("\"admin\"") && !listed.contains(&token), "{listed}");
    let errors = std::fs::read_to_string(house.dir.path().join("serve.err")).unwrap();
    assert!(!errors.contains(&token), "{errors}");
    site.stop();
    let again = Site::start(&house);
    assert_eq!(again.token, None);
    assert!(again.relay(&house, &token, &["token", "ls"]).ok().contains("first"));
    // Lost: whoever runs the site makes another, over its socket.
    let new = house.relay(&["token", "create", "--name", "new", "--scope", "admin"]).ok();
    again.relay(&house, &new, &["token", "revoke", "first"]).ok();
    let refused = again.relay(&house, &token, &["token", "ls"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.err.contains("hint: "), "{}", refused.err);
    again.stop();
    let third = Site::start(&house);
    assert_eq!(third.token, None, "a revoked one was one");
    third.stop();
}

#[test]
fn a_database_of_no_known_kind_is_refused_and_status_names_who_keeps_the_home() {
    let house = House::new();
    let refused = house.relay(&["serve", "--database", "mysql://x"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("only sqlite:///PATH or postgres://…"), "{refused:?}");
    let site = Site::start(&house);
    let pid = site.working.child.id();
    let status = house.relay(&["work", "status"]).ok();
    assert!(status.contains(&format!("`relay serve` runs, pid {pid}")), "{status}");
    site.stop();
}

#[test]
fn a_new_token_is_alone_on_stdout() {
    let house = House::new();
    let create = ["token", "create", "--name", "desk", "--scope", "work:claim,feed:read"];
    let refused = house.relay(&create);
    assert!(refused.code == 2 && refused.err.contains("--worker NAME"), "{refused:?}");
    let ran = house.relay(&[&create[..], &["--worker", "desk"]].concat());
    assert!(ran.err.contains("told once"), "{}", ran.err);
    let token = ran.ok();
    assert!(token.starts_with("relay_") && token.len() == 49, "{token}");
    let listed = house.json(&["token", "ls", "--json"]);
    assert_eq!(listed["tokens"][0]["worker"], "desk");
    assert_eq!(house.relay(&["token", "revoke", "desk"]).ok(), "desk is revoked");
    assert_eq!(house.relay(&["token", "revoke", "desk"]).code, 3);
    let scope = house.relay(&["token", "create", "--name", "x", "--scope", "work"]);
    assert!(scope.code == 2 && scope.err.contains("is no scope"), "{scope:?}");
}
