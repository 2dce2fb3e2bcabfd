//! What stands between a worker and its site: it costs patience, and no work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use relay::model::Clock as _;
use relay::system::SystemClock;
use rustix::process::Signal;

use crate::support::full::{full, skip};
use crate::support::house::Working;
use crate::support::proxy::Fate;
use crate::support::served::Served;

const LANE: &str = "process:edit";
/// What a person would see of trouble.
const TROUBLE: [&str; 4] = ["away", "warning", "error", "WARN"];

/// A site whose lane is done at once, and its repository.
fn site() -> (Served, String) {
    let served = Served::new();
    served.house.process_lane("edit", "echo x >> README.md", r#"{"reply":"Done."}"#);
    let slug = served.house.link();
    (served, slug)
}

/// A worker that waits for work.
fn worker(served: &Served, more: &[&str]) -> Working {
    let worker = served.work("a", &[&["--lanes", LANE], more].concat());
    worker.until("its readiness", || worker.said().contains("waiting for work"));
    worker
}

#[test]
fn a_repository_of_this_disk_that_was_not_linked_here_is_not_touched() {
    let (served, slug) = site();
    let home = served.home_of("a");
    std::fs::remove_file(home.join("linked.json")).unwrap();
    let before = served.house.git(&["-C", served.house.repo.to_str().unwrap(), "for-each-ref"]);
    let worker = worker(&served, &[]);
    let task = served.house.task(&slug, LANE, "Say more");
    worker.until("the refusal", || served.house.state(&task) == "failed");
    let detail = served.house.json(&["task", "get", &task, "--json"]);
    let error = detail["runs"][0]["error"].as_str().unwrap();
    assert!(error.contains("was not linked from this worker"), "{error}");
    assert!(error.contains(&format!("relay link {}", served.house.repo.display())), "{error}");
    let after = served.house.git(&["-C", served.house.repo.to_str().unwrap(), "for-each-ref"]);
    assert_eq!(after, before);
    // What the hint says helps.
    assert_eq!(served.relay("a", &["link", served.house.repo.to_str().unwrap()]).ok(), slug);
    served.house.relay(&["task", "retry", &task]).ok();
    worker.until("the end", || served.house.state(&task) == "review");
}

/// A task is made, and taken once.
fn done(served: &Served, slug: &str, worker: &Working) {
    let task = served.house.task(slug, LANE, "Say more");
    worker.until("the end of the task", || served.house.state(&task) == "review");
    let detail = served.house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["task"]["epoch"], 1, "it was taken twice: {detail:#}");
}

#[test]
fn a_site_without_the_bell_is_claimed_from_on_each_tick() {
    let (served, slug) = site();
    served.proxy.only("/doorbell", Fate::Page(404, None));
    let worker = worker(&served, &["--interval", "1"]);
    done(&served, &slug, &worker);
    done(&served, &slug, &worker);
    assert!(!worker.said().contains("away"), "{}", worker.said());
}

#[test]
fn a_claim_whose_answer_was_lost_or_replaced_gets_the_same_lease() {
    let (served, slug) = site();
    let claims = AtomicUsize::new(0);
    let fates = [Fate::LoseAnswer, Fate::Page(502, None), Fate::LoseAnswer, Fate::Page(302, None)];
    served.proxy.by(move |path| {
        let nth = || claims.fetch_add(1, Ordering::Relaxed);
        let fate = path.contains("/work/claim").then(|| fates.get(nth()).cloned()).flatten();
        fate.unwrap_or(Fate::Pass)
    });
    let task = served.house.task(&slug, LANE, "Say more");
    served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]).ok();
    let detail = served.house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["task"]["state"], "review");
    assert_eq!(detail["runs"].as_array().unwrap().len(), 1, "{detail:#}");
}

#[test]
fn a_site_that_asks_for_peace_gets_it_and_one_that_hangs_up_is_not_stormed() {
    let (served, slug) = site();
    let worker = worker(&served, &[]);
    for fate in [Fate::Page(503, Some(1)), Fate::Page(429, Some(1)), Fate::Closed] {
        served.proxy.all(fate.clone());
        served.proxy.cut();
        let (began, before) = (SystemClock.uptime(), served.proxy.count(""));
        worker.until("three tries", || served.proxy.count("") >= before + 3);
        let took = SystemClock.uptime() - began;
        if fate != Fate::Closed {
            assert!(took >= Duration::from_millis(1900), "{fate:?}: three tries in {took:?}");
        }
        served.proxy.all(Fate::Pass);
        done(&served, &slug, &worker);
    }
}

#[test]
fn a_worker_that_drains_once_says_that_the_site_is_away() {
    let (served, _) = site();
    served.proxy.only("/work/claim", Fate::Page(400, None));
    let mut command = served.command("a", &["work", "--once", "--name", "a", "--lanes", LANE]);
    command.env("RELAY_SITE", format!("{}/nothing/here", served.proxy.url()));
    let mut worker = served.spawn(command, "a");
    assert_eq!(worker.ended(), 3, "{}", worker.said());
    assert!(worker.said().contains("there is no route"), "{}", worker.said());
}

#[test]
fn full_proxies_that_cut_buffer_and_forget_cost_patience_alone() {
    if !full() {
        return skip("it waits for minutes");
    }
    let (served, slug) = site();
    let worker = worker(&served, &[]);
    // One cuts at twenty seconds, whatever is held; the bell is then held for less.
    served.proxy.all(Fate::CutAfter(Duration::from_secs(20)));
    served.proxy.cut();
    let bells = served.proxy.count("/doorbell");
    worker.until("four bells", || served.proxy.count("/doorbell") >= bells + 4);
    done(&served, &slug, &worker);
    // One collects answers, and gives up after twenty.
    served.proxy.all(Fate::Buffer(Duration::from_secs(20)));
    served.proxy.cut();
    let bells = served.proxy.count("/doorbell");
    worker.until("three bells", || served.proxy.count("/doorbell") >= bells + 3);
    done(&served, &slug, &worker);
    for trouble in TROUBLE {
        assert!(!worker.said().contains(trouble), "{trouble}: {}", worker.said());
    }
}

#[test]
fn full_connections_that_died_without_a_word_are_noticed() {
    if !full() {
        return skip("it waits for time-outs");
    }
    let (served, slug) = site();
    let worker = worker(&served, &["--max-interval", "5"]);
    served.proxy.drop_silently();
    done(&served, &slug, &worker);
}

#[test]
fn full_a_drain_ends_although_something_else_answers_in_the_sites_place() {
    if !full() {
        return skip("it takes minutes");
    }
    let (served, slug) = site();
    served.proxy.only("/pulls", Fate::Page(404, None));
    let mut worker = worker(&served, &[]);
    let task = served.house.task(&slug, LANE, "Say more");
    worker.until("the pull request", || served.proxy.count("/pulls") > 0);
    worker.until("the word", || {
        worker.said().contains("and not as a relay site does, for a minute now")
    });
    worker.signal(Signal::TERM);
    worker.until("the end of the job", || {
        worker.said().contains("something else answers in the site's place")
    });
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    assert_eq!(worker.said().matches("for a minute now").count(), 1, "{}", worker.said());
    // What was done is done: the next goes on from it.
    assert_eq!(served.house.state(&task), "queued");
    served.proxy.all(Fate::Pass);
    served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]).ok();
    assert_eq!(served.house.state(&task), "review");
}
