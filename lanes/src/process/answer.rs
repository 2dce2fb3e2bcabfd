//! The one line a process lane's program answers with: what may stand in it.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::{SUMMARY_BYTES, text};

/// The most bytes of an answer, its line end included.
pub const RESPONSE_BYTES: usize = 131_072;
/// The most UTF-8 bytes of a note's text, the inbox's number for a runtime's note.
pub const NOTE_BYTES: usize = 4000;
/// The most messages a note may name, the inbox's number.
pub const NOTE_SOURCES: usize = 8;
/// The largest count every JSON reader keeps exactly: 2^53 − 1.
const COUNT: u64 = 9_007_199_254_740_991;
/// The most characters of a parser's own words.
const DETAIL_CHARS: usize = 200;

/// Why an answer does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// A signal ended the program: of all these the one that is not its answer's fault.
    #[error("the program was ended by signal {0}")]
    Killed(i32),
    /// More than [`RESPONSE_BYTES`] on standard output.
    #[error("its answer has more than 131072 bytes")]
    TooLong,
    /// More than [`super::STDERR_BYTES`] on standard error.
    #[error("it wrote more than 32768 bytes on standard error")]
    TooMuchStderr,
    /// An exit code other than 0.
    #[error("it exited with {0}, not 0")]
    ExitCode(i32),
    /// Neither a code nor a signal is known.
    #[error("it ended without an exit code")]
    NoExitCode,
    /// Nothing on standard output.
    #[error("it answered nothing")]
    Nothing,
    /// A line in front of the answer that is none.
    #[error("it printed something else before its answer")]
    Banner,
    /// A line behind the answer that is none.
    #[error("it printed something else after its answer")]
    Afterwards,
    /// More lines than one.
    #[error("it answered {0} lines, not one")]
    Lines(usize),
    /// Bytes that are no text.
    #[error("its answer is not UTF-8")]
    NotUtf8,
    /// No JSON.
    #[error("its answer is not JSON: {0}")]
    NotJson(String),
    /// JSON of another shape: a field too many or too few, or of another type.
    #[error("its answer does not fit: {0}")]
    Shape(String),
    /// Another contract's.
    #[error("its answer has schemaVersion {0}, not 1")]
    Version(u64),
    /// The key is not the request's.
    #[error("its answer is for another job")]
    OtherJob,
    /// `skip` with something to deliver.
    #[error("skip stands beside a reply or a note")]
    SkipWithMore,
    /// A text of blanks.
    #[error("its {0} is empty")]
    Empty(&'static str),
    /// A text over its limit.
    #[error("its {field} has {found} {unit}, more than {most}")]
    TooMuch {
        /// Which.
        field: &'static str,
        /// How much there is.
        found: usize,
        /// Of what.
        unit: &'static str,
        /// How much there may be.
        most: usize,
    },
    /// A NUL character, which no text that is kept can hold.
    #[error("its {0} holds a NUL character")]
    Nul(&'static str),
    /// A count that not every reader of JSON keeps exactly.
    #[error("its usage holds a count over 9007199254740991")]
    Count,
    /// A note of a task that names messages: a task has none.
    #[error("a task's note names messages, and a task has none")]
    TaskWithMessages,
}

/// An answer that fits its contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = {
    "properties": { "skip": { "const": true } },
    "required": ["skip"],
    "anyOf": [{ "required": ["reply"] }, { "required": ["note"] }],
}))]
pub struct Answer {
    /// What was done, for people: at most 16,000 bytes of UTF-8. A task without is finished all the
    /// same.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "String", length(max = SUMMARY_BYTES), regex(pattern = TEXT))]
    pub reply: Option<String>,
    /// There is nothing to do, and nothing to deliver.
    #[serde(default)]
    pub skip: bool,
    /// Something to keep beside the reply.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Note")]
    pub note: Option<Note>,
    /// What it cost, where the program knows.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Reported")]
    pub usage: Option<Reported>,
}

/// A note, as the inbox has it. A task has no messages, so there only the text counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Note {
    /// At most 4000 bytes of UTF-8.
    #[schemars(length(max = NOTE_BYTES), regex(pattern = TEXT))]
    pub text: String,
    /// The note's name.
    #[serde(default)]
    pub key: String,
    /// The version it replaces; 0 makes it.
    #[serde(default)]
    pub version: u64,
    /// The messages it is made from; none for a task.
    #[serde(default)]
    #[schemars(length(max = NOTE_SOURCES))]
    pub source_message_ids: Vec<String>,
}

/// What the program says it used. What it leaves out is not reported, and never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reported {
    /// Calls of a model.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "u64", range(max = COUNT))]
    pub model_calls: Option<u64>,
    /// Tokens it gave a model.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "u64", range(max = COUNT))]
    pub input_tokens: Option<u64>,
    /// Tokens a model gave it.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "u64", range(max = COUNT))]
    pub output_tokens: Option<u64>,
}

/// Not only blanks, and no NUL.
const TEXT: &str = "^[^\0]*[^\\s\0][^\0]*$";

/// The line around an answer.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wire {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    schema_version: u64,
    /// The request's.
    job_key: String,
    /// What came of the job.
    result: Answer,
}

/// Reads an answer's line, without its `\n`.
///
/// # Errors
/// When it is not what the contract says; see [`AnswerError`].
pub fn parse_answer(line: &[u8], job_key: &str) -> Result<Answer, AnswerError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > RESPONSE_BYTES {
        return Err(AnswerError::TooLong);
    }
    let line = std::str::from_utf8(line).map_err(|_| AnswerError::NotUtf8)?;
    let answer: Wire = serde_json::from_str(line).map_err(|error| {
        let detail = text::one_line(&error.to_string(), DETAIL_CHARS);
        match error.classify() {
            serde_json::error::Category::Data => AnswerError::Shape(detail),
            _ => AnswerError::NotJson(detail),
        }
    })?;
    if answer.schema_version != 1 {
        return Err(AnswerError::Version(answer.schema_version));
    }
    if answer.job_key != job_key {
        return Err(AnswerError::OtherJob);
    }
    answer.result.checked()
}

impl Answer {
    fn checked(self) -> Result<Self, AnswerError> {
        if self.skip && (self.reply.is_some() || self.note.is_some()) {
            return Err(AnswerError::SkipWithMore);
        }
        if let Some(reply) = &self.reply {
            fits("reply", reply, SUMMARY_BYTES)?;
        }
        if let Some(note) = &self.note {
            fits("note", &note.text, NOTE_BYTES)?;
            let (found, most) = (note.source_message_ids.len(), NOTE_SOURCES);
            if found > most {
                return Err(AnswerError::TooMuch { field: "note", found, unit: "sources", most });
            }
        }
        let counts = self.usage.map(|u| [u.model_calls, u.input_tokens, u.output_tokens]);
        if counts.into_iter().flatten().flatten().any(|count| count > COUNT) {
            return Err(AnswerError::Count);
        }
        Ok(self)
    }
}

fn fits(field: &'static str, text: &str, most: usize) -> Result<(), AnswerError> {
    if text.trim().is_empty() {
        return Err(AnswerError::Empty(field));
    }
    if text.contains('\0') {
        return Err(AnswerError::Nul(field));
    }
    if text.len() > most {
        let found = text.len();
        return Err(AnswerError::TooMuch { field, found, unit: "bytes", most });
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

    fn answer(result: &Value) -> Result<Answer, AnswerError> {
        let line = json!({"schemaVersion": 1, "jobKey": KEY, "result": result}).to_string();
        parse_answer(line.as_bytes(), KEY)
    }

    #[test]
    fn the_four_kinds_of_answer() {
        let reply = answer(&json!({"reply": "Done: 👋\nall", "usage": {"modelCalls": 0}})).unwrap();
        assert_eq!(reply.reply.as_deref(), Some("Done: 👋\nall"));
        let usage = reply.usage.unwrap();
        assert_eq!((usage.model_calls, usage.input_tokens), (Some(0), None), "none is not zero");
        assert_eq!(answer(&json!({})).unwrap(), Answer::default());
        assert_eq!(answer(&json!({"skip": false})).unwrap(), Answer::default());
        assert!(answer(&json!({"skip": true, "usage": {"inputTokens": 3}})).unwrap().skip);
        let sources: Vec<_> = (0..8).map(|n| n.to_string()).collect();
        let note = json!({"key": "k", "text": "n", "version": 2, "sourceMessageIds": sources});
        let note = answer(&json!({"reply": "ok", "note": note})).unwrap().note.unwrap();
        assert_eq!((note.key.as_str(), note.version), ("k", 2));
    }

    #[test]
    fn what_the_contract_refuses() {
        for (result, part) in [
            (json!({"reply": ""}), "reply is empty"),
            (json!({"reply": " \n"}), "reply is empty"),
            (json!({"reply": "a\0b"}), "reply holds a NUL"),
            (json!({"reply": "x".repeat(16_001)}), "16001 bytes"),
            (json!({"reply": "é".repeat(8_001)}), "16002 bytes"),
            (json!({"reply": null}), "null"),
            (json!({"skip": true, "reply": "x"}), "skip stands beside"),
            (json!({"skip": true, "note": {"text": "x"}}), "skip stands beside"),
            (json!({"skip": "yes"}), "does not fit"),
            (json!({"skip": null}), "does not fit"),
            (json!({"note": "x"}), "does not fit"),
            (json!({"note": {"text": "\0"}}), "note holds a NUL"),
            (json!({"note": {"text": "x".repeat(4001)}}), "4001 bytes"),
            (json!({"note": {"text": "x", "sourceMessageIds": vec!["m"; 9]}}), "9 sources"),
            (json!({"usage": {"modelCalls": -1}}), "does not fit"),
            (json!({"usage": {"modelCalls": 1.5}}), "does not fit"),
            (json!({"usage": {"inputTokens": COUNT + 1}}), "over"),
            (json!({"usage": {"costUsd": 1}}), "unknown field"),
            (json!({"done": true}), "unknown field"),
            (json!("x"), "does not fit"),
        ] {
            let refused = answer(&result).unwrap_err().to_string();
            assert!(refused.contains(part), "{result}: {refused}");
        }
        assert!(answer(&json!({"reply": "é".repeat(8_000)})).is_ok());
        assert!(answer(&json!({"note": {"text": "x".repeat(4000)}})).is_ok());
    }

    #[test]
    fn the_envelope_is_strict() {
        let good = format!(r#"{{"schemaVersion":1,"jobKey":"{KEY}","result":{{}}}}"#);
        let good = good.as_bytes();
        assert_eq!(parse_answer(&[good, b"\r"].concat(), KEY), Ok(Answer::default()));
        for (line, part) in [
            (&b"hello"[..], "not JSON"),
            (b"", "not JSON"),
            (b"{\"schemaVersion\":1", "not JSON"),
            (b"{}", "missing field"),
            (br#"{"schemaVersion":2,"jobKey":"acme/shop#12","result":{}}"#, "schemaVersion 2"),
            (br#"{"schemaVersion":1,"jobKey":"acme/shop#13","result":{}}"#, "another job"),
            (br#"{"schemaVersion":1,"jobKey":"acme/shop#12","result":{},"x":1}"#, "unknown field"),
            (br#"{"schemaVersion":1,"jobKey":"a","jobKey":"acme/shop#12","result":{}}"#, "duplica"),
            (br#"{"schemaVersion":1,"jobKey":"acme/shop#12","result":{}}{}"#, "trailing"),
            (b"{\"schemaVersion\":1,\"jobKey\":\"\xff\",\"result\":{}}", "not UTF-8"),
            (b"\xef\xbb\xbf{}", "not JSON"),
        ] {
            let refused = parse_answer(line, KEY).unwrap_err().to_string();
            assert!(refused.contains(part), "{}: {refused}", String::from_utf8_lossy(line));
        }
        let long = [good, &vec![b' '; RESPONSE_BYTES]].concat();
        assert_eq!(parse_answer(&long, KEY), Err(AnswerError::TooLong));
    }

    #[test]
    fn a_refusal_tells_little_of_what_was_printed() {
        let refused = answer(&Value::from("x".repeat(100_000))).unwrap_err().to_string();
        assert!(refused.len() < 300, "{} bytes", refused.len());
    }
}
