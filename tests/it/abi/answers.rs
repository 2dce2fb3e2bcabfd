//! What a program is given, and what it may print: each bad answer under its own name.

use relay_lanes::process::{Answer, AnswerError, Payload, REQUEST_BYTES, TaskDetails};
use serde_json::{Value, json};

use super::program::{Bench, KEY, TASK};

async fn answer(script: &str) -> Result<Answer, AnswerError> {
    Bench::new().script(script).await.1
}

async fn refused(script: &str) -> AnswerError {
    answer(script).await.expect_err("this answer must be refused")
}

#[tokio::test]
async fn the_request_is_one_line_and_its_end_and_the_answer_is_taken() {
    let bench = Bench::new();
    let answer = bench.script("cat > request; printf '%s\\n' \"$GOOD\"").await.1.unwrap();
    assert_eq!(answer.reply.as_deref(), Some("ok"));
    let request = bench.left("request");
    assert_eq!(request.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(request.last(), Some(&b'\n'));
    let request: Value = serde_json::from_slice(&request).unwrap();
    assert_eq!(request["jobKey"], KEY);
    assert_eq!(request["untrustedExternalData"], true);
    assert_eq!(request["task"]["title"], TASK.title);
    assert_eq!(request["task"]["prompt"], TASK.prompt);
}

#[tokio::test]
async fn the_longest_request_reaches_a_program_that_reads_it_late() {
    let bench = Bench::new();
    let prompt = "é\n".repeat(REQUEST_BYTES);
    let task = TaskDetails { prompt: &prompt, ..TASK };
    let script = "printf '%s\\n' \"$GOOD\"; wc -c > bytes";
    assert!(bench.script_for(script, &task).await.1.is_ok());
    let bytes: usize = String::from_utf8(bench.left("bytes")).unwrap().trim().parse().unwrap();
    assert!((REQUEST_BYTES - 6..=REQUEST_BYTES).contains(&bytes), "{bytes} bytes");
}

#[tokio::test]
async fn another_callers_payload_goes_the_same_way() {
    struct Message;
    impl Payload for Message {
        fn field(&self, _room: usize) -> String {
            format!("\"message\":{}", json!({ "id": "m", "body": { "text": "hello 👋" } }))
        }
    }
    let bench = Bench::new();
    let note = r#"{"key":"k","text":"n","version":1,"sourceMessageIds":["m"]}"#;
    let script = format!(
        "cat > request; printf '{{\"schemaVersion\":1,\"jobKey\":\"%s\",\"result\":{{\"reply\":\"hi\",\"note\":{note}}}}}' \"$KEY\""
    );
    let answer = bench.script_for(&script, &Message).await.1.unwrap();
    assert_eq!(answer.note.unwrap().source_message_ids, ["m"]);
    let request: Value = serde_json::from_slice(&bench.left("request")).unwrap();
    assert_eq!(request["message"]["body"]["text"], "hello 👋");
    assert_eq!(request.get("task"), None);
}

#[tokio::test]
async fn line_ends_of_both_kinds_and_none_are_taken() {
    for end in ["", "\\n", "\\r\\n"] {
        assert!(answer(&format!("printf \"%s{end}\" \"$GOOD\"")).await.is_ok(), "{end}");
    }
}

#[tokio::test]
async fn two_lines_are_refused() {
    assert_eq!(refused("echo \"$GOOD\"; echo \"$GOOD\"").await, AnswerError::Lines(2));
}

#[tokio::test]
async fn a_banner_before_the_line_is_refused() {
    assert_eq!(refused("echo 'Welcome!'; echo \"$GOOD\"").await, AnswerError::Banner);
}

#[tokio::test]
async fn a_log_line_behind_it_is_refused() {
    assert_eq!(refused("echo \"$GOOD\"; echo 'Bye!'").await, AnswerError::Afterwards);
    assert_eq!(refused("echo \"$GOOD\"; echo").await, AnswerError::Afterwards);
}

#[tokio::test]
async fn a_banner_on_the_same_line_is_refused() {
    let error = refused("echo \"Welcome! $GOOD\"").await;
    assert!(matches!(&error, AnswerError::NotJson(_)), "{error}");
}

#[tokio::test]
async fn bad_utf_8_is_refused() {
    let script = "printf '{\"schemaVersion\":1,\"jobKey\":\"%s\",\"result\":{\"reply\":\"\\377\"}}\\n' \"$KEY\"";
    assert_eq!(refused(script).await, AnswerError::NotUtf8);
}

#[tokio::test]
async fn the_wrong_job_is_refused() {
    let script = "printf '{\"schemaVersion\":1,\"jobKey\":\"local/shop#2\",\"result\":{}}\\n'";
    assert_eq!(refused(script).await, AnswerError::OtherJob);
}

#[tokio::test]
async fn one_byte_over_128_kib_is_refused_and_not_one_less() {
    // Blanks inside the braces fill it up.
    let with = |bytes: usize| {
        format!(
            "printf '{{\"schemaVersion\":1,\"jobKey\":\"%s\",\"result\":{{' \"$KEY\"\n\
             head -c {} /dev/zero | tr '\\0' ' '; printf '}}}}\\n'",
            bytes - format!("{{\"schemaVersion\":1,\"jobKey\":\"{KEY}\",\"result\":{{}}}}\n").len()
        )
    };
    assert_eq!(answer(&with(131_072)).await, Ok(Answer::default()));
    assert_eq!(refused(&with(131_073)).await, AnswerError::TooLong);
    assert_eq!(refused("exec yes").await, AnswerError::TooLong);
}

#[tokio::test]
async fn nothing_at_all_is_refused() {
    assert_eq!(refused("cat > /dev/null").await, AnswerError::Nothing);
    assert_eq!(refused("exec >&-").await, AnswerError::Nothing);
    let blank = refused("echo").await;
    assert!(matches!(&blank, AnswerError::NotJson(_)), "{blank}");
}

#[tokio::test]
async fn a_code_other_than_0_is_refused_whatever_was_answered() {
    assert_eq!(refused("echo \"$GOOD\"; exit 3").await, AnswerError::ExitCode(3));
}

#[tokio::test]
async fn standard_error_has_a_limit_and_is_told_nowhere() {
    let with = |bytes: usize| {
        format!(
            "printf secret-word >&2; head -c {} /dev/zero >&2; echo \"$GOOD\"",
            bytes - "secret-word".len()
        )
    };
    assert!(answer(&with(32_768)).await.is_ok());
    let over = refused(&with(32_769)).await;
    assert_eq!(over, AnswerError::TooMuchStderr);
    assert!(!over.to_string().contains("secret-word"));
}
