//! The box's walls with a whole worker: a process lane, and what stands in claude's place outside
//! its own sandbox, try all that a lane must not reach. Each try that comes out well is written
//! down by its name; names in capitals are what must never be there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use relay::work::walls::View;
use relay_sandbox::{Tools, wall_in};
use serde_json::{Value, json};

use crate::support::full::{has, skip};
use crate::support::house::{House, only_has};
use crate::support::model::{Model, Step};
use crate::support::processes::tool;

/// What any program in a lane can do, and that it can do no more. `H` is the person's home, `R`
/// relay's folder, `SOCKETS` what listens on this machine.
const PROBE: &str = r#"
try() { what=$1; shift; "$@" >/dev/null 2>&1 && echo "$what" >>findings; }
try wrote-in-copy touch made
try read-the-rest grep -q shop "$H/shop/README.md"
try wrote-in-tmp touch "${TMPDIR:-/nowhere}/x"
try ABSTRACT-SOCKET socat -u OPEN:/dev/null ABSTRACT-CONNECT:$ABSTRACT
try READ-A-LOGIN grep -rq SECRET "$H/.config/gh" "$H/.ssh" "$H/.aws"
try READ-A-LOGIN-FILE grep -q SECRET "$H/.netrc" "$H/.git-credentials"
try READ-A-LINKED-LOGIN grep -rq SECRET "$H/dotfiles"
try READ-A-MOVED-LOGIN grep -rq SECRET "$H/moved"
try READ-THE-DATABASE test -s "$R/relay.db"
try READ-A-MIRROR grep -rq SECRET "$R/cache"
try READ-ANOTHER-COPY grep -rq SECRET "$R/work/other"
try READ-KEPT-WORK grep -rq SECRET "$R/kept"
try READ-LANES grep -rq command "$R/lanes"
try READ-THE-LOCK test -e "$R/relay.lock"
try READ-CLAUDES-SETTINGS grep -rq mine "$H/.claude" "$H/.claude.json"
try READ-TMP grep -q SECRET "$CANARY"
for socket in "$R/relay.sock" $SOCKETS; do
    try "CONNECTED-TO-$socket" socat -u OPEN:/dev/null "UNIX-CONNECT:$socket"
done
try READ-THE-WORKERS-ENVIRONMENT sh -c 'cat /proc/[0-9]*/environ | grep -aq CANARY-of-the-worke[r]'
try SAW-THE-WORKER sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " " | grep -aq "wor[k] --once"'
try WROTE-BASHRC sh -c "echo x >>$H/.bashrc"
try WROTE-IN-HOME touch "$H/new"
try WROTE-IN-A-REPOSITORY touch "$H/shop/new"
try WROTE-A-PROGRAM touch "$H/bin/new"
mkdir -p "$H/.claude"
echo '{"hooks":{}}' >"$H/.claude/settings.json"
echo '{"mcpServers":{"evil":{}}}' >"$H/.claude.json"
try wrote-in-store sh -c "echo evil >$H/.npm/evil"
try FOUND-THE-DISK-WRITABLE awk '$5 == "/" && $6 ~ /^rw/ { found = 1 } END { exit !found }' /proc/self/mountinfo
try MADE-THE-DISK-WRITABLE sh -c "mount -o remount,bind,rw / && touch $H/new"
try TOOK-A-WALL-DOWN sh -c "umount -l $H/.ssh; grep -rq SECRET $H/.ssh"
try TOOK-A-WALL-DOWN-BELOW unshare -Urm sh -c "umount -l $H/.ssh; grep -rq SECRET $H/.ssh"
try TOOK-RELAYS-WALL-DOWN unshare -Urm sh -c "umount -l $R; test -s $R/relay.db"
try HAS-A-DISK sh -c "find /dev -type b | grep -q ."
"#;

const MAY: [&str; 4] = ["wrote-in-copy", "read-the-rest", "wrote-in-tmp", "wrote-in-store"];

/// A person's machine with logins, sockets and settings, and no lane that is given anything.
struct Machine {
    house: House,
    outside: PathBuf,
    sockets: Vec<PathBuf>,
    abstract_name: String,
    _listeners: Vec<UnixListener>,
}

impl Machine {
    fn new() -> Option<Self> {
        if !has(&["bwrap", "socat", "unshare", "setpriv", "npm"]) {
            return None;
        }
        let mut house = House::new();
        let home = house.dir.path().to_owned();
        house
            .set("RELAY_LANE_PATHS", "")
            .set("GH_CONFIG_DIR", &home.join("moved/gh").to_string_lossy())
            .set("SOME_KEY", "CANARY-of-the-worker");
        for path in [
            ".config/gh/hosts.yml",
            ".ssh/id_ed25519",
            ".aws/credentials",
            ".netrc",
            ".git-credentials",
            "moved/gh/hosts.yml",
            "dotfiles/key",
            "relay/cache/other.git/secret",
            "relay/work/other/secret",
            "relay/kept/secret",
        ] {
            write(&home.join(path), "SECRET\n");
        }
        std::os::unix::fs::symlink("../dotfiles/key", home.join(".ssh/linked")).unwrap();
        write(&home.join(".bashrc"), "# mine\n");
        write(&home.join(".npm/mine"), "mine\n");
        write(&home.join(".claude/settings.json"), "{\"model\":\"mine\"}");
        write(&home.join(".claude/.credentials.json"), &login("old", 10));
        let settings = json!({"mcpServers": {"mine": {}}, "oauthAccount": {"emailAddress": "a@b"}});
        write(&home.join(".claude.json"), &settings.to_string());
        let outside = tempfile::Builder::new().prefix("relay-walls-").tempdir().unwrap().keep();
        write(&outside.join("canary"), "SECRET\n");
        let mut sockets = vec![outside.join("s"), home.join("app.sock")];
        for folder in ["/run", "/dev/shm", "/var/tmp"] {
            // Of /run only root has a say.
            let name = outside.file_name().unwrap();
            sockets.push(Path::new(folder).join(name));
        }
        let mut listeners = Vec::new();
        sockets.retain(|path| UnixListener::bind(path).map(|l| listeners.push(l)).is_ok());
        assert!(sockets.len() >= 4, "{sockets:?}");
        let abstract_name = outside.to_string_lossy().into_owned();
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        listeners.push(UnixListener::bind_addr(&address).unwrap());
        Some(Self { house, outside, sockets, abstract_name, _listeners: listeners })
    }

    fn home(&self) -> &Path {
        self.house.dir.path()
    }

    /// [`PROBE`] with this machine's places.
    fn probe(&self) -> String {
        let sockets: Vec<_> = self.sockets.iter().map(|path| path.to_string_lossy()).collect();
        format!(
            "H={} R={} CANARY={} ABSTRACT={} SOCKETS='{}'\n{PROBE}",
            self.home().display(),
            self.house.home.display(),
            self.outside.join("canary").display(),
            self.abstract_name,
            sockets.join(" "),
        )
    }

    /// A program in claude's place, outside of every sandbox but relay's: logged in, does `body`.
    fn in_claudes_place(&self, body: &str) {
        let result = json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "Done.",
        });
        let script = format!(
            "#!/bin/sh\ncase $1 in\n--version) echo '2.1.332 (Claude Code)'; exit;;\n\
             auth) echo '{{\"loggedIn\":true,\"authMethod\":\"claude.ai\"}}'; exit;;\nesac\n\
             cat >/dev/null\n{body}\necho '{result}'\n"
        );
        self.house.program("claude", &script);
    }

    /// Makes a task, drains the queue, and gives the task's detail and its log.
    fn run(&self, lane: &str) -> (String, Value, String) {
        let slug = self.house.link();
        let task = self.house.task(&slug, lane, "Try it");
        self.house.relay(&["work", "--once", "--name", "w", "--lanes", lane]).ok();
        let detail = self.house.json(&["task", "get", &task, "--json"]);
        let log = self.house.relay(&["task", "log", &task]).ok();
        (task, detail, log)
    }

    /// The findings on the task's branch.
    fn findings(&self, lane: &str) -> Vec<String> {
        let object = format!("relay/{}-1:findings", lane.replace(':', "-"));
        self.house.in_repo(&["show", &object]).lines().map(str::to_owned).collect()
    }

    /// What the person has is as it was.
    fn is_as_it_was(&self) {
        let read = |path: &str| fs::read_to_string(self.home().join(path)).unwrap();
        assert_eq!(read(".bashrc"), "# mine\n");
        assert_eq!(read(".claude/settings.json"), "{\"model\":\"mine\"}");
        assert!(read(".claude.json").contains("mine"));
        for planted in ["new", "shop/new", "bin/new", ".npm/evil", ".claude/CLAUDE.md"] {
            assert!(!self.home().join(planted).exists(), "{planted}");
        }
        // Asked for its login outside of every run, claude keeps a copy of its settings.
        assert_eq!(
            only_has(&self.home().join(".claude"), &[".json", "backups"]),
            Vec::<String>::new()
        );
        assert_eq!(only_has(&self.house.home.join("vendor"), &[]), Vec::<String>::new());
        assert_eq!(only_has(&self.house.home.join("work"), &["other"]), Vec::<String>::new());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _gone_already = fs::remove_file(socket);
        }
        let _gone_already = fs::remove_dir_all(&self.outside);
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn login(name: &str, expires: u64) -> String {
    let login = json!({
        "accessToken": format!("access-{name}"), "refreshToken": format!("refresh-{name}"),
        "expiresAt": expires, "subscriptionType": "max",
    });
    json!({ "claudeAiOauth": login }).to_string()
}

/// A shell's words that refresh the login as claude does: by a new file in the old one's place.
fn refresh() -> String {
    format!(
        "printf '%s' '{}' >\"$CLAUDE_CONFIG_DIR/new\"\n\
         mv \"$CLAUDE_CONFIG_DIR/new\" \"$CLAUDE_CONFIG_DIR/.credentials.json\"\n",
        login("new", 20)
    )
}

#[test]
fn full_a_process_lane_reaches_its_copy_and_no_more() {
    let Some(machine) = Machine::new() else { return };
    machine.house.process_lane("probe", &machine.probe(), r#"{"reply":"Tried."}"#);
    let (_, detail, log) = machine.run("process:probe");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    assert_eq!(machine.findings("process:probe"), MAY);
    machine.is_as_it_was();
}

#[test]
fn full_a_vendors_program_reaches_its_copy_and_no_more_and_its_home_is_put_back() {
    let Some(machine) = Machine::new() else { return };
    let body = format!(
        "{}\ntry logged-in grep -q access-old \"$CLAUDE_CONFIG_DIR/.credentials.json\"\n\
         try HAS-MORE-THAN-THE-LOGIN grep -q mcpServers \"$CLAUDE_CONFIG_DIR/.claude.json\"\n\
         for planted in settings.json CLAUDE.md agents; do\n\
         echo '{{\"hooks\":{{}}}}' >\"$CLAUDE_CONFIG_DIR/$planted\"; done\n\
         echo '{{\"mcpServers\":{{\"evil\":{{}}}}}}' >\"$CLAUDE_CONFIG_DIR/.claude.json\"\n{}",
        machine.probe(),
        refresh()
    );
    machine.in_claudes_place(&body);
    let (_, detail, log) = machine.run("claude");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    assert_eq!(machine.findings("claude"), [&MAY[..], &["logged-in"]].concat());
    let kept = fs::read_to_string(machine.home().join(".claude/.credentials.json")).unwrap();
    assert_eq!(kept.parse::<Value>().unwrap(), login("new", 20).parse::<Value>().unwrap());
    machine.is_as_it_was();
}

#[test]
fn full_a_killed_worker_leaves_the_persons_claude_as_it_was() {
    let Some(machine) = Machine::new() else { return };
    // The first run waits for ever; the next finds the refreshed login.
    let body = format!(
        "touch made\nif ! grep -q access-new \"$CLAUDE_CONFIG_DIR/.credentials.json\"; then\n{}\
         echo x >\"$CLAUDE_CONFIG_DIR/settings.json\"\ntouch waiting\nsleep 600\nfi",
        refresh()
    );
    machine.in_claudes_place(&body);
    let house = &machine.house;
    let slug = house.link();
    let task = house.task(&slug, "claude", "Try it");
    let mut worker = house.work(&["--name", "w", "--lanes", "claude"]);
    let waits = || {
        let copies = fs::read_dir(house.home.join("work")).into_iter().flatten().flatten();
        copies.map(|copy| copy.path().join("waiting")).any(|path| path.exists())
    };
    worker.until("the refreshed login", waits);
    // The person goes on meanwhile.
    write(&machine.home().join(".claude/keybindings.json"), "{}");
    worker.signal(rustix::process::Signal::KILL);
    worker.ended();
    house.relay(&["work", "--once", "--name", "w", "--lanes", "claude"]).ok();
    assert_eq!(house.state(&task), "review", "{}", worker.said());
    let kept = fs::read_to_string(machine.home().join(".claude/.credentials.json")).unwrap();
    assert!(kept.contains("access-new"), "{kept}");
    assert!(machine.home().join(".claude/keybindings.json").exists(), "a person's change is lost");
    machine.is_as_it_was();
}

#[test]
fn full_doctor_tries_the_walls_and_claude_is_not_run_without_a_box() {
    let Some(machine) = Machine::new() else { return };
    machine.in_claudes_place("touch made");
    let check = || {
        let report = machine
            .house
            .relay(&["doctor", "--json", "--patience", "60"])
            .out
            .parse::<Value>()
            .unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "walls").unwrap()
    };
    let root = rustix::process::geteuid().is_root();
    assert_eq!(check()["state"], if root { "warn" } else { "ok" }, "{}", check());
    assert!(check()["seen"].as_str().unwrap().contains("(tried)"), "{}", check());
    // Walls that are open: all of the disk is bound as it is.
    let open = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\n\
         exec {} --dev-bind / / --proc /proc -- \"$@\"\n",
        tool("bwrap").unwrap().display()
    );
    machine.house.program("bwrap", &open);
    let seen = "a lane reads relay's folder, reaches sockets of this machine, writes in your home";
    assert!(check()["seen"].as_str().unwrap().starts_with(seen), "{}", check());
    assert_eq!(check()["state"], "fail");
    // No box at all.
    for program in ["bwrap", "unshare"] {
        machine.house.program(program, "#!/bin/sh\necho no namespaces for you >&2; exit 1\n");
    }
    assert_eq!(check()["seen"], "none: a lane reaches all that your user may");
    let (_, detail, log) = machine.run("claude");
    assert_eq!(detail["task"]["stop_reason"]["reason"], "sandbox_unavailable", "{detail:#}\n{log}");
    assert!(detail["task"]["message"].as_str().unwrap().contains("relay doctor"), "{detail:#}");
    machine.is_as_it_was();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "scripts/test says where the real claude is")]
fn full_the_real_claude_works_behind_the_walls() {
    let Some(mut machine) = Machine::new() else { return };
    let Some(claude) = std::env::var_os("RELAY_TEST_CLAUDE") else {
        return skip("RELAY_TEST_CLAUDE does not name the claude program");
    };
    let model = Model::start([
        Step::Call("Bash", json!({ "command": "npm test", "description": "the tests" })),
        Step::Say("Tried it."),
    ]);
    machine
        .house
        .set("ANTHROPIC_BASE_URL", &model.url())
        .set("ANTHROPIC_API_KEY", "dummy-key-of-the-lane")
        .set("RELAY_LANE_ALLOWED_DOMAINS", &format!("127.0.0.1:{}", model.port))
        .set("RELAY_LANE_ENV", "ANTHROPIC_BASE_URL,ANTHROPIC_API_KEY");
    let house = &machine.house;
    house.program("claude", &format!("#!/bin/sh\nexec '{}' \"$@\"\n", claude.display()));
    fs::write(house.repo.join("package.json"), r#"{"scripts":{"test":"sh probe.sh; true"}}"#)
        .unwrap();
    fs::write(house.repo.join("probe.sh"), machine.probe()).unwrap();
    house.in_repo(&["add", "."]);
    house.in_repo(&["-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-qm", "test"]);
    let (_, detail, log) = machine.run("claude");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    let findings = machine.findings("claude");
    assert!(findings.contains(&"wrote-in-copy".to_owned()), "{findings:?}\n{log}");
    // In claude's own sandbox a file of the home is a place that is thrown away.
    let reached = |found: &&String| found.starts_with(|c: char| c.is_uppercase());
    assert_eq!(findings.iter().filter(reached).collect::<Vec<_>>(), Vec::<&String>::new());
    machine.is_as_it_was();
}

#[test]
fn full_what_the_operator_names_is_given_to_a_process_lane() {
    let Some(mut machine) = Machine::new() else { return };
    let (socket, folder) = (machine.sockets[0].clone(), machine.home().join("moved"));
    let given = format!("{},{}", socket.display(), folder.display());
    machine.house.set("RELAY_LANE_PATHS", &given);
    let probe = format!("{}\ntry wrote-in-given touch {}/new", machine.probe(), folder.display());
    machine.house.process_lane("probe", &probe, r#"{"reply":"Tried."}"#);
    let (_, detail, log) = machine.run("process:probe");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    let connected = format!("CONNECTED-TO-{}", socket.display());
    let expected = [&MAY[..3], &[&connected, MAY[3], "wrote-in-given"]].concat();
    assert_eq!(machine.findings("process:probe"), expected, "a login in the folder stays hidden");
}

/// A refresh puts another file in the login's place: what hides that file alone goes with it.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test runs a program in the box by hand")]
fn full_a_linked_login_stays_hidden_though_it_is_refreshed_in_the_run() {
    if !has(&["bwrap", "unshare", "setpriv"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    let (home, relay_home) = (root.join("home"), root.join("home/relay"));
    let (login, newer) = (root.join("vault/auth.json"), root.join("vault/newer"));
    fs::create_dir_all(&relay_home).unwrap();
    for file in [&login, &newer] {
        write(file, "SECRET\n");
    }
    fs::create_dir(home.join(".grok")).unwrap();
    std::os::unix::fs::symlink(&login, home.join(".grok/auth.json")).unwrap();
    let view = View {
        home: &home,
        relay_home: &relay_home,
        environment: &BTreeMap::new(),
        cwd: &home,
        own: &[],
        programs: &[],
        // Otherwise /tmp hides it.
        given: std::slice::from_ref(&root),
        replaced: &[],
        fixed: &[],
    };
    let tools = Tools { bwrap: tool("bwrap"), unshare: tool("unshare"), setpriv: tool("setpriv") };
    let wall = relay_sandbox::choose(&tools, rustix::process::geteuid().is_root());
    let script = "look() { grep -rs SECRET \"$1\"; }; look \"$1\"; echo ready; read go; look \"$1\"; \
                  echo ended";
    let args = ["-c", script, "sh", root.join("vault").to_str().unwrap()].map(OsString::from);
    let (path, args) = wall_in(&wall, &view.walls(), Path::new("/bin/sh"), &args);
    let mut child =
        Command::new(path).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    fs::rename(&newer, &login).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(rest, "ended\n");
}
