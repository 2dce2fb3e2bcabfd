//! The worker's token on a whole machine: real git over HTTP, GitHub's REST, and lanes that were
//! told the token and write it wherever they can. It is in no file, argument, environment of a lane,
//! log, comment, commit or answer.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::hosted::{Hosted, TOKEN};
use crate::support::processes::with_environment;

/// What the token looks like in a text: as it is, and in the middle of base64 and hex.
fn spellings() -> Vec<String> {
    let inside = |before: &str, from: usize| {
        let text = STANDARD.encode(format!("{before}{TOKEN}"));
        text[from..text.len() - 4].to_owned()
    };
    let hex: String = TOKEN.bytes().map(|b| format!("{b:02x}")).collect();
    vec![TOKEN.to_owned(), inside("", 0), inside("a", 4), inside("ab", 4), hex]
}

fn shows_token(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let found = spellings().into_iter().find(|spelling| text.contains(spelling));
    if let Some(found) = &found {
        let at = text.find(found).unwrap_or_default();
        let around: String = text[..at].chars().rev().take(80).collect();
        println!("found {found} behind {}", around.chars().rev().collect::<String>());
    }
    found.is_some()
}

/// No file of the machine has it, but the lanes' own programs, which were told.
fn no_file_has_it(hosted: &Hosted) {
    let root = hosted.house.dir.path();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && entry.path() != root.join("bin") {
                folders.push(entry.path());
            } else if kind.is_file() {
                assert_clean(&entry.path());
            }
        }
    }
}

fn assert_clean(file: &Path) {
    assert!(!shows_token(file.as_os_str().as_encoded_bytes()), "{}", file.display());
    let bytes = std::fs::read(file).unwrap_or_default();
    assert!(!shows_token(&bytes), "{} has it", file.display());
}

/// Nothing that GitHub was told has it.
fn nothing_was_told(hosted: &Hosted) {
    for (number, title) in hosted.shop.pulls() {
        let comments = hosted.shop.comments(number);
        assert!(!shows_token(format!("{title} {comments:?}").as_bytes()), "{comments:?}");
    }
    let bare = &hosted.origin.bare;
    let all = ["cat-file", "--batch", "--batch-all-objects", "--buffer"];
    assert!(!shows_token(crate::support::repo::git(bare, &all).as_bytes()), "it was pushed");
}

fn drain(hosted: &Hosted, lanes: &str) -> String {
    let ran =
        hosted.house.relay(&["work", "--once", "--jobs", "4", "--name", "w", "--lanes", lanes]);
    format!("{}{}", ran.out, ran.err)
}

fn detail(hosted: &Hosted, task: &str) -> Value {
    hosted.house.json(&["task", "get", task, "--json"])
}

/// While the lane runs and while git pushes, and at the end.
#[tokio::test(flavor = "multi_thread")]
async fn the_token_stands_in_the_worker_and_its_git_alone() {
    let mut hosted = Hosted::new(&[("README.md", "# shop\n")]).await;
    hosted.house.set("RELAY_DEBUG", "1");
    hosted.house.without_namespaces();
    let root = hosted.house.dir.path().to_owned();
    let (begun, go) = (root.join("begun"), root.join("go"));
    let body = format!(
        "echo change >> README.md; touch '{}'; while [ ! -e '{}' ]; do sleep 0.05; done",
        begun.display(),
        go.display()
    );
    hosted.house.process_lane("edit", &body, r#"{"reply":"Done."}"#);
    let task = hosted.task("process:edit", "Say more");
    let worker = hosted.house.work(&["--name", "w", "--lanes", "process:edit"]);
    worker.until("the lane", || begun.exists());
    let holders = who_has_it(&root);
    let of_lane = |holder: &&String| !holder.starts_with("relay");
    assert_eq!(holders.iter().find(of_lane), None, "while the lane runs");
    // An ordinary user cannot look into the worker at all: `full_private`.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(!holders.is_empty(), is_root, "{holders:?}");
    no_file_has_it(&hosted);

    let mut push = hosted.host.hold("relay-bot", "git-receive-pack");
    std::fs::write(&go, "").unwrap();
    push.arrived().await;
    let holders = who_has_it(&root);
    assert!(holders.iter().any(|holder| holder.starts_with("git")), "{holders:?}");
    let is_known = |holder: &String| holder.starts_with("git") || holder.starts_with("relay");
    assert!(holders.iter().all(is_known), "{holders:?}");
    no_file_has_it(&hosted);
    push.release();
    worker.until("the end", || hosted.house.state(&task) == "review");
    let log = hosted.house.relay(&["task", "log", &task]).out;
    let events = hosted.house.relay(&["events", "--json"]).out;
    let told = format!("{}{log}{events}{}", worker.said(), detail(&hosted, &task));
    assert!(!shows_token(told.as_bytes()), "{told}");
    no_file_has_it(&hosted);
    nothing_was_told(&hosted);
    assert!(hosted.host.asked().iter().any(|asked| asked.authorization.is_some()));
    assert!(hosted.hub.calls().iter().all(|call| !shows_token(call.path.as_bytes())));
}

/// The names of this machine's processes that have the token in their environment. No argument of
/// any may have it, and no supervisor any of it.
fn who_has_it(root: &Path) -> Vec<String> {
    let mut holders = Vec::new();
    for (name, line, environment) in with_environment(root) {
        assert!(!shows_token(line.as_bytes()), "an argument has it: {line}");
        if shows_token(&environment) {
            assert!(!line.contains("__supervise"), "the supervisor has it");
            holders.push(name);
        }
    }
    holders
}

/// In pieces of a line, in both streams, and in every spelling that is usual.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_tells_the_token_tells_it_to_nobody() {
    let mut hosted = Hosted::new(&[("README.md", "# shop\n")]).await;
    hosted.house.set("RELAY_DEBUG", "1");
    let (start, rest) = TOKEN.split_at(7);
    let escaped: String = TOKEN.bytes().map(|b| format!("\\u{b:04x}")).collect();
    let percent: String = TOKEN.bytes().map(|b| format!("%{b:02X}")).collect();
    let mut all: Vec<String> =
        ["", "a", "ab"].map(|before| STANDARD.encode(format!("{before}{TOKEN}"))).to_vec();
    let hex: String = TOKEN.bytes().map(|b| format!("{b:02X}")).collect();
    all.extend([
        TOKEN.to_owned(),
        hex.to_lowercase(),
        hex,
        escaped,
        percent,
        format!("https://x-access-token:{TOKEN}@github.com/a/b"),
    ]);
    let all = all.join(" ");
    let reply = json!({
        "reply": format!("It is {TOKEN} {all}."),
        "note": { "text": all },
        "usage": { "modelCalls": 1, "inputTokens": 1, "outputTokens": 1 }
    });
    let with_escapes = reply.to_string().replace("It is token", "It is \\u0074oken");
    hosted.house.process_lane("tell", "echo change >> README.md", &with_escapes);
    let in_pieces = format!(
        "printf 'it is {start}' >&2; sleep 0.1; printf '{rest} {all}\\n' >&2\n         printf '{start}'; sleep 0.1; printf '{rest}\\n'; exit 3"
    );
    hosted.house.process_lane("pieces", &in_pieces, "{}");
    let said = |block: Value| json!({ "type": "assistant", "message": { "content": [block] } });
    let rows = [
        said(json!({ "type": "text", "text": format!("I found {all}") })),
        said(json!({ "type": "tool_use", "id": "t", "name": TOKEN, "input": { "command": all } })),
        json!({ "type": "result", "subtype": "success", "is_error": false, "num_turns": 1,
                "result": format!("{all}"), "usage": { "output_tokens": 1 } }),
    ];
    let stream: Vec<String> = rows
        .iter()
        .map(|row| {
            let row = row.to_string();
            let (one, two) = row.split_at(row.find(TOKEN).unwrap() + 7);
            format!("printf '%s' '{one}'; sleep 0.05; printf '%s\\n' '{two}'")
        })
        .collect();
    hosted.house.claude(&format!("echo change >> README.md\n{}", stream.join("\n")), 0);

    let lanes = ["process:tell", "process:pieces", "claude"];
    let tasks = lanes.map(|lane| hosted.task(lane, "Tell"));
    let mut told = drain(&hosted, &lanes.join(","));
    for task in &tasks {
        let log = hosted.house.relay(&["task", "log", task]).out;
        told.push_str(&format!("{}\n{log}\n", detail(&hosted, task)));
    }
    told.push_str(&hosted.house.relay(&["events", "--json"]).out);
    assert!(!shows_token(told.as_bytes()), "{told}");
    assert!(told.matches("[redacted]").count() > 20, "{told}");
    assert_eq!(detail(&hosted, &tasks[0])["task"]["state"], "review", "{told}");
    assert_eq!(detail(&hosted, &tasks[1])["task"]["state"], "failed", "{told}");
    assert_eq!(detail(&hosted, &tasks[2])["task"]["state"], "review", "{told}");
    no_file_has_it(&hosted);
    nothing_was_told(&hosted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_copy_is_not_committed() {
    let hosted = Hosted::new(&[("README.md", "# shop\n")]).await;
    let base64 = STANDARD.encode(format!("x-access-token:{TOKEN}"));
    let rows = [
        (format!("echo 'a {TOKEN} b' > notes"), "secret_in_tree", "notes"),
        (format!("echo 'Basic {base64}' >> README.md"), "secret_in_tree", "README.md"),
        (format!("head -c 3000000 /dev/zero > big; echo {TOKEN} >> big"), "secret_in_tree", "big"),
        (format!("ln -s {TOKEN} link"), "secret_in_tree", "link"),
        (format!("mkdir {TOKEN}; echo x > {TOKEN}/x"), "secret_in_tree", "[redacted]/x"),
        (format!("mkfifo {TOKEN}"), "special_file", "[redacted]"),
        (format!("git init -q sub-{TOKEN}"), "nested_git", "sub-[redacted]"),
    ];
    let mut tasks = Vec::new();
    for (at, (script, ..)) in rows.iter().enumerate() {
        hosted.house.process_lane(&format!("row-{at}"), script, r#"{"reply":"done"}"#);
        tasks.push(hosted.task(&format!("process:row-{at}"), "Hide"));
    }
    let lanes: Vec<String> = (0..rows.len()).map(|at| format!("process:row-{at}")).collect();
    let mut told = drain(&hosted, &lanes.join(","));
    for (task, (script, why, path)) in tasks.iter().zip(&rows) {
        let detail = detail(&hosted, task);
        let now = &detail["task"];
        assert_eq!(now["stop_reason"]["why"], *why, "{script}: {detail:#}");
        assert!(now["message"].as_str().unwrap().contains(path), "{script}: {detail:#}");
        told.push_str(&format!("{detail}{}", hosted.house.relay(&["task", "log", task]).out));
    }
    told.push_str(&hosted.house.relay(&["events", "--json"]).out);
    assert!(!shows_token(told.as_bytes()), "{told}");
    assert_eq!(hosted.shop.pulls(), []);
    no_file_has_it(&hosted);
    nothing_was_told(&hosted);
}
