//! Hostile issues: what a reader of the page sees reaches the prompt, and nothing else.
//!
//! Each file of `corpus/` is one issue: what it is about, its title, what the prompt must hold and
//! what it must not, and after a line of dashes its text. `{U+200B}` is that character,
//! `{U+200B*9}` nine of them.

use std::fs;
use std::path::Path;

use relay::model::{Epoch, ForgeKind, Project, Task, TaskState, Timestamp};
use relay::work::prompt::compose;

struct Case {
    name: String,
    title: String,
    shows: Vec<String>,
    hides: Vec<String>,
    body: String,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/corpus");
    let mut cases: Vec<Case> =
        fs::read_dir(folder).unwrap().map(|entry| read(&entry.unwrap().path())).collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn read(path: &Path) -> Case {
    let text = fs::read_to_string(path).unwrap();
    let (head, body) = text.split_once("\n---\n").expect("a line of dashes");
    let all = |key: &str| -> Vec<String> {
        let lines = head.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        lines.map(spelled).collect()
    };
    Case {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        title: all("title").remove(0),
        shows: all("shows"),
        hides: all("hides"),
        body: spelled(body),
    }
}

/// `{U+200B*3}` as the characters themselves.
fn spelled(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("{U+") {
        let (name, tail) = tail.split_once('}').expect("a closing brace");
        let (code, times) = name.split_once('*').unwrap_or((name, "1"));
        let c = char::from_u32(u32::from_str_radix(code, 16).unwrap()).expect("a character");
        out.push_str(before);
        out.extend(std::iter::repeat_n(c, times.parse().unwrap()));
        rest = tail;
    }
    out + rest
}

pub fn task(title: &str, body: &str) -> Task {
    Task {
        id: "acme/shop#12".parse().unwrap(),
        lane: "claude".parse().unwrap(),
        state: TaskState::Claimed,
        title: title.to_owned(),
        body: body.to_owned(),
        asked_by: "mona".to_owned(),
        required_labels: vec![],
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        epoch: Epoch(1),
        worker: None,
        expires_at: None,
        parked_until: None,
        stop_reason: None,
        message: None,
        branch: None,
        pr: None,
        pr_url: None,
    }
}

fn project() -> Project {
    Project {
        slug: "acme/shop".parse().unwrap(),
        forge: ForgeKind::Github,
        host: "github.com".to_owned(),
        remote: "https://github.com/acme/shop.git".to_owned(),
        api_base: None,
        default_branch: "main".to_owned(),
        linked_at: Timestamp(0),
    }
}

#[test]
fn a_prompt_holds_what_a_reader_sees_and_nothing_else() {
    let cases = cases();
    assert!(cases.len() >= 20, "{} hostile issues", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let prompt = compose(&task(&case.title, &case.body), &project(), "relay/claude-12", None);
        let quoted: Vec<&str> = prompt.lines().filter(|line| line.starts_with("> ")).collect();
        // As one reads it: behind the marks of the quotation.
        let shown = quoted.join("\n") + "\n";
        let bare: String = quoted.iter().map(|line| format!("{}\n", &line[2..])).collect();
        for text in &case.shows {
            if !shown.contains(text.as_str()) && !bare.contains(text.as_str()) {
                wrong.push(format!("{}: `{text}` is missing in\n{bare:.2000}", case.name));
            }
        }
        for text in &case.hides {
            if prompt.contains(text.as_str()) {
                wrong.push(format!("{}: {text:?} is in\n{bare:.2000}", case.name));
            }
        }
        let headings: Vec<&str> = prompt.lines().filter(|l| l.starts_with('#')).collect();
        if headings != ["# The issue", "# The brief", "# What to deliver"] {
            wrong.push(format!("{}: it has the headings {headings:?}", case.name));
        }
        if prompt.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
            wrong.push(format!("{}: a control character is in the prompt", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
