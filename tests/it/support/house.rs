//! A machine in a folder: its own HOME, RELAY_HOME and repository, and the real program.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and waits for their real end"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::PATIENCE;

/// Names the logs of this test process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Its standard output, without the line end; the command must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "out: {}\nerr: {}", self.out, self.err);
        self.out.trim_end().to_owned()
    }
}

/// One person's machine.
pub struct House {
    pub dir: tempfile::TempDir,
    pub home: PathBuf,
    pub repo: PathBuf,
    pub bin: PathBuf,
    env: Vec<(String, String)>,
    /// In front of relay's own program: another namespace, another user.
    pub through: Vec<String>,
    /// The home as this process sees it, where relay sees another.
    pub seen_home: Option<PathBuf>,
}

impl House {
    /// A machine with one repository of two files, nothing linked yet.
    pub fn new() -> Self {
        Self::of(tempfile::Builder::new().prefix("relay-it-").tempdir().unwrap())
    }

    /// The same with the person's home in `folder`, which is no place for temporary files.
    pub fn under(folder: &Path) -> Self {
        Self::of(tempfile::Builder::new().prefix("relay-it-").tempdir_in(folder).unwrap())
    }

    fn of(dir: tempfile::TempDir) -> Self {
        let root = dir.path();
        let (home, repo, bin) = (root.join("relay"), root.join("shop"), root.join("bin"));
        fs::create_dir_all(home.join("lanes")).unwrap();
        fs::create_dir_all(&bin).unwrap();
        let house =
            Self { home, repo, bin, env: Vec::new(), through: Vec::new(), seen_home: None, dir };
        house.git(&["init", "-q", "-b", "main", house.repo.to_str().unwrap()]);
        fs::write(house.repo.join("README.md"), "# shop\n").unwrap();
        fs::write(house.repo.join("run.sh"), "#!/bin/sh\necho hello\n").unwrap();
        house.in_repo(&["add", "-A"]);
        house.in_repo(&[
            "-c",
            "user.name=p",
            "-c",
            "user.email=p@localhost",
            "commit",
            "-qm",
            "first",
        ]);
        house
    }

    /// Puts programs on this machine's PATH that fail as where namespaces are forbidden, so that a
    /// lane has no wall at all.
    pub fn without_namespaces(&self) {
        for program in ["bwrap", "unshare"] {
            self.program(program, "#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n");
        }
    }

    /// Sets a variable for every later command.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A program on this machine's PATH.
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.bin.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A vendor's program in a shell: logged in, does `stream` in the copy, exits with `code`.
    pub fn claude(&self, stream: &str, code: u8) {
        self.program(
            "claude",
            &format!(
                "#!/bin/sh\ncase \"$1\" in\n--version) echo '2.1.332 (Claude Code)'; exit 0;;\n\
                 auth) echo '{{\"loggedIn\":true,\"authMethod\":\"claude.ai\"}}'; exit 0;;\nesac\n\
                 cat > /dev/null\n{stream}\nexit {code}\n"
            ),
        );
    }

    /// A process lane that notes each start in a file, the second path, and does `body` once the first
    /// is there.
    pub fn lane_that_waits(&self, name: &str, body: &str, result: &str) -> (PathBuf, PathBuf) {
        let (go, begun) = (self.dir.path().join("go"), self.dir.path().join("begun"));
        let wait = format!(
            "echo x >> {}; while [ ! -e {} ]; do sleep 0.05; done; {body}",
            begun.display(),
            go.display()
        );
        self.process_lane(name, &wait, result);
        (go, begun)
    }

    /// A process lane whose shell script does `body` in the copy and answers with `result`.
    pub fn process_lane(&self, name: &str, body: &str, result: &str) {
        let script = format!(
            "#!/bin/sh\nread -r line\nkey=$(printf '%s' \"$line\" | sed 's/.*\"jobKey\":\"\\([^\"]*\\)\".*/\\1/')\n\
             {body}\nprintf '{{\"schemaVersion\":1,\"jobKey\":\"%s\",\"result\":%s}}\\n' \"$key\" '{result}'\n"
        );
        let path = self.program(&format!("{name}-lane"), &script);
        let config = serde_json::json!({"command": path, "args": [], "env": []});
        fs::write(self.home.join(format!("lanes/{name}.json")), config.to_string()).unwrap();
    }

    /// Runs relay and waits.
    pub fn relay(&self, args: &[&str]) -> Ran {
        let out = self.command(args).output().unwrap();
        Ran {
            code: out.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&out.stdout).into_owned(),
            err: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// Runs relay, which must succeed, and reads its JSON.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.relay(args).ok();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// Links the repository and gives its slug.
    pub fn link(&self) -> String {
        self.relay(&["link", self.repo.to_str().unwrap()]).ok()
    }

    /// Makes a task of `lane` and gives its id.
    pub fn task(&self, slug: &str, lane: &str, title: &str) -> String {
        self.relay(&["task", "create", "--repo", slug, "--lane", lane, "--title", title]).ok()
    }

    /// The task's state now.
    pub fn state(&self, task: &str) -> String {
        self.json(&["task", "get", task, "--json"])["task"]["state"].as_str().unwrap().to_owned()
    }

    /// The transcript of a task's newest run: its text, and what its replay comes to, which is what
    /// the run came to.
    #[track_caller]
    pub fn transcript(&self, detail: &Value) -> (String, Value) {
        let run = &detail["runs"][0];
        let file = self.home.join("runs").join(run["id"].as_str().unwrap()).join("transcript");
        let told = self.json(&["lane", "replay", file.to_str().unwrap(), "--json"]);
        assert_eq!(told["stop"], run["stop_reason"], "{told:#}");
        assert_eq!(told["stop"], told["recorded"], "{told:#}");
        for (count, value) in run["usage"].as_object().unwrap() {
            assert_eq!(&told["usage"][count], value, "{count}: {told:#}");
        }
        (fs::read_to_string(file).unwrap(), told)
    }

    /// Starts a worker that goes on in the background, and waits for its socket.
    pub fn work(&self, args: &[&str]) -> Working {
        self.work_with_fault("", args)
    }

    /// The same, with RELAY_FAULT set for it alone.
    pub fn work_with_fault(&self, fault: &str, args: &[&str]) -> Working {
        let log =
            self.dir.path().join(format!("work-{}.log", COUNT.fetch_add(1, Ordering::Relaxed)));
        let file = fs::File::create(&log).unwrap();
        let mut all = vec!["work"];
        all.extend_from_slice(args);
        let mut command = self.command(&all);
        command.env("RELAY_FAULT", fault).stdout(file.try_clone().unwrap()).stderr(file);
        let child = command.spawn().unwrap();
        let working = Working { child, log };
        let socket = self.seen_home.as_ref().unwrap_or(&self.home).join("relay.sock");
        // A worker of another owner's site serves none.
        if !self.env.iter().any(|(name, _)| name == "RELAY_SITE") {
            working.until("its socket", || socket.exists());
        }
        working
    }

    /// Git in the repository, in an isolated environment.
    pub fn in_repo(&self, args: &[&str]) -> String {
        let mut all = vec!["-C", self.repo.to_str().unwrap()];
        all.extend_from_slice(args);
        self.git(&all)
    }

    /// Git in an isolated environment.
    pub fn git(&self, args: &[&str]) -> String {
        let out = Command::new("git")
            .args(args)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
    }

    /// relay with nothing in its environment but PATH, HOME, RELAY_HOME and what was set. A lane's
    /// script may write in this machine's folder, so that a test can see how far it is.
    pub fn command(&self, args: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap();
        let program = env!("CARGO_BIN_EXE_relay");
        let line: Vec<&str> = self.through.iter().map(String::as_str).chain([program]).collect();
        let mut command = Command::new(line[0]);
        command
            .args(&line[1..])
            .args(args)
            .env_clear()
            .env("PATH", format!("{}:{path}", self.bin.display()))
            .env("HOME", self.dir.path())
            .env("RELAY_HOME", &self.home)
            .env("RELAY_LANE_PATHS", self.dir.path())
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null());
        command
    }
}

/// A worker in the background; ended with the value.
pub struct Working {
    pub child: Child,
    pub log: PathBuf,
}

impl Working {
    /// Waits until something is true.
    #[track_caller]
    pub fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "{what} did not come:\n{}", self.said());
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Everything it printed so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

/// The processes whose command line or environment names `mark`, by id.
pub fn processes_with(mark: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == own || !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let text = [read("cmdline"), read("environ")].concat();
        if String::from_utf8_lossy(&text).contains(mark) {
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            found.push(format!("{pid} {line}"));
        }
    }
    found
}

/// Whether a folder holds nothing but files with these endings.
pub fn only_has(dir: &Path, endings: &[&str]) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| !endings.iter().any(|end| name.ends_with(end)))
        .collect()
}
