//! The cable between one worker and the site is pulled for longer than a lease: real processes in
//! network namespaces of their own, and a real connection that falls silent. Another worker takes the
//! task, and nothing of the first one lands.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and has settings of its own"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use relay::model::LEASE;
use relay::site::owner::{Access, Role, connect};
use relay::site::serve::Listen;
use rustix::process::Signal;

use crate::site::fixture::config;
use crate::support::clock::ManualClock;
use crate::support::house::{House, Working, only_has, processes_with};
use crate::support::network::Network;
use crate::support::processes::tool;
use crate::zombie::stage::{LANE, assert_second_finished};

const DONE: &str = r#"{"reply":"Added a line."}"#;
const PORT: u16 = 7410;
/// Names the home of the site to the process that is one.
const HOME: &str = "RELAY_TEST_SITE_HOME";

/// A site, and a worker at each of two cables.
struct Stand {
    house: House,
    site: Site,
    task: String,
    begun: PathBuf,
    go: PathBuf,
    pushed: PathBuf,
    network: Network,
}

impl Stand {
    /// The lane of the first claim waits for a word; that of the second does not.
    fn open() -> Option<Self> {
        let network = Network::of(2)?;
        let mut house = House::new();
        let place = |name: &str| house.dir.path().join(name);
        let (begun, go, pushed) = (place("begun"), place("go"), place("pushed"));
        let body = format!(
            "case \"$line\" in *'\"attempt\":1,'*|*'\"attempt\":1}}'*) echo $$ >> {}; \
             while [ ! -e {} ]; do sleep 0.02; done; echo first >> README.md;; \
             *) echo second >> README.md;; esac",
            begun.display(),
            go.display()
        );
        house.process_lane("edit", &body, DONE);
        let site = Site::start(&network, &house.dir.path().join("site"));
        house.set("RELAY_SITE", &format!("unix:{}", site.home.join("home/relay.sock").display()));
        let slug = house.link();
        let task = house.task(&slug, LANE, "Say more");
        Some(Self { house, site, task, begun, go, pushed, network })
    }

    fn worker(&self, n: usize, name: &str) -> Working {
        let scopes = "work:claim,memory:read,feed:read";
        let made = ["token", "create", "--name", name, "--scope", scopes, "--worker", name];
        let token = self.house.relay(&made).ok();
        let home = self.home_of(name);
        fs::create_dir_all(&home).unwrap();
        std::os::unix::fs::symlink(self.house.home.join("lanes"), home.join("lanes")).unwrap();
        std::os::unix::fs::symlink(self.house.home.join("linked.json"), home.join("linked.json"))
            .unwrap();
        let mut work = self.house.command(&["work", "--name", name, "--lanes", LANE]);
        work.env("RELAY_HOME", home)
            .env("RELAY_SITE", format!("http://{}:{PORT}", Network::address(n)))
            .env("RELAY_PLAIN_HTTP", "1")
            .env("RELAY_TOKEN", token)
            .env("RELAY_DEBUG", "1");
        let log = self.house.dir.path().join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let mut work = self.network.at(n, &work);
        let child = work.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Working { child, log }
    }

    fn home_of(&self, name: &str) -> PathBuf {
        self.house.dir.path().join(format!("worker-{name}"))
    }

    fn kept(&self, name: &str) -> usize {
        let folder = self.home_of(name).join(format!("results/worker-{name}"));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|e| e.path().extension().is_some_and(|e| e == "json")).count()
    }

    /// The lease of the first runs out unheard, and the second worker does the task.
    fn another_finishes(&mut self) -> Working {
        self.site.pass_the_lease();
        let second = self.worker(2, "two");
        second.until("the second result", || self.house.state(&self.task) == "review");
        second
    }

    /// The first worker's git pushes when it is told to. Gives where it says that it waits, and then
    /// the exit code of git.
    fn hold_the_push(&self) -> PathBuf {
        let pushes = self.house.dir.path().join("pushes");
        let script = format!(
            "#!/bin/sh\ncase \"$PWD $*\" in\n*worker-one*' push '*)\n\
             echo waits >> {said}; while [ ! -e {go} ]; do sleep 0.02; done\n\
             {git} \"$@\"; code=$?; echo $code >> {said}; exit $code;;\nesac\nexec {git} \"$@\"\n",
            said = pushes.display(),
            go = self.pushed.display(),
            git = tool("git").unwrap().display(),
        );
        self.house.program("git", &script);
        pushes
    }

    fn shown(&self) -> (String, String) {
        let branch = "relay/process-edit-1";
        let tip = self.house.in_repo(&["rev-parse", branch]);
        (tip, self.house.in_repo(&["show", &format!("{branch}:README.md")]))
    }

    /// What the second did stands as it did, each thing happened once, and when both workers have
    /// ended there is no process but the site's.
    fn ends(self, landed: &(String, String), [mut one, mut two]: [Working; 2]) {
        one.until("an empty outbox", || self.kept("one") == 0);
        one.until("its copy's end", || only_has(&self.home_of("one").join("work"), &[]).is_empty());
        assert_eq!(&self.shown(), landed, "{}", one.said());
        assert_eq!(landed.1, "# shop\nsecond");
        assert_second_finished(&self.house, &self.task);
        let said = self.house.json(&["events", "--task", &self.task, "--last", "100", "--json"]);
        let kinds: Vec<&str> =
            said["events"].as_array().unwrap().iter().filter_map(|e| e["kind"].as_str()).collect();
        for kind in ["lease.expired", "run.finished"] {
            assert_eq!(kinds.iter().filter(|k| **k == kind).count(), 1, "{kinds:?}");
        }
        for worker in [&mut one, &mut two] {
            worker.signal(Signal::TERM);
            assert_eq!(worker.ended(), 0, "{}", worker.said());
        }
        let lanes = format!("{}/bin", self.house.dir.path().display());
        assert_eq!(processes_with(&lanes), Vec::<String>::new(), "{}", one.said());
        self.site.end();
    }
}

#[test]
fn full_a_lane_that_ends_while_the_cable_is_out_lands_nothing() {
    let Some(mut stand) = Stand::open() else { return };
    let one = stand.worker(1, "one");
    one.until("the first lane", || stand.begun.exists());
    stand.network.pull(1);
    let two = stand.another_finishes();
    let landed = stand.shown();

    fs::write(&stand.go, "").unwrap();
    one.until("what is kept", || stand.kept("one") == 1);
    assert_eq!(stand.shown(), landed);
    // The held bell was given up by the system, long before a time-out of this program.
    one.until("the bell's silence", || one.said().contains("the bell cannot be asked"));
    assert!(!one.said().contains(" within 330 s"), "{}", one.said());
    stand.network.plug(1);
    one.until("the first one's end", || one.said().contains("lease_lost"));
    assert_eq!(fs::read_to_string(&stand.begun).unwrap().lines().count(), 1);
    stand.ends(&landed, [one, two]);
}

/// The first worker knows nothing of the second: what refuses it is the fence.
#[test]
fn full_a_push_while_the_cable_is_out_is_refused_by_the_fence() {
    let Some(mut stand) = Stand::open() else { return };
    fs::write(&stand.go, "").unwrap();
    let pushes = stand.hold_the_push();
    let said = |what: &str| fs::read_to_string(&pushes).is_ok_and(|said| said == what);
    let one = stand.worker(1, "one");
    one.until("its push", || said("waits\n"));
    stand.network.pull(1);
    let two = stand.another_finishes();
    let landed = stand.shown();

    fs::write(&stand.pushed, "").unwrap();
    one.until("git's refusal", || said("waits\n1\n"));
    assert_eq!(stand.shown(), landed);
    stand.network.plug(1);
    one.until("the first one's end", || one.said().contains("lease_lost"));
    stand.ends(&landed, [one, two]);
}

/// A site in a process and a namespace of its own, whose clock the test moves.
struct Site {
    home: PathBuf,
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Site {
    /// This program once more: the real one has no clock that could be moved.
    fn start(network: &Network, home: &Path) -> Self {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "full_cut::full_the_site_itself", "--nocapture"]).env(HOME, home);
        let mut command = network.at_the_site(&program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut site = Self { home: home.to_owned(), child, said };
        site.until("it is up");
        site
    }

    /// Every lease that is live now and not renewed runs out, while the site is there.
    fn pass_the_lease(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"a lease\n").unwrap();
        self.until("it is over");
    }

    fn until(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim_end() != word {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the site ended before {word}");
        }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

/// No test by itself: what [`Site::start`] starts.
#[tokio::test(flavor = "multi_thread")]
async fn full_the_site_itself() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let clock = ManualClock::default();
    let mut config = config(Path::new(&home), Role::Serve, Arc::new(clock.clone()));
    config.listen = Some(Listen::on(([0, 0, 0, 0], PORT).into()));
    let owner = match connect(config).await.unwrap() {
        Access::Own(owner) => owner,
        Access::Living(other) => panic!("somebody else owns the new home: {other:?}"),
    };
    println!("it is up");
    let next = || tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
    while let Some(Ok(_)) = next().await.unwrap() {
        for _ in 0..=LEASE.as_secs() / 60 {
            clock.advance(Duration::from_secs(60));
            owner.site().timers.sweep_if_due().await.unwrap();
        }
        println!("it is over");
    }
    owner.close().await;
}
