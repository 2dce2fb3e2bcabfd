//! A unit of systemd's user manager.

use std::fmt::Write as _;
use std::path::Path;

use super::{Service, Standing, Unit, UnitError, argv};

/// The unit's name (seed 002).
pub const UNIT: &str = "relay-work.service";

/// The first version whose pauses between restarts grow.
const GROWING_PAUSES: u32 = 254;

pub(super) fn unit(version: u32, home: &str, service: &Service) -> Result<Unit, UnitError> {
    // systemd refuses them there, however they are quoted.
    if service.program.contains(['"', '\'', '\\']) {
        let what = "the program's path".to_owned();
        return Err(UnitError { what, held: "a quote or a backslash" });
    }
    let of_user = |words: &[&str]| -> Vec<String> {
        ["systemctl", "--user"].iter().chain(words).map(|word| (*word).to_owned()).collect()
    };
    let reload = of_user(&["daemon-reload"]);
    Ok(Unit {
        path: Path::new(home).join(".config/systemd/user").join(UNIT),
        text: text(version, service),
        load: vec![reload.clone(), of_user(&["enable", "--now", UNIT])],
        // A restart waits for running jobs; nobody wants to watch it.
        reload: vec![
            reload.clone(),
            of_user(&["enable", UNIT]),
            of_user(&["restart", "--no-block", UNIT]),
        ],
        // In this order: a manager that has read the file as gone knows no stop time-out any more.
        unload: vec![of_user(&["stop", UNIT]), of_user(&["disable", UNIT])],
        forget: vec![reload],
        show: [
            argv(["systemctl", "--user", "show", UNIT]),
            argv(["--property=LoadState,ActiveState,SubState,Result,NRestarts"]),
        ]
        .concat(),
    })
}

fn text(version: u32, service: &Service) -> String {
    // `$` starts no variable in the program's own path.
    let mut exec = quoted(&service.program);
    for arg in &service.args {
        exec.push(' ');
        exec.push_str(&quoted_arg(arg));
    }
    let mut environment = String::new();
    for (name, value) in &service.environment {
        let _ = writeln!(environment, "Environment={}", quoted(&format!("{name}={value}")));
    }
    // A start that fails at once is as rare as a worker that was killed, and has to be had for both:
    // where the pause cannot grow it is one that a machine can bear for days.
    let pauses = match version >= GROWING_PAUSES {
        true => "RestartSec=30\nRestartSteps=6\nRestartMaxDelaySec=10min",
        false => "RestartSec=2min",
    };
    let log = service.log.replace('%', "%%");
    let (drain, watchdog) = (service.drain.as_secs(), service.watchdog.as_secs());
    format!(
        "# Written by `relay work --install`; `relay work --uninstall --yes` removes it.
[Unit]
Description=relay work: takes tasks and does them
# However often it ended badly, it is started again: a site may be away for a day.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={exec}
{environment}StandardOutput=append:{log}
StandardError=append:{log}
Restart=on-failure
{pauses}
TimeoutStartSec=15min
# Running jobs finish first; while they do, relay asks for more time.
TimeoutStopSec={drain}
# A worker whose loop is stuck is ended, and started again.
WatchdogSec={watchdog}
TimeoutAbortSec=30
KillMode=mixed
OOMPolicy=continue
# Lanes make namespaces and groups of their own, so no Protect* and no RestrictNamespaces here.
Delegate=yes
NoNewPrivileges=yes
UMask=0077

[Install]
WantedBy=default.target
"
    )
}

fn quoted_arg(arg: &str) -> String {
    quoted(&arg.replace('$', "$$"))
}

/// One word: `%` starts a specifier even inside quotes.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{text}\"")
}

pub(super) fn standing(shown: Option<&str>) -> Standing {
    let Some(shown) = shown else { return Standing::default() };
    let get = |name: &str| {
        let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.trim().to_owned());
        shown.lines().find_map(of).unwrap_or_default()
    };
    let (active, sub, result) = (get("ActiveState"), get("SubState"), get("Result"));
    let mut word = match sub.is_empty() || sub == active {
        true => active.clone(),
        false => format!("{active} ({sub})"),
    };
    if !matches!(result.as_str(), "" | "success") {
        let _ = write!(word, ", last ended by {result}");
    }
    match get("NRestarts").as_str() {
        "" | "0" => {}
        times => {
            let _ = write!(word, ", started again {times} times");
        }
    }
    Standing {
        loaded: get("LoadState") == "loaded",
        active: matches!(active.as_str(), "active" | "activating" | "reloading" | "deactivating"),
        word,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn every_word_is_one_word_and_nothing_in_it_is_read() {
        let unit = unit(252, "/home/ada", &example()).expect("valid");
        let line = |start: &str| unit.text.lines().find(|l| l.starts_with(start)).expect(start);
        assert_eq!(
            line("ExecStart="),
            r#"ExecStart="/opt/my relay/100%%/relay $X" "work" "--lanes" "claude,process:a b" "--name" "50%% $$HOME $${X} \"q\" 'r' \\ ;" ";""#
        );
        assert_eq!(
            line("Environment=\"RELAY_HOME"),
            r#"Environment="RELAY_HOME=/home/ada/ö <&> \"x\" $Y \\""#
        );
        assert_eq!(line("Environment=\"PATH"), r#"Environment="PATH=/usr/bin:/home/ada/a b/%%h""#);
        assert_eq!(line("StandardOutput"), "StandardOutput=append:/home/ada/100%% of it/work.log");
        assert_eq!(unit.path, Path::new("/home/ada/.config/systemd/user/relay-work.service"));
    }

    #[test]
    fn a_program_that_systemd_takes_under_no_quoting_is_refused() {
        for bad in ["/opt/re\"lay", "/opt/re'lay", "/opt/re\\lay"] {
            let service = Service { program: bad.to_owned(), ..example() };
            assert!(super::unit(252, "/home/ada", &service).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_issue_asks_of_the_unit_stands_in_it() {
        let text = text(252, &example());
        let has = |line: &str| text.lines().any(|l| l == line);
        for line in [
            "Type=notify",
            "KillMode=mixed",
            "OOMPolicy=continue",
            "Delegate=yes",
            "NoNewPrivileges=yes",
            "UMask=0077",
            "TimeoutStopSec=4200",
            "WatchdogSec=300",
            "Restart=on-failure",
            "StartLimitIntervalSec=0",
        ] {
            assert!(has(line), "{line} is missing from\n{text}");
        }
        for word in ["Protect", "Private", "RestrictNamespaces=", "SystemCallFilter"] {
            let set = text.lines().any(|line| !line.starts_with('#') && line.starts_with(word));
            assert!(!set, "{word} breaks the boxes of lanes");
        }
        // A manager that does not know a setting warns of it at each load.
        assert!(has("RestartSec=2min") && !has("RestartSteps=6"));
        let growing = "\nRestartSec=30\nRestartSteps=6\nRestartMaxDelaySec=10min\n";
        assert!(super::text(254, &example()).contains(growing));
    }

    #[test]
    fn a_stop_comes_before_the_file_is_forgotten() {
        let unit = unit(252, "/home/ada", &example()).expect("valid");
        assert_eq!(unit.unload[0], ["systemctl", "--user", "stop", UNIT]);
        assert!(unit.unload.iter().all(|argv| !argv.contains(&"daemon-reload".to_owned())));
        assert_eq!(unit.forget, [["systemctl", "--user", "daemon-reload"]]);
    }

    #[test]
    fn how_it_stands_is_read_from_what_systemctl_shows() {
        let shown =
            "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nNRestarts=0\n";
        let standing = |text: &str| super::standing(Some(text));
        let word = "active (running)".to_owned();
        assert_eq!(standing(shown), Standing { loaded: true, active: true, word });
        let failed = standing(
            "LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nResult=watchdog\nNRestarts=3\n",
        );
        assert!(failed.word.contains("watchdog") && failed.word.contains('3'), "{}", failed.word);
        let none = standing("LoadState=not-found\nActiveState=inactive\nSubState=dead\n");
        assert_eq!((none.loaded, none.active), (false, false));
        assert_eq!(super::standing(None), Standing::default());
    }
}
