//! Reads the program's events, one JSON row a line. Rows and fields that are not known are
//! passed over; their order means nothing.

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
    /// Tool names by the id of their call, until its result comes.
    calls: HashMap<String, String>,
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

    fn end(self: Box<Self>, exit: &Exit<'_>) -> Verdict {
        outcome::verdict(&self.seen, exit)
    }
}

impl Stream {
    fn row(&mut self, mut row: Value) -> Vec<Said> {
        match row["type"].as_str().unwrap_or_default() {
            "assistant" => self.assistant(&row),
            "user" => self.user(&row),
            "system" => self.system(&row),
            "rate_limit_event" => {
                self.seen.rate_limit(&row["rate_limit_info"]);
                Vec::new()
            }
            "result" => {
                self.seen.result = Some(row.take());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn assistant(&mut self, row: &Value) -> Vec<Said> {
        self.seen.interrupted = false;
        self.seen.api_error = row["error"].as_str().map(str::to_owned);
        self.seen.rate_limit(&row["api_error_params"]["rate_limit_info"]);
        blocks(row).iter().filter_map(|block| self.block(block)).collect()
    }

    fn block(&mut self, block: &Value) -> Option<Said> {
        match block["type"].as_str()? {
            "text" => {
                let words = block["text"].as_str()?.trim();
                (!words.is_empty()).then(|| Said::Text(text::cut(words, TEXT_BYTES)))
            }
            "tool_use" => {
                let name = block["name"].as_str()?.to_owned();
                if let Some(id) = block["id"].as_str() {
                    self.calls.insert(id.to_owned(), name.clone());
                }
                Some(Said::Tool { name, detail: detail(&block["input"]) })
            }
            _ => None,
        }
    }

    fn user(&mut self, row: &Value) -> Vec<Said> {
        let mut notes = Vec::new();
        for block in blocks(row) {
            if block["type"] != "tool_result" {
                let words = block["text"].as_str().unwrap_or_default();
                self.seen.interrupted |= words.starts_with("[Request interrupted by user");
                continue;
            }
            let call = block["tool_use_id"].as_str().and_then(|id| self.calls.remove(id));
            let name = call.as_deref().unwrap_or("a tool");
            let failed = block["is_error"] == true;
            let words = result_text(&block["content"]);
            if name == "Bash" {
                self.seen.command(failed, &words);
            }
            if failed {
                let why = text::one_line(&words, DETAIL_CHARS);
                notes.push(Said::Note(format!("{name} failed: {why}")));
            }
        }
        notes
    }

    fn system(&mut self, row: &Value) -> Vec<Said> {
        match row["subtype"].as_str().unwrap_or_default() {
            "init" => {
                let word = |key: &str| row[key].as_str().unwrap_or("unknown");
                let version = word("claude_code_version");
                vec![Said::Note(format!("claude {version}, model {}", word("model")))]
            }
            "api_retry" => {
                let error = row["error"].as_str().unwrap_or("unknown error");
                self.seen.api_error = Some(error.to_owned());
                let status =
                    row["error_status"].as_u64().map_or(String::new(), |code| format!(" ({code})"));
                let tries = row["attempt"].as_u64().unwrap_or_default();
                vec![Said::Note(format!("no answer: {error}{status}; try {tries} failed"))]
            }
            _ => Vec::new(),
        }
    }
}

/// The content blocks of a message row.
fn blocks(row: &Value) -> &[Value] {
    row["message"]["content"].as_array().map_or(&[], Vec::as_slice)
}

/// A tool's input in one short line: its command, path or pattern where it has one.
fn detail(input: &Value) -> String {
    const TELLING: [&str; 7] =
        ["command", "file_path", "path", "pattern", "url", "query", "description"];
    let telling = TELLING.iter().find_map(|key| input[*key].as_str());
    match telling {
        Some(words) => text::one_line(words, DETAIL_CHARS),
        None if input.is_null() => String::new(),
        None => text::one_line(&input.to_string(), DETAIL_CHARS),
    }
}

/// A tool result's text: a string, or blocks of which some are text.
fn result_text(content: &Value) -> String {
    match content {
        Value::String(words) => words.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
