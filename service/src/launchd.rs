//! A LaunchAgent of macOS.

use std::fmt::Write as _;
use std::path::Path;

use super::{Service, Standing, Unit, argv};

/// The agent's label, which is also its file's name (seed 002).
pub const LABEL: &str = "house.kyro.relay.work";

/// The least between two starts, in seconds. It cannot grow; after a run of hours it is over.
const PAUSE: u32 = 120;
/// 0077: launchd reads numbers as decimal.
const UMASK: u32 = 0o077;

pub(super) fn unit(uid: u32, home: &str, service: &Service) -> Unit {
    let path = Path::new(home).join("Library/LaunchAgents").join(format!("{LABEL}.plist"));
    let (domain, target) = (format!("gui/{uid}"), format!("gui/{uid}/{LABEL}"));
    let bootstrap = argv(["launchctl", "bootstrap", &domain, &path.to_string_lossy()]);
    let bootout = argv(["launchctl", "bootout", &target]);
    Unit {
        path,
        text: text(service),
        load: vec![bootstrap.clone()],
        reload: vec![bootout.clone(), bootstrap],
        unload: vec![bootout],
        forget: Vec::new(),
        show: argv(["launchctl", "print", &target]),
    }
}

fn text(service: &Service) -> String {
    let mut args = String::new();
    for arg in std::iter::once(&service.program).chain(&service.args) {
        let _ = writeln!(args, "    <string>{}</string>", escaped(arg));
    }
    let mut environment = String::new();
    for (name, value) in &service.environment {
        let (name, value) = (escaped(name), escaped(value));
        let _ = writeln!(environment, "    <key>{name}</key>\n    <string>{value}</string>");
    }
    let (log, drain) = (escaped(&service.log), service.drain.as_secs());
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">
<!-- Written by relay work, with its option install; its option uninstall removes it. -->
<plist version=\"1.0\">
<dict>
  <key>Label</key>
  <string>{LABEL}</string>
  <key>ProgramArguments</key>
  <array>
{args}  </array>
  <key>EnvironmentVariables</key>
  <dict>
{environment}  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>{PAUSE}</integer>
  <key>ExitTimeOut</key>
  <integer>{drain}</integer>
  <key>Umask</key>
  <integer>{UMASK}</integer>
  <key>StandardOutPath</key>
  <string>{log}</string>
  <key>StandardErrorPath</key>
  <string>{log}</string>
</dict>
</plist>
"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(super) fn standing(shown: Option<&str>) -> Standing {
    let Some(shown) = shown else { return Standing::default() };
    let get = |name: &str| {
        // The first is the agent's own; those of what it starts stand further in.
        let of = |line: &str| Some(line.trim().strip_prefix(name)?.strip_prefix(" = ")?.to_owned());
        shown.lines().find_map(of)
    };
    let state = get("state").unwrap_or_else(|| "loaded".to_owned());
    let mut word = state.clone();
    if let Some(code) = get("last exit code").filter(|code| code != "(never exited)" && code != "0")
    {
        let _ = write!(word, ", last exit code {code}");
    }
    Standing { loaded: true, active: state == "running", word }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn markup_in_a_path_is_text() {
        let unit = unit(501, "/Users/ada", &example());
        assert!(unit.text.contains("<string>/home/ada/ö &lt;&amp;&gt; \"x\" $Y \\</string>"));
        assert_eq!(
            unit.path,
            Path::new("/Users/ada/Library/LaunchAgents/house.kyro.relay.work.plist")
        );
        let path = "/Users/ada/Library/LaunchAgents/house.kyro.relay.work.plist";
        assert_eq!(unit.load, [["launchctl", "bootstrap", "gui/501", path]]);
        assert_eq!(unit.unload, [["launchctl", "bootout", "gui/501/house.kyro.relay.work"]]);
    }

    #[test]
    fn how_it_stands_is_read_from_what_launchctl_prints() {
        let shown = "gui/501/house.kyro.relay.work = {\n\tactive count = 1\n\tstate = running\n\n\tpid = 812\n\tlast exit code = (never exited)\n}\n";
        let running = standing(Some(shown));
        assert_eq!(
            (running.loaded, running.active, running.word.as_str()),
            (true, true, "running")
        );
        let ended = standing(Some("\tstate = not running\n\tlast exit code = 6\n"));
        assert_eq!((ended.loaded, ended.active), (true, false));
        assert_eq!(ended.word, "not running, last exit code 6");
        assert!(!standing(None).loaded);
    }
}
