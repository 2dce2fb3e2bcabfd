//! The one line a process lane's program is given.

use serde::Serialize;

use crate::text;

/// The most bytes of a request, its line end included.
pub const REQUEST_BYTES: usize = 131_072;
/// The most bytes of a title in it; a forge allows 256 characters.
const TITLE_BYTES: usize = 2048;

/// One task for a process lane. `id`, `repo` and `branch` are names that were checked when the
/// task was made and `workdir` is a path, so they are short; only the title and the prompt can be
/// long, and both are cut to fit.
#[derive(Clone, Debug)]
pub struct TaskRequest<'a> {
    /// Stable for one task on every attempt: a key for what the program does elsewhere.
    pub job_key: &'a str,
    /// The worker.
    pub runtime_id: &'a str,
    /// The claim's epoch: it grows with every attempt.
    pub attempt: u64,
    /// The task itself.
    pub task: TaskDetails<'a>,
}

/// What a task is about.
#[derive(Clone, Debug, Serialize)]
pub struct TaskDetails<'a> {
    /// The task's id.
    pub id: &'a str,
    /// The repository's name.
    pub repo: &'a str,
    /// The issue's number.
    pub issue: u64,
    /// The issue's title.
    pub title: &'a str,
    /// The whole prompt.
    pub prompt: &'a str,
    /// The branch the copy is on.
    pub branch: &'a str,
    /// The copy's folder, where the program is to work.
    pub workdir: &'a str,
}

impl TaskRequest<'_> {
    /// The request as one line with its line end, at most [`REQUEST_BYTES`]. A prompt that does
    /// not fit is cut at its end and says so in its last line.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let title = text::head(self.task.title, TITLE_BYTES);
        let around = self.render(title, "").len();
        let room = REQUEST_BYTES.saturating_sub(around);
        let prompt = self.task.prompt;
        if escaped_len(prompt) <= room {
            return self.render(title, prompt);
        }
        let mark = format!(
            "\n\n[cut: the prompt has {} bytes, more than fit in one request]",
            prompt.len()
        );
        let kept = escaped_head(prompt, room.saturating_sub(escaped_len(&mark)));
        self.render(title, &format!("{kept}{mark}"))
    }

    fn render(&self, title: &str, prompt: &str) -> Vec<u8> {
        let wire = Wire {
            schema_version: 1,
            job_key: self.job_key,
            runtime_id: self.runtime_id,
            attempt: self.attempt,
            untrusted_external_data: true,
            task: TaskDetails { title, prompt, ..self.task.clone() },
        };
        // Text and numbers always serialise; were they ever not to, the program gets an empty
        // line and its answer is refused.
        let mut line = serde_json::to_vec(&wire).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    schema_version: u8,
    job_key: &'a str,
    runtime_id: &'a str,
    attempt: u64,
    untrusted_external_data: bool,
    task: TaskDetails<'a>,
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
    use super::*;
    use serde_json::{Value, json};

    fn request(prompt: &str) -> Vec<u8> {
        TaskRequest {
            job_key: "acme/shop#12",
            runtime_id: "0199",
            attempt: 2,
            task: TaskDetails {
                id: "acme/shop#12",
                repo: "acme/shop",
                issue: 12,
                title: "A \"title\"",
                prompt,
                branch: "relay/process-edit-12",
                workdir: "/home/ada/.harness/work/acme_shop_12_ab",
            },
        }
        .line()
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
