//! A run's log through a site that goes and comes: whole for whoever follows it.

use std::fs::File;
use std::path::PathBuf;

#[cfg(target_os = "linux")]
use crate::support::house::House;
use crate::support::house::Working;
use crate::support::proxy::Fate;
use crate::support::served::Served;
#[cfg(target_os = "linux")]
use crate::support::small_disk::SmallDisk;

/// A site with one task of a vendor's lane that says numbered lines whenever it is told to go on.
struct Stand {
    served: Served,
    task: String,
    words: PathBuf,
}

const SECRET: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";

impl Stand {
    fn new() -> Self {
        Self::of(Served::new())
    }

    fn of(mut served: Served) -> Self {
        served.house.set("RELAY_GITHUB_TOKEN", SECRET);
        let words = served.house.dir.path().join("words");
        let said =
            r#"{"type":"assistant","message":{"content":[{"type":"text","text":"word %d"}]}}"#;
        let done = r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":1}"#;
        served.house.claude(
            &format!(
                "n=0; while [ $n -lt 3000 ]; do\n\
                 while [ ! -e {words} ] || [ $n -ge \"$(cat {words})\" ]; do sleep 0.02; done\n\
                 m=$(cat {words}); seq -f '{said}' $((n + 1)) $m; n=$m\ndone\n\
                 echo x >> README.md; echo '{done}'",
                words = words.display(),
                said = said.replace("%d", &format!("%.0f with {SECRET}")),
            ),
            0,
        );
        let slug = served.house.link();
        let task = served.house.task(&slug, "claude", "Say more");
        Self { served, task, words }
    }

    fn worker(&self) -> Working {
        self.served.work("a", &["--lanes", "claude", "--no-sandbox"])
    }

    /// The lane goes on until it has said so many words.
    fn say(&self, words: u32) {
        let fresh = self.words.with_extension("new");
        std::fs::write(&fresh, words.to_string()).unwrap();
        std::fs::rename(fresh, &self.words).unwrap();
    }

    fn log(&self) -> String {
        self.served.house.relay(&["task", "log", &self.task]).ok()
    }

    fn follower(&self) -> Working {
        let command = self.served.command("reader", &["task", "log", &self.task, "--follow"]);
        self.served.spawn(command, "reader")
    }
}

/// The numbers of the words in a log.
fn words(log: &str) -> Vec<u32> {
    let number = |line: &str| line.strip_prefix("word ")?.split(' ').next()?.parse().ok();
    log.lines().filter_map(number).collect()
}

#[test]
fn what_a_lane_says_while_the_site_is_away_is_in_its_log_afterwards() {
    let mut stand = Stand::new();
    let worker = stand.worker();
    stand.say(10);
    worker.until("the first words", || words(&stand.log()).len() == 10);
    stand.served.kill();
    stand.say(2000);
    worker.until("the word", || worker.said().contains("the site is away since"));
    stand.served.start();
    stand.say(3000);
    worker.until("the end", || stand.served.house.state(&stand.task) == "review");
    assert_eq!(words(&stand.log()), (1..=3000).collect::<Vec<_>>());
    assert!(!stand.log().contains("ghp_"), "a secret left the worker");
}

/// The worker keeps what the site has no room for, and whoever follows waits for it.
#[cfg(target_os = "linux")]
#[test]
fn full_a_log_is_followed_through_a_disk_of_the_site_that_is_full() {
    let Some(mut disk) = SmallDisk::under(House::new(), "100m") else { return };
    let stand = Stand::of(Served::of(disk.lend(), None));
    let worker = stand.worker();
    let mut reader = stand.follower();
    stand.say(500);
    reader.until("the first words", || words(&reader.said()).len() == 500);
    disk.shell("head -c 400m /dev/zero > \"$H/ballast\" 2>/dev/null || true");
    let before = stand.served.proxy.count("/log");
    stand.say(2500);
    worker.until("tries to hand it in", || stand.served.proxy.count("/log") > before + 3);
    worker.until("the word", || worker.said().contains("No space left on device"));
    assert!(words(&reader.said()).len() < 2500);
    disk.shell("rm \"$H/ballast\"");
    stand.say(3000);
    worker.until("the end", || stand.served.house.state(&stand.task) == "review");
    assert_eq!(reader.ended(), 0, "{}", reader.said());
    assert_eq!(words(&reader.said()), (1..=3000).collect::<Vec<_>>());
    assert_eq!(words(&stand.log()), (1..=3000).collect::<Vec<_>>());
    assert!(worker.said().contains("the site is back after"), "{}", worker.said());
}

#[test]
fn several_readers_follow_through_cuts_and_a_restart_of_the_site() {
    let mut stand = Stand::new();
    let worker = stand.worker();
    let mut readers = vec![stand.follower(), stand.follower()];
    // One does not read what it is given.
    let log = stand.served.house.dir.path().join("slow.log");
    let mut command = stand.served.command("slow", &["task", "log", &stand.task, "--follow"]);
    command.stdout(std::process::Stdio::piped()).stderr(File::create(&log).unwrap());
    let slow = command.spawn().unwrap();
    let slow = Working { child: slow, log };
    stand.say(1000);
    readers[0].until("words", || words(&readers[0].said()).len() == 1000);
    stand.served.proxy.only("/log", Fate::Closed);
    stand.served.proxy.cut();
    readers.push(stand.follower());
    stand.served.proxy.all(Fate::Pass);
    stand.say(1500);
    readers[1].until("words", || words(&readers[1].said()).len() == 1500);
    assert_eq!(stand.served.end(), 0, "{}", worker.said());
    stand.say(2500);
    stand.served.start();
    stand.say(3000);
    worker.until("the end", || stand.served.house.state(&stand.task) == "review");
    for reader in &mut readers {
        assert_eq!(reader.ended(), 0, "{}", reader.said());
        assert_eq!(words(&reader.said()), (1..=3000).collect::<Vec<_>>());
    }
    drop(slow);
}
