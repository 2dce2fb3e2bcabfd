//! A task as the payload of a process lane's request.

use schemars::JsonSchema;
use serde::Serialize;

use super::request::Payload;
use crate::text;

/// The most bytes of a title in it; a forge allows 256 characters.
const TITLE_BYTES: usize = 2048;

/// What a task is about. `id`, `repo` and `branch` are names that were checked when the task was
/// made and `workdir` is a path, so they are short; only the title and the prompt can be long, and
/// both are cut to fit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TaskDetails<'a> {
    /// The task's id.
    pub id: &'a str,
    /// The repository's name.
    pub repo: &'a str,
    /// The issue's number.
    pub issue: u64,
    /// The issue's title.
    pub title: &'a str,
    /// The whole prompt. Where it did not fit it is cut at its end, and its last line says so.
    pub prompt: &'a str,
    /// The branch the copy is on.
    pub branch: &'a str,
    /// The copy's folder, where the program is to work.
    pub workdir: &'a str,
}

impl Payload for TaskDetails<'_> {
    fn field(&self, room: usize) -> String {
        let title = text::head(self.title, TITLE_BYTES);
        let around = render(self, title, "").len();
        let room = room.saturating_sub(around);
        if escaped_len(self.prompt) <= room {
            return render(self, title, self.prompt);
        }
        let mark = format!(
            "\n\n[cut: the prompt has {} bytes, more than fit in one request]",
            self.prompt.len()
        );
        let kept = escaped_head(self.prompt, room.saturating_sub(escaped_len(&mark)));
        render(self, title, &format!("{kept}{mark}"))
    }
}

fn render(task: &TaskDetails<'_>, title: &str, prompt: &str) -> String {
    let task = TaskDetails { title, prompt, ..task.clone() };
    format!("\"task\":{}", serde_json::to_string(&task).unwrap_or_default())
}

/// How many bytes `c` takes inside a JSON text as `serde_json` writes it.
fn escaped_char(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

fn escaped_len(text: &str) -> usize {
    text.chars().map(escaped_char).sum()
}

/// The longest beginning of `text` that takes at most `bytes` inside a JSON text.
fn escaped_head(text: &str, bytes: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        used += escaped_char(c);
        (used > bytes).then_some(at)
    });
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::super::{REQUEST_BYTES, Request};
    use super::*;
    use serde_json::{Value, json};

    fn request(prompt: &str) -> Vec<u8> {
        let task = TaskDetails {
            id: "acme/shop#12",
            repo: "acme/shop",
            issue: 12,
            title: "A \"title\"",
            prompt,
            branch: "relay/process-edit-12",
            workdir: "/home/ada/.harness/work/acme_shop_12_ab",
        };
        Request { job_key: "acme/shop#12", runtime_id: "0199", attempt: 2, payload: &task }
            .line()
            .unwrap()
    }

    fn read(line: &[u8]) -> Value {
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        assert_eq!(line.last(), Some(&b'\n'));
        assert!(line.len() <= REQUEST_BYTES, "{} bytes", line.len());
        serde_json::from_slice(line).unwrap()
    }

    #[test]
    fn the_line_is_the_abi_with_a_task() {
        assert_eq!(
            read(&request("Do it.\nThen stop. 👋")),
            json!({
                "schemaVersion": 1, "jobKey": "acme/shop#12", "runtimeId": "0199", "attempt": 2,
                "untrustedExternalData": true,
                "task": {
                    "id": "acme/shop#12", "repo": "acme/shop", "issue": 12,
                    "title": "A \"title\"", "prompt": "Do it.\nThen stop. 👋",
                    "branch": "relay/process-edit-12",
                    "workdir": "/home/ada/.harness/work/acme_shop_12_ab",
                },
            })
        );
    }

    #[test]
    fn a_long_prompt_is_cut_and_says_so() {
        for piece in ["x", "é", "👋", "\n", "\"", "\u{1}", "a\u{1f}\u{7f}é\t"] {
            let prompt = piece.repeat(REQUEST_BYTES / piece.len());
            let line = request(&prompt);
            let sent = read(&line)["task"]["prompt"].as_str().unwrap().to_owned();
            let (kept, mark) = sent.rsplit_once("\n\n[cut: ").unwrap();
            assert!(prompt.starts_with(kept));
            assert!(mark.contains(&prompt.len().to_string()));
            assert!(REQUEST_BYTES - line.len() < 6, "room for another character was left");
        }
    }

    #[test]
    fn a_prompt_that_just_fits_is_whole() {
        let room = REQUEST_BYTES - request("").len();
        let whole = "x".repeat(room);
        let line = request(&whole);
        assert_eq!(line.len(), REQUEST_BYTES);
        assert_eq!(read(&line)["task"]["prompt"], whole.as_str());
        let over = read(&request(&"x".repeat(room + 1)));
        assert!(over["task"]["prompt"].as_str().unwrap().ends_with("one request]"));
    }
}
