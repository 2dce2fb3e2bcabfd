//! The one line a process lane's program answers with.

use serde::{Deserialize, Deserializer};

use crate::{Exit, LaneUsage, Reader, Reason, SUMMARY_BYTES, Said, Verdict};

/// The most bytes of an answer, its line end included.
pub const RESPONSE_BYTES: usize = 131_072;
/// The most UTF-8 bytes of a note's text, the inbox's number for a runtime's note.
pub const NOTE_BYTES: usize = 4000;
/// The largest count every JSON reader keeps exactly: 2^53 − 1.
const COUNT: u64 = 9_007_199_254_740_991;

/// Keeps the answer until the program has ended: its exit decides whether it counts.
pub struct Answer {
    job_key: String,
    first: Option<Vec<u8>>,
    lines: usize,
}

impl Answer {
    /// Waits for the answer to the request with this key.
    pub fn new(job_key: &str) -> Self {
        Self { job_key: job_key.to_owned(), first: None, lines: 0 }
    }
}

impl Reader for Answer {
    fn line(&mut self, line: &[u8]) -> Vec<Said> {
        self.lines += 1;
        if self.lines == 1 {
            self.first = Some(line.to_vec());
        }
        Vec::new()
    }

    fn end(self: Box<Self>, exit: &Exit<'_>) -> Verdict {
        if exit.over_limit {
            return refused("it wrote more than its contract allows");
        }
        if let Some(signal) = exit.killed_by() {
            let error = format!("the program was ended by signal {signal}");
            return Verdict { error: Some(error), ..Verdict::new(Reason::Crashed) };
        }
        if exit.code != Some(0) {
            let code = exit.code.map_or_else(|| "no code".to_owned(), |code| code.to_string());
            return refused(&format!("it exited with {code}, not 0"));
        }
        match (&self.first, self.lines) {
            (Some(line), 1) => {
                read(line, &self.job_key).map_or_else(|why| refused(&why), Outcome::verdict)
            }
            (None, _) => refused("it answered nothing"),
            (Some(_), lines) => refused(&format!("it answered {lines} lines, not one")),
        }
    }
}

fn refused(why: &str) -> Verdict {
    Verdict {
        error: Some(format!("the program broke its contract: {why}")),
        hint: Some(
            "the program must print one JSON line on standard output and exit with 0; see \
             docs/LANES.md"
                .to_owned(),
        ),
        ..Verdict::new(Reason::ProtocolViolation)
    }
}

fn read(line: &[u8], job_key: &str) -> Result<Outcome, String> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > RESPONSE_BYTES {
        return Err(format!("its answer has {} bytes, more than {RESPONSE_BYTES}", line.len()));
    }
    let text = std::str::from_utf8(line).map_err(|_| "its answer is not UTF-8".to_owned())?;
    let answer: Wire =
        serde_json::from_str(text).map_err(|err| format!("its answer does not fit: {err}"))?;
    if answer.schema_version != 1 {
        return Err(format!("schemaVersion is {}, not 1", answer.schema_version));
    }
    if answer.job_key != job_key {
        return Err("its answer is for another job".to_owned());
    }
    answer.result.checked()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    schema_version: u64,
    job_key: String,
    result: Outcome,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    #[serde(default, deserialize_with = "present")]
    reply: Option<String>,
    #[serde(default)]
    skip: bool,
    #[serde(default, deserialize_with = "present")]
    note: Option<Note>,
    #[serde(default, deserialize_with = "present")]
    usage: Option<Usage>,
}

/// The inbox's note. A task has no messages, so a lane needs only the text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Note {
    text: String,
    #[serde(default, rename = "key")]
    _key: String,
    #[serde(default, rename = "version")]
    _version: u64,
    #[serde(default)]
    source_message_ids: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Usage {
    #[serde(default, deserialize_with = "present")]
    model_calls: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    output_tokens: Option<u64>,
}

impl Outcome {
    fn checked(self) -> Result<Self, String> {
        if self.skip && (self.reply.is_some() || self.note.is_some()) {
            return Err("skip stands beside a reply or a note".to_owned());
        }
        if let Some(reply) = &self.reply {
            fits("reply", reply, SUMMARY_BYTES)?;
        }
        if let Some(note) = &self.note {
            fits("note", &note.text, NOTE_BYTES)?;
            if !note.source_message_ids.is_empty() {
                return Err("a task's note names messages, and a task has none".to_owned());
            }
        }
        let counts = self.usage.map(|u| [u.model_calls, u.input_tokens, u.output_tokens]);
        if counts.into_iter().flatten().flatten().any(|count| count > COUNT) {
            return Err(format!("usage holds a count over {COUNT}"));
        }
        Ok(self)
    }

    fn verdict(self) -> Verdict {
        let reason = if self.skip { Reason::Skipped } else { Reason::Done };
        let usage = self.usage.map_or_else(LaneUsage::default, |usage| LaneUsage {
            model_calls: usage.model_calls,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            ..LaneUsage::default()
        });
        let note = self.note.map(|note| note.text);
        Verdict { summary: self.reply, usage, note, ..Verdict::new(reason) }
    }
}

fn fits(field: &str, text: &str, most: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err(format!("its {field} is empty"));
    }
    if text.len() > most {
        return Err(format!("its {field} has {} bytes, more than {most}", text.len()));
    }
    Ok(())
}

/// An optional field that, where it stands, holds a value: `null` is not one.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const KEY: &str = "acme/shop#12";
    const CLEAN: Exit<'_> =
        Exit { code: Some(0), signal: None, stderr: "", now_ms: 0, over_limit: false };

    fn end(lines: &[&[u8]], exit: &Exit<'_>) -> Verdict {
        let mut reader = crate::process::reader(KEY);
        for line in lines {
            assert_eq!(reader.line(line), []);
        }
        reader.end(exit)
    }

    fn answer(result: &Value) -> Verdict {
        let line = json!({"schemaVersion": 1, "jobKey": KEY, "result": result}).to_string();
        end(&[line.as_bytes()], &CLEAN)
    }

    fn why(verdict: &Verdict) -> &str {
        assert_eq!(verdict.reason, Reason::ProtocolViolation, "{verdict:?}");
        verdict.error.as_deref().unwrap()
    }

    #[test]
    fn the_four_kinds_of_answer() {
        let reply = answer(&json!({"reply": "Done: 👋\nall", "usage": {"modelCalls": 0}}));
        assert_eq!(reply.reason, Reason::Done);
        assert_eq!(reply.summary.as_deref(), Some("Done: 👋\nall"));
        assert_eq!(reply.usage.model_calls, Some(0));
        assert_eq!(reply.usage.input_tokens, None, "not reported is not zero");

        let empty = answer(&json!({}));
        assert_eq!((empty.reason, empty.summary), (Reason::Done, None));
        assert_eq!(empty.usage, LaneUsage::default());

        let skip = answer(&json!({"skip": true, "usage": {"inputTokens": 3, "outputTokens": 4}}));
        assert_eq!((skip.reason, skip.usage.output_tokens), (Reason::Skipped, Some(4)));

        let note = answer(&json!({"reply": "ok", "note": {"key": "k", "text": "n", "version": 0}}));
        assert_eq!(note.note.as_deref(), Some("n"));
    }

    #[test]
    fn what_the_contract_refuses() {
        for (result, part) in [
            (json!({"reply": ""}), "reply is empty"),
            (json!({"reply": " \n"}), "reply is empty"),
            (json!({"reply": "x".repeat(16_001)}), "16001 bytes"),
            (json!({"reply": "é".repeat(8_001)}), "16002 bytes"),
            (json!({"reply": null}), "null"),
            (json!({"skip": true, "reply": "x"}), "skip stands beside"),
            (json!({"skip": true, "note": {"text": "x"}}), "skip stands beside"),
            (json!({"skip": "yes"}), "does not fit"),
            (json!({"note": "x"}), "does not fit"),
            (json!({"note": {"text": "x".repeat(4001)}}), "4001 bytes"),
            (json!({"note": {"text": "x", "sourceMessageIds": ["m"]}}), "names messages"),
            (json!({"usage": {"modelCalls": -1}}), "does not fit"),
            (json!({"usage": {"modelCalls": 1.5}}), "does not fit"),
            (json!({"usage": {"inputTokens": COUNT + 1}}), "over"),
            (json!({"usage": {"costUsd": 1}}), "unknown field"),
            (json!({"done": true}), "unknown field"),
            (json!("x"), "does not fit"),
        ] {
            let verdict = answer(&result);
            assert!(why(&verdict).contains(part), "{result}: {verdict:?}");
        }
        assert_eq!(answer(&json!({"reply": "é".repeat(8_000)})).reason, Reason::Done);
        assert_eq!(answer(&json!({"note": {"text": "x".repeat(4000)}})).reason, Reason::Done);
    }

    #[test]
    fn the_envelope_is_strict() {
        let good = format!(r#"{{"schemaVersion":1,"jobKey":"{KEY}","result":{{}}}}"#);
        let good = good.as_bytes();
        let crlf = [good, b"\r"].concat();
        assert_eq!(end(&[&crlf], &CLEAN).reason, Reason::Done);
        for (line, part) in [
            (&b"hello"[..], "does not fit"),
            (b"", "does not fit"),
            (b"{}", "missing field"),
            (br#"{"schemaVersion":2,"jobKey":"acme/shop#12","result":{}}"#, "schemaVersion is 2"),
            (br#"{"schemaVersion":1,"jobKey":"acme/shop#13","result":{}}"#, "another job"),
            (br#"{"schemaVersion":1,"jobKey":"acme/shop#12","result":{},"x":1}"#, "unknown field"),
            (br#"{"schemaVersion":1,"jobKey":"acme/shop#12","result":{}}{}"#, "trailing"),
            (b"{\"schemaVersion\":1,\"jobKey\":\"\xff\",\"result\":{}}", "not UTF-8"),
        ] {
            let verdict = end(&[line], &CLEAN);
            assert!(why(&verdict).contains(part), "{verdict:?}");
        }
        assert!(why(&end(&[], &CLEAN)).contains("nothing"));
        assert!(why(&end(&[good, b""], &CLEAN)).contains("2 lines"));
        assert!(why(&end(&[b"banner", good], &CLEAN)).contains("2 lines"));
    }

    #[test]
    fn an_answer_counts_only_after_a_clean_exit() {
        let good = format!(r#"{{"schemaVersion":1,"jobKey":"{KEY}","result":{{"reply":"ok"}}}}"#);
        let with = |exit: Exit<'_>| end(&[good.as_bytes()], &exit);
        assert!(why(&with(Exit { code: Some(1), ..CLEAN })).contains("exited with 1"));
        assert!(why(&with(Exit { code: None, ..CLEAN })).contains("no code"));
        assert!(why(&with(Exit { over_limit: true, ..CLEAN })).contains("more than"));
        let killed = with(Exit { code: None, signal: Some(9), ..CLEAN });
        assert_eq!((killed.reason, killed.summary), (Reason::Crashed, None));
        let killed_inside_the_box = with(Exit { code: Some(137), ..CLEAN });
        assert_eq!(killed_inside_the_box.reason, Reason::Crashed);
    }

    #[test]
    fn standard_error_is_never_told() {
        let exit = Exit { code: Some(1), stderr: "the-secret", ..CLEAN };
        assert!(!format!("{:?}", end(&[b"x"], &exit)).contains("the-secret"));
    }
}
