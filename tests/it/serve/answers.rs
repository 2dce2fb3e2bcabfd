//! What anybody is answered over TCP: probes, the document, and problems.

use relay::site::serve::Listen;

use super::net::Net;

#[tokio::test]
async fn probes_and_the_document_need_no_token_and_nothing_else_is_answered_without() {
    let net = Net::open().await;
    net.is_well().await;
    assert_eq!(net.get("/readyz").await.status, 200);
    let document = net.get("/api/v1/openapi.json").await;
    assert_eq!(document.json()["openapi"], "3.1.0");
    let page = net.get("/api/v1/docs").await;
    assert!(page.body.contains("/api/v1/work/claim"), "{}", page.body.len());
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert_eq!(
        net.get("/api/v1/docs/style.css").await.header("content-type"),
        Some("text/css; charset=utf-8")
    );
    let document = document.json();
    let mut closed = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            if operation["security"].as_array().is_some_and(Vec::is_empty) {
                continue;
            }
            let path =
                path.replace("{owner}", "a").replace("{task}", "b%231").replace("{repo}", "b");
            let path = path.replace("{id}", "x");
            let answer = net.ask(&method.to_ascii_uppercase(), &path, "", "").await;
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            closed += 1;
        }
    }
    assert!(closed > 20, "{closed}");
    net.home.owner.close().await;
}

#[tokio::test]
async fn every_answer_carries_an_id_and_a_sane_one_that_was_brought() {
    let net = Net::open().await;
    let first = net.get("/healthz").await.header("x-request-id").expect("an id").to_owned();
    let second = net.get("/nothing").await.header("x-request-id").expect("an id").to_owned();
    assert_ne!(first, second);
    let brought = net.ask("GET", "/nothing", "x-request-id: Trace.7_a-b\r\n", "").await;
    assert_eq!(brought.header("x-request-id"), Some("Trace.7_a-b"));
    assert_eq!(brought.json()["instance"], "Trace.7_a-b");
    for bad in ["a b", "<script>", "", &"x".repeat(65)] {
        let answer = net.ask("GET", "/nothing", &format!("x-request-id: {bad}\r\n"), "").await;
        assert_ne!(answer.header("x-request-id"), Some(bad), "it was taken");
    }
    net.home.owner.close().await;
}

#[tokio::test]
async fn what_no_route_takes_is_a_problem_before_anybody_is_asked_who_they_are() {
    let net = Net::open().await;
    let missing = net.get("/nothing").await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "not_found"));
    let method = net.ask("PUT", "/api/v1/tasks", "", "").await;
    assert_eq!((method.status, method.code().as_str()), (405, "method_not_allowed"));
    let allow = method.header("allow").expect("the methods it takes");
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    let long = net.get(&format!("/api/v1/tasks?state={}", "x".repeat(9000))).await;
    assert_eq!((long.status, long.code().as_str()), (414, "too_large"));
    let headers = format!("x-long: {}\r\n", "x".repeat(20_000));
    let headers = net.ask("GET", "/healthz", &headers, "").await;
    assert_eq!((headers.status, headers.code().as_str()), (431, "too_large"));
    let nul = net.get("/api/v1/tasks?state=a%00b").await;
    assert_eq!((nul.status, nul.code().as_str()), (400, "bad_request"));
    // Beyond what is read at all there is a status without a problem.
    let beyond = format!("x-long: {}\r\n", "x".repeat(200_000));
    assert_eq!(net.ask("GET", "/healthz", &beyond, "").await.status, 431);
    net.is_well().await;
    net.home.owner.close().await;
}

#[tokio::test]
async fn a_stranger_who_asks_too_often_is_told_to_wait_and_others_are_not() {
    let public = |listen| Listen { public_url: Some("https://site.example".to_owned()), ..listen };
    let net = Net::open_with(public).await;
    let token = "authorization: Bearer made-up\r\n";
    let mut statuses = Vec::new();
    for _ in 0..120 {
        statuses.push(net.ask("GET", "/api/v1/tasks", token, "").await.status);
    }
    assert_eq!(statuses.iter().filter(|s| **s == 401).count(), 100, "the clock stands still");
    let refused = net.get("/api/v1/tasks").await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "too_many"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let other = net.ask("GET", "/api/v1/tasks", "x-forwarded-for: 192.0.2.7\r\n", "").await;
    assert_eq!(other.status, 401, "a proxy on this machine tells of another address");
    net.home.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(net.get("/api/v1/tasks").await.status, 401);
    net.home.owner.close().await;
}

/// Whoever shows nothing is counted once a request, and a proxy that the operator named tells whose
/// requests it brings, also without a public URL.
#[tokio::test]
async fn strangers_are_counted_once_and_by_the_address_that_a_named_proxy_tells() {
    let named = |listen| Listen { proxies: vec![[127, 0, 0, 1].into()], ..listen };
    let net = Net::open_with(named).await;
    for n in 0..100 {
        assert_eq!(net.get("/api/v1/tasks").await.status, 401, "request {n}");
    }
    assert_eq!(net.get("/api/v1/tasks").await.status, 429);
    let other = net.ask("GET", "/api/v1/tasks", "x-forwarded-for: 192.0.2.7\r\n", "").await;
    assert_eq!(other.status, 401);
    net.home.owner.close().await;
    // Nobody named one: what it tells is not believed.
    let net = Net::open().await;
    for n in 0..101 {
        let head = format!("x-forwarded-for: 192.0.2.{n}\r\n");
        let answer = net.ask("GET", "/api/v1/tasks", &head, "").await;
        assert_eq!(answer.status, if n < 100 { 401 } else { 429 });
    }
    net.home.owner.close().await;
}

/// RFC 9110 §11.1: the name of a scheme is of any case.
#[tokio::test]
async fn the_scheme_of_a_token_may_be_written_in_any_case() {
    let net = Net::open().await;
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let head = format!("authorization: {scheme} {}\r\n", net.token);
        assert_eq!(net.ask("GET", "/api/v1/tasks", &head, "").await.status, 200, "{scheme}");
    }
    net.home.owner.close().await;
}

#[tokio::test]
async fn counters_tell_routes_and_statuses_and_no_names() {
    let net = Net::open().await;
    net.get("/api/v1/tasks/acme/secret-shop%237").await;
    net.get("/no/such/secret-shop").await;
    assert_eq!(
        net.get("/metrics").await.status,
        401,
        "a proxy makes everybody look like this machine"
    );
    let text = net.home.owner.site().counters();
    for line in [
        "relay_requests_total{method=\"GET\",route=\"/api/v1/tasks/{owner}/{task}\",status=\"401\"} 1",
        "relay_requests_total{method=\"\",route=\"\",status=\"404\"} 1",
        "relay_doorbells_held 0",
        "relay_queued 0",
        "relay_leases 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("secret-shop"), "{text}");
    net.home.owner.close().await;
}
