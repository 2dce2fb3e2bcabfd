//! A machine in a network that is left through a proxy alone becomes a worker of a site elsewhere, over
//! TLS, and does a task. The site's name leads nowhere by itself: the proxy knows where it is.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and waits for their real end"
)]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::certificate::certificate;
use crate::support::connect::Connect;
use crate::support::full::{full, skip};
use crate::support::house::{House, Ran};
use crate::support::processes::tool;
use crate::support::served::Served;

const SITE: &str = "https://relay.example";
const LANE: &str = "process:edit";
/// Of the proxy.
const PASSWORD: &str = "hush-hush";

#[test]
fn full_a_machine_behind_a_proxy_becomes_a_worker_and_does_a_task() {
    let [Some(socat), Some(openssl)] = ["socat", "openssl"].map(tool) else {
        return skip("socat and openssl are needed");
    };
    if !full() {
        return println!("skipped: needs socat and openssl");
    }
    let served = Served::new();
    let slug = served.house.link();
    let task = served.house.task(&slug, LANE, "Say more");
    let code = served.house.relay(&["invite", "create"]).ok();
    let dir = served.house.dir.path();
    certificate(&openssl, dir, "DNS:relay.example,IP:0.0.0.0");
    let tls = Tls::before(served.addr(), &socat, dir);
    let proxy = Connect::to(tls.addr);

    let mut desk = House::new();
    desk.process_lane("edit", "echo more >> README.md", r#"{"reply":"Added a line."}"#);
    let url = proxy.url(&format!("ann:{PASSWORD}"));
    desk.set("HTTPS_PROXY", &url);
    desk.set("SSL_CERT_FILE", dir.join("ca.pem").to_str().unwrap());
    let setup = desk.relay(&["setup", "--site", SITE, "--invite", &code, "--name", "desk"]);
    let mut told = said(&setup);
    assert_eq!(setup.ok(), format!("this machine is worker desk of {SITE}"));
    let doctor = desk.relay(&["doctor", "--json", "--patience", "60"]);
    assert!(doctor.out.contains(&format!("{SITE} answers: worker desk")), "{}", doctor.out);
    assert_eq!(desk.relay(&["link", served.house.repo.to_str().unwrap()]).ok(), slug);
    let worked = desk.relay(&["work", "--once", "--lanes", LANE]);
    assert_eq!(worked.code, 0, "{worked:?}");
    assert_eq!(served.house.state(&task), "review", "{worked:?}");
    told.push_str(&(said(&doctor) + &said(&worked)));
    let log = served.house.relay(&["task", "log", &task]).ok();
    assert!(!(told + &log).contains(PASSWORD), "the proxy's password was told");
    let asked = proxy.asked();
    // `ann:hush-hush`
    let whole =
        "CONNECT relay.example:443 HTTP/1.1|proxy-authorization: Basic YW5uOmh1c2gtaHVzaA==";
    assert!(
        !asked.is_empty() && asked.iter().all(|line| line.eq_ignore_ascii_case(whole)),
        "{asked:?}"
    );

    // A site by an address that is no loopback's, and this machine's all the same.
    desk.set("RELAY_SITE", &format!("https://0.0.0.0:{}", tls.addr.port()));
    desk.set("RELAY_TOKEN", &served.token("lap"));
    desk.relay(&["task", "ls"]).ok();
    let through = proxy.asked().len();
    assert!(through > asked.len(), "it went past the proxy");
    desk.set("NO_PROXY", "relay.example, 0.0.0.0");
    desk.relay(&["task", "ls"]).ok();
    assert_eq!(proxy.asked().len(), through, "it went through the proxy");

    desk.set("NO_PROXY", "");
    proxy.refuse();
    let refused = desk.relay(&["task", "ls"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.err.contains("could not be reached"), "{}", refused.err);
    assert!(!refused.err.contains(PASSWORD), "{}", refused.err);
}

fn said(ran: &Ran) -> String {
    format!("{}{}", ran.out, ran.err)
}

/// A certificate in front of a site; it ends with its value.
struct Tls {
    child: Child,
    addr: SocketAddr,
}

impl Tls {
    fn before(site: &str, socat: &Path, dir: &Path) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (cert, key) = (dir.join("site.pem"), dir.join("site.key"));
        let listen = format!(
            "OPENSSL-LISTEN:{},bind=127.0.0.1,reuseaddr,fork,verify=0,cert={},key={}",
            free.port(),
            cert.display(),
            key.display()
        );
        let mut child = Command::new(socat)
            .args([&listen, &format!("TCP:{site}")])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while TcpStream::connect(free).is_err() {
            assert_eq!(child.try_wait().unwrap(), None, "socat ended");
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        Self { child, addr: free }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}
