//! A site on a port of its own, and requests to it as bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use relay::model::Secret;
use relay::site::owner::Role;
use relay::site::serve::Listen;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::site::fixture::{Home, config};
use crate::support::PATIENCE;
use crate::support::clock::ManualClock;

/// A site over TCP.
pub struct Net {
    pub home: Home,
    pub addr: SocketAddr,
    /// The first admin token.
    pub token: String,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Net {
    pub async fn open() -> Self {
        Self::open_with(|listen| listen).await
    }

    /// The same with other limits.
    pub async fn open_with(limits: impl FnOnce(Listen) -> Listen) -> Self {
        Self::start(limits, None).await
    }

    /// The same on another database than the home's own.
    pub async fn open_on(database: &str) -> Self {
        Self::start(|listen| listen, Some(Secret::new(database))).await
    }

    async fn start(limits: impl FnOnce(Listen) -> Listen, database: Option<Secret>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = ManualClock::default();
        let mut config = config(folder.path(), Role::Serve, Arc::new(clock.clone()));
        let any = "127.0.0.1:0".parse().expect("an address");
        config.listen = Some(limits(Listen::on(any)));
        config.database = database;
        let home = Home::open_with(folder, clock, config).await;
        let addr = home.owner.addr().expect("an address");
        let token = home.owner.site().first_token().await.expect("a look").expect("a token");
        Self { home, addr, token: token.expose().to_owned() }
    }

    pub async fn line(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.expect("a connection")
    }

    /// Sends bytes on a connection of their own and reads to its end.
    pub async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut line = self.line().await;
        // What is refused early is not read to its end.
        let _ = line.write_all(bytes).await;
        answer(&mut line).await
    }

    /// A request without a body.
    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "").await
    }

    /// A request with header lines of its own.
    pub async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: relay.local\r\nconnection: close\r\n{headers}\
             content-length: {length}\r\n\r\n{body}"
        );
        self.raw(request.as_bytes()).await
    }

    /// A request with the admin token and a JSON body, where there is one.
    pub async fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        let token = format!("authorization: Bearer {}\r\n", self.token);
        let json = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        self.ask(method, path, &format!("{token}{json}"), body).await
    }

    pub async fn is_well(&self) {
        let answer = self.get("/healthz").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (said, value) = line.split_once(": ")?;
            said.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// The code of a problem, after a look at the rest of it.
    pub fn code(&self) -> String {
        let json = self.json();
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(json["status"], self.status, "{self:?}");
        for field in ["title", "detail", "type", "instance"] {
            assert!(json[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {self:?}");
        }
        json["code"].as_str().expect("a code").to_owned()
    }
}

/// Reads a whole answer, to the connection's end.
pub async fn answer(line: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, line.read_to_end(&mut bytes));
    let _ = read.await.expect("the connection never ended");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
