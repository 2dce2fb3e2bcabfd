//! Programs that speak TLS through a run's way out, with a server of theirs.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use relay::client::Outward;
use relay::model::Secret;
use relay::work::egress::Limits;

use super::Run;
use crate::support::certificate::certificate;
use crate::support::connect::Connect;
use crate::support::full::skip;
use crate::support::processes::tool;

/// TLS as real programs speak it, also where the server wants a second hello, and over many requests.
#[expect(clippy::disallowed_methods, reason = "a server and clients that are programs")]
#[tokio::test(flavor = "multi_thread")]
async fn full_everyday_tls_clients_come_through_a_tunnel() {
    let (Some(openssl), Some(curl)) = (tool("openssl"), tool("curl")) else {
        return skip("openssl and curl");
    };
    let dir = tempfile::tempdir().unwrap();
    certificate(&openssl, dir.path(), "DNS:far.example");
    for server in [
        &["-tls1_2"][..],
        &["-tls1_2", "-no_ticket"],
        &["-tls1_3"],
        // None of the clients below offers a share of this one.
        &["-tls1_3", "-groups", "P-384"],
    ] {
        let mut serving = Command::new(&openssl);
        serving.args(["s_server", "-www", "-cert", "site.pem", "-key", "site.key"]);
        serving.args(["-accept", "127.0.0.1:0"]).args(server).current_dir(dir.path());
        let serving = serving.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut serving = serving.spawn().unwrap();
        let mut told = BufReader::new(serving.stdout.take().unwrap()).lines().map(Result::unwrap);
        let there = told.find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned)).unwrap();
        let there: SocketAddr = there.parse().unwrap();
        let reading = std::thread::spawn(move || told.count());
        let beyond = Connect::to(there);
        let outward = Outward { proxy: Secret::new(beyond.url("a:b")), except: String::new() };
        let names: &[(&str, &[&str])] = &[("far.example", &["1.1.1.1"])];
        let run = Run::with("far.example", names, Limits::default(), Some(outward)).await;
        let ask = |args: &[&str]| {
            let mut asking = Command::new(&curl);
            asking.args(["-sS", "--cacert", "ca.pem", "-x", &format!("http://{}", run.door)]);
            asking.args(["--curves", "X25519:P-256:P-384"]).args(args).current_dir(dir.path());
            asking.env_clear().output().unwrap()
        };
        let page = "https://far.example/";
        // The second has a ticket or a session of the first.
        let said = ask(&[page, page, page]);
        let text = String::from_utf8_lossy(&said.stdout);
        assert_eq!(text.matches("Secure Renegotiation").count(), 3, "{server:?}: {said:?}");
        let other =
            ask(&["--connect-to", "evil.example:443:far.example:443", "https://evil.example/"]);
        assert!(!other.status.success(), "{server:?}: {other:?}");
        serving.kill().unwrap();
        serving.wait().unwrap();
        reading.join().unwrap();
        let (lines, _) = run.end().await;
        assert_eq!(
            lines,
            ["   network: refused far.example:443: its TLS asks for evil.example instead"]
        );
    }
}
