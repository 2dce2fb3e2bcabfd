//! Requests that are not what a route takes, as bytes on the socket.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::fixture::Home;

/// Sends one request and reads the whole answer: status, content type, body.
async fn send(home: &Home, method: &str, path: &str, body: &str) -> (u16, String, Value) {
    send_with(home, "", method, path, body).await
}

/// The same with header lines of its own.
async fn send_with(
    home: &Home,
    headers: &str,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String, Value) {
    let mut line = UnixStream::connect(home.owner.socket()).await.expect("the socket");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: relay.local\r\nconnection: close\r\n{headers}\
         content-length: {}\r\n\r\n",
        body.len()
    );
    line.write_all(head.as_bytes()).await.expect("it is sent");
    // A body that is too long is refused before it is read to its end.
    let _ = line.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = line.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    let kind = head
        .lines()
        .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-type: ").map(str::to_owned));
    (status, kind.unwrap_or_default(), serde_json::from_str(body).unwrap_or(Value::Null))
}

async fn refused(home: &Home, method: &str, path: &str, body: &str) -> (u16, Value) {
    let (status, kind, problem) = send(home, method, path, body).await;
    assert_eq!(kind, "application/problem+json", "{method} {path}: {problem}");
    assert_eq!(problem["status"], status, "{method} {path}");
    assert!(problem["detail"].as_str().is_some_and(|d| !d.is_empty()), "{method} {path}");
    (status, problem["code"].clone())
}

#[tokio::test]
async fn what_a_route_does_not_take_is_a_problem_with_a_code() {
    let home = Home::open().await;
    let bad = json!("bad_request");
    let unknown = json!("not_found");
    let create = |extra: &str| {
        format!(r#"{{"slug":"a/b","lane":"claude","title":"x","asked_by":"ann"{extra}}}"#)
    };
    for (method, path, body, status, code) in [
        ("GET", "/", String::new(), 404, &unknown),
        ("GET", "/api/v1/nothing", String::new(), 404, &unknown),
        ("GET", "/api/v2/tasks", String::new(), 404, &unknown),
        ("DELETE", "/api/v1/tasks", String::new(), 405, &json!("method_not_allowed")),
        ("POST", "/api/v1/tasks", String::new(), 400, &bad),
        ("POST", "/api/v1/tasks", "{".to_owned(), 400, &bad),
        ("POST", "/api/v1/tasks", "[]".to_owned(), 400, &bad),
        ("POST", "/api/v1/tasks", create(r#","surprise":1"#), 400, &bad),
        ("POST", "/api/v1/tasks", create("").replace("a/b", "../b"), 400, &bad),
        ("POST", "/api/v1/tasks", create(""), 404, &unknown),
        ("GET", "/api/v1/tasks?state=lost", String::new(), 400, &bad),
        ("GET", "/api/v1/tasks?surprise=1", String::new(), 400, &bad),
        ("GET", "/api/v1/tasks/a/b", String::new(), 400, &bad),
        ("GET", "/api/v1/tasks/a/b%230", String::new(), 400, &bad),
        ("GET", "/api/v1/tasks/a%2Fx/b%231", String::new(), 400, &bad),
        ("GET", "/api/v1/tasks/a/b%231", String::new(), 404, &unknown),
        ("GET", "/api/v1/projects/a/..%2Fb", String::new(), 400, &bad),
        ("GET", "/api/v1/projects/a/b", String::new(), 404, &unknown),
        ("GET", "/api/v1/work/doorbell", String::new(), 400, &bad),
        ("GET", "/api/v1/work/doorbell?lanes=A,b", String::new(), 400, &bad),
        ("GET", "/api/v1/work/doorbell?lanes=claude&wait=-1", String::new(), 400, &bad),
        ("POST", "/api/v1/workers/7/heartbeat", "{}".to_owned(), 400, &bad),
        ("GET", "/api/v1/events?limit=0", String::new(), 400, &bad),
        ("GET", "/api/v1/events?limit=1001", String::new(), 400, &bad),
        ("GET", "/api/v1/events?task=nonsense", String::new(), 400, &bad),
    ] {
        let (was, said) = refused(&home, method, path, &body).await;
        assert_eq!((was, &said), (status, code), "{method} {path} {body}");
    }
    let huge = create("").replace('x', &"x".repeat(2 * 1024 * 1024));
    let (status, code) = refused(&home, "POST", "/api/v1/tasks", &huge).await;
    assert_eq!((status, code), (413, json!("too_large")));
    home.owner.close().await;
}

#[tokio::test]
async fn a_task_is_refused_with_a_hint_where_it_makes_no_sense() {
    let home = Home::open().await;
    home.link("shop").await;
    for (fields, word) in [
        (r#""lane":"cluade","title":"x""#, "cluade"),
        (r#""lane":"claude""#, "issue or a title"),
        (r#""lane":"claude","title":"  ""#, "issue or a title"),
        (r#""lane":"claude","title":"x","issue":1"#, "not both"),
        (r#""lane":"claude","issue":3"#, "no issue 3"),
    ] {
        let body = format!(r#"{{"slug":"local/shop","asked_by":"ann",{fields}}}"#);
        let (status, _, problem) = send(&home, "POST", "/api/v1/tasks", &body).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(status == 400 && detail.contains(word), "{fields}: {status} {problem}");
    }
    let missing = r#"{"slug":"local/none","asked_by":"ann","lane":"claude","title":"x"}"#;
    let (_, _, problem) = send(&home, "POST", "/api/v1/tasks", missing).await;
    assert!(problem["hint"].as_str().is_some_and(|h| h.contains("relay link")), "{problem}");
    assert_eq!(home.client.tasks(None).await.expect("tasks").len(), 0);
    home.owner.close().await;
}

#[tokio::test]
async fn a_request_without_a_version_is_served_and_the_status_is_told_to_every_version() {
    let home = Home::open().await;
    let (status, kind, body) = send(&home, "GET", "/api/v1/status", "").await;
    assert_eq!((status, kind.as_str()), (200, "application/json"));
    assert_eq!(body["pid"], std::process::id());
    let (status, _, _) = send(&home, "GET", "/api/v1/tasks", "").await;
    assert_eq!(status, 200);
    let older = "relay-version: 0.0.1\r\n";
    let (status, _, _) = send_with(&home, older, "GET", "/api/v1/status", "").await;
    assert_eq!(status, 200);
    let (status, _, problem) = send_with(&home, older, "GET", "/api/v1/tasks", "").await;
    assert_eq!((status, &problem["code"]), (409, &json!("version_mismatch")));
    assert!(problem["detail"].as_str().is_some_and(|d| d.contains("0.0.1")), "{problem}");
    home.owner.close().await;
}
