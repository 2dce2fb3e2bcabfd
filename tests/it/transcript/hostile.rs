//! Files that are no transcript, or want to be more than one: each is refused under its name.

use std::path::{Path, PathBuf};

use crate::support::house::{House, Ran};

const HEADER: &str = r#"{"transcript":1,"relay":"0.1.0","lane":"LANE","version":null,"model":null,"task":"acme/shop#1","run":"01a22849-7237-7477-9968-cfb236f5cf54","at":1795993200000}"#;
const END: &str = r#"{"code":0,"signal":null,"ended_by":"itself","called_off":null,"stderr":"","stdout_bytes":0,"elapsed_ms":1,"at":1795993200000,"stop":{"reason":"finished"}}"#;

fn header(lane: &str) -> String {
    HEADER.replace("LANE", lane)
}

struct Shelf {
    house: House,
}

impl Shelf {
    fn new() -> Self {
        Self { house: House::new() }
    }

    fn at(&self) -> PathBuf {
        self.house.dir.path().join("transcript")
    }

    fn replay(&self, path: &Path) -> Ran {
        self.house.relay(&["lane", "replay", path.to_str().unwrap()])
    }

    fn file(&self, bytes: &[u8]) -> Ran {
        std::fs::write(self.at(), bytes).unwrap();
        self.replay(&self.at())
    }

    /// The file is refused with this code and these words.
    #[track_caller]
    fn refuses(&self, bytes: &[u8], code: i32, words: &str) {
        let ran = self.file(bytes);
        let said = format!("error: {}: {words}", self.at().display());
        assert!(ran.err.starts_with(&said), "{words}: {}", ran.err);
        assert!(ran.err.contains("\nhint: "), "{}", ran.err);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{words}");
        assert!(ran.err.len() < 2000, "{} bytes", ran.err.len());
    }
}

#[test]
fn each_is_refused_under_its_name() {
    let shelf = Shelf::new();
    let claude = header("claude");
    let with = |rest: &[u8]| [claude.as_bytes(), b"\n", rest].concat();
    shelf.refuses(b"", 2, "is empty");
    shelf.refuses(b"hello", 2, "is not a transcript of relay: ");
    shelf.refuses(b"{}\n", 2, "is not a transcript of relay: missing field `transcript`");
    shelf.refuses(b"\n", 2, "is not a transcript of relay: ");
    shelf.refuses(&with(b"> a\0b\n"), 2, "line 2 holds a NUL byte");
    shelf.refuses(&with(b"> ok\n> \xff\n"), 2, "line 3 is not UTF-8");
    shelf.refuses(b"\xff\xfe\n", 2, "line 1 is not UTF-8");
    shelf.refuses(&[0; 4096], 2, "line 1 holds a NUL byte");
    let unknown = header("cobol");
    shelf.refuses(unknown.as_bytes(), 2, "is of the lane `cobol`, which this relay does not have");
    let odd = header("../../etc/passwd\\u001b[2J");
    shelf.refuses(odd.as_bytes(), 2, "is of the lane `../../etc/passwd\u{fffd}[2J`, which");
    let newer = claude.replace("\"transcript\":1", "\"transcript\":2,\"colour\":\"red\"");
    let newer = newer.replace("0.1.0", "9.0.0");
    shelf.refuses(newer.as_bytes(), 7, "is in format 2 of relay 9.0.0; this relay reads format 1");
    let zero = claude.replace("\"transcript\":1", "\"transcript\":0");
    shelf.refuses(zero.as_bytes(), 2, "is not a transcript of relay: there is no format 0");
    let more = claude.replace("\"relay\"", "\"more\":1,\"relay\"");
    shelf.refuses(more.as_bytes(), 2, "is not a transcript of relay: unknown field `more`");
    shelf.refuses(
        &with(b"? what\n"),
        2,
        "line 2 is none of a transcript's: it begins with none of",
    );
    shelf.refuses(&with(b"= %%%\n"), 2, "line 2 is none of a transcript's: ");
    shelf.refuses(&with(b"! {\"lines\":-1}\n"), 2, "line 2 is none of a transcript's: ");
    shelf.refuses(&with(b"{\"code\":0}\n"), 2, "line 2 is none of a transcript's: missing field");
    let after = format!("{END}\n> more\n");
    shelf.refuses(&with(after.as_bytes()), 2, "line 3 stands after the end of the run");
    let long = "x".repeat(1 << 20);
    shelf.refuses(header(&long).as_bytes(), 2, "is of the lane `xxx");
}

#[test]
fn a_huge_file_a_pipe_and_a_device_are_not_read() {
    let shelf = Shelf::new();
    std::fs::File::create(shelf.at()).unwrap().set_len(1 << 40).unwrap();
    let huge = shelf.replay(&shelf.at());
    assert!(huge.err.contains("has more than 20 MiB, which no transcript has"), "{}", huge.err);
    let pipe = shelf.house.dir.path().join("pipe");
    let (at, mode) = (rustix::fs::CWD, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(at, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for path in [pipe.as_path(), "/dev/zero".as_ref(), shelf.house.dir.path()] {
        let ran = shelf.replay(path);
        assert!(ran.err.contains(": is not a file"), "{}", ran.err);
        assert_eq!(ran.code, 2);
    }
    let gone = shelf.replay("/nowhere/transcript".as_ref());
    assert_eq!(gone.code, 3, "{}", gone.err);
}

#[test]
fn a_stranger_s_words_do_not_steer_the_terminal_and_a_missing_end_is_told() {
    let shelf = Shelf::new();
    let said =
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a\u001b[2Jb"}]}}"#;
    let ran = shelf.file(format!("{}\n> {said}\n", header("claude")).as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("a\u{fffd}[2Jb") && !ran.out.contains('\u{1b}'), "{}", ran.out);
    assert!(ran.out.contains("the end was not recorded"), "{}", ran.out);
    let path = shelf.at();
    let json = shelf.house.json(&["lane", "replay", path.to_str().unwrap(), "--json"]);
    assert_eq!(
        (&json["stop"], &json["recorded"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
}

#[test]
fn a_run_that_this_relay_reads_otherwise_is_told() {
    let shelf = Shelf::new();
    // Nothing was printed: that is no finished run here.
    let ran = shelf.file(format!("{}\n{END}\n", header("claude")).as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("protocol_violation"), "{}", ran.out);
    assert!(ran.out.contains("finished: relay 0.1.0 read it otherwise"), "{}", ran.out);
}
