//! The service that keeps `relay work` running: its file as its readers read it, what `--install`
//! writes and runs, what the worker tells its manager.

#[cfg(target_os = "linux")]
mod full_manager;
#[cfg(target_os = "linux")]
mod notify;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use relay_service::{Keeper, Service};

use crate::support::full::skip;
use crate::support::house::House;
use crate::support::processes::tool;
use crate::support::served::Served;

const UNIT: &str = ".config/systemd/user/relay-work.service";

/// A manager that notes what it is told, and knows the unit where its file is there.
const SYSTEMCTL: &str = r#"#!/bin/sh
case "$1" in --version) echo 'systemd 252 (252.38-1)'; exit 0;; esac
echo "$@" >> "$HOME/told"
[ "$2" = show ] || exit 0
[ -f "$HOME/.config/systemd/user/relay-work.service" ] || { echo LoadState=not-found; exit 0; }
printf 'LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nNRestarts=0\n'
"#;

fn told(house: &House) -> Vec<String> {
    let told = std::fs::read_to_string(house.dir.path().join("told")).unwrap_or_default();
    std::fs::remove_file(house.dir.path().join("told")).unwrap_or_default();
    told.lines().filter(|line| !line.contains(" show ")).map(str::to_owned).collect()
}

/// As awkward as a path and a value may be.
fn awkward(program: &Path, folder: &Path) -> Service {
    Service {
        program: program.to_str().unwrap().to_owned(),
        args: ["work", "--name=50% $HOME ${X} \"q\" 'r' \\ ;", ";"].map(str::to_owned).to_vec(),
        environment: vec![
            ("PATH".to_owned(), "/usr/bin:/a b/%h/$X".to_owned()),
            ("RELAY_HOME".to_owned(), "/ö <&> ]]> \"x\" 'y' \\ %% $Y ".to_owned()),
        ],
        log: folder.join("work.log").to_str().unwrap().to_owned(),
        drain: Duration::from_secs(4200),
        watchdog: Duration::from_secs(300),
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "python reads the file")]
fn the_plist_is_read_back_by_a_plist_parser_as_it_was_meant() {
    if tool("python3").is_none() {
        return skip("python3 reads the plist");
    }
    let service = awkward(Path::new("/opt/a <b> & \"c\"/relay"), Path::new("/Users/ada/l & g"));
    let unit = Keeper::Launchd { uid: 501 }.unit("/Users/ada", &service).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.plist");
    std::fs::write(&file, &unit.text).unwrap();
    let read = "import json,plistlib,sys; print(json.dumps(plistlib.load(open(sys.argv[1],'rb'))))";
    let output = Command::new("python3").args(["-c", read]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plist: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let argv: Vec<&str> = plist["ProgramArguments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(argv[0], service.program);
    assert_eq!(argv[1..], service.args);
    for (name, value) in &service.environment {
        assert_eq!(plist["EnvironmentVariables"][name], **value);
    }
    assert_eq!(plist["Label"], "house.kyro.relay.work");
    assert_eq!((&plist["RunAtLoad"], &plist["Umask"]), (&true.into(), &0o077.into()));
    assert_eq!(plist["ThrottleInterval"], 120);
    assert_eq!(plist["KeepAlive"], serde_json::json!({"SuccessfulExit": false}));
    assert_eq!(
        (&plist["ExitTimeOut"], &plist["StandardErrorPath"]),
        (&4200.into(), &service.log.into())
    );
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::disallowed_methods, reason = "systemd-analyze reads the file")]
fn the_unit_is_verified_by_systemd_itself() {
    if tool("systemd-analyze").is_none() {
        return skip("systemd-analyze verifies the unit");
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a b 100% $X");
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("re=lay");
    std::os::unix::fs::symlink("/bin/true", &program).unwrap();
    let verify = |text: &str| {
        let file = dir.path().join("relay-work.service");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("systemd-analyze");
        command.args(["--user", "verify"]).arg(file).env("XDG_RUNTIME_DIR", dir.path());
        let output = command.env("HOME", dir.path()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let of = |program: &Path| {
        let keeper = Keeper::Systemd { version: 0 };
        keeper.unit("/home/ada", &awkward(program, &folder)).unwrap().text
    };
    let text = of(&program);
    assert_eq!(verify(&text), (true, String::new()), "{text}");
    // It does look: at what a setting is called, and whether the program is there.
    let misspelt = text.replace("OOMPolicy=", "OOMPolitics=");
    assert!(verify(&misspelt).1.contains("OOMPolitics"));
    assert!(!verify(&of(&folder.join("gone"))).0);
}

#[test]
fn install_shows_the_file_and_the_commands_and_does_nothing() {
    let mut house = House::new();
    house.program("systemctl", SYSTEMCTL);
    house.set("RELAY_LANE_ALLOWED_DOMAINS", "a.example").set("RELAY_MODEL_CODEX", "gpt \"5\" 100%");
    house.set("RELAY_GITHUB_TOKEN", "ghp_hush0123456789").set("USER", "nobody-here");
    house.process_lane("edit", "true", "{}");
    let options = ["--lanes", "claude,process:edit", "--labels", "gpu", "--jobs", "3"];
    let limits = ["--limit", "codex=1", "--limit=process:edit=2", "--per-repo", "2"];
    let more = ["--name", "desk", "--max-interval", "900", "--max-minutes", "90"];
    let ran = house.relay(&[&["work", "--install"], &options[..], &limits, &more].concat());
    assert!(ran.err.contains("RELAY_GITHUB_TOKEN is never written"), "{}", ran.err);
    assert!(ran.err.contains("loginctl enable-linger nobody-here"), "{}", ran.err);
    let said = ran.ok();
    for part in [
        "relay-work.service",
        "\"work\" \"--log\" \"--jobs=3\" \"--limit=codex=1,process:edit=2\" \"--per-repo=2\" \
         \"--lanes=claude,process:edit\" \"--labels=gpu\" \"--name=desk\" \"--max-minutes=90\" \"--max-interval=900\"",
        "Environment=\"RELAY_LANE_ALLOWED_DOMAINS=a.example\"",
        "Environment=\"RELAY_MODEL_CODEX=gpt \\\"5\\\" 100%%\"",
        "Environment=\"RELAY_HOME=",
        "TimeoutStopSec=6000",
        "systemctl --user enable --now relay-work.service",
        "nothing was done",
    ] {
        assert!(said.contains(part), "{part} is missing from\n{said}");
    }
    assert!(!said.contains("hush"), "{said}");
    assert_eq!(told(&house), [] as [&str; 0]);
    assert!(!house.dir.path().join(UNIT).exists());
    // What is baked in is taken by the program that it is baked in for.
    let exec = said.lines().find(|line| line.contains("ExecStart=")).unwrap();
    let words = exec.split_once("\" \"work\" ").unwrap().1.replace('"', "");
    let mut args: Vec<&str> = words.split(' ').filter(|word| *word != "--log").collect();
    args.splice(0..0, ["work", "--install"]);
    assert_eq!(house.relay(&args).ok(), said);
}

#[test]
fn what_relay_work_refuses_makes_no_service_and_what_may_change_is_told() {
    let house = House::new();
    house.program("systemctl", SYSTEMCTL);
    let bare = house.relay(&["work", "--install"]);
    assert_eq!(bare.code, 0, "{bare:?}");
    assert!(bare.err.contains("can serve no lane now"), "{bare:?}");
    house.process_lane("slow", "true", "{}");
    for slip in [["--lanes", "process:slwo"], ["--limit", "process:slwo=1"]] {
        let work = house.relay(&[&["work"], &slip[..]].concat());
        let install = house.relay(&[&["work", "--install", "--yes"], &slip[..]].concat());
        assert_eq!((install.code, &install.err), (6, &work.err), "{install:?}");
        assert!(install.err.contains("no lane `process:slwo`"), "{install:?}");
    }
    assert!(told(&house).is_empty() && !house.dir.path().join(UNIT).exists());
    let fits = house.relay(&["work", "--install", "--limit", "process:slow=1"]);
    assert!(fits.code == 0 && !fits.err.contains("warning"), "{fits:?}");
    let mut site = Served::of(house, None);
    let beside = site.house.relay(&["work", "--install"]);
    assert_eq!(beside.code, 0, "{beside:?}");
    assert!(beside.err.contains("in use by `relay serve`"), "{beside:?}");
    site.end();
}

#[test]
fn install_uninstall_and_both_again() {
    let mut house = House::new();
    house.program("systemctl", SYSTEMCTL);
    let unit = house.dir.path().join(UNIT);
    house.set("USER", "nobody-here");
    let ran = house.relay(&["work", "--install", "--yes", "--name", "desk"]);
    assert!(ran.err.contains("loginctl enable-linger nobody-here"), "{}", ran.err);
    ran.ok();
    assert_eq!(told(&house), ["--user daemon-reload", "--user enable --now relay-work.service"]);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&unit), mode(&house.home.join("work.log"))), (0o600, 0o600));
    std::fs::write(house.home.join("work.log"), "one\ntwo \x1b[2J\n").unwrap();
    let status = house.json(&["work", "status", "--json"]);
    let service = &status["service"];
    assert_eq!((&service["installed"], &service["active"]), (&true.into(), &true.into()));
    assert_eq!(status["log"], serde_json::json!(["one", "two \u{fffd}[2J"]));
    let shown = house.relay(&["work", "status"]).ok();
    assert!(shown.contains("service: active (running)") && shown.contains("  one\n"), "{shown}");
    told(&house);
    house.relay(&["work", "--install", "--yes", "--name", "attic"]).ok();
    assert_eq!(
        told(&house),
        [
            "--user daemon-reload",
            "--user enable relay-work.service",
            "--user restart --no-block relay-work.service"
        ]
    );
    assert!(std::fs::read_to_string(&unit).unwrap().contains("--name=attic"));
    let shown = house.relay(&["work", "--uninstall"]).ok();
    assert!(shown.contains("nothing was done") && unit.exists(), "{shown}");
    house.relay(&["work", "--uninstall", "--yes"]).ok();
    assert_eq!(
        told(&house),
        [
            "--user stop relay-work.service",
            "--user disable relay-work.service",
            "--user daemon-reload"
        ]
    );
    assert!(!unit.exists());
    for plan in [&["work", "--uninstall", "--yes"][..], &["work", "--uninstall"]] {
        let said = house.relay(plan).ok();
        assert_eq!((said.as_str(), told(&house).len()), ("there is no service to remove", 0));
    }
}

#[test]
fn a_worker_whose_site_is_away_shows_what_its_machine_knows() {
    let mut house = House::new();
    house.program("systemctl", SYSTEMCTL);
    house.set("RELAY_SITE", "http://127.0.0.1:1").set("RELAY_TOKEN", "relay_x");
    std::fs::write(house.home.join("work.log"), "it runs t-1\n").unwrap();
    let ran = house.relay(&["work", "status"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("error: the site at http://127.0.0.1:1 could not"), "{ran:?}");
    for part in ["http://127.0.0.1:1: no answer\n", "service: none", "  it runs t-1\n"] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    let ran = house.relay(&["work", "status", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &told["log"][0]), (5, &"it runs t-1".into()), "{ran:?}");
    assert!(told.get("site").is_none() && told["service"]["installed"] == false, "{told}");
}

#[test]
fn a_manager_that_refuses_is_named_with_what_helps() {
    let house = House::new();
    let refuses = "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n";
    house.program("systemctl", refuses);
    let ran = house.relay(&["work", "--install", "--yes"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.err.contains("connect to bus"), "{ran:?}");
    // Nothing says who this is but the system.
    let linger = format!("loginctl enable-linger {}; ", rustix::process::getuid().as_raw());
    assert!(ran.err.contains(&linger), "{ran:?}");
}

#[test]
fn a_token_of_the_environment_is_no_services_token() {
    let mut house = House::new();
    house.program("systemctl", SYSTEMCTL);
    house.set("RELAY_SITE", "https://relay.example").set("RELAY_TOKEN", "relay_hush");
    let ran = house.relay(&["work", "--install", "--yes"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.err.contains("credentials.json"), "{ran:?}");
    assert!(ran.err.contains("hint: relay setup --site https://relay.example"), "{ran:?}");
    assert!(told(&house).is_empty() && !house.dir.path().join(UNIT).exists());
    // With a token that `relay setup` keeps for that site, the one here is not needed.
    let kept = r#"{"site":"https://relay.example/","token":"relay_kept_hush"}"#;
    let file = house.home.join("credentials.json");
    std::fs::write(&file, kept).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let ran = house.relay(&["work", "--install"]);
    assert!(ran.code == 0 && !ran.out.contains("hush") && !ran.err.contains("hush"), "{ran:?}");
}

#[test]
fn a_line_break_in_a_setting_makes_no_second_line_of_the_unit() {
    let mut house = House::new();
    house.program("systemctl", SYSTEMCTL);
    house.set("RELAY_MODEL_CLAUDE", "opus\"\nExecStartPre=/bin/evil");
    let ran = house.relay(&["work", "--install", "--yes"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("RELAY_MODEL_CLAUDE holds a line break"), "{ran:?}");
    assert!(!house.dir.path().join(UNIT).exists());
}
