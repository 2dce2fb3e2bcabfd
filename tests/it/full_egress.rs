//! The box's network with a whole worker: what a lane's program reaches, and that it is told by
//! name what it does not. Each try that comes out well is written down by its name; names in
//! capitals are what must never be there.

use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::support::full::has;
use crate::support::house::{House, only_has};
use crate::support::processes::{Marked, tool};

/// `OPEN` is a port of this machine that the operator listed, `SHUT` one that nobody did, `ADDRESS`
/// this machine's own on its network.
const PROBE: &str = r#"
try() { what=$1; shift; "$@" >/dev/null 2>&1 && echo "$what" >>findings; }
knock() { socat -u OPEN:/dev/null "$1,connect-timeout=5"; }
says() { words=$1; shift; curl -sS -m 300 "$@" 2>&1 | grep -q "$words"; }
try REACHED-THE-HOST knock TCP:127.0.0.1:$OPEN
try REACHED-THE-HOST-BY-IPV6 knock "TCP6:[::1]:$OPEN"
try REACHED-THE-HOST-BY-ITS-ADDRESS knock TCP:$ADDRESS:$OPEN
try REACHED-AN-ADDRESS knock TCP:192.0.2.1:443
try REACHED-METADATA knock TCP:169.254.169.254:80
try SENT-A-DATAGRAM sh -c "echo x | socat -u - UDP:192.0.2.1:53"
try FOUND-A-NAME getent ahosts github.com
try HAS-ANOTHER-INTERFACE sh -c "grep -v -e lo: -e '|' /proc/net/dev | grep -q :"
try HAS-A-PROXY-WITH-A-LOGIN sh -c "env | grep -q SECRET"
try MET-THE-WORKER-AGAIN sh -c 'test -n "$(ls "$RELAY_COPY.door")"'
try reached-what-is-listed says served http://127.0.0.1:$OPEN/
try reached-it-by-a-tunnel says served -p http://127.0.0.1:$OPEN/
try refused-what-is-not says "relay refuses 127.0.0.1:$SHUT" http://127.0.0.1:$SHUT/
try refused-a-host says 403 https://evil.example/SECRET-of-the-lane
try refused-metadata says "relay refuses 169.254.169.254:80" http://169.254.169.254/
try refused-a-port says 403 -p http://github.com:22/
socat -u TCP-LISTEN:18099,bind=127.0.0.1 CREATE:got &
echo hello | socat -u - TCP:127.0.0.1:18099,retry=6000,interval=0.05
wait
try bound-localhost grep -q hello got
rm -f got
setsid sleep 600 $MARK </dev/null >/dev/null 2>&1 &
"#;

const MAY: [&str; 7] = [
    "reached-what-is-listed",
    "reached-it-by-a-tunnel",
    "refused-what-is-not",
    "refused-a-host",
    "refused-metadata",
    "refused-a-port",
    "bound-localhost",
];

/// A machine with two servers on its loopback, of which the operator listed one.
struct Machine {
    house: House,
    servers: [Server; 2],
    marked: Marked,
}

impl Machine {
    fn new() -> Option<Self> {
        if !has(&["bwrap", "socat", "unshare", "setpriv", "curl"]) {
            return None;
        }
        let mut house = House::new();
        let servers = [Server::start(), Server::start()];
        house
            .set("RELAY_LANE_PATHS", "")
            .set("RELAY_LANE_ALLOWED_DOMAINS", &format!("127.0.0.1:{}", servers[0].port));
        Some(Self { house, servers, marked: Marked::new() })
    }

    fn probe(&self) -> String {
        let [open, shut] = self.servers.each_ref().map(|server| server.port);
        let address = own_address().unwrap_or(Ipv4Addr::LOCALHOST);
        let mark = &self.marked.mark;
        format!("OPEN={open} SHUT={shut} ADDRESS={address} MARK={mark}\n{PROBE}")
    }

    /// A program in claude's place, outside of every sandbox but relay's.
    fn in_claudes_place(&self, body: &str, result: &Value) {
        self.house.claude(&format!("{body}\necho '{result}'"), 0);
    }

    fn run(&self, lane: &str) -> (Value, String) {
        let slug = self.house.link();
        let task = self.house.task(&slug, lane, "Try it");
        self.house.relay(&["work", "--once", "--name", "w", "--lanes", lane]).ok();
        let detail = self.house.json(&["task", "get", &task, "--json"]);
        let log = self.house.relay(&["task", "log", &task]).ok();
        (detail, log)
    }

    fn findings(&self, lane: &str) -> Vec<String> {
        let object = format!("relay/{}-1:findings", lane.replace(':', "-"));
        self.house.in_repo(&["show", &object]).lines().map(str::to_owned).collect()
    }
}

/// This machine's address on its own network; nothing is sent to find it out.
fn own_address() -> Option<Ipv4Addr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        std::net::IpAddr::V4(address) => Some(address),
        std::net::IpAddr::V6(_) => None,
    }
}

/// Says `served` to whoever asks, on all of this machine's addresses.
struct Server {
    port: u16,
    _thread: JoinHandle<()>,
}

impl Server {
    fn start() -> Self {
        use std::io::{Read, Write};
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let _asked = client.read(&mut [0; 4096]);
                    let answer =
                        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved";
                    let _gone = client.write_all(answer);
                });
            }
        });
        Self { port, _thread: thread }
    }
}

#[track_caller]
fn is_told(machine: &Machine, log: &str) {
    for line in [
        "network: refused evil.example:443: it is not on this lane's list of hosts".to_owned(),
        format!("network: refused 127.0.0.1:{}: ", machine.servers[1].port),
        "network: refused 169.254.169.254:80: an address".to_owned(),
        "network: refused github.com:22: ".to_owned(),
    ] {
        assert_eq!(log.matches(&line).count(), 1, "{line}\n{log}");
    }
    assert!(!log.contains("SECRET"), "{log}");
}

#[tokio::test]
async fn full_a_process_lane_reaches_what_is_listed_and_no_more() {
    let Some(mut machine) = Machine::new() else { return };
    machine.house.set("HTTPS_PROXY", "").set("ALL_PROXY", "");
    machine.house.process_lane("probe", &machine.probe(), r#"{"reply":"Tried."}"#);
    let (detail, log) = machine.run("process:probe");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    assert_eq!(machine.findings("process:probe"), MAY, "{log}");
    is_told(&machine, &log);
    machine.marked.wait_for(0).await;
    assert_eq!(only_has(&machine.house.home.join("work"), &[]), Vec::<String>::new());
}

#[tokio::test]
async fn full_a_vendors_program_reaches_what_is_listed_and_no_more() {
    let Some(machine) = Machine::new() else { return };
    let result =
        json!({ "type": "result", "subtype": "success", "is_error": false, "result": "Done." });
    machine.in_claudes_place(&machine.probe(), &result);
    let (detail, log) = machine.run("claude");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    assert_eq!(machine.findings("claude"), MAY, "{log}");
    is_told(&machine, &log);
    machine.marked.wait_for(0).await;
    assert_eq!(only_has(&machine.house.home.join("work"), &[]), Vec::<String>::new());
}

#[test]
fn full_a_machines_proxy_is_not_shown_to_a_lane() {
    let Some(mut machine) = Machine::new() else { return };
    // Nobody listens there.
    machine.house.set("HTTPS_PROXY", "http://ada:SECRET@127.0.0.1:9");
    machine.house.process_lane(
        "probe",
        &format!("{}\ntry went-by-it says 502 https://github.com/", machine.probe()),
        r#"{"reply":"Tried."}"#,
    );
    let (detail, log) = machine.run("process:probe");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    let expected = [&MAY[..], &["went-by-it"]].concat();
    assert_eq!(machine.findings("process:probe"), expected, "{log}");
    assert!(!log.contains("SECRET"), "{log}");
}

#[test]
fn full_a_process_lane_has_this_machines_network_where_the_operator_says_so() {
    let Some(mut machine) = Machine::new() else { return };
    machine.house.set("RELAY_LANE_NETWORK", "shared");
    let probe = format!(
        "try() {{ what=$1; shift; \"$@\" >/dev/null 2>&1 && echo \"$what\" >>findings; }}\n\
         try reached-the-host socat -u OPEN:/dev/null TCP:127.0.0.1:{}\n\
         try HAS-A-PROXY sh -c 'env | grep -qi _proxy='\n\
         try WROTE-IN-HOME touch {}/new\n",
        machine.servers[1].port,
        machine.house.dir.path().display()
    );
    machine.house.process_lane("probe", &probe, r#"{"reply":"Tried."}"#);
    let (detail, log) = machine.run("process:probe");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    assert_eq!(machine.findings("process:probe"), ["reached-the-host"], "the walls stay");
}

#[test]
fn full_a_killed_worker_takes_its_door_along() {
    let Some(machine) = Machine::new() else { return };
    let body = format!("touch waiting\nexec sleep 600 {}", machine.marked.mark);
    machine.house.process_lane("probe", &body, "{}");
    let slug = machine.house.link();
    machine.house.task(&slug, "process:probe", "Try it");
    let mut worker = machine.house.work(&["--name", "w", "--lanes", "process:probe"]);
    worker.until("the lane", || !machine.marked.alive().is_empty());
    worker.signal(rustix::process::Signal::KILL);
    worker.ended();
    worker.until("the lane's end", || machine.marked.alive().is_empty());
    // Another lane's start takes away what is left on the disk.
    machine.house.process_lane("other", "echo x >made", r#"{"reply":"Made."}"#);
    machine.house.task(&slug, "process:other", "Make it");
    machine.house.relay(&["work", "--once", "--name", "w", "--lanes", "process:other"]).ok();
    assert_eq!(only_has(&machine.house.home.join("work"), &[]), Vec::<String>::new());
}

#[test]
fn full_a_vendors_lane_is_not_run_where_a_network_of_its_own_cannot_be_made() {
    let Some(machine) = Machine::new() else { return };
    let real = tool("bwrap").unwrap();
    let without = format!(
        "#!/bin/sh\nfor word; do case $word in --unshare-net)\n\
         echo 'no network namespaces for you' >&2; exit 1;; --) break;; esac; done\n\
         exec {} \"$@\"\n",
        real.display()
    );
    machine.house.program("bwrap", &without);
    let unshare = format!(
        "#!/bin/sh\ncase \"$*\" in *--unshare-net*) echo 'not for you' >&2; exit 1;; esac\n\
         exec {} \"$@\"\n",
        tool("unshare").unwrap().display()
    );
    machine.house.program("unshare", &unshare);
    machine.in_claudes_place("touch made", &json!({}));
    let (detail, log) = machine.run("claude");
    assert_eq!(detail["task"]["stop_reason"]["reason"], "sandbox_unavailable", "{detail:#}\n{log}");
}

/// As where a socket that was to be hidden goes away before it is.
fn box_that_fails(machine: &Machine, times: u32) {
    let text = format!(
        "#!/bin/sh\nfor word; do case $word in __door)\n\
         echo x >>{0}; test $(wc -l <{0}) -le {times} && {{ echo 'bwrap: no such socket' >&2; exit 1; }};;\n\
         esac; done\nexec {1} \"$@\"\n",
        machine.house.dir.path().join("tries").display(),
        tool("bwrap").unwrap().display(),
    );
    machine.house.program("bwrap", &text);
    let _ = std::fs::remove_file(machine.house.dir.path().join("tries"));
}

#[test]
fn full_a_box_that_was_not_made_is_made_once_more_and_says_why_where_it_cannot_be() {
    let Some(machine) = Machine::new() else { return };
    machine.house.process_lane("probe", "touch made", r#"{"reply":"Made."}"#);
    box_that_fails(&machine, 2);
    let (detail, log) = machine.run("process:probe");
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{log}");
    assert_eq!(log.matches("the box was not made: bwrap: no such socket").count(), 2, "{log}");
    box_that_fails(&machine, 99);
    let (detail, log) = machine.run("process:probe");
    let stop = &detail["task"]["stop_reason"]["reason"];
    assert_eq!(stop, "sandbox_unavailable", "{detail:#}\n{log}");
    assert!(detail.to_string().contains("no such socket"), "{detail:#}");
    // A program that fails by itself is not run again.
    machine.house.program(
        "bwrap",
        &format!("#!/bin/sh\nexec {} \"$@\"\n", tool("bwrap").unwrap().display()),
    );
    machine.house.process_lane("probe", "exit 1", "{}");
    let (detail, log) = machine.run("process:probe");
    assert_eq!(detail["task"]["stop_reason"]["reason"], "protocol_violation", "{detail:#}\n{log}");
    assert!(!log.contains("the box was not made"), "{log}");
}

#[test]
fn full_a_vendors_program_that_passes_the_proxy_by_is_told() {
    let Some(machine) = Machine::new() else { return };
    let failed = json!({
        "type": "result", "subtype": "success", "is_error": true,
        "api_error": "connection_failed", "result": "API Error: Connection refused",
    });
    let told = |asks: &str| {
        machine.house.claude(&format!("{asks}\necho '{failed}'"), 1);
        let (detail, log) = machine.run("claude");
        assert_ne!(detail["task"]["state"], "review", "{detail:#}\n{log}");
        let status = machine.house.relay(&["work", "status"]).ok();
        let doctor = machine.house.relay(&["doctor", "--patience", "60"]).out;
        [log, status, doctor].map(|text| text.contains("never asked relay's proxy"))
    };
    let direct = format!("curl -sS --noproxy '*' http://127.0.0.1:{}/", machine.servers[0].port);
    assert_eq!(told(&direct), [true; 3]);
}

#[test]
fn full_doctor_knocks_at_the_door() {
    let Some(mut machine) = Machine::new() else { return };
    let check = |house: &House| {
        let report =
            house.relay(&["doctor", "--json", "--patience", "60"]).out.parse::<Value>().unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "network").unwrap()
    };
    let seen = check(&machine.house);
    assert_eq!(seen["state"], "ok", "{seen}");
    let listed = format!("also leads to 127.0.0.1:{}", machine.servers[0].port);
    assert!(seen["seen"].as_str().unwrap().contains(&listed), "{seen}");
    machine.house.set("RELAY_LANE_NETWORK", "shared");
    let seen = check(&machine.house);
    assert!(
        seen["state"] == "warn" && seen["seen"].to_string().contains("process lanes"),
        "{seen}"
    );
    machine.house.set("RELAY_LANE_NETWORK", "").set("HTTPS_PROXY", "socks5://a:SECRET@p.example");
    let seen = check(&machine.house);
    assert!(seen["state"] == "warn" && seen["seen"].to_string().contains("socks5://"), "{seen}");
    assert!(!seen.to_string().contains("SECRET"), "{seen}");
    assert_eq!(seen["mend"], "HTTPS_PROXY=http://HOST:PORT");
    let left = only_has(&machine.house.home, &["lanes", "relay.db", "relay.lock"]);
    assert_eq!(left, Vec::<String>::new());
}
