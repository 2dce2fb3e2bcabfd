//! Two real `relay serve` on one database, and a worker that asks one of them.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::support::house::{House, Ran, Working};
use crate::support::postgres::Database;

const LANE: &str = "process:edit";

/// A site with a home of its own on the one machine.
struct Site {
    home: PathBuf,
    addr: String,
    running: Working,
}

impl Site {
    fn start(house: &House, url: &str, name: &str) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (home, addr) = (house.dir.path().join(name), free.to_string());
        with_lanes(house, &home);
        let mut command = serve(house, &home, url, &addr, "many");
        let log = house.dir.path().join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let running = Working { child, log };
        running.until("its address", || running.said().contains("http://"));
        Self { home, addr, running }
    }

    /// A command of this site's owner.
    fn relay(&self, house: &House, args: &[&str]) -> Ran {
        ran(house.command(args).env("RELAY_HOME", &self.home))
    }

    fn state(&self, house: &House, task: &str) -> String {
        self.relay(house, &["task", "get", task, "--json"]).out
    }
}

fn serve(house: &House, home: &Path, url: &str, addr: &str, sites: &str) -> Command {
    let mut command = house.command(&["serve", "--addr", addr, "--sites", sites]);
    command.env("RELAY_HOME", home).env("DATABASE_URL", url);
    command
}

/// A home that knows the machine's lanes.
fn with_lanes(house: &House, home: &Path) {
    std::fs::create_dir_all(home).unwrap();
    std::os::unix::fs::symlink(house.home.join("lanes"), home.join("lanes")).unwrap();
}

fn ran(command: &mut Command) -> Ran {
    let out = command.output().unwrap();
    Ran {
        code: out.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&out.stdout).into_owned(),
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

#[test]
fn pg_a_worker_of_one_site_does_what_was_asked_of_the_other_which_dies() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some(database) = runtime.block_on(Database::new()) else { return };
    let house = House::new();
    house.process_lane("edit", "echo x >> README.md", r#"{"reply":"Done."}"#);
    let mut a = Site::start(&house, &database.url, "a");
    let mut b = Site::start(&house, &database.url, "b");

    // One that tolerates no other is refused beside them, and says what to do.
    let third =
        ran(&mut serve(&house, &house.dir.path().join("c"), &database.url, "127.0.0.1:0", "one"));
    assert_eq!(third.code, 4, "{third:?}");
    assert!(third.err.contains("error: another relay is at work on the database"), "{third:?}");
    assert!(third.err.contains("`relay serve --sites many`"), "{third:?}");
    // So is one that has no server to share.
    let file = format!("sqlite://{}/c/relay.db", house.dir.path().display());
    let fourth = ran(&mut serve(&house, &house.dir.path().join("c"), &file, "127.0.0.1:0", "many"));
    assert_eq!(fourth.code, 2, "{fourth:?}");

    let repo = house.repo.to_str().unwrap();
    a.relay(&house, &["link", repo]).ok();
    // A token of one site, a worker of the other.
    let scopes = "work:claim,memory:read,feed:read";
    let made = ["token", "create", "--name", "w", "--scope", scopes, "--worker", "w"];
    let token = a.relay(&house, &made).ok();
    let home = house.dir.path().join("worker");
    with_lanes(&house, &home);
    std::fs::copy(a.home.join("linked.json"), home.join("linked.json")).unwrap();
    let mut command = house.command(&["work", "--name", "w", "--lanes", LANE]);
    command
        .env("RELAY_HOME", home)
        .env("RELAY_SITE", format!("http://{}", b.addr))
        .env("RELAY_TOKEN", token);
    let log = house.dir.path().join("worker.log");
    let file = File::create(&log).unwrap();
    let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let mut worker = Working { child, log };

    let create = ["task", "create", "--repo", "local/shop", "--lane", LANE, "--title", "Say more"];
    let first = a.relay(&house, &create).ok();
    worker.until("the first task", || a.state(&house, &first).contains("\"review\""));
    // The log is where the worker is.
    assert_eq!(b.relay(&house, &["task", "log", &first]).code, 0);
    let elsewhere = a.relay(&house, &["task", "log", &first]);
    assert_eq!(elsewhere.code, 3, "{elsewhere:?}");
    assert!(elsewhere.err.contains("RELAY_SITE=URL"), "{elsewhere:?}");

    a.running.signal(Signal::KILL);
    a.running.ended();
    let second = b.relay(&house, &create).ok();
    worker.until("the second task", || b.state(&house, &second).contains("\"review\""));
    worker.signal(Signal::TERM);
    worker.ended();
    b.running.signal(Signal::TERM);
    assert_eq!(b.running.ended(), 0, "{}", b.running.said());
}
