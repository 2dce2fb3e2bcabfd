//! Site and worker one revision apart, either way: the real worker and the real site, and between
//! them a neighbour that changes what they say into what the next version would.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use relay::api::{REVISION, REVISION_HEADER, VERSION_HEADER};
use relay::client::{Client, ClientError, Endpoint, VERSION};
use relay::model::Secret;
use serde_json::{Map, Value, json};

use super::net::Net;
use crate::support::served::Served;

const LANE: &str = "process:edit";

/// Which of the two is of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Apart {
    /// The worker, by so many revisions more.
    Worker(u32),
    /// The site, by so many revisions more.
    Site(u32),
}

#[derive(Debug)]
struct Neighbour {
    apart: Apart,
    site: String,
    http: reqwest::Client,
}

/// A neighbour in front of `site`, on a thread of its own.
fn neighbour(site: &str, apart: Apart) -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.set_nonblocking(true).expect("a listener");
    let addr = listener.local_addr().expect("an address");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let state = Arc::new(Neighbour { apart, site: site.to_owned(), http });
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let app = Router::new().fallback(pass).with_state(state);
            axum::serve(listener, app).await.expect("it serves");
        });
    });
    addr
}

/// Passes a request on in the words of another version, and its answer back.
async fn pass(State(neighbour): State<Arc<Neighbour>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut body = to_bytes(body, usize::MAX).await.expect("a body").to_vec();
    let path = head.uri.path_and_query().expect("a path").as_str();
    let mut url = format!("{}{path}", neighbour.site);
    let mut headers = head.headers.clone();
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    if let Apart::Worker(more) = neighbour.apart {
        body = grown(&body);
        if url.contains('?') {
            url.push_str("&of_tomorrow=1");
        }
        dress(&mut headers, REVISION + more);
    }
    let sent = neighbour.http.request(head.method, url).headers(headers).body(body).send().await;
    let Ok(answer) = sent else {
        return Response::builder().status(502).body(Body::empty()).expect("an answer");
    };
    let status = answer.status();
    let mut headers = answer.headers().clone();
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    let mut body = answer.bytes().await.expect("a whole answer").to_vec();
    if let Apart::Site(more) = neighbour.apart {
        body = grown(&body);
        dress(&mut headers, REVISION + more);
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn dress(headers: &mut http::HeaderMap, revision: u32) {
    headers.insert(VERSION_HEADER, HeaderValue::from_static("9.9.9"));
    headers.insert(REVISION_HEADER, HeaderValue::from(revision));
}

/// JSON with a field more in each of its structs. What is told apart by a word gets none (docs/api.md).
fn grown(bytes: &[u8]) -> Vec<u8> {
    fn grow(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(grow);
                let told_apart = ["effect", "scope", "reason", "answer", "why"];
                if !told_apart.iter().any(|word| fields.get(*word).is_some_and(Value::is_string)) {
                    let mut more = Map::new();
                    more.insert("deep".to_owned(), json!([1, {"deeper": null}]));
                    fields.insert("of_tomorrow".to_owned(), more.into());
                }
            }
            Value::Array(items) => items.iter_mut().for_each(grow),
            _ => {}
        }
    }
    match serde_json::from_slice::<Value>(bytes) {
        Ok(mut value) => {
            grow(&mut value);
            serde_json::to_vec(&value).expect("JSON")
        }
        Err(_) => bytes.to_vec(),
    }
}

/// A whole job through a neighbour: it ends as ever.
fn works(apart: Apart) {
    let served = Served::new();
    served.house.process_lane("edit", "echo x >> README.md", r#"{"reply":"Done."}"#);
    let slug = served.house.link();
    let task = served.house.task(&slug, LANE, "Say more");
    let addr = neighbour(&served.proxy.url(), apart);
    let mut command = served.command("a", &["work", "--name", "a", "--once", "--lanes", LANE]);
    let out = command.env("RELAY_SITE", format!("http://{addr}")).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{apart:?}: {said}");
    assert_eq!(served.house.state(&task), "review", "{apart:?}: {said}");
    let detail = served.house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["task"]["epoch"], 1, "{detail:#}");
    assert_eq!(detail["runs"][0]["summary"], "Done.", "{detail:#}");
    let log = served.house.relay(&["task", "log", &task]).ok();
    assert!(!log.is_empty(), "the log came through as well");
}

#[test]
fn a_worker_of_the_next_revision_does_its_work_at_this_site() {
    works(Apart::Worker(1));
}

#[test]
fn a_worker_does_its_work_at_a_site_of_the_next_revision() {
    works(Apart::Site(1));
}

#[test]
fn two_revisions_apart_are_refused_on_either_side_and_say_so() {
    for apart in [Apart::Worker(2), Apart::Site(2)] {
        let served = Served::new();
        served.house.process_lane("edit", "echo x >> README.md", r#"{"reply":"Done."}"#);
        let addr = neighbour(&served.proxy.url(), apart);
        let mut command = served.command("a", &["work", "--name", "a", "--once", "--lanes", LANE]);
        let out = command.env("RELAY_SITE", format!("http://{addr}")).output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains("9.9.9"), "{apart:?}: {said}");
        assert!(said.contains("hint:"), "{apart:?}: {said}");
    }
}

#[tokio::test]
async fn a_site_reads_its_neighbours_and_nobody_further_away() {
    let net = Net::open().await;
    let body =
        r#"{"slug":"local/none","lane":"claude","title":"x","asked_by":"ann","of_tomorrow":1}"#;
    let ask = async |version: &str, revision: &str| {
        let headers = format!(
            "authorization: Bearer {}\r\n{VERSION_HEADER}: {version}\r\n{revision}",
            net.token
        );
        net.ask("POST", "/api/v1/tasks", &headers, body).await
    };
    let said = |revision: u32| format!("{REVISION_HEADER}: {revision}\r\n");
    // 404: it was read, and the project is not there.
    assert_eq!(ask("9.9.9", &said(REVISION + 1)).await.status, 404);
    assert_eq!(
        ask("0.0.1", &said(REVISION)).await.code(),
        "bad_request",
        "it ought to know better"
    );
    assert_eq!(ask("0.0.1", &said(REVISION - 1)).await.code(), "bad_request");
    for far in [REVISION + 2, u32::MAX] {
        let refused = ask("9.9.9", &said(far)).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, "version_mismatch"));
        assert!(
            refused.json()["hint"].as_str().is_some_and(|hint| hint.contains("up to date first"))
        );
    }
    net.home.owner.close().await;
}

#[tokio::test]
async fn a_client_takes_a_site_one_revision_away_and_none_further() {
    let net = Net::open().await;
    for (revision, near) in [(REVISION, true), (REVISION + 1, true), (REVISION + 2, false)] {
        let endpoint = Endpoint::Http(format!("http://{}", net.addr));
        let client = Client::of_revision(endpoint, "9.9.9", revision).expect("a client");
        let client = client.with_token(Secret::new(&net.token));
        match client.tasks(None).await {
            Ok(tasks) => assert!(near && tasks.is_empty(), "{revision}"),
            Err(ClientError::Version { theirs, ours }) => {
                assert!(!near && theirs == VERSION && ours == "9.9.9", "{revision}");
            }
            Err(other) => panic!("{revision}: {other}"),
        }
    }
    net.home.owner.close().await;
}
