//! What a lane leaves in its copy: refused by name before anything is pushed, or taken in as it
//! was meant.

use std::fs;

use serde_json::Value;

use super::shop::{DONE, assert_refused};
use crate::support::house::House;

/// A machine with a linked repository on its disk and one task for each lane.
struct Desk {
    house: House,
    slug: String,
}

impl Desk {
    fn new() -> Self {
        let house = House::new();
        Self { slug: String::new(), house }
    }

    /// Something the person has in the repository before it is linked.
    fn commit(&self, text: &str) {
        let who = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
        self.house.in_repo(&["add", "-A"]);
        self.house.in_repo(&[&who[..], &["commit", "-qm", text]].concat());
    }

    fn link(&mut self) {
        self.slug = self.house.link();
    }

    /// A lane that counts its runs, and its task.
    fn lane(&self, name: &str, body: &str) -> String {
        let runs = self.house.dir.path().join(format!("runs-{name}"));
        let body = format!("echo run >> {}\n{body}", runs.display());
        self.house.process_lane(name, &body, DONE);
        self.house.task(&self.slug, &format!("process:{name}"), name)
    }

    fn work(&self, lanes: &[&str]) {
        let lanes: Vec<String> = lanes.iter().map(|lane| format!("process:{lane}")).collect();
        self.house.relay(&["work", "--once", "--name", "w", "--lanes", &lanes.join(",")]).ok();
    }

    fn detail(&self, task: &str) -> Value {
        self.house.json(&["task", "get", task, "--json"])
    }

    fn runs(&self, name: &str) -> usize {
        let runs = self.house.dir.path().join(format!("runs-{name}"));
        fs::read_to_string(runs).map_or(0, |text| text.lines().count())
    }

    /// The files that a branch or a bundle's commit changes.
    fn changed(&self, commit: &str) -> Vec<String> {
        let range = format!("main...{commit}");
        let shown = self.house.in_repo(&["diff", "--name-only", &range]);
        shown.lines().map(str::to_owned).collect()
    }

    fn in_bundle(&self, bundle: &str, branch: &str) -> Vec<String> {
        self.house.in_repo(&["fetch", "-q", bundle, branch]);
        self.changed("FETCH_HEAD")
    }
}

#[test]
fn what_must_not_be_committed_is_refused_and_the_rest_of_the_work_is_kept() {
    let mut desk = Desk::new();
    desk.link();
    let cases = [
        ("nested", "nested_git", "mkdir -p sub; git init -q sub; echo x > sub/file", &[][..]),
        ("outside", "link_outside", "ln -s /etc/passwd link", &["link"][..]),
        ("twin", "case_collision", "echo x > readme.md", &["readme.md"][..]),
        ("huge", "file_too_large", "truncate -s 101M huge.bin", &[][..]),
        ("pipe", "special_file", "mkfifo pipe", &[][..]),
        (
            "links",
            "unsafe_file",
            "ln -s work.txt .gitmodules; mkdir \"o'r\"; ln -s ../work.txt \"o'r/.gitmodules\"",
            &[][..],
        ),
        (
            "modules",
            "unsafe_file",
            "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = a\\n\\tupdate = !true\\n' > .gitmodules",
            &[".gitmodules"][..],
        ),
    ];
    let tasks: Vec<String> = cases
        .iter()
        .map(|(lane, _, body, _)| desk.lane(lane, &format!("echo work > work.txt\n{body}")))
        .collect();
    desk.work(&cases.map(|(lane, ..)| lane));
    for (task, (lane, why, _, beside)) in tasks.iter().zip(&cases) {
        let detail = desk.detail(task);
        let kept = assert_refused(&desk.house, &detail, &format!("repo_unusable ({why})"));
        let branch = format!(
            "relay/process-{lane}-{}",
            detail["task"]["id"]
                .as_str()
                .unwrap()
                .rsplit('#')
                .next()
                .unwrap()
                .split(':')
                .next()
                .unwrap()
        );
        let mut expected: Vec<&str> = [beside, &["work.txt"][..]].concat();
        expected.sort_unstable();
        assert_eq!(desk.in_bundle(&kept.expect("a bundle"), &branch), expected, "{lane}");
        assert_eq!(desk.house.in_repo(&["branch", "--list", &branch]), "", "{lane}");
    }
    let huge = desk.detail(&tasks[3])["runs"][0]["error"].as_str().unwrap().to_owned();
    assert!(huge.contains("huge.bin"), "{huge}");
}

#[test]
fn a_changed_workflow_waits_for_a_person_who_allows_it() {
    let mut desk = Desk::new();
    desk.link();
    let body = "mkdir -p .github/workflows; echo 'on: push' > .github/workflows/ci.yml";
    let task = desk.lane("edit", body);
    desk.work(&["edit"]);
    let kept = assert_refused(&desk.house, &desk.detail(&task), "repo_unusable (workflow_changed)");
    let files = [".github/workflows/ci.yml"];
    assert_eq!(desk.in_bundle(&kept.expect("a bundle"), "relay/process-edit-1"), files);

    // A retry changes nothing, and neither does a leave for another lane.
    let allow = |value: &str, scope: &str, id: &str| {
        let key = ["prefer", "push.workflows", value, "--scope", scope, "--scope-id", id];
        desk.house.relay(&key)
    };
    allow("allow", "lane", "claude").ok();
    assert!(allow("perhaps", "project", "local/shop").err.contains("is not one of allow, refuse"));
    desk.house.relay(&["task", "retry", &task]).ok();
    desk.work(&["edit"]);
    assert_refused(&desk.house, &desk.detail(&task), "repo_unusable (workflow_changed)");
    assert_eq!(desk.house.in_repo(&["branch", "--list", "relay/*"]), "");

    allow("allow", "project", "local/shop").ok();
    desk.house.relay(&["task", "retry", &task]).ok();
    desk.work(&["edit"]);
    assert_eq!(desk.detail(&task)["task"]["state"], "review");
    assert_eq!(desk.changed("relay/process-edit-1"), files);
    assert_eq!(desk.runs("edit"), 1);
}

/// A gitlink names a commit of another repository, which the copy does not hold.
#[test]
fn a_submodule_stays_as_it_is_and_one_that_was_touched_is_refused() {
    let mut desk = Desk::new();
    let house = &desk.house;
    let gitlink = format!("160000,{},sub", "1".repeat(40));
    fs::write(house.repo.join(".gitmodules"), "[submodule \"sub\"]\npath=sub\nurl=./x\n").unwrap();
    house.in_repo(&["add", "-A"]);
    house.in_repo(&["update-index", "--add", "--cacheinfo", &gitlink]);
    let who = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
    house.in_repo(&[&who[..], &["commit", "-qm", "a submodule"]].concat());
    desk.link();
    let (edit, fetched) = ("echo x >> README.md", "mkdir -p sub/.git; echo x > sub/file");
    let cases = [
        ("plain", None, edit.to_owned()),
        ("fetched", None, format!("{edit}\n{fetched}")),
        ("gone", Some("sub"), format!("{edit}\nrmdir sub")),
        ("filled", Some("sub"), format!("{edit}\necho x > sub/file")),
        ("swapped", Some("sub"), format!("{edit}\nrmdir sub; echo x > sub")),
    ];
    let tasks: Vec<String> = cases.iter().map(|(lane, _, body)| desk.lane(lane, body)).collect();
    desk.work(&cases.each_ref().map(|(lane, ..)| *lane));
    for (n, (task, (lane, refused, _))) in (1..).zip(tasks.iter().zip(&cases)) {
        let (detail, branch) = (desk.detail(task), format!("relay/process-{lane}-{n}"));
        if refused.is_some() {
            let kept = assert_refused(&desk.house, &detail, "repo_unusable (submodule_changed)");
            assert_eq!(desk.in_bundle(&kept.expect("a bundle"), &branch), ["README.md"], "{lane}");
            continue;
        }
        assert_eq!(detail["task"]["state"], "review", "{lane}: {detail:#}");
        assert_eq!(desk.changed(&branch), ["README.md"], "{lane}");
        let tree = desk.house.in_repo(&["ls-tree", &branch, "sub"]);
        assert!(tree.starts_with(&format!("160000 commit {}", "1".repeat(40))), "{tree}");
    }
}

/// Files whose line ends the attributes would change, and names that are twins on other disks,
/// were there before: the lane's file alone is in the diff.
#[test]
fn line_ends_and_twins_of_the_base_are_left_alone() {
    let mut desk = Desk::new();
    let repo = desk.house.repo.clone();
    for name in ["a.txt", "b.txt", "c.txt"] {
        fs::write(repo.join(name), "one\r\ntwo\r\n").unwrap();
    }
    desk.commit("carriage returns");
    fs::write(repo.join(".gitattributes"), "*.txt text eol=lf\n").unwrap();
    desk.house.in_repo(&["add", ".gitattributes"]);
    let who = ["-c", "user.name=p", "-c", "user.email=p@localhost"];
    desk.house.in_repo(&[&who[..], &["commit", "-qm", "attributes"]].concat());
    let blob = desk.house.in_repo(&["hash-object", "-w", "README.md"]);
    let twin = format!("100644,{blob},Readme.MD");
    desk.house.in_repo(&["update-index", "--add", "--cacheinfo", &twin]);
    desk.house.in_repo(&[&who[..], &["commit", "-qm", "a twin"]].concat());
    desk.link();
    let task = desk.lane("edit", "echo three > d.txt");
    desk.work(&["edit"]);
    assert_eq!(desk.detail(&task)["task"]["state"], "review", "{:#}", desk.detail(&task));
    assert_eq!(desk.changed("relay/process-edit-1"), ["d.txt"]);
}
