//! A person's machine in a scratch folder: a home with secrets, a lane's copy of a repository, and
//! the real program run on it as a worker would.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use relay::work::egress::{Door, Egress};
use relay::work::login::{Login, Logins};
use relay::work::walls::View;
use relay_lanes::claude;
use relay_lanes::{Brief, Exit, Said, Verdict};
use relay_sandbox::egress::AllowList;
use relay_sandbox::{
    ClaudeSettings, Confinement, EnvRequest, STORES, STUBS, TMPDIR, Tools, claude_settings,
    clean_env, wall_in,
};
use tempfile::TempDir;

use crate::support::PATIENCE;
use crate::support::full::{full, skip};
use crate::support::model::Model;
use crate::support::processes::tool;

/// The word that no lane may ever see.
pub const SECRET: &str = "SECRET-of-a-person";
/// The key that the operator lets the program have.
pub const KEY: &str = "dummy-model-key";
/// Files in the home that hold a secret: each path the documentation names, and relay's own.
pub const SECRETS: &[&str] = &[
    ".harness/credentials.json",
    ".harness/relay.db",
    ".harness/work/other/file",
    ".claude/planted",
    ".codex/auth.json",
    ".grok/auth.json",
    ".fx/auth.json",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".config/gh/hosts.yml",
    ".netrc",
    ".npmrc",
    ".gitconfig",
    ".git-credentials",
    ".docker/config.json",
];

/// The home, and what is in it.
pub struct Machine {
    _scratch: TempDir,
    pub home: PathBuf,
    pub copy: PathBuf,
}

/// What a run came to.
pub struct Run {
    pub said: Vec<Said>,
    pub verdict: Verdict,
    pub stderr: String,
}

/// The program under test; says why there is none.
#[expect(clippy::disallowed_methods, reason = "the test's own setting, not the program's")]
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os("RELAY_TEST_CLAUDE").map(PathBuf::from);
    let found = named.or_else(|| full().then(|| which::which("claude").ok()).flatten());
    if found.is_none() {
        skip("the real claude, named by RELAY_TEST_CLAUDE");
    }
    found
}

/// The walls this user's lanes run behind: the one chosen for this machine, and none.
pub fn walls() -> Vec<Confinement> {
    let tools = Tools { bwrap: tool("bwrap"), unshare: tool("unshare"), setpriv: tool("setpriv") };
    vec![relay_sandbox::choose(&tools, is_root()), Confinement::Bare { setpriv: None }]
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Machine {
    /// The stores of pnpm and npm are there; relay's folder is in its usual place.
    pub fn new() -> Self {
        // Not under /tmp, which the sandbox and later the box replace.
        let scratch = tempfile::Builder::new().prefix("relay-").tempdir_in("/var/tmp").unwrap();
        let home = scratch.path().canonicalize().unwrap().join("home");
        let copy = home.join(".harness/work/acme_shop_12_ab");
        for path in SECRETS {
            write(&home.join(path), SECRET);
        }
        write(&home.join(".gitconfig"), &format!("[http]\n\textraHeader = {SECRET}\n"));
        write(&home.join("toolchain/lib"), "readable");
        for store in STORES.iter().filter(|store| store.starts_with('.')) {
            std::fs::create_dir_all(home.join(store)).unwrap();
        }
        write(&copy.join("a.txt"), "one\n");
        let machine = Self { _scratch: scratch, home, copy };
        machine.git(&["init", "--quiet", "--initial-branch=main"]);
        machine.git(&["add", "."]);
        machine.git(&["commit", "--quiet", "--message=first"]);
        let remote = machine.home.join("remote.git");
        machine.git(&["init", "--quiet", "--bare", &remote.to_string_lossy()]);
        machine.git(&["remote", "add", "origin", &remote.to_string_lossy()]);
        write(&machine.copy.join(".git/info/exclude"), &(STUBS.join("\n") + "\n"));
        machine
    }

    /// A script that git runs at each commit, so a program of the repository's own.
    pub fn commit_hook(&self, script: &str) {
        let hook = self.copy.join(".git/hooks/pre-commit");
        write(&hook, script);
        std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// What git says in the copy, outside of every sandbox.
    #[expect(clippy::disallowed_methods, reason = "a test sets its scene with the real git")]
    pub fn git(&self, args: &[&str]) -> String {
        let out = Command::new("git")
            .args(["-c", "user.name=ada", "-c", "user.email=ada@example.com"])
            .args(args)
            .current_dir(&self.copy)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Runs the program behind `wall` with the arguments, environment and settings that a worker
    /// would give it.
    pub fn run(&self, program: &Path, wall: &Confinement, model: &Model, with: &With) -> Run {
        let settings = claude_settings(&ClaudeSettings {
            home: &self.home,
            relay_home: &self.home.join(".harness"),
            workdir: &self.copy,
            moved: &[],
            extra_domains: &[],
            sandbox: true,
        });
        let brief = Brief {
            prompt: "Fix the --bug- of issue 12: @a.txt",
            workdir: &self.copy,
            model: claude::DEFAULT_MODEL,
            settings: Some(&settings.to_string()),
            max_turns: with.max_turns,
        };
        let call = claude::invocation(&brief);
        let login = self.login();
        let mut env = self.environment(model, with, &login);
        let relay = PathBuf::from(env!("CARGO_BIN_EXE_relay"));
        let mut walls = View {
            home: &self.home,
            relay_home: &self.home.join(".harness"),
            environment: &env.iter().cloned().collect(),
            cwd: &self.copy,
            own: &[self.copy.clone(), login.folder().to_owned()],
            programs: &[program, &relay],
            given: &[],
            replaced: &[(self.home.join(".npm"), self.store())],
            fixed: &[],
        }
        .walls();
        let door = wall.has_walls().then(|| self.door(model, relay.clone()));
        if let Some(door) = &door {
            door.stand_in(&mut walls);
            env.extend(door.environment());
        }
        let (path, args) = wall_in(wall, &walls, program, &call.args);
        let (copy, stdin) = (self.copy.clone(), call.stdin.clone());
        let running = move || finish(&path, &args, &env, &copy, &stdin);
        let out = match door {
            Some(door) => beside(door, running),
            None => running(),
        };
        let mut reader = claude::reader();
        let lines = out.stdout.split(|byte| *byte == b'\n');
        let said = lines.flat_map(|line| reader.line(line)).collect();
        let exit = Exit {
            code: out.status.code(),
            signal: out.status.signal(),
            stderr: &String::from_utf8_lossy(&out.stderr),
            now_ms: 0,
            over_limit: out.stdout.len() as u64 > call.stdout_total,
            stdout_bytes: out.stdout.len() as u64,
        };
        Run { said, verdict: reader.end(&exit), stderr: exit.stderr.to_owned() }
    }

    /// The run's way out, which leads to the model as well.
    fn door(&self, model: &Model, relay: PathBuf) -> Door {
        let listed = [format!("127.0.0.1:{}", model.port)];
        let egress = Egress::new(relay, None, false);
        let folder = self.copy.with_extension("door");
        Door::open(folder, AllowList::of_lane("claude", &listed), &egress).unwrap()
    }

    /// The run's own store of npm.
    pub fn store(&self) -> PathBuf {
        let store = self.copy.with_extension("stores");
        std::fs::create_dir_all(&store).unwrap();
        store
    }

    fn login(&self) -> Login {
        let root = self.home.join(".harness/vendor");
        Logins::new(root, &claude::VENDOR, &self.home, None).take("c").unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "the real tools stand on the test's own PATH")]
    fn environment(&self, model: &Model, with: &With, login: &Login) -> Vec<(OsString, OsString)> {
        let path = with.path.clone().or_else(|| std::env::var_os("PATH")).unwrap();
        let parent: BTreeMap<OsString, OsString> = [
            ("PATH", path),
            ("HOME", self.home.clone().into()),
            ("LANG", "C.UTF-8".into()),
            ("ANTHROPIC_BASE_URL", with.url.clone().unwrap_or_else(|| model.url()).into()),
            ("ANTHROPIC_API_KEY", KEY.into()),
            ("SOME_TOKEN", SECRET.into()),
            ("CLAUDE_CONFIG_DIR", login.home().into()),
            ("TMPDIR", TMPDIR.into()),
        ]
        .map(|(name, value)| (name.into(), value))
        .into();
        let names: &[&str] = if with.key { claude::KEY_NAMES } else { &["ANTHROPIC_BASE_URL"] };
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let agent = ("relay-agent", "agent@example.com");
        let mut env = clean_env(&parent, &EnvRequest::Vendor { names: &names, agent });
        env.extend(claude::ENV.iter().map(|(name, value)| (name.into(), value.into())));
        if with.impatient {
            env.push(("CLAUDE_CODE_MAX_RETRIES".into(), "1".into()));
        }
        env
    }
}

/// Serves at `door` while `running` runs.
fn beside<T: Send + 'static>(door: Door, running: impl FnOnce() -> T + Send + 'static) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let running = tokio::task::spawn_blocking(running);
        door.beside(running, Box::new(|line| println!("{line}"))).await.0.unwrap()
    })
}

/// What differs from a usual run.
pub struct With {
    pub max_turns: u32,
    pub key: bool,
    pub path: Option<OsString>,
    pub url: Option<String>,
    /// Gives up after one retry, so that a refused run ends soon.
    pub impatient: bool,
}

impl Default for With {
    fn default() -> Self {
        Self { max_turns: 60, key: true, path: None, url: None, impatient: true }
    }
}

#[expect(clippy::disallowed_methods, reason = "the real program, on its own, is what is tested")]
fn finish(
    path: &Path,
    args: &[OsString],
    env: &[(OsString, OsString)],
    cwd: &Path,
    stdin: &[u8],
) -> std::process::Output {
    let mut child = Command::new(path)
        .args(args)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir(cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    let mut outputs = [None, None];
    let mut readers: Vec<Box<dyn Read + Send>> =
        vec![Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
    for (slot, mut reader) in outputs.iter_mut().zip(readers.drain(..)) {
        *slot = Some(std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        }));
    }
    let step = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if waited > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(step);
        waited += step;
    };
    let [stdout, stderr] = outputs.map(|reader| reader.unwrap().join().unwrap());
    std::process::Output { status, stdout, stderr }
}

pub fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
