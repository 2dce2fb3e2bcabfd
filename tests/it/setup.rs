//! The real program on two machines: one is a site, the other becomes a worker of it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::support::certificate::certificate;
use crate::support::full::skip;
use crate::support::house::{House, Working};
use crate::support::processes::tool;
use crate::tokens::Site;

/// A site and its admin's token.
fn site() -> (House, Site, String) {
    let house = House::new();
    let site = Site::start(&house);
    let token = site.token.clone().expect("a first start tells a token");
    (house, site, token)
}

/// The token of `relay setup`.
fn kept(desk: &House) -> String {
    let text = std::fs::read_to_string(desk.home.join("credentials.json")).unwrap();
    let kept: Value = serde_json::from_str(&text).unwrap();
    kept["token"].as_str().unwrap().to_owned()
}

#[test]
fn an_invite_sets_a_machine_up() {
    let (house, site, admin) = site();
    let invited = site.relay(&house, &admin, &["invite", "create", "--expires", "5m"]);
    let code = invited.ok();
    let desk = House::new();
    let setup = ["setup", "--site", &site.url, "--invite", &code, "--name", "desk"];
    let ran = desk.relay(&setup);
    let told = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.ok(), format!("this machine is worker desk of {}", site.url));
    let token = kept(&desk);
    assert!(!told.contains(&token), "{told}");
    for file in ["credentials.json", "config.json"] {
        let mode = std::fs::metadata(desk.home.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{file}");
    }
    assert_eq!(desk.json(&["task", "ls", "--json"])["tasks"], serde_json::json!([]));
    let doctor = desk.relay(&["doctor", "--json", "--patience", "60"]);
    let report: Value = serde_json::from_str(&doctor.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let seen = &checks.iter().find(|check| check["name"] == "site").unwrap()["seen"];
    let said = format!("{} answers: worker desk, work:claim memory:read feed:read", site.url);
    assert_eq!(seen, &said);
    assert!(!doctor.out.contains(&token));

    // RELAY_SITE is named where it is in the way, and not where it says the same.
    for (set, beats) in [("http://127.0.0.1:1", true), (site.url.as_str(), false)] {
        let code = site.relay(&house, &admin, &["invite", "create", "--expires", "5m"]).ok();
        let mut other = House::new();
        other.set("RELAY_SITE", set);
        let ran =
            other.relay(&["setup", "--site", &site.url, "--invite", &code, "--name", "other"]);
        let said = format!("RELAY_SITE is set to {set} and beats what was set up here");
        assert_eq!((ran.code, ran.err.contains(&said)), (0, beats), "{ran:?}");
        site.relay(&house, &admin, &["token", "revoke", "other"]).ok();
    }

    let lap = House::new();
    let refused = lap.relay(&["setup", "--site", &site.url, "--invite", &code]);
    assert!(refused.code == 6 && refused.err.contains("was used, or"), "{refused:?}");
    assert!(!lap.home.join("credentials.json").exists());

    assert!(desk.relay(&["setup", "--forget"]).err.contains("the token itself is good until"));
    let again = desk.relay(&["setup", "--forget"]);
    assert_eq!((again.code, again.err.as_str()), (0, "there was nothing to forget\n"));
    assert!(
        !desk.home.join("credentials.json").exists() && !desk.home.join("config.json").exists()
    );
    assert!(desk.relay(&["task", "ls"]).ok().is_empty(), "this home is its own again");
    site.stop();
}

#[test]
fn a_machine_that_takes_anothers_place_is_told_whose_token_is_revoked() {
    let (house, site, admin) = site();
    let first = site.relay(&house, &admin, &["invite", "create", "--expires", "5m"]).ok();
    let desk = House::new();
    let setup = |house: &House, code: &str, more: &[&str]| {
        let args = ["setup", "--site", &site.url, "--invite", code];
        house.relay(&[&args[..], more].concat())
    };
    let alone = setup(&desk, &first, &["--name", "desk"]);
    assert!(!alone.err.contains("is revoked"), "{alone:?}");
    // An invite for anybody does not throw a worker out.
    let open = site.relay(&house, &admin, &["invite", "create", "--expires", "5m"]).ok();
    let lap = House::new();
    let refused = setup(&lap, &open, &["--name", "desk"]);
    assert!(refused.code == 4 && refused.err.contains("a worker `desk` already"), "{refused:?}");
    // An admin's word for this very worker does, and both are told.
    let own = ["invite", "create", "--expires", "5m", "--worker", "desk"];
    let own = site.relay(&house, &admin, &own).ok();
    let taken = setup(&lap, &own, &["--json"]);
    assert!(taken.err.contains("the token of desk, made at "), "{taken:?}");
    assert!(taken.err.contains("is revoked: a machine that has it works no more"), "{taken:?}");
    let told: Value = serde_json::from_str(&taken.ok()).unwrap();
    assert_eq!(told["replaced"][0]["name"], "desk", "{told}");
    assert!(told["replaced"][0]["revoked_at"].is_number(), "{told}");
    assert!(!told.to_string().contains(&kept(&desk)), "{told}");
    assert_eq!(desk.relay(&["task", "ls"]).code, 6);
    site.stop();
}

/// From nothing to a pull request, with what docs/SITE.md says and no token in anybody's hands.
#[test]
fn a_newcomer_goes_from_an_invite_to_a_pull_request() {
    let (house, site, _) = site();
    let slug = house.link();
    let code = house.relay(&["invite", "create"]).ok();

    let desk = House::new();
    desk.process_lane("edit", "echo more >> README.md", r#"{"reply":"Added a line."}"#);
    desk.relay(&["setup", "--site", &site.url, "--invite", &code, "--name", "desk"]).ok();
    // One disk, two homes: the desk says that it works there.
    let linked = desk.relay(&["link", house.repo.to_str().unwrap()]);
    assert!(linked.err.contains("on the site's machine, relay task create --repo "), "{linked:?}");
    assert_eq!(linked.ok(), slug);
    let lane = "process:edit";
    let log = desk.dir.path().join("work.log");
    let file = std::fs::File::create(&log).unwrap();
    let mut work = desk.command(&["work", "--lanes", lane]);
    let child = work.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let mut worker = Working { child, log };
    worker.until("its readiness", || worker.said().contains("waiting for work"));
    let workers = house.json(&["work", "status", "--json"]);
    assert_eq!(workers["workers"][0]["name"], "desk", "{workers:#}");

    let task = house.task(&slug, lane, "Say more");
    worker.until("the pull request", || house.state(&task) == "review");
    // What the owner of the site sees, the desk sees as well; it decides nothing.
    let seen = desk.json(&["task", "get", &task, "--json"]);
    assert_eq!(seen, house.json(&["task", "get", &task, "--json"]));
    assert_eq!(seen["task"]["epoch"], 1, "{seen:#}");
    assert!(desk.relay(&["task", "log", &task]).code == 0);
    let shown = house.in_repo(&["show", "relay/process-edit-1:README.md"]);
    assert_eq!(shown, "# shop\nmore");
    let refused = desk.relay(&["task", "cancel", &task]);
    assert!(refused.code == 6 && refused.err.contains("lacks the scope"), "{refused:?}");
    assert!(refused.err.contains("hint: run it on the site's machine as its user"), "{refused:?}");

    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.ended(), 0, "{}", worker.said());
    assert!(!worker.said().contains(&kept(&desk)), "{}", worker.said());
    site.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_lets_a_machine_in() {
    let (house, site, _) = site();
    let desk = House::new();
    let log = desk.dir.path().join("setup.log");
    let file = std::fs::File::create(&log).unwrap();
    let child = desk
        .command(&["setup", "--site", &site.url, "--name", "desk"])
        .stdout(Stdio::from(file.try_clone().unwrap()))
        .stderr(Stdio::from(file))
        .spawn()
        .unwrap();
    let mut asking = Working { child, log };
    asking.until("a code", || asking.said().contains("Waiting"));
    let said = asking.said();
    let user_code = said.split_once("code  ").unwrap().1.split_whitespace().next().unwrap();
    assert!(said.contains(&format!("{}/device", site.url)), "{said}");

    let link = house.relay(&["open"]).ok();
    let _there_already = rustls::crypto::ring::default_provider().install_default();
    let browser = reqwest::Client::builder().no_proxy().build().unwrap();
    let entered = browser.post(&link).send().await.unwrap();
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let page = format!("{}/device", site.url);
    let shown = browser.get(&page).header("cookie", cookie).send().await.unwrap();
    let shown = shown.text().await.unwrap();
    let csrf = shown.split_once("name=\"csrf\" value=\"").unwrap().1.split('"').next().unwrap();
    let form = format!("csrf={csrf}&user_code={user_code}&decision=approve");
    let answer = browser
        .post(&page)
        .header("cookie", cookie)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    assert_eq!(answer.send().await.unwrap().status(), 200);
    assert_eq!(asking.ended(), 0, "{}", asking.said());
    assert!(asking.said().contains("this machine is worker desk"), "{}", asking.said());
    assert_eq!(desk.json(&["task", "ls", "--json"])["tasks"], serde_json::json!([]));
    site.stop();
}

#[test]
fn a_token_is_not_shown_to_another_site() {
    let (house, site, admin) = site();
    let code = site.relay(&house, &admin, &["invite", "create"]).ok();
    let mut desk = House::new();
    desk.relay(&["setup", "--site", &site.url, "--invite", &code, "--name", "desk"]).ok();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let mut request = vec![0; 4096];
        let read = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").unwrap();
        String::from_utf8_lossy(&request[..read]).to_lowercase()
    });
    desk.set("RELAY_SITE", &url);
    let ran = desk.relay(&["task", "ls"]);
    let request = heard.join().unwrap();
    assert!(
        request.contains("get /api/v1/tasks") && !request.contains("authorization"),
        "{request}"
    );
    assert!(ran.err.contains("is not shown to"), "{}", ran.err);
    site.stop();
}

/// The codes of an earlier relay had no word before them, and one in 64 began with a hyphen.
#[test]
fn an_invite_that_looks_like_an_option_is_an_invite() {
    let (house, site, _) = site();
    let code = house.relay(&["invite", "create"]).ok();
    assert!(code.starts_with("invite_") && code.len() == 50, "{code}");
    let desk = House::new();
    let refused = desk.relay(&["setup", "--site", &site.url, "--invite", "-3-Df0goZ"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.err.contains("this invite is not good: it was never made here"), "{refused:?}");
    desk.relay(&["setup", "--site", &site.url, "--invite", &code, "--name", "desk"]).ok();
    // The word is a part of it.
    let bare = house.relay(&["invite", "create"]).ok().replacen("invite_", "", 1);
    let refused = desk.relay(&["setup", "--site", &site.url, "--invite", &bare]);
    assert_eq!(refused.code, 6, "{refused:?}");
    site.stop();
}

#[test]
fn a_far_site_without_tls_gets_no_token() {
    let desk = House::new();
    let refused = desk.relay(&["setup", "--site", "http://relay.example:7410", "--invite", "x"]);
    assert!(refused.code == 2 && refused.err.contains("--plain-http"), "{refused:?}");
    let mut desk = House::new();
    desk.set("RELAY_SITE", "http://relay.example:7410").set("RELAY_TOKEN", "relay_x");
    let refused = desk.relay(&["task", "ls"]);
    assert!(refused.code == 2 && refused.err.contains("RELAY_PLAIN_HTTP"), "{refused:?}");
}

#[test]
fn a_site_without_tls_that_is_called_by_https_is_told_with_the_command_that_is_right() {
    let (_house, site, _) = site();
    let https = site.url.replace("http://", "https://");
    let desk = House::new();
    let ran = desk.relay(&["setup", "--site", &https, "--invite", "x"]);
    let error =
        format!("error: the site at {https} could not be reached: what is there speaks no TLS");
    assert!(ran.code == 5 && ran.err.contains(&error), "{ran:?}");
    let hint = format!("hint: relay setup --site {}", site.url);
    assert!(ran.err.contains(&hint), "{ran:?}");
    // A worker that was pointed there does not wait for what a minute does not change.
    let mut desk = House::new();
    desk.process_lane("edit", "true", "{}");
    desk.set("RELAY_SITE", &https).set("RELAY_TOKEN", "relay_x");
    let ran = desk.relay(&["work", "--name", "desk"]);
    assert!(ran.code == 5 && ran.err.contains("what is there speaks no TLS"), "{ran:?}");
    assert!(ran.err.contains(&hint), "{ran:?}");
    assert!(!ran.err.contains("waited for"), "{ran:?}");
    site.stop();
}

/// What breaks off a connection with TLS that stood may have heard what was asked.
#[test]
fn full_a_site_that_leaves_tls_after_it_was_asked_is_not_taken_for_one_without() {
    let Some(openssl) = tool("openssl") else { return skip("openssl") };
    let dir = tempfile::tempdir().unwrap();
    certificate(&openssl, dir.path(), "DNS:localhost");
    let key = PrivateKeyDer::from_pem_file(dir.path().join("site.key")).unwrap();
    let site = vec![CertificateDer::from_pem_file(dir.path().join("site.pem")).unwrap()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(site, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let https = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let (tell, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in listener.incoming() {
            let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut line = rustls::StreamOwned::new(tls, line.unwrap());
            let mut request = [0; 4096];
            tell.send(line.read(&mut request).is_ok_and(|read| read > 0)).unwrap();
            line.sock.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        }
    });
    let mut desk = House::new();
    desk.set("RELAY_SITE", &https).set("RELAY_TOKEN", "relay_x");
    desk.set("SSL_CERT_FILE", dir.path().join("ca.pem").to_str().unwrap());
    let ran = desk.relay(&["task", "ls"]);
    assert!(asked.recv().unwrap(), "it was asked: {ran:?}");
    let error = format!("error: the site at {https} could not be reached: ");
    assert!(ran.code == 5 && ran.err.contains(&error), "{ran:?}");
    assert!(!ran.err.contains("speaks no TLS"), "{ran:?}");
}

#[test]
fn credentials_that_others_can_read_are_refused_with_the_command_that_helps() {
    let desk = House::new();
    let path = desk.home.join("credentials.json");
    std::fs::write(&path, "{\"site\":\"https://relay.example\",\"token\":\"relay_hush\"}").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = desk.relay(&["task", "ls"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("hint: chmod 600 "), "{}", refused.err);
    assert!(!refused.err.contains("hush"), "{}", refused.err);
}

/// Every file below a folder, but for those in folders of one of these names.
fn files(folder: &Path, but: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && !but.contains(&name.as_str()) {
            found.extend(files(&path, but));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found
}

/// A lane that may read relay's own folder finds the token, and can tell nobody.
#[test]
fn the_workers_own_token_is_in_nothing_that_a_lane_leaves() {
    let (house, site, admin) = site();
    let mut desk = House::new();
    desk.without_namespaces();
    let code = site.relay(&house, &admin, &["invite", "create"]).ok();
    desk.relay(&["setup", "--site", &site.url, "--invite", &code, "--name", "desk"]).ok();
    let token = kept(&desk);
    let seen = desk.dir.path().join("lane-environment");
    let script = format!(
        "#!/bin/sh\nread -r line\n\
         key=$(printf '%s' \"$line\" | sed 's/.*\"jobKey\":\"\\([^\"]*\\)\".*/\\1/')\n\
         env > {seen}\necho change >> README.md\n\
         token=$(sed -n 's/.*\"token\": \"\\([^\"]*\\)\".*/\\1/p' {kept})\n\
         printf '{{\"schemaVersion\":1,\"jobKey\":\"%s\",\"result\":{{\"reply\":\"it is %s.\"}}}}\\n' \
         \"$key\" \"$token\"\n",
        seen = seen.display(),
        kept = desk.home.join("credentials.json").display(),
    );
    let program = desk.program("tell-lane", &script);
    let config = serde_json::json!({"command": program, "args": [], "env": []});
    std::fs::write(desk.home.join("lanes/tell.json"), config.to_string()).unwrap();
    let slug = site.relay(&house, &admin, &["link", desk.repo.to_str().unwrap()]).ok();
    assert_eq!(desk.link(), slug, "its own token, which may not link, says that it may work there");
    let create = ["task", "create", "--repo", &slug, "--lane", "process:tell", "--title", "Tell"];
    let task = site.relay(&house, &admin, &create).ok();
    desk.set("RELAY_TOKEN", &token);
    let ran = desk.relay(&["work", "--once", "--lanes", "process:tell"]);
    let said = format!("{}{}", ran.out, ran.err);
    assert!(!said.contains(&token), "{said}");
    let detail = site.relay(&house, &admin, &["task", "get", &task, "--json"]).ok();
    assert!(detail.contains("it is [redacted]."), "{detail}\n{said}");
    let environment = std::fs::read_to_string(&seen).unwrap();
    assert!(!environment.contains("RELAY_TOKEN") && !environment.contains(&token), "{environment}");
    site.stop();
    let all = files(house.dir.path(), &["bin"]).into_iter().chain(files(desk.dir.path(), &["bin"]));
    for path in all.filter(|path| !path.ends_with("credentials.json")) {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let found = bytes.windows(token.len()).any(|at| at == token.as_bytes());
        assert!(!found, "it stands in {}", path.display());
    }
}

/// A site of one's own making that answers the device flow, and says nothing to the first polls.
fn false_site(mut silent: u32, token: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 8192];
            let read = stream.read(&mut request).unwrap();
            let asks = String::from_utf8_lossy(&request[..read]).contains("/device/code");
            let body = if asks {
                "{\"device_code\":\"d\",\"user_code\":\"A\\u001b[2J\",\"verification_uri\":\
                 \"http://x/\\u001b]0;t\\u0007\",\"expires_in\":18446744073709551615,\"interval\":0}"
            } else if silent > 0 {
                silent -= 1;
                continue;
            } else {
                token
            };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn whoever_waits_to_be_let_in_is_told_once_that_the_site_went_away_and_that_it_is_back() {
    let desk = House::new();
    let url = false_site(2, "{}");
    let ran = desk.relay(&["setup", "--site", &url, "--name", "desk"]);
    let lines: Vec<&str> = ran.err.lines().collect();
    let at = |words: &str| lines.iter().position(|line| line.contains(words));
    let gone = format!("the site at {url} could not be reached: ");
    let (gone, back) = (at(&gone).unwrap(), at("the site answers again").unwrap());
    assert!(lines[gone].ends_with("; still waiting"), "{ran:?}");
    assert_eq!(back, gone + 1, "{ran:?}");
}

#[test]
fn a_site_that_gives_no_token_or_steers_the_terminal_is_taken_at_its_word_for_nothing() {
    let worker = r#"{"token":{"id":"0190b0a0-0000-7000-8000-000000000001","name":"desk","scopes":["work:claim"],"worker":"desk","created_by":"user:x","created_at":1},"secret":"relay_\n\u001b[2J"}"#;
    let nobody = r#"{"token":{"id":"0190b0a0-0000-7000-8000-000000000001","name":"desk","scopes":["work:claim"],"created_by":"user:x","created_at":1},"secret":"relay_x"}"#;
    for token in [worker, nobody] {
        let desk = House::new();
        let ran = desk.relay(&["setup", "--site", &false_site(0, token), "--name", "desk"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("gave no worker's token"), "{ran:?}");
        assert!(ran.err.contains("up to 60 minutes"), "{ran:?}");
        assert!(!ran.err.contains('\u{1b}') && !ran.err.contains('\u{7}'), "{ran:?}");
        assert!(!desk.home.join("credentials.json").exists());
    }
}
