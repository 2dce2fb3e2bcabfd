//! What a table of traps is run on: one machine, one worker, one task a row.

use std::path::PathBuf;

use crate::support::git_http::GitHttp;
use crate::support::hosted::Hosted;
use crate::support::house::only_has;
use crate::support::repo::git;

/// What has to come of a row.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// Its branch shows these files changed, sorted, names as git quotes them.
    Pushed(&'static [&'static str]),
    /// Nothing is pushed; the task says why and names this.
    Refused(&'static str, &'static str),
    /// Either is right, as long as nothing ran and nothing leaked.
    Harmless,
}

/// One trap: its name, what the lane does in its copy, and what has to come of it.
pub type Row = (&'static str, &'static str, Expect);

/// A word that stands outside the copy and must never arrive anywhere.
const SECRET: &str = "HOST-SECRET-7261";

/// Runs every row, one after another, in one worker, and looks at what each came to.
///
/// A script has `$CANARY`, a program that writes down that it ran; `$SECRET`, a folder outside
/// with a repository and a file `password`; `$URL`, where relay pushes; `$THIEF`, a host that
/// writes down what it is sent; and `fires CMD…`, which notes that the canary runs under plain git.
pub async fn play(rows: &[Row]) {
    let stage = Stage::set(rows).await;
    let tasks: Vec<String> =
        (0..rows.len()).map(|at| stage.hosted.task(&lane(at), rows[at].0)).collect();
    let lanes: Vec<String> = (0..rows.len()).map(lane).collect();
    let ran = stage.hosted.house.relay(&[
        "work",
        "--once",
        "--jobs",
        "4",
        "--name",
        "w",
        "--lanes",
        &lanes.join(","),
    ]);
    let said = format!("{}{}", ran.out, ran.err);
    assert!(!said.contains("panicked"), "{said}");

    let wrong: Vec<String> = tasks
        .iter()
        .enumerate()
        .filter_map(|(at, task)| stage.look_at(rows[at], at, task).err())
        .collect();
    assert!(wrong.is_empty(), "{}\n{said}", wrong.join("\n"));
    assert!(!stage.trace.exists(), "something of a trap ran in the worker:\n{said}");
    let armed = std::fs::read_to_string(&stage.armed).unwrap_or_default();
    for (at, (name, script, _)) in rows.iter().enumerate() {
        let row = format!("row {at}");
        let is_armed = !script.contains("fires ") || armed.lines().any(|line| line == row);
        assert!(is_armed, "{name} is no attack on plain git: {script}");
    }
    stage.nothing_leaked();
}

struct Stage {
    hosted: Hosted,
    thief: GitHttp,
    trace: PathBuf,
    armed: PathBuf,
}

fn lane(at: usize) -> String {
    format!("process:row-{at}")
}

impl Stage {
    async fn set(rows: &[Row]) -> Self {
        let hosted = Hosted::new(&[
            ("README.md", "# shop\n"),
            ("src/main.rs", "fn main() {}\n"),
            (".gitignore", "out/\n"),
        ])
        .await;
        hosted.house.without_namespaces();
        let root = hosted.house.dir.path();
        let (trace, armed) = (root.join("trace"), root.join("armed"));
        let canary = hosted.house.program(
            "canary",
            &format!("#!/bin/sh\necho \"$0 $*\" >> \"${{TRACE:-{}}}\"\nexit 0\n", trace.display()),
        );
        let secrets = root.join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("password"), SECRET).unwrap();
        git(&secrets, &["init", "-q"]);
        git(&secrets, &["add", "-A"]);
        git(&secrets, &["commit", "-q", "-m", SECRET]);
        let thiefs = root.join("thief/acme");
        std::fs::create_dir_all(&thiefs).unwrap();
        git(&thiefs, &["init", "-q", "--bare", "shop.git"]);
        git(&thiefs.join("shop.git"), &["config", "http.receivepack", "true"]);
        let thief = GitHttp::serve(&root.join("thief")).await;
        for (at, (_, script, _)) in rows.iter().enumerate() {
            let body = format!(
                "CANARY='{}'; export TRACE='{}-{at}'; SECRET='{}'; URL='{}/acme/shop.git'; THIEF='{}/acme/shop.git'\n\
                 export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0\n\
                 export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x\n\
                 fires() {{ rm -f \"$TRACE\"; \"$@\" > /dev/null 2>&1 < /dev/null\n\
                 [ ! -e \"$TRACE\" ] || echo 'row {at}' >> '{}'; rm -f \"$TRACE\"; }}\n\
                 echo two >> README.md\n{script}\n",
                canary.display(),
                trace.display(),
                secrets.display(),
                hosted.host.url,
                thief.url,
                armed.display(),
            );
            hosted.house.process_lane(&format!("row-{at}"), &body, r#"{"reply":"done"}"#);
        }
        Self { hosted, thief, trace, armed }
    }

    /// What is wrong with what came of a row.
    fn look_at(&self, (name, _, expect): Row, at: usize, task: &str) -> Result<(), String> {
        let detail = self.hosted.house.json(&["task", "get", task, "--json"]);
        let task_now = &detail["task"];
        let state = task_now["state"].as_str().unwrap();
        let message = task_now["message"].as_str().unwrap_or_default();
        let number = task.rsplit('#').next().unwrap();
        let branch = format!("refs/heads/relay/process-row-{at}-{number}");
        let pushed = self.hosted.origin.at(&branch).map(|_| {
            let range = format!("main..{branch}");
            let bare = &self.hosted.origin.bare;
            let files = git(bare, &["diff", "--name-only", "--no-renames", &range]);
            files.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        let is_right = match expect {
            Expect::Pushed(files) => state == "review" && pushed == Some(own(files)),
            Expect::Refused(why, path) => {
                let reason = &task_now["stop_reason"];
                pushed.is_none()
                    && reason["reason"] == "repo_unusable"
                    && reason["why"] == why
                    && message.contains(path)
            }
            Expect::Harmless => ["review", "failed"].contains(&state),
        };
        let reason = &task_now["stop_reason"];
        is_right
            .then_some(())
            .ok_or_else(|| format!("{name}: {state} {reason} {message:?}, pushed {pushed:?}"))
    }

    fn nothing_leaked(&self) {
        let bare = &self.hosted.origin.bare;
        let objects = git(bare, &["cat-file", "--batch", "--batch-all-objects", "--buffer"]);
        assert!(!objects.contains(SECRET), "a byte from outside was pushed");
        let refs = git(bare, &["for-each-ref", "--format=%(refname)"]);
        for name in refs.lines() {
            let own = ["refs/heads/main", "refs/heads/relay/process-row-", "refs/relay/"];
            assert!(own.iter().any(|start| name.starts_with(start)), "{name} was pushed");
        }
        let stolen = self.thief.asked().into_iter().find(|asked| asked.authorization.is_some());
        assert!(stolen.is_none(), "the token went to the thief: {stolen:?}");
        let asked = self.hosted.host.asked();
        assert!(asked.iter().all(|asked| asked.authorization.is_some() || asked.status == 401));
        let left = only_has(&self.hosted.house.home.join("work"), &["claim", "claims"]);
        assert_eq!(left, [""; 0], "copies are left");
    }
}

fn own(files: &[&str]) -> Vec<String> {
    files.iter().map(|&file| file.to_owned()).collect()
}
