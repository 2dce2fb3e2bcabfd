//! Requests and answers of the fake: tokens, faults, ETags, pages.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use serde_json::{Value, json};

use super::{Call, FakeGitHub, Fault};

/// What the world says to a request.
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) body: Value,
    /// Whether a list goes on after this page.
    pub(super) more: bool,
}

impl Said {
    pub(super) fn ok(body: Value) -> Self {
        Self { status: 200, body, more: false }
    }

    pub(super) fn made(body: Value) -> Self {
        Self { status: 201, body, more: false }
    }

    pub(super) fn no(status: u16, message: &str) -> Self {
        Self { status, body: json!({ "message": message }), more: false }
    }
}

/// A request as the world reads it.
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) path: Vec<&'a str>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Value,
    pub(super) login: &'a str,
}

impl Asked<'_> {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.body[name].as_str().unwrap_or_default().to_owned()
    }

    /// One page of a list.
    pub(super) fn page(&self, all: Vec<Value>) -> Said {
        let number =
            |name, default| self.query(name).and_then(|v| v.parse().ok()).unwrap_or(default);
        let (size, page) = (number("per_page", 30_usize).min(100), number("page", 1_usize));
        let more = all.len() > size * page;
        let body = all.into_iter().skip(size * (page - 1)).take(size).collect();
        Said { status: 200, body: Value::Array(body), more }
    }
}

pub(super) fn serve(listener: tokio::net::TcpListener, hub: FakeGitHub) {
    let app = axum::Router::new().fallback(handle).with_state(hub);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
}

async fn handle(State(hub): State<FakeGitHub>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let fault = hub.fault_for(&parts.method, &parts.uri);
    let (status, headers, answer) = match &fault {
        Some(Fault::Refuse(status, headers, message)) => {
            (*status, headers.clone(), json!({ "message": message }))
        }
        Some(Fault::Answer(json)) => (200, Vec::new(), serde_json::from_str(json).unwrap()),
        _ => hub.answer(&parts.method, &parts.uri, &parts.headers, &body),
    };
    let status = match fault {
        Some(Fault::LoseAnswer(status)) => status,
        _ => status,
    };
    hub.world().calls.push(Call {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        status,
    });
    if matches!(fault, Some(Fault::Hang)) {
        std::future::pending::<()>().await;
    }
    let date: std::time::SystemTime =
        std::time::UNIX_EPOCH + std::time::Duration::from_millis(hub.date().0.unsigned_abs());
    let mut response = Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("date", httpdate::fmt_http_date(date));
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let broken = match fault {
        Some(Fault::Garble) => Some(Body::from("<html>\n<title>Unicorn!</title>")),
        Some(Fault::Cut) => {
            let text = answer.to_string();
            let half = Bytes::from(text.into_bytes()[..4].to_vec());
            let cut = std::io::Error::other("the line is cut");
            Some(Body::from_stream(futures_util::stream::iter([Ok(half), Err(cut)])))
        }
        Some(Fault::Giant) => {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            let chunks = (0..100).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
            Some(Body::from_stream(futures_util::stream::iter(chunks)))
        }
        _ => None,
    };
    if let Some(body) = broken {
        return response.body(body).unwrap();
    }
    let text = if status == 304 { String::new() } else { answer.to_string() };
    response.header("content-type", "application/json").body(Body::from(text)).unwrap()
}

type Answer = (u16, Vec<(&'static str, String)>, Value);

impl FakeGitHub {
    fn fault_for(&self, method: &Method, uri: &Uri) -> Option<Fault> {
        let mut world = self.world();
        let at = world
            .faults
            .iter()
            .position(|(m, part, _)| m == method.as_str() && uri.to_string().contains(part))?;
        world.faults.remove(at).map(|(_, _, fault)| fault)
    }

    fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Answer {
        let header = |name| headers.get(name).and_then(|v| v.to_str().ok());
        let token = header("authorization").and_then(|v| v.strip_prefix("Bearer "));
        let login = token.and_then(|token| self.world().tokens.get(token).cloned());
        let Some(login) = login else {
            return (401, Vec::new(), json!({ "message": "Bad credentials" }));
        };
        let asked = Asked {
            method: method.as_str(),
            path: uri.path().trim_matches('/').split('/').collect(),
            query: pairs(uri.query().unwrap_or_default()),
            body: serde_json::from_slice(body).unwrap_or_default(),
            login: &login,
        };
        let said = self.say(&asked);
        let mut answer = Vec::new();
        if said.more {
            answer.push(("link", format!("<{}/next>; rel=\"next\"", self.base)));
        }
        if method == Method::GET && said.status == 200 {
            let mut hasher = DefaultHasher::new();
            said.body.to_string().hash(&mut hasher);
            let etag = format!("W/\"{:x}\"", hasher.finish());
            if header("if-none-match") == Some(etag.as_str()) {
                return (304, vec![("etag", etag)], Value::Null);
            }
            answer.push(("etag", etag));
        }
        (said.status, answer, said.body)
    }
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(name), decoded(value))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' && tail.len() >= 2 {
            let hex = std::str::from_utf8(&tail[..2]).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}
