//! Bodies, queries and paths that nobody means well with: a 4xx with a code, and nothing is kept.

use super::net::Net;

/// A body for `POST /tasks` with this in its title's place.
fn titled(title: &str) -> String {
    format!(r#"{{"slug":"local/shop","lane":"claude","title":{title},"asked_by":"ann"}}"#)
}

#[tokio::test]
async fn a_bad_body_is_refused_and_nothing_is_stored() {
    let net = Net::open().await;
    net.home.link("shop").await;
    let events = || async {
        let query = relay::api::EventsQuery { limit: Some(1000), ..Default::default() };
        net.home.client.events(&query).await.expect("events").len()
    };
    let before = events().await;
    let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    let deep_object = format!("{}1{}", r#"{"a":"#.repeat(5000), "}".repeat(5000));
    for body in [
        titled(r#""a\u0000b""#),
        titled(&deep(100_000)),
        titled(&deep_object),
        titled("7"),
        titled("null,\"title\":\"x\""),
        titled("\"x\",\"title\":\"y\""),
        titled("\"x\",\"issue\":1e400"),
        titled("\"x\",\"issue\":-1"),
        titled("\"x\",\"issue\":1.5"),
        titled("\"x\",\"surprise\":true"),
        titled(r#""\ud800""#),
        titled("\"x\",\"lane\":\"claude\""),
        titled(r#""x""#).replace("claude", "../etc"),
        titled(r#""x""#).replace("claude", "process:../x"),
        titled(r#""x""#).replace("claude", &"c".repeat(5000)),
        titled(r#""x""#).replace("local/shop", "local/../shop"),
        titled(r#""x""#).replace("local/shop", "local/shop%00"),
        titled(r#""x""#).replace("local/shop", &format!("local/{}", "s".repeat(5000))),
        titled(r#""x""#).replace("ann", "ann\\nroot"),
        titled(r#""x""#) + "trailing",
        "\u{feff}{}".to_owned(),
        "null".to_owned(),
        "\"text\"".to_owned(),
    ] {
        let answer = net.admin("POST", "/api/v1/tasks", &body).await;
        let shown: String = body.chars().take(120).collect();
        assert_eq!((answer.status, answer.code().as_str()), (400, "bad_request"), "{shown}");
    }
    let token = format!("authorization: Bearer {}\r\n", net.token);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let headers = format!("{token}content-type: {kind}\r\n");
        let answer = net.ask("POST", "/api/v1/tasks", &headers, &titled("\"x\"")).await;
        assert_eq!((answer.status, answer.code().as_str()), (415, "unsupported_type"), "{kind}");
    }
    let mut invalid = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{token}content-length: 3\r\n\r\n"
    )
    .into_bytes();
    invalid.extend_from_slice(b"\"\xff\"");
    assert_eq!(net.raw(&invalid).await.status, 400, "it is no UTF-8");
    let long = titled(&format!("\"{}\"", "x".repeat(2 * 1024 * 1024)));
    let answer = net.admin("POST", "/api/v1/tasks", &long).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "too_large"));
    assert_eq!(net.home.client.tasks(None).await.expect("tasks"), []);
    assert_eq!(events().await, before);
    net.home.owner.close().await;
}

#[tokio::test]
async fn a_path_that_tries_to_be_another_is_refused() {
    let net = Net::open().await;
    net.home.link("shop").await;
    for path in [
        "/api/v1/tasks/local/..%2f..%2fetc%231",
        "/api/v1/tasks/local/%2e%2e%231",
        "/api/v1/tasks/%2e%2e/shop%231",
        "/api/v1/tasks/local/shop%231:..",
        "/api/v1/tasks/local/shop%231:process:..%2fx",
        "/api/v1/tasks/local/shop%2300",
        "/api/v1/tasks/local/shop%2300001",
        "/api/v1/tasks/local/shop%00%231",
        "/api/v1/tasks/local/shop%ff%231",
        "/api/v1/tasks/local/shop%23%31%32%33%34%35%36%37%38%39%30%31%32%33%34%35%36%37%38%39%30",
        "/api/v1/projects/local/%2e%2e",
        "/api/v1/projects/local%2fshop/x",
        "/api/v1/projects/-local/shop",
        "/api/v1/projects/local/shop.git",
    ] {
        let answer = net.admin("GET", path, "").await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "bad_request"), "{path}");
    }
    for path in ["/api/v1/../metrics", "//api/v1/tasks", "/api/v1/tasks/", "/api/v1/tasks/local"] {
        assert_eq!(net.admin("GET", path, "").await.status, 404, "{path}");
    }
    let long = format!("/api/v1/projects/local/{}", "s".repeat(7000));
    assert_eq!(net.admin("GET", &long, "").await.status, 400);
    net.home.owner.close().await;
}

#[tokio::test]
async fn a_query_with_a_wrong_value_is_refused() {
    let net = Net::open().await;
    for path in [
        "/api/v1/work/doorbell?lanes=claude&free=99999999999",
        "/api/v1/work/doorbell?lanes=claude&lanes=codex",
        "/api/v1/work/doorbell?lanes=claude&since=1e3",
        "/api/v1/work/doorbell?lanes=..%2f",
        "/api/v1/work/doorbell?lanes=claude&worker_id=7",
        "/api/v1/events?after=99999999999999999999",
        "/api/v1/events?task=a%2Fb",
        "/api/v1/tasks?state=queued&state=done",
        "/api/v1/tasks?lines=maybe",
    ] {
        let answer = net.admin("GET", path, "").await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "bad_request"), "{path}");
    }
    net.home.owner.close().await;
}
