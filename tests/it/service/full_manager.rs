//! The service under a real user manager: systemd itself, in namespaces of its own.

use std::path::Path;
use std::process::Command;

use crate::support::full::{full, skip};
use crate::support::house::House;
use crate::support::processes::tool;

/// Boots a user manager for $HOME in a tree of processes and mounts of its own, does `$@` under it
/// and ends it.
const BOOT: &str = r#"set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
/lib/systemd/systemd --user --log-target=console > "$HOME/manager.log" 2>&1 &
manager=$!
tries=0
until systemctl --user is-system-running > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 6000 ] || { cat "$HOME/manager.log"; exit 70; }
    sleep 0.05
done
code=0
"$@" || code=$?
kill -KILL $manager
wait $manager 2> /dev/null || true
exit $code
"#;

/// What is done under it. `$1` is relay.
const SCRIPT: &str = r#"set -eu
relay=$1
show() { systemctl --user show relay-work.service --property="$1" --value; }
until_is() {
    tries=0
    until [ "$(show "$1")" = "$2" ]; do
        tries=$((tries + 1))
        [ $tries -lt 6000 ] || { echo "$1 is $(show "$1"), not $2"; cat "$RELAY_HOME/work.log" "$HOME/manager.log"; exit 71; }
        sleep 0.05
    done
}
"$relay" work --install --yes --lanes process:edit --name 'desk'
until_is SubState running
pid=$(show MainPID)
echo "notify: $(show NotifyAccess), status: $(show StatusText)"
tr '\0' '\n' < "/proc/$pid/cmdline" | sed 's/^/argv: /'
tr '\0' '\n' < "/proc/$pid/environ" | grep -e ^RELAY_ -e ^WATCHDOG_USEC | sort | sed 's/^/env: /'
grep -e ^Umask -e ^NoNewPrivs "/proc/$pid/status"
"$relay" work status --json > "$HOME/status.json"
task=$("$relay" task create --repo "$(cat "$HOME/slug")" --lane process:edit --title One)
tries=0
until [ -e "$HOME/running" ]; do tries=$((tries + 1)); [ $tries -lt 6000 ] || exit 72; sleep 0.05; done
# Stopped while a job runs: the stop waits for it, also longer than the unit says.
mkdir "$HOME/.config/systemd/user/relay-work.service.d"
printf '[Service]\nTimeoutStopSec=10\n' > "$HOME/.config/systemd/user/relay-work.service.d/a.conf"
systemctl --user daemon-reload
echo "stops within: $(show TimeoutStopUSec)"
( until_is SubState stop-sigterm; sleep 14; touch "$HOME/gate" ) &
"$relay" work --uninstall --yes
"$relay" task get "$task" --json | grep -m1 '"state"'
echo "left: $(show LoadState) $(show ActiveState)"
[ ! -e "$HOME/.config/systemd/user/relay-work.service" ]
"$relay" work --install --yes --lanes process:edit
until_is SubState running
# Drained by command it has ended as it should, and stays so until somebody starts it.
"$relay" work drain
until_is ActiveState inactive
echo "after a drain: $(show SubState) $(show Result) $(show NRestarts)"
systemctl --user start relay-work.service
until_is SubState running
# Killed, it is started again.
kill -KILL "$(show MainPID)"
until_is SubState auto-restart
echo "after a kill: $(show ActiveState) $(show Result)"
"$relay" work --uninstall --yes
"#;

#[test]
#[expect(clippy::disallowed_methods, reason = "a real service manager is started")]
fn full_the_service_under_a_real_user_manager() {
    if !full() {
        return skip("a user manager needs RELAY_TEST_FULL=1");
    }
    if !rustix::process::geteuid().is_root() {
        // Only root may give a manager its control groups where no system manager runs.
        println!("skipped: a user manager of an ordinary user needs a booted system");
        return;
    }
    assert!(tool("systemctl").is_some(), "the full tier needs systemd");
    let mut house = House::new();
    house.set("RELAY_MODEL_CODEX", "a \"b\" 'c' \\ 100% $HOME ${X}");
    house.set("XDG_RUNTIME_DIR", "/run/user/0");
    let dir = house.dir.path().to_owned();
    let (running, gate) = (dir.join("running"), dir.join("gate"));
    let held = format!(
        "echo hello > hello.txt\ntouch {}\nwhile [ ! -e {} ]; do sleep 0.05; done",
        running.display(),
        gate.display()
    );
    house.process_lane("edit", &held, r#"{"reply":"Done."}"#);
    std::fs::write(dir.join("slug"), house.link()).unwrap();
    let (boot, script) = (dir.join("boot.sh"), dir.join("script.sh"));
    std::fs::write(&boot, BOOT).unwrap();
    std::fs::write(&script, SCRIPT).unwrap();
    let relay = house.command(&[]);
    let environment = relay.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh"])
        .args([boot.as_os_str(), "sh".as_ref(), script.as_os_str(), relay.get_program()])
        .env_clear()
        .envs(environment)
        .output()
        .unwrap();
    remove_groups();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    for line in [
        "notify: main, status: serving process:edit",
        "argv: --name=desk",
        "env: RELAY_MODEL_CODEX=a \"b\" 'c' \\ 100% $HOME ${X}",
        "env: WATCHDOG_USEC=300000000",
        "Umask:\t0077",
        "NoNewPrivs:\t1",
        "stops within: 10s",
        "left: not-found inactive",
        "after a drain: dead success 0",
        "after a kill: activating signal",
    ] {
        assert!(
            said.lines().any(|l| l.trim() == line),
            "{line} is missing from\n{said}\n{complained}"
        );
    }
    assert!(said.contains("\"state\": \"review\""), "the job was let finish:\n{said}");
    let status = std::fs::read_to_string(dir.join("status.json")).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["service"]["detail"], "active (running)");
    assert_eq!(status["workers"][0]["name"], "desk");
    assert!(status["log"][0].as_str().unwrap().ends_with("serving process:edit"));
}

/// The empty groups that the manager made; those of a booted system are not empty.
fn remove_groups() {
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        for name in ["app.slice", "init.scope"] {
            remove_empty(&hierarchy.path().join(name));
        }
    }
}

fn remove_empty(group: &Path) {
    for inner in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&inner.path());
        }
    }
    let _not_ours_or_not_there = std::fs::remove_dir(group);
}
