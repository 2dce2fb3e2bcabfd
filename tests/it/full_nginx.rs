//! The nginx configuration of docs/SITE.md, as it stands there, in the real nginx: over TLS a worker's
//! doorbell outlives the proxy's patience, and the task that rings it is done.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and waits for their real end"
)]

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::support::certificate::certificate;
use crate::support::full::{full, skip};
use crate::support::processes::tool;
use crate::support::served::Served;

/// How long nginx waits for the next byte here; 60 s unless it is told otherwise. A held answer sends
/// one every 20 s, and a loaded machine may be late with it by as much again.
const PATIENCE_S: u64 = 45;

/// Longer than nginx waits, and than the first byte takes.
const HELD: Duration = Duration::from_secs(PATIENCE_S + 15);

/// What the access log has of a request.
const LOG: &str = "log_format short '$request_method $uri $status $request_time';";

#[test]
fn full_a_worker_behind_the_nginx_of_the_documentation_takes_a_task() {
    let [Some(nginx), Some(openssl)] = ["nginx", "openssl"].map(tool) else {
        return skip("nginx and openssl are needed");
    };
    if !full() {
        return println!("skipped: takes half a minute");
    }
    let served = Served::new();
    served.house.process_lane("edit", "echo more >> README.md", r#"{"reply":"Added a line."}"#);
    let slug = served.house.link();
    let dir = served.house.dir.path();
    certificate(&openssl, dir, "DNS:localhost");
    let mut proxy = Nginx::start(&nginx, dir, served.addr());

    let mut work = served.command("w", &["work", "--name", "w", "--lanes", "process:edit"]);
    work.env("RELAY_SITE", &proxy.url).env("SSL_CERT_FILE", dir.join("ca.pem"));
    let worker = served.spawn(work, "w");
    worker.until("the worker", || worker.said().contains("waiting for work"));
    // The time of a real proxy, which no clock of ours moves.
    let began = Instant::now();
    worker.until("nginx to lose its patience", || began.elapsed() > HELD);
    let task = served.house.task(&slug, "process:edit", "Say more");
    worker.until("the task", || served.house.state(&task) == "review");

    let log = proxy.ended();
    let bells: Vec<&str> = log.lines().filter(|line| line.contains("/work/doorbell ")).collect();
    let took = |line: &str| line.rsplit(' ').next().and_then(|s| s.parse::<f64>().ok());
    let held = |line: &&&str| line.contains(" 200 ") && took(line) > Some(PATIENCE_S as f64);
    assert!(bells.iter().any(|line| held(&line)), "no bell was held:\n{log}");
    assert!(!log.contains(" 504 ") && !log.contains(" 502 "), "{log}");
}

/// The configuration in the documentation, with this machine's places.
fn configuration(dir: &Path, port: u16, site: &str) -> String {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/SITE.md"));
    let page = page.unwrap();
    let block = page.split("```nginx\n").nth(1).expect("a block of nginx").split("```").next();
    let mut text = block.unwrap().to_owned();
    let dir = dir.display();
    for (theirs, ours) in [
        ("listen 443 ssl;", format!("listen 127.0.0.1:{port} ssl;")),
        ("listen [::]:443 ssl;", String::new()),
        ("server_name relay.example;", "server_name localhost;".to_owned()),
        ("/etc/letsencrypt/live/relay.example/fullchain.pem", format!("{dir}/site.pem")),
        ("/etc/letsencrypt/live/relay.example/privkey.pem", format!("{dir}/site.key")),
        ("server 127.0.0.1:7410;", format!("server {site};")),
        ("proxy_read_timeout 60s;", format!("proxy_read_timeout {PATIENCE_S}s;")),
    ] {
        assert!(text.contains(theirs), "docs/SITE.md does not say `{theirs}`:\n{text}");
        text = text.replace(theirs, &ours);
    }
    let user = if geteuid().is_root() { "user root;" } else { "" };
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/nginx-{kind};\n"))
        .concat();
    format!(
        "{user}\nworker_processes 1;\ndaemon off;\npid {dir}/nginx.pid;\nerror_log {dir}/nginx.error warn;\n\
         events {{ worker_connections 64; }}\nhttp {{\n{temp}{LOG}\naccess_log {dir}/nginx.access short;\n{text}\n}}\n"
    )
}

/// A running nginx; it ends with its value.
struct Nginx {
    child: Child,
    url: String,
    access: std::path::PathBuf,
}

impl Nginx {
    fn start(program: &Path, dir: &Path, site: &str) -> Self {
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let file = dir.join("nginx.conf");
        std::fs::write(&file, configuration(dir, port, site)).unwrap();
        let errors = dir.join("nginx.error");
        let child = Command::new(program)
            .args(["-c", file.to_str().unwrap(), "-e", errors.to_str().unwrap()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, url: format!("https://localhost:{port}"), access: dir.join("nginx.access") }
    }

    /// Ends it, and gives what it logged.
    fn ended(&mut self) -> String {
        let _already = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _already = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.child.wait().unwrap();
        std::fs::read_to_string(&self.access).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.ended();
        }
    }
}
