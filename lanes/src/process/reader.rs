//! From what a program printed and how it ended to its answer, or to why there is none.

use super::answer::{Answer, AnswerError, RESPONSE_BYTES, parse_answer};
use crate::{Exit, LaneUsage, Reader, Reason, Said, Verdict};

/// What helps with a program that ended badly by itself: of its standard error, which has the cause
/// as a rule, nothing is kept, so no log has it.
const BY_HAND: &str = "what it wrote on standard error is kept nowhere: run it by hand, or let it write \
                       a file; docs/LANES.md, \"What ends it badly\", shows how";

/// Keeps what is printed until the program has ended: its exit decides whether it counts.
#[derive(Debug)]
pub struct Answers {
    job_key: String,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
    lines: usize,
}

impl Answers {
    /// Waits for the answer to the request with this key.
    #[must_use]
    pub fn new(job_key: &str) -> Self {
        Self { job_key: job_key.to_owned(), first: None, last: Vec::new(), lines: 0 }
    }

    /// Takes one line of standard output, without its `\n`.
    pub fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        match &self.first {
            None => self.first = Some(line.to_vec()),
            Some(_) => self.last = line.to_vec(),
        }
    }

    /// The answer.
    ///
    /// # Errors
    /// When the program did not keep to its contract, or was killed; see [`AnswerError`].
    pub fn end(&self, exit: &Exit<'_>) -> Result<Answer, AnswerError> {
        if exit.over_limit {
            let too_long = exit.stdout_bytes > RESPONSE_BYTES as u64;
            return Err(if too_long { AnswerError::TooLong } else { AnswerError::TooMuchStderr });
        }
        if let Some(signal) = exit.killed_by() {
            return Err(AnswerError::Killed(signal));
        }
        match exit.code {
            Some(0) => {}
            Some(code) => return Err(AnswerError::ExitCode(code)),
            None => return Err(AnswerError::NoExitCode),
        }
        let Some(first) = &self.first else { return Err(AnswerError::Nothing) };
        if self.lines == 1 {
            return parse_answer(first, &self.job_key);
        }
        let counts = |line: &[u8]| parse_answer(line, &self.job_key).is_ok();
        Err(match (counts(first), counts(&self.last)) {
            (false, true) => AnswerError::Banner,
            (true, false) => AnswerError::Afterwards,
            _ => AnswerError::Lines(self.lines),
        })
    }
}

/// Reads a task's answer.
pub(super) struct TaskReader(pub(super) Answers);

impl Reader for TaskReader {
    fn line(&mut self, line: &[u8]) -> Vec<Said> {
        self.0.take(line);
        Vec::new()
    }

    fn end(self: Box<Self>, exit: &Exit<'_>) -> Verdict {
        self.0.end(exit).and_then(of_task).unwrap_or_else(refused)
    }
}

/// What an answer says of a task.
fn of_task(answer: Answer) -> Result<Verdict, AnswerError> {
    if answer.note.as_ref().is_some_and(|note| !note.source_message_ids.is_empty()) {
        return Err(AnswerError::TaskWithMessages);
    }
    let reason = if answer.skip { Reason::Skipped } else { Reason::Done };
    let usage = answer.usage.unwrap_or_default();
    let usage = LaneUsage {
        model_calls: usage.model_calls,
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        ..LaneUsage::default()
    };
    let note = answer.note.map(|note| note.text);
    Ok(Verdict { summary: answer.reply, usage, note, ..Verdict::new(reason) })
}

fn refused(why: AnswerError) -> Verdict {
    if let AnswerError::Killed(_) = why {
        let hint = Some(BY_HAND.to_owned());
        return Verdict { error: Some(why.to_string()), hint, ..Verdict::new(Reason::Crashed) };
    }
    let mends = match why {
        AnswerError::ExitCode(_) => BY_HAND,
        _ => {
            "the program must print one JSON line on standard output and exit with 0; see \
             docs/LANES.md"
        }
    };
    Verdict {
        error: Some(format!("the program broke its contract: {why}")),
        hint: Some(mends.to_owned()),
        ..Verdict::new(Reason::ProtocolViolation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const KEY: &str = "acme/shop#12";
    const GOOD: &[u8] = br#"{"schemaVersion":1,"jobKey":"acme/shop#12","result":{"reply":"ok"}}"#;
    const OTHER: &[u8] = br#"{"schemaVersion":1,"jobKey":"acme/shop#13","result":{}}"#;
    const CLEAN: Exit<'_> = Exit {
        code: Some(0),
        signal: None,
        stderr: "",
        now_ms: 0,
        over_limit: false,
        stdout_bytes: 0,
    };

    fn end(lines: &[&[u8]], exit: &Exit<'_>) -> Result<Answer, AnswerError> {
        let mut answers = Answers::new(KEY);
        lines.iter().for_each(|line| answers.take(line));
        answers.end(exit)
    }

    fn verdict(result: &Value) -> Verdict {
        let line = json!({"schemaVersion": 1, "jobKey": KEY, "result": result}).to_string();
        let mut reader = crate::process::reader(KEY);
        assert_eq!(reader.line(line.as_bytes()), []);
        reader.end(&CLEAN)
    }

    #[test]
    fn each_wrong_number_of_lines_has_its_name() {
        assert_eq!(end(&[GOOD], &CLEAN).unwrap().reply.as_deref(), Some("ok"));
        assert_eq!(end(&[], &CLEAN), Err(AnswerError::Nothing));
        assert_eq!(end(&[GOOD, GOOD], &CLEAN), Err(AnswerError::Lines(2)));
        assert_eq!(end(&[b"Hello", GOOD], &CLEAN), Err(AnswerError::Banner));
        assert_eq!(end(&[b"Hello", b"", GOOD], &CLEAN), Err(AnswerError::Banner));
        assert_eq!(end(&[GOOD, b""], &CLEAN), Err(AnswerError::Afterwards));
        assert_eq!(end(&[b"a", b"b", b"c"], &CLEAN), Err(AnswerError::Lines(3)));
        assert_eq!(end(&[OTHER], &CLEAN), Err(AnswerError::OtherJob));
    }

    #[test]
    fn an_answer_counts_only_after_a_clean_exit() {
        let with = |exit: Exit<'_>| end(&[GOOD], &exit).unwrap_err();
        assert_eq!(with(Exit { code: Some(1), ..CLEAN }), AnswerError::ExitCode(1));
        assert_eq!(with(Exit { code: None, ..CLEAN }), AnswerError::NoExitCode);
        let killed = Exit { code: None, signal: Some(9), ..CLEAN };
        assert_eq!(with(killed), AnswerError::Killed(9));
        let in_the_box = Exit { code: Some(137), ..CLEAN };
        assert_eq!(with(in_the_box), AnswerError::Killed(9));
        let over = Exit { over_limit: true, ..killed };
        assert_eq!(with(over), AnswerError::TooMuchStderr);
        assert_eq!(with(Exit { stdout_bytes: 131_072, ..over }), AnswerError::TooMuchStderr);
        assert_eq!(with(Exit { stdout_bytes: 131_073, ..over }), AnswerError::TooLong);
    }

    #[test]
    fn a_task_takes_the_answer_as_its_own() {
        let reply = verdict(&json!({"reply": "Done", "usage": {"modelCalls": 0}}));
        assert_eq!((reply.reason, reply.summary.as_deref()), (Reason::Done, Some("Done")));
        assert_eq!((reply.usage.model_calls, reply.usage.input_tokens), (Some(0), None));
        let empty = verdict(&json!({}));
        assert_eq!((empty.reason, empty.summary), (Reason::Done, None));
        assert_eq!(empty.usage, LaneUsage::default());
        let skip = verdict(&json!({"skip": true, "usage": {"outputTokens": 4}}));
        assert_eq!((skip.reason, skip.usage.output_tokens), (Reason::Skipped, Some(4)));
        assert_eq!(verdict(&json!({"note": {"text": "n"}})).note.as_deref(), Some("n"));
        let sources = verdict(&json!({"note": {"text": "n", "sourceMessageIds": ["m"]}}));
        assert_eq!(sources.reason, Reason::ProtocolViolation);
    }

    #[test]
    fn a_kill_is_a_crash_and_the_rest_breaks_the_contract() {
        let reason = |exit: Exit<'_>| crate::process::reader(KEY).end(&exit).reason;
        assert_eq!(reason(Exit { code: Some(139), ..CLEAN }), Reason::Crashed);
        assert_eq!(reason(Exit { code: Some(1), ..CLEAN }), Reason::ProtocolViolation);
        assert_eq!(reason(CLEAN), Reason::ProtocolViolation);
    }

    #[test]
    fn standard_error_is_never_told() {
        let exit = Exit { code: Some(1), stderr: "the-secret", ..CLEAN };
        let told = crate::process::reader(KEY).end(&exit);
        assert!(!format!("{told:?}").contains("the-secret"));
    }

    #[test]
    fn of_a_program_that_ended_badly_no_log_is_said_to_have_the_cause() {
        for exit in [Exit { code: Some(139), ..CLEAN }, Exit { code: Some(1), ..CLEAN }] {
            let hint = crate::process::reader(KEY).end(&exit).hint.unwrap();
            assert!(hint.contains("by hand") && !hint.contains("relay task log"), "{hint}");
        }
    }
}
