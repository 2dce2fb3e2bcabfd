//! Reads the program's events, one JSON row a line. Rows and fields that are not known are
//! passed over.

use serde_json::Value;

use super::outcome::{self, Seen};
use crate::{Exit, Reader, Said, Verdict, text};

/// The most characters of a command or an error shown in the log.
const DETAIL_CHARS: usize = 200;
/// The most bytes of one text of the agent's shown in the log.
const TEXT_BYTES: usize = 16_000;

/// What has been read so far.
pub struct Stream {
    seen: Seen,
    model: Option<String>,
}

impl Stream {
    /// Of a run that asked for `model`.
    pub fn new(model: Option<&str>) -> Self {
        Self { seen: Seen::default(), model: model.map(str::to_owned) }
    }

    fn row(&mut self, row: &mut Value) -> Vec<Said> {
        let kind = row["type"].as_str().unwrap_or_default();
        // An error and a list of what to do are items as well, and need no answer.
        let of_the_model = ["agent_message", "reasoning", "command_execution", "file_change"];
        self.seen.answered |= of_the_model.contains(&words(&row["item"]["type"]));
        // Whatever else it says, it no longer waits.
        if kind.starts_with("item.") || kind.starts_with("turn.") {
            self.seen.waiting = None;
        }
        match kind {
            "thread.started" => {
                let model = self.model.as_deref().unwrap_or("its own choice");
                vec![Said::Note(format!("codex, model {model}"))]
            }
            "item.started" => started(&row["item"]),
            "item.completed" => self.completed(&row["item"]),
            "turn.started" => {
                self.seen.began = true;
                Vec::new()
            }
            "turn.completed" => {
                self.seen.completed = Some(row["usage"].take());
                Vec::new()
            }
            "turn.failed" => {
                self.seen.failed = Some(words(&row["error"]["message"]).to_owned());
                Vec::new()
            }
            "error" => {
                let said = words(&row["message"]);
                self.seen.error(said);
                vec![Said::Note(text::one_line(said, DETAIL_CHARS))]
            }
            _ => Vec::new(),
        }
    }

    fn completed(&mut self, item: &Value) -> Vec<Said> {
        match words(&item["type"]) {
            "agent_message" => {
                let said = words(&item["text"]).trim();
                self.seen.last_words = Some(said.to_owned());
                if said.is_empty() {
                    return Vec::new();
                }
                vec![Said::Text(text::cut(said, TEXT_BYTES))]
            }
            "command_execution" => {
                let output = words(&item["aggregated_output"]);
                let code = item["exit_code"].as_i64();
                self.seen.command(code, output);
                match code {
                    Some(0) => Vec::new(),
                    Some(code) => vec![failed(&format!("a command exited with {code}"), output)],
                    None => vec![failed("a command did not end by itself", output)],
                }
            }
            "file_change" if item["status"] == "failed" => {
                vec![Said::Note("a change of files failed".to_owned())]
            }
            // No failure of the run: only `turn.failed` and the exit code tell one.
            "error" => vec![Said::Note(text::one_line(words(&item["message"]), DETAIL_CHARS))],
            _ => Vec::new(),
        }
    }
}

impl Reader for Stream {
    fn line(&mut self, line: &[u8]) -> Vec<Said> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(mut row) if row["type"].is_string() => self.row(&mut row),
            _ => {
                self.seen.rubbish(line);
                Vec::new()
            }
        }
    }

    fn waits_for_vendor(&self) -> bool {
        self.seen.waiting.is_some()
    }

    fn end(self: Box<Self>, exit: &Exit<'_>) -> Verdict {
        outcome::verdict(&self.seen, self.model.as_deref(), exit)
    }
}

fn started(item: &Value) -> Vec<Said> {
    let (name, detail) = match words(&item["type"]) {
        "command_execution" => ("command", words(&item["command"]).to_owned()),
        "file_change" => {
            let changes = item["changes"].as_array().map_or(&[][..], Vec::as_slice);
            let told = |change: &Value| {
                format!("{} {}", words(&change["kind"]), words(&change["path"])).trim().to_owned()
            };
            ("files", changes.iter().map(told).collect::<Vec<_>>().join(", "))
        }
        "web_search" => ("web_search", words(&item["query"]).to_owned()),
        "mcp_tool_call" => ("mcp", words(&item["tool"]).to_owned()),
        _ => return Vec::new(),
    };
    vec![Said::Tool { name: name.to_owned(), detail: text::one_line(&detail, DETAIL_CHARS) }]
}

fn failed(what: &str, output: &str) -> Said {
    Said::Note(format!("{what}: {}", text::one_line(output, DETAIL_CHARS)))
}

fn words(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
