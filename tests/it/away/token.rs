//! A token that is revoked under a worker.

use crate::support::proxy::Fate;
use crate::support::served::Served;

const LANE: &str = "process:stay";

#[test]
fn a_revoked_token_stops_the_lane_and_ends_the_worker_with_a_hint() {
    let served = Served::new();
    let begun = served.house.dir.path().join("begun");
    served.house.process_lane("stay", &format!("touch {}; sleep 3000", begun.display()), "{}");
    let slug = served.house.link();
    served.house.task(&slug, LANE, "Stay");
    let mut worker = served.work("a", &["--lanes", LANE]);
    worker.until("the lane", || begun.exists());
    // The bell tells it, which is sooner than the next heartbeat.
    served.proxy.only("/heartbeat", Fate::Silent);
    served.house.relay(&["token", "revoke", "a"]).ok();
    worker.until("its end", || worker.said().contains("does not let the worker `a` work"));
    assert_eq!(worker.ended(), 6, "{}", worker.said());
    assert!(worker.said().contains("relay setup --site"), "{}", worker.said());
}

#[test]
fn a_result_that_a_revoked_token_could_not_hand_in_is_kept_for_the_next() {
    let served = Served::new();
    served.house.process_lane("stay", "echo x >> README.md", r#"{"reply":"Done."}"#);
    let slug = served.house.link();
    let task = served.house.task(&slug, LANE, "Say more");
    served.proxy.only("/release", Fate::Page(502, None));
    let mut worker = served.work("a", &["--lanes", LANE]);
    worker.until("the result", || served.proxy.count("/release") > 0);
    served.house.relay(&["token", "revoke", "a"]).ok();
    served.proxy.all(Fate::Pass);
    assert_eq!(worker.ended(), 6, "{}", worker.said());
    let results = served.home_of("a").join("results/worker-a");
    assert_eq!(std::fs::read_dir(&results).unwrap().count(), 1, "{}", worker.said());
    // Revoking ended the run; the next token's start says so and lets the result go, and what was
    // done is in the journal.
    std::fs::remove_file(served.home_of("a").join("token")).unwrap();
    let next = served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]);
    assert_eq!(next.code, 0, "{}", next.err);
    assert_eq!(std::fs::read_dir(&results).unwrap().count(), 0, "{}", next.err);
    println!("{}: {}", served.house.state(&task), next.err);
}
