//! A program of the operator's, called as a process lane's is, and what comes of it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay::process::{LaneEnd, LaneLimits, LaneRun, Program, Redactor, run_lane};
use relay_lanes::Exit;
use relay_lanes::process::{
    Answer, AnswerError, Answers, Config, Payload, Request, TaskDetails, invocation,
};
use tokio_util::sync::CancellationToken;

use crate::support::PATIENCE;
use crate::support::clock::ManualClock;
use crate::support::processes::Marked;

/// The key of every request here.
pub const KEY: &str = "local/shop#1";

/// How long a program may run, by the clock of the test.
pub const TIME: Duration = Duration::from_secs(20);

/// A task like any other.
pub const TASK: TaskDetails<'static> = TaskDetails {
    id: KEY,
    repo: "local/shop",
    issue: 1,
    title: "Say hello 👋",
    prompt: "# Say \"hello\"\n\nThe text has \"jobKey\":\"another\" in it.\n",
    branch: "relay/process-x-1",
    workdir: "/",
};

/// One program in a folder of its own.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub marked: Marked,
    pub clock: ManualClock,
    pub stop: CancellationToken,
}

impl Bench {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            marked: Marked::new(),
            clock: ManualClock::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Runs a shell script for the task. It has `$KEY`, `$GOOD` (a right answer) and `$MARK`.
    pub async fn script(&self, script: &str) -> (LaneEnd, Result<Answer, AnswerError>) {
        self.script_for(script, &TASK).await
    }

    /// The same for another payload.
    pub async fn script_for(
        &self,
        script: &str,
        payload: &dyn Payload,
    ) -> (LaneEnd, Result<Answer, AnswerError>) {
        let good = r#"{"schemaVersion":1,"jobKey":"local/shop#1","result":{"reply":"ok"}}"#;
        let script = format!("KEY='{KEY}'; GOOD='{good}'\n{script}");
        let config = Config {
            command: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script],
            cwd: None,
            env: Vec::new(),
        };
        self.run(&config, payload).await
    }

    async fn run(
        &self,
        config: &Config,
        payload: &dyn Payload,
    ) -> (LaneEnd, Result<Answer, AnswerError>) {
        let request = Request { job_key: KEY, runtime_id: "0199", attempt: 1, payload };
        let call = invocation(config, &request).unwrap();
        let run = LaneRun {
            supervisor: env!("CARGO_BIN_EXE_relay").into(),
            program: Program {
                path: config.command.clone(),
                args: call.args,
                env: vec![
                    ("PATH".into(), "/usr/bin:/bin".into()),
                    ("MARK".into(), self.marked.mark.clone().into()),
                ],
                cwd: config.cwd.clone().unwrap_or_else(|| self.dir.path().to_owned()),
                stdin: call.stdin,
            },
            limits: LaneLimits {
                time: TIME,
                stall: None,
                stdout_total: call.stdout_total,
                stdout_line: call.stdout_line,
                stderr_total: call.stderr_total,
                stderr_over_kills: call.stderr_over_kills,
            },
            redactor: Redactor::default(),
        };
        let answers = Arc::new(Mutex::new(Answers::new(KEY)));
        let mut on_line = {
            let answers = Arc::clone(&answers);
            move |line: &[u8]| answers.lock().unwrap().take(line)
        };
        let running = run_lane(run, &self.clock, self.stop.clone(), &mut on_line);
        let end = tokio::time::timeout(PATIENCE, running).await.expect("the run hangs").unwrap();
        let answer = answers.lock().unwrap().end(&Exit {
            code: end.code,
            signal: end.signal,
            stderr: &String::from_utf8_lossy(&end.stderr),
            now_ms: 0,
            over_limit: end.ended_by == relay::process::EndedBy::OutputLimit,
            stdout_bytes: end.stdout_bytes,
        });
        (end, answer)
    }

    /// What the program left in its folder.
    pub fn left(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).unwrap()
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}
