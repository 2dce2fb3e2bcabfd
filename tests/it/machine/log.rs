//! A run that says too much: the log keeps its end, and nobody's memory grows with it.

use std::fs;

use relay::api::LogQuery;
use relay::model::StopReason;
use relay::site::logs::CHUNK_MAX;

use crate::site::fixture::Home;
use crate::support::house::House;

/// The documented cap of one run's log.
const CAP: u64 = 8 << 20;

fn size(folder: &std::path::Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|e| e.metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn full_of_a_hundred_megabytes_the_last_eight_are_kept_and_read_in_pieces() {
    if !crate::support::full::full() {
        return crate::support::full::skip("a hundred megabytes take half a minute");
    }
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    let claim = worker.claim().await.expect("the task");
    let lease = &claim.lease;
    let line = |n: u64| format!("{n:015}\n");
    let (mut offset, mut n) = (0, 0);
    while offset < 100 << 20 {
        let lines = CHUNK_MAX as u64 / 16;
        let text: String = (n..n + lines).map(line).collect();
        n += lines;
        let taken = home.client.log(&task.id, &worker.chunk(lease, offset, &text)).await.unwrap();
        offset = taken.next;
    }
    let end = worker.end(lease, StopReason::NoChanges);
    home.client.release(&lease.reference(), &end).await.unwrap();
    let folder = home.folder.path().join("home/logs").join(claim.run.as_str());
    assert!((CAP / 2..=CAP).contains(&size(&folder)), "{}", size(&folder));

    let (mut query, mut pieces, mut last) = (LogQuery::default(), 0, String::new());
    loop {
        let answer = home.client.task_log(&task.id, &query).await.unwrap();
        assert!(answer.text.len() <= CHUNK_MAX);
        if pieces == 0 {
            assert_eq!(answer.offset, offset - size(&folder), "the beginning is cut, and said");
        }
        if answer.end {
            break;
        }
        (query.offset, last, pieces) = (answer.next, answer.text, pieces + 1);
    }
    assert!(last.ends_with(&line(n - 1)), "the end is lost");
    home.owner.close().await;
}

/// A `claude` that is logged in, and prints what the shell line `stream` does.
fn fake_claude(house: &House, stream: &str) {
    house.program(
        "claude",
        &format!(
            "#!/bin/sh\ncase \"$1\" in\n--version) echo '2.1.332 (Claude Code)'; exit 0;;\n\
             auth) echo '{{\"loggedIn\":true,\"authMethod\":\"claude.ai\"}}'; exit 0;;\nesac\n\
             cat > /dev/null\n{stream}\n"
        ),
    );
}

/// The most memory the process ever had, in bytes.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[cfg(target_os = "linux")]
#[test]
fn full_a_line_of_fifty_megabytes_and_binary_rubbish_do_not_grow_the_worker() {
    if !crate::support::full::full() {
        return crate::support::full::skip("fifty megabytes through a debug build take a while");
    }
    let house = House::new();
    let said = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"WORDS"}]}}"#;
    let said = said.replace("WORDS", &"many words ".repeat(80));
    let done =
        r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":1}"#;
    fake_claude(
        &house,
        &format!(
            "echo more >> README.md\nhead -c 50000000 /dev/zero | tr '\\0' x; echo\n\
             head -c 1000000 /dev/urandom; echo\nyes '{said}' | head -n 9000\necho '{done}'"
        ),
    );
    let slug = house.link();
    let task = house.task(&slug, "claude", "t");
    let worker = house.work(&["--lanes", "claude", "--no-sandbox"]);
    worker.until("the end", || matches!(house.state(&task).as_str(), "review" | "failed"));
    assert_eq!(house.state(&task), "review", "{}", worker.said());
    let most = peak(worker.child.id());
    println!("peak memory of the worker: {} MB", most >> 20);
    assert!(most < 250 << 20, "{most}");
    let log = house.relay(&["task", "log", &task]).ok();
    assert!(log.contains("== push") && (log.len() as u64) < CAP + (1 << 20), "{}", log.len());

    // More than a whole run may say ends the run, by name, and not the worker.
    fake_claude(&house, &format!("exec yes '{said}'"));
    let endless = house.task(&slug, "claude", "u");
    worker.until("the end", || house.state(&endless) == "failed");
    let detail = house.json(&["task", "get", &endless, "--json"]);
    println!("{}", detail["runs"][0]["stop_reason"]);
    for run in fs::read_dir(house.home.join("logs")).unwrap().flatten() {
        assert!(size(&run.path()) <= CAP);
    }
    assert!(peak(worker.child.id()) < 250 << 20);
}
