//! The file by itself: what is in it, what is not, and that a replay comes to what the run came to.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use relay::model::{Secret, StopReason, Timestamp};
use relay::process::{EndedBy, LaneEnd, Redactor};
use relay::work::StopSignal;
use relay::work::lane::reader_of;
use relay::work::transcript::{
    End, FORMAT, Header, Line, MOST_BYTES, Recorder, Transcript, file_of, replay,
};
use relay::work::verdict::{LaneResult, conclude};

use super::outputs;

const RUN: &str = "01a22849-7237-7477-9968-cfb236f5cf54";
const NOW: Timestamp = Timestamp(1_795_993_200_000);

fn header(lane: &str) -> Header {
    Header {
        transcript: FORMAT,
        relay: "0.1.0".to_owned(),
        lane: lane.to_owned(),
        through: None,
        version: Some("1.2.3".to_owned()),
        model: Some("m".to_owned()),
        task: "acme/shop#1".parse().unwrap(),
        run: RUN.parse().unwrap(),
        at: NOW,
    }
}

fn end(ended_by: EndedBy, code: Option<i32>, signal: Option<i32>) -> LaneEnd {
    LaneEnd {
        code,
        signal,
        ended_by,
        stderr: b"last words\n".to_vec(),
        stdout_bytes: 7,
        elapsed: Duration::from_millis(61_234),
    }
}

/// Runs lines through a lane as the worker does, and records them.
fn run(
    runs: &Path,
    lane: &str,
    lines: &[&[u8]],
    end: &LaneEnd,
    off: Option<&StopReason>,
) -> LaneResult {
    let redactor = Redactor::default();
    let mut recorder = Recorder::begin(runs, &header(lane), redactor.clone());
    let mut reader = reader_of(&lane.parse().unwrap(), None, Some("m"), "acme/shop#1").unwrap();
    for line in lines {
        recorder.line(line);
        reader.line(line);
    }
    let signal = StopSignal::default();
    if let Some(reason) = off {
        signal.stop(reason.clone());
    }
    let result = conclude(reader, end.clone(), &signal, NOW, &redactor);
    let stop = result.stop.clone().unwrap_or(StopReason::Finished);
    let file = recorder.end(&End::of(end, off.cloned(), NOW, stop, true)).unwrap();
    assert_eq!(file, file_of(runs, &RUN.parse().unwrap()));
    result
}

fn replayed(runs: &Path) -> (Transcript, relay::work::transcript::Replayed) {
    let transcript = Transcript::read(&file_of(runs, &RUN.parse().unwrap())).unwrap();
    let replayed = replay(&transcript).unwrap();
    (transcript, replayed)
}

#[test]
fn every_recorded_output_comes_to_the_same_however_its_run_ended() {
    let ends = [
        (end(EndedBy::Itself, Some(0), None), None),
        (end(EndedBy::Itself, Some(1), None), None),
        (end(EndedBy::Itself, None, Some(9)), None),
        (end(EndedBy::Asked, Some(137), None), None),
        (end(EndedBy::Asked, None, Some(9)), Some(StopReason::Cancelled)),
        (end(EndedBy::TimedOut, None, Some(9)), None),
        (end(EndedBy::Stalled, None, Some(9)), None),
        (end(EndedBy::OutputLimit, None, Some(9)), None),
    ];
    let mut reasons = std::collections::BTreeSet::new();
    for (lane, name, text) in outputs() {
        let lines: Vec<&[u8]> =
            text.strip_suffix(b"\n").unwrap_or(&text).split(|b| *b == b'\n').collect();
        for (end, off) in &ends {
            let dir = tempfile::tempdir().unwrap();
            let result = run(dir.path(), lane, &lines, end, off.as_ref());
            let (transcript, again) = replayed(dir.path());
            assert_eq!(again.result.as_ref(), Some(&result), "{lane} {name} {end:?}");
            assert_eq!(transcript.end.unwrap().stop, again.stop().unwrap(), "{lane} {name}");
            reasons.insert(again.stop().unwrap().to_string());
        }
    }
    assert!(reasons.len() > 10, "{reasons:?}");
}

#[test]
fn lines_of_any_bytes_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let lines: [&[u8]; 8] =
        [b"{\"a\":1}", b"", b"> not mine", b"\xff\xfe", b"a\0b", b"cr\r", "é 👋".as_bytes(), b"{"];
    run(dir.path(), "claude", &lines, &end(EndedBy::Itself, Some(0), None), None);
    let (transcript, _) = replayed(dir.path());
    let said: Vec<Line> = lines.iter().map(|line| Line::Said(line.to_vec())).collect();
    assert_eq!(transcript.lines, said);
    assert_eq!(transcript.header, header("claude"));
}

#[test]
fn a_run_that_begins_again_is_recorded_anew() {
    let dir = tempfile::tempdir().unwrap();
    let killed = Recorder::begin(dir.path(), &header("claude"), Redactor::default());
    drop(killed);
    run(dir.path(), "claude", &[b"again"], &end(EndedBy::Itself, Some(0), None), None);
    assert_eq!(replayed(dir.path()).0.lines, [Line::Said(b"again".to_vec())]);
}

#[test]
fn it_is_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    run(&runs, "claude", &[b"x"], &end(EndedBy::Itself, Some(0), None), None);
    let file = file_of(&runs, &RUN.parse().unwrap());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
}

#[test]
fn a_long_run_keeps_its_beginning_and_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, done) =
        outputs().into_iter().find(|o| (o.0, o.1.as_str()) == ("claude", "done")).unwrap();
    let done: Vec<&[u8]> = done.strip_suffix(b"\n").unwrap().split(|b| *b == b'\n').collect();
    let filler = format!("{{\"type\":\"system\",\"x\":\"{}\"}}", "y".repeat(100_000));
    // A line that is longer than all that is kept of the end.
    let huge = format!("{{\"type\":\"system\",\"x\":\"{}\"}}", "y".repeat(9 << 20));
    let mut lines = vec![done[0]];
    lines.resize(300, filler.as_bytes());
    lines.push(huge.as_bytes());
    lines.extend(&done[1..]);
    let result = run(dir.path(), "claude", &lines, &end(EndedBy::Itself, Some(0), None), None);
    let file = file_of(dir.path(), &RUN.parse().unwrap());
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!((11 << 20..MOST_BYTES).contains(&bytes), "{bytes} bytes");
    let (transcript, again) = replayed(dir.path());
    assert_eq!(again.result, Some(result));
    let said = transcript.lines.iter().filter(|line| matches!(line, Line::Said(_))).count() as u64;
    assert_eq!(said + again.left_out.lines, lines.len() as u64);
    assert!(again.left_out.bytes > 15 << 20, "{:?}", again.left_out);
}

#[test]
fn a_secret_in_json_s_escapes_is_not_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let token = "sk-Canary0123456789";
    let redactor = Redactor::new([Secret::new(token)]);
    let mut recorder = Recorder::begin(dir.path(), &header("codex"), redactor);
    // One letter of it as an escape: nothing that looks for its bytes finds it.
    let escaped = token.replace('C', "\\u0043");
    recorder.line(format!("{{\"b\":[1.5,\"x {escaped} y\"],\"{escaped}\":null}}").as_bytes());
    let mut end = end(EndedBy::Itself, Some(0), None);
    end.stderr = token.as_bytes().to_vec();
    recorder.end(&End::of(&end, None, NOW, StopReason::Finished, true)).unwrap();
    let text = std::fs::read_to_string(file_of(dir.path(), &RUN.parse().unwrap())).unwrap();
    assert!(!text.contains(token) && !text.contains(&escaped), "{text}");
    let (transcript, _) = replayed(dir.path());
    let expected = br#"{"[redacted]":null,"b":[1.5,"x [redacted] y"]}"#;
    assert_eq!(transcript.lines, [Line::Said(expected.to_vec())]);
    assert_eq!(transcript.end.unwrap().stderr.as_deref(), Some("[redacted]"));
}

#[test]
fn a_disk_that_refuses_costs_the_transcript_and_not_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    std::fs::write(&runs, "a file in the folder's place").unwrap();
    let mut recorder = Recorder::begin(&runs, &header("claude"), Redactor::default());
    recorder.line(b"x");
    let end = end(EndedBy::Itself, Some(0), None);
    assert_eq!(recorder.end(&End::of(&end, None, NOW, StopReason::Finished, true)), None);
}
