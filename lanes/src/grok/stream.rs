//! Reads the program's events, one JSON row a line. Rows and fields that are not known are passed
//! over. Its words come in pieces, which are put together.

use std::collections::HashMap;

use serde_json::Value;

use super::outcome::{self, Seen};
use crate::{Exit, Reader, Said, Verdict, text};

/// The most characters of a tool's input or error shown in the log.
const DETAIL_CHARS: usize = 200;
/// The most bytes of one text of the agent's shown in the log.
const TEXT_BYTES: usize = 16_000;

/// What has been read so far.
#[derive(Default)]
pub struct Stream {
    seen: Seen,
    /// Words that were not told yet.
    words: String,
    /// Tool calls by their id, until their result comes: the name, and what it is called with.
    calls: HashMap<String, (String, String)>,
}

impl Reader for Stream {
    fn line(&mut self, line: &[u8]) -> Vec<Said> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(row) if row["type"].is_string() => self.row(row),
            _ => {
                self.seen.rubbish(line);
                Vec::new()
            }
        }
    }

    fn waits_for_vendor(&self) -> bool {
        !self.seen.answered
    }

    fn end(self: Box<Self>, exit: &Exit<'_>) -> Verdict {
        outcome::verdict(&self.seen, exit)
    }
}

impl Stream {
    fn row(&mut self, row: Value) -> Vec<Said> {
        let kind = row["type"].as_str().unwrap_or_default();
        let mut said = Vec::new();
        if kind != "text" {
            said.extend(self.told());
        }
        match kind {
            "text" => {
                let piece = row["data"].as_str().unwrap_or_default();
                self.seen.answered = true;
                self.seen.words(piece);
                self.words.push_str(piece);
                if self.words.len() > TEXT_BYTES {
                    said.extend(self.told());
                }
            }
            "thought" => self.seen.answered = true,
            "usage" => self.seen.answer(&row["usage"]),
            "tool_call" => said.extend(self.call(&row)),
            "tool_call_update" => said.extend(self.result(&row)),
            "max_turns_reached" => self.seen.out_of_turns = true,
            "error" => {
                let words = self.seen.error(&row["message"]);
                said.push(Said::Note(text::one_line(&words, DETAIL_CHARS)));
            }
            "end" => self.seen.end = Some(row),
            _ => {}
        }
        said
    }

    fn told(&mut self) -> Option<Said> {
        let words = std::mem::take(&mut self.words);
        let words = words.trim();
        (!words.is_empty()).then(|| Said::Text(text::cut(words, TEXT_BYTES)))
    }

    fn call(&mut self, row: &Value) -> Option<Said> {
        let name = row["toolName"].as_str().or(row["title"].as_str())?.to_owned();
        let detail = detail(&row["rawInput"]);
        self.seen.answered = true;
        self.seen.calls();
        if let Some(id) = row["toolCallId"].as_str() {
            self.calls.insert(id.to_owned(), (name.clone(), detail.clone()));
        }
        Some(Said::Tool { name, detail })
    }

    fn result(&mut self, row: &Value) -> Option<Said> {
        let status = row["status"].as_str().filter(|status| !status.starts_with("in_"))?;
        let call = row["toolCallId"].as_str().and_then(|id| self.calls.remove(id));
        let (name, detail) = call.unwrap_or_else(|| ("a tool".to_owned(), String::new()));
        if status != "failed" {
            return None;
        }
        let words = first_text(&row["content"]);
        self.seen.failed(&name, &detail, words);
        Some(Said::Note(format!("{name} failed: {}", text::one_line(words, DETAIL_CHARS))))
    }
}

/// A tool's input in one short line: its command, path or pattern where it has one.
fn detail(input: &Value) -> String {
    const TELLING: [&str; 7] = [
        "command",
        "file_path",
        "target_file",
        "target_directory",
        "path",
        "pattern",
        "description",
    ];
    let telling = TELLING.iter().find_map(|key| input[*key].as_str());
    match telling {
        Some(words) => text::one_line(words, DETAIL_CHARS),
        None if input.is_null() => String::new(),
        None => text::one_line(&input.to_string(), DETAIL_CHARS),
    }
}

/// The first text among what a tool gave back.
fn first_text(content: &Value) -> &str {
    let parts = content.as_array().map_or(&[][..], Vec::as_slice);
    parts.iter().find_map(|part| part["content"]["text"].as_str()).unwrap_or_default()
}
