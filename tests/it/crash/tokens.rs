//! Tokens and invites, whose process dies while they are made, revoked or traded in.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};

use super::scene::Scene;
use crate::support::house::Working;

const MAKE: [&str; 5] = ["token", "create", "--name", "t", "--scope"];

/// A token whose making was not answered is there or not, and never half: it can be revoked by its
/// name, and another can be made.
pub fn made(scene: &Scene, fault: &str) -> bool {
    let make = [&MAKE[..], &["feed:read"]].concat();
    let died = scene.dies(fault, &make);
    assert_eq!(names(scene, "t"), usize::from(fault.contains("after")), "{fault}");
    if fault.contains("after") {
        scene.house.relay(&["token", "revoke", "t"]).ok();
    }
    scene.house.relay(&make).ok();
    scene.assert_clean(fault);
    died
}

/// A token is revoked, or is not and can be.
pub fn revoked(scene: &Scene, fault: &str) -> bool {
    scene.house.relay(&[&MAKE[..], &["feed:read"]].concat()).ok();
    let revoke = ["token", "revoke", "t"];
    let died = scene.dies(fault, &revoke);
    let good = || {
        let all = scene.house.json(&["token", "ls", "--json"]);
        all["tokens"].as_array().unwrap().iter().any(|token| token["revoked_at"].is_null())
    };
    assert_eq!(good(), !fault.contains("after"), "{fault}");
    if good() {
        scene.house.relay(&revoke).ok();
    }
    assert!(!good(), "{fault}");
    scene.assert_clean(fault);
    died
}

/// An invite whose making was not answered is nobody's; another is good.
pub fn invited(scene: &Scene, fault: &str) -> bool {
    let died = scene.dies(fault, &["invite", "create", "--worker", "desk"]);
    let code = scene.house.relay(&["invite", "create", "--worker", "desk"]).ok();
    assert!(!code.trim().is_empty(), "{fault}");
    scene.assert_clean(fault);
    died
}

/// An invite is good for one token, whenever the site died that traded it.
pub fn redeemed(scene: &Scene, fault: &str) -> bool {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let addr = free.to_string();
    let url = format!("http://{addr}");
    let serve = |fault: Option<&str>| {
        let log = scene.house.dir.path().join("site.log");
        let file = File::create(&log).unwrap();
        let mut command = scene.house.command(&["serve", "--addr", &addr]);
        command.envs(fault.map(|fault| ("RELAY_FAULT", fault)));
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let site = Working { child, log };
        site.until("the site's address", || site.said().contains("http://"));
        site
    };
    let code = scene.house.relay(&["invite", "create", "--worker", "desk"]).ok();
    let desk = scene.house.dir.path().join("desk");
    let set_up = |code: &str| {
        let mut command = scene.house.command(&["setup", "--site", &url, "--invite", code.trim()]);
        command.args(["--name", "desk"]).env("RELAY_HOME", &desk).output().unwrap()
    };
    let mut site = serve(Some(fault));
    let lost = set_up(&code);
    let died = !lost.status.success();
    if died {
        assert_eq!(site.ended(), 128 + 9, "{fault}: {lost:?}");
        site = serve(None);
        let again = set_up(&code);
        assert_eq!(again.status.success(), !fault.contains("after"), "{fault}: {again:?}");
    }
    assert_eq!(names(scene, "desk"), 1, "{fault}");
    site.signal(rustix::process::Signal::TERM);
    site.ended();
    scene.assert_clean(fault);
    died
}

fn names(scene: &Scene, name: &str) -> usize {
    let all = scene.house.json(&["token", "ls", "--json"]);
    let tokens = all["tokens"].as_array().unwrap().clone();
    tokens.iter().filter(|t| t["name"] == name && t["revoked_at"].is_null()).count()
}
