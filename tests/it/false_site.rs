//! A site that lies: what it gives to the real worker is changed on the way. Whatever it says, a
//! branch that is not the task's own, or that holds a person's commits, stays as it is.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::house::Ran;
use crate::support::served::Served;

const LANE: &str = "process:edit";

/// A site with one task in a bare repository that has `main` and `alices-work`.
struct Stand {
    served: Served,
    task: String,
    bare: PathBuf,
}

impl Stand {
    fn new() -> Self {
        let served = Served::new();
        let house = &served.house;
        house.process_lane("edit", "echo change >> README.md", r#"{"reply":"Done."}"#);
        let bare = house.dir.path().join("bare.git");
        house.git(&["clone", "-q", "--bare", house.repo.to_str().unwrap(), bare.to_str().unwrap()]);
        let slug = house.relay(&["link", bare.to_str().unwrap()]).ok();
        let task = house.task(&slug, LANE, "Say more");
        let stand = Self { served, task, bare };
        stand.alice_pushes("alices-work");
        stand
    }

    /// A person's commit on that branch; gives its id.
    fn alice_pushes(&self, branch: &str) -> String {
        let house = &self.served.house;
        let alice = ["-c", "user.name=alice", "-c", "user.email=a@localhost"];
        let commit = ["commit", "-q", "--allow-empty", "-m", "weeks of work"];
        house.in_repo(&[&alice[..], &commit[..]].concat());
        let to = format!("HEAD:refs/heads/{branch}");
        // Made again in another second, it is another commit.
        house.in_repo(&["push", "-qf", self.bare.to_str().unwrap(), &to]);
        let tip = house.in_repo(&["rev-parse", "HEAD"]);
        house.in_repo(&["reset", "-q", "--hard", "HEAD~1"]);
        tip
    }

    fn refs(&self) -> String {
        self.served.house.git(&["-C", self.bare.to_str().unwrap(), "for-each-ref"])
    }

    /// The branch that is the task's own.
    fn own_branch(&self) -> String {
        format!("relay/process-edit-{}", self.task.rsplit_once('#').unwrap().1)
    }

    /// Runs a worker whose claim was changed so. Nothing is pushed.
    #[track_caller]
    fn refuses(&self, lie: impl Fn(&mut Value) + Send + Sync + 'static) -> Ran {
        let before = self.refs();
        self.served.proxy.edit("/work/claim", move |answer| {
            if !answer["claim"].is_null() {
                lie(&mut answer["claim"]);
            }
        });
        let ran = self.served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]);
        assert_eq!(self.refs(), before, "{ran:?}");
        ran
    }
}

#[test]
fn the_default_branch_is_not_pushed_to_whatever_the_claim_says() {
    let stand = Stand::new();
    let ran = stand.refuses(|claim| claim["branch"] = json!("main"));
    let said = format!("its branch is `main`, not `{}`", stand.own_branch());
    assert!(ran.code == 1 && ran.err.contains(&said), "{ran:?}");
    // Given back by name, and not at once again.
    let detail = stand.served.house.json(&["task", "get", &stand.task, "--json"]);
    assert_eq!(detail["task"]["stop_reason"]["reason"], "protocol_violation", "{detail}");
    assert!(detail["task"]["message"].as_str().unwrap().contains(&said), "{detail}");
    assert_eq!(stand.served.proxy.count("/work/claim"), 1);
}

#[test]
fn a_persons_branch_is_not_overwritten_by_a_forged_effect() {
    let stand = Stand::new();
    let tip = stand.alice_pushes("alices-work");
    let ran = stand.refuses(move |claim| {
        claim["branch"] = json!("alices-work");
        claim["effects"] = json!([{"effect": "pushed", "commit": tip, "branch": "alices-work"}]);
    });
    assert!(ran.err.contains("its branch is `alices-work`"), "{ran:?}");
}

#[test]
fn a_persons_commit_on_the_tasks_own_branch_is_not_taken_for_relays() {
    let stand = Stand::new();
    let branch = stand.own_branch();
    let tip = stand.alice_pushes(&branch);
    let ran = stand.refuses(move |claim| {
        claim["effects"] = json!([{"effect": "pushed", "commit": tip, "branch": branch}]);
    });
    assert!(ran.err.contains("which relay did not push"), "{ran:?}");
}

#[test]
fn a_lease_of_another_task_is_neither_worked_on_nor_touched() {
    let stand = Stand::new();
    let ran = stand.refuses(|claim| claim["lease"]["task"] = json!("local/other#9"));
    assert!(ran.code == 1 && ran.err.contains("its lease is of `local/other#9`"), "{ran:?}");
    assert_eq!(stand.served.house.state(&stand.task), "claimed");
    assert_eq!(stand.served.proxy.count("/release"), 0);
}

#[test]
fn a_lane_that_was_not_asked_for_is_not_run() {
    let stand = Stand::new();
    let house = &stand.served.house;
    let ran_it = house.dir.path().join("ran");
    let body = format!("touch {}; echo change >> README.md", ran_it.display());
    house.process_lane("other", &body, r#"{"reply":"Done."}"#);
    let ran = stand.refuses(|claim| {
        claim["task"]["lane"] = json!("process:other");
        let branch = claim["branch"].as_str().unwrap().replace("edit", "other");
        claim["branch"] = json!(branch);
    });
    assert!(ran.err.contains("the lane process:other was not asked for"), "{ran:?}");
    assert!(!ran_it.exists());
}

#[test]
fn a_claim_as_it_should_be_is_worked_on() {
    let stand = Stand::new();
    stand.served.relay("a", &["work", "--once", "--name", "a", "--lanes", LANE]).ok();
    assert!(stand.refs().contains(&format!("refs/heads/{}", stand.own_branch())));
    assert_eq!(stand.served.house.state(&stand.task), "review");
}
