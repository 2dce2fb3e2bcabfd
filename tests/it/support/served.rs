//! A site that many machines share: the real `relay serve` in a home of its own, and workers with
//! homes of their own that reach it over TCP.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::house::{House, Ran, Working};
use super::proxy::Proxy;

/// A site, its machine, and the proxy that workers come through. The machine's own commands
/// (`house.relay`, `house.json`, …) reach the site by its socket, as its owner.
pub struct Served {
    /// The site's machine, with one repository.
    pub house: House,
    /// Between the site and its workers.
    pub proxy: Proxy,
    addr: String,
    database: Option<String>,
    site: Option<Working>,
    starts: u32,
}

impl Served {
    /// A running site on SQLite.
    pub fn new() -> Self {
        Self::on(None)
    }

    /// A running site on this database.
    pub fn on(database: Option<String>) -> Self {
        Self::of(House::new(), database)
    }

    /// A running site on a machine that was made before, for what the site's environment has to say.
    pub fn of(house: House, database: Option<String>) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let addr = free.to_string();
        let proxy = Proxy::of_url(&format!("http://{addr}"));
        let mut served = Self { house, proxy, addr, database, site: None, starts: 0 };
        served.start();
        served
    }

    /// Starts the site and waits until it answers.
    pub fn start(&mut self) {
        self.starts += 1;
        let log = self.house.dir.path().join(format!("site-{}.log", self.starts));
        let file = File::create(&log).unwrap();
        let mut command = self.house.command(&["serve", "--addr", &self.addr]);
        if let Some(database) = &self.database {
            command.env("DATABASE_URL", database);
        }
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let site = Working { child, log };
        site.until("the site's address", || site.said().contains("http://"));
        self.site = Some(site);
    }

    /// The database of its next start.
    pub fn keep_in(&mut self, database: Option<String>) {
        self.database = database;
    }

    /// The running site.
    pub fn site(&self) -> &Working {
        self.site.as_ref().expect("the site runs")
    }

    /// Where the site itself listens.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Kills the site at once.
    pub fn kill(&mut self) {
        let mut site = self.site.take().expect("the site runs");
        site.signal(Signal::KILL);
        site.ended();
    }

    /// Ends the site in peace; gives its exit code.
    pub fn end(&mut self) -> i32 {
        let mut site = self.site.take().expect("the site runs");
        site.signal(Signal::TERM);
        site.ended()
    }

    /// The home of the worker `name`, with the lanes of the site's machine.
    pub fn home_of(&self, name: &str) -> PathBuf {
        let home = self.house.dir.path().join(format!("worker-{name}"));
        if !home.exists() {
            fs::create_dir_all(&home).unwrap();
            // The same person's machine: the same lanes, and what was linked for one is for all.
            for shared in ["lanes", "linked.json"] {
                std::os::unix::fs::symlink(self.house.home.join(shared), home.join(shared))
                    .unwrap();
            }
        }
        home
    }

    /// The token of worker `name`, made where it has none. The site has to run for that.
    pub fn token(&self, name: &str) -> String {
        let path = self.home_of(name).join("token");
        if let Ok(token) = fs::read_to_string(&path) {
            return token;
        }
        let scopes = "work:claim,memory:read,feed:read";
        let made = ["token", "create", "--name", name, "--scope", scopes, "--worker", name];
        let token = self.house.relay(&made).ok();
        fs::write(path, &token).unwrap();
        token
    }

    /// relay on the machine of worker `name`, which comes through the proxy with its token.
    pub fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = self.house.command(args);
        command
            .env("RELAY_HOME", self.home_of(name))
            .env("RELAY_SITE", self.proxy.url())
            .env("RELAY_TOKEN", self.token(name));
        command
    }

    /// Runs relay on the machine of worker `name` and waits.
    pub fn relay(&self, name: &str, args: &[&str]) -> Ran {
        let out = self.command(name, args).output().unwrap();
        Ran {
            code: out.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&out.stdout).into_owned(),
            err: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// Starts the worker `name` in the background.
    pub fn work(&self, name: &str, args: &[&str]) -> Working {
        self.spawn(self.command(name, &[&["work", "--name", name], args].concat()), name)
    }

    /// Starts a command of worker `name` in the background.
    pub fn spawn(&self, mut command: Command, name: &str) -> Working {
        let id = relay::model::Ids::uuid(&relay::system::SystemIds);
        let log = self.house.dir.path().join(format!("{name}-{}.log", &id[id.len() - 8..]));
        let file = File::create(&log).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Working { child, log }
    }
}
