//! The same behind walls: the hosts it needs have doors of their own there, and nothing else has.

#![expect(clippy::disallowed_methods, reason = "a server that is a program")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{DONE, HOME_FINDINGS, HOME_OF_THE_RUN, findings, is_done, machine, run};
use crate::support::certificate::certificate;
use crate::support::connect::Connect;
use crate::support::full::{full, skip};
use crate::support::house::only_has;
use crate::support::processes::tool;

/// `HOST` and `OTHER` have doors, `LISTED` is on the lane's list and has none.
const PROBE: &str = r#"
knock() { socat -u OPEN:/dev/null "$1,connect-timeout=5"; }
says() { curl -sS -m 300 --noproxy '*' --cacert "$CA" "$@" 2>&1 | grep -q 'Secure Renegotiation'; }
try reached-its-host says "https://$HOST/"
try reached-its-other-host says "https://$OTHER/"
try REACHED-ANOTHER-AT-THAT-DOOR says -k --connect-to "evil.example:443:$HOST:443" https://evil.example/
try REACHED-WHAT-IS-LISTED says "https://$LISTED/"
try REACHED-ANOTHER-PORT knock "TCP:$HOST:80"
try REACHED-A-DOOR-OF-NOBODY knock TCP:127.0.1.9:443
try REACHED-THE-FAR-END knock "TCP:$FAR"
try FOUND-A-NAME getent ahosts github.com
try may-bind-no-low-port sh -c 'socat -u TCP-LISTEN:444,bind=127.0.0.1 - 2>&1 | grep -q denied'
try WROTE-THE-TABLE sh -c 'echo 127.0.1.2 github.com >>/etc/hosts'
try has-the-persons-home test -d "$HOME/shop"
try MET-THE-WORKER-AGAIN sh -c 'test -n "$(ls "$RELAY_COPY.door")"'
test "$(id -u)" = 0 || try HAS-A-CAPABILITY grep -qE '^Cap(Inh|Prm|Eff|Amb):.*[1-9a-f]' /proc/self/status
"#;

const MAY: [&str; 4] =
    ["reached-its-host", "reached-its-other-host", "may-bind-no-low-port", "has-the-persons-home"];

/// A server of everybody's certificate, which is where this machine's proxy leads to.
struct Far {
    child: Child,
    addr: SocketAddr,
}

impl Far {
    fn start(openssl: &Path, dir: &Path) -> Self {
        let mut serving = Command::new(openssl);
        serving.args(["s_server", "-www", "-cert", "site.pem", "-key", "site.key"]);
        serving.args(["-accept", "127.0.0.1:0"]).current_dir(dir);
        let serving = serving.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = serving.spawn().unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let addr = told.find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned)).unwrap();
        std::thread::spawn(move || told.count());
        Self { child, addr: addr.parse().unwrap() }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

/// `in_its_home` is where fx itself stands in the folder that a run's own takes the place of.
fn from_task_to_pull_request(lane: &str, [host, other, listed]: [&str; 3], in_its_home: bool) {
    for program in ["bwrap", "socat", "unshare", "setpriv", "curl", "openssl"] {
        if tool(program).is_none() {
            return skip(&format!("{program} is not on PATH"));
        }
    }
    if !full() {
        return skip("RELAY_TEST_FULL is not set");
    }
    let certificates = tempfile::tempdir().unwrap();
    let openssl = tool("openssl").unwrap();
    let names = format!("DNS:{host},DNS:{other},DNS:{listed}");
    certificate(&openssl, certificates.path(), &names);
    let far = Far::start(&openssl, certificates.path());
    let beyond = Connect::to(far.addr);
    let script = format!(
        "HOST={host} OTHER={other} LISTED={listed} FAR={} CA=$HOME/ca.pem\n\
         {HOME_OF_THE_RUN}{PROBE}\nprintf '%s\\n' '{DONE}'",
        far.addr,
    );
    let mut house = machine(lane, &script);
    std::fs::copy(certificates.path().join("ca.pem"), house.dir.path().join("ca.pem")).unwrap();
    if in_its_home {
        let folder = house.dir.path().join(".fx/bin");
        std::fs::create_dir(&folder).unwrap();
        std::fs::rename(house.bin.join("fx"), folder.join("fx")).unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{path}", folder.display(), house.bin.display());
        house.set("PATH", &path);
    }
    house.set("RELAY_LANE_PATHS", "").set("HTTPS_PROXY", &beyond.url("ann:hush-hush"));
    let lanes = house.json(&["lane", "ls", "--json", "--patience", "60"]);
    let seen = lanes["lanes"].as_array().unwrap().iter().find(|seen| seen["lane"] == lane).unwrap();
    assert_eq!((&seen["served"], &seen["through"]), (&true.into(), &"fx".into()), "{seen:#}");
    let (detail, log) = run(&house, lane, &[]);
    is_done(&house, lane, &detail, &log);
    assert_eq!(findings(&house, lane), [&HOME_FINDINGS[..], &MAY].concat(), "{log}");
    let told = format!("network: refused {host}:443: its TLS asks for evil.example instead");
    assert_eq!(log.matches(&told).count(), 1, "{log}");
    assert!(!log.contains("hush-hush"), "{log}");
    let asked: Vec<String> = beyond.asked();
    let to =
        |host: &str| asked.iter().filter(|line| line.contains(&format!(" {host}:443 "))).count();
    assert_eq!((to(host), to(other), to(listed)), (2, 1, 0), "{asked:?}");
    assert_eq!(only_has(&house.home.join("work"), &[]), Vec::<String>::new());
}

#[test]
fn codexs_hosts_have_doors() {
    let hosts = ["chatgpt.com", "auth.openai.com", "api.openai.com"];
    from_task_to_pull_request("codex", hosts, false);
}

#[test]
fn groks_hosts_have_doors() {
    let hosts = ["cli-chat-proxy.grok.com", "auth.x.ai", "accounts.x.ai"];
    from_task_to_pull_request("grok", hosts, true);
}
