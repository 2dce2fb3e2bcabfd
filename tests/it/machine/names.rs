//! Names that are no text, and very many of them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use crate::support::house::House;

const DONE: &str = "{\"reply\":\"done\"}";

fn who(rest: &[&str]) -> Vec<String> {
    ["-c", "user.name=p", "-c", "user.email=p@localhost"]
        .iter()
        .chain(rest)
        .map(ToString::to_string)
        .collect()
}

/// Every name in a branch, as bytes.
#[expect(clippy::disallowed_methods, reason = "a test looks with plain git")]
fn tree(house: &House, branch: &str) -> Vec<Vec<u8>> {
    let args = ["ls-tree", "-r", "-z", "--name-only", branch];
    let out = Command::new("git").arg("-C").arg(&house.repo).args(args).output().unwrap();
    assert!(out.status.success());
    let names = out.stdout.split(|b| *b == 0).filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn names_with_line_breaks_and_bytes_that_are_no_text_go_all_the_way() {
    let house = House::new();
    let there: [&[u8]; 4] = [b"old\nline", b"old-\xff\xfe", b"-rf", b":(top)x"];
    for name in there {
        fs::write(house.repo.join(OsStr::from_bytes(name)), "old\n").unwrap();
    }
    house.in_repo(&["add", "-A"]);
    let commit = who(&["commit", "-qm", "names"]);
    house.in_repo(&commit.iter().map(String::as_str).collect::<Vec<_>>());
    house.process_lane(
        "edit",
        "for f in ./old* ./-rf; do echo more >> \"$f\"; done\n\
         printf new > \"$(printf 'new\\nline')\"; printf new > \"$(printf 'new-\\377\\001\\033[31m')\"\n\
         printf new > ./--upload-pack=x; printf new > ' spaces '; mkdir -p empty/in; rm ./:*",
        DONE,
    );
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "t");
    house.relay(&["work", "--once", "--lanes", "process:edit"]).ok();
    assert_eq!(house.state(&task), "review", "{}", house.relay(&["task", "get", &task]).out);
    let names = tree(&house, "relay/process-edit-1");
    let wanted: [&[u8]; 7] = [
        b"old\nline",
        b"old-\xff\xfe",
        b"-rf",
        b"new\nline",
        b"new-\xff\x01\x1b[31m",
        b"--upload-pack=x",
        b" spaces ",
    ];
    for name in wanted {
        assert!(names.iter().any(|n| n == name), "{} is missing", String::from_utf8_lossy(name));
    }
    assert!(!names.iter().any(|n| n.starts_with(b":") || n.starts_with(b"empty")));
    let detail = house.json(&["task", "get", &task, "--json"]);
    let diff = detail["local_pull"]["diff"].as_str().unwrap();
    assert!(diff.contains("+more") && diff.contains("--upload-pack=x"), "{diff}");
    // A terminal is shown no control characters.
    for args in [&["task", "get", &task][..], &["task", "log", &task], &["events"]] {
        assert!(!house.relay(args).ok().contains('\u{1b}'));
    }
    assert_eq!(fs::read_dir(house.home.join("work")).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::disallowed_methods, reason = "a test makes a large repository with plain git")]
fn full_two_hundred_thousand_files_go_all_the_way() {
    use std::io::Write as _;
    if !crate::support::full::full() {
        return crate::support::full::skip("two hundred thousand files take a minute");
    }
    let house = House::new();
    let mut import = Command::new("git")
        .arg("-C")
        .arg(&house.repo)
        .args(["fast-import", "--quiet", "--force"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    {
        let mut to = std::io::BufWriter::new(import.stdin.take().unwrap());
        writeln!(to, "blob\nmark :1\ndata 4\nold\n").unwrap();
        writeln!(to, "commit refs/heads/main\ncommitter p <p@localhost> 1700000000 +0000").unwrap();
        writeln!(to, "data 5\nmany\n").unwrap();
        for n in 0..200_000 {
            writeln!(to, "M 100644 :1 d{}/f{n}", n / 200).unwrap();
        }
    }
    assert!(import.wait().unwrap().success());
    house.process_lane(
        "edit",
        "for d in d1 d2 d3 d4 d5; do for f in $d/*; do echo new >> $f; done; done\nrm -r d6; touch d7/new",
        DONE,
    );
    let slug = house.link();
    let task = house.task(&slug, "process:edit", "t");
    let worker = house.work(&["--lanes", "process:edit"]);
    worker.until("the pull request", || worker.said().contains("the task is review"));
    let status = fs::read_to_string(format!("/proc/{}/status", worker.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    println!("peak memory of the worker: {peak}\n{}", house.relay(&["task", "log", &task]).ok());
    assert!(peak.trim_end_matches(" kB").parse::<u64>().unwrap() < 400 << 10, "{peak}");
    let changed = house.in_repo(&["diff", "--name-only", "main", "relay/process-edit-1"]);
    assert_eq!(changed.lines().count(), 1000 + 200 + 1);
    assert_eq!(fs::read_dir(house.home.join("work")).unwrap().count(), 0);
}
