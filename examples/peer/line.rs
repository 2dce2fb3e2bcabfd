//! One keep-alive connection to the site, as little HTTP as that takes: what the caller costs is
//! measured with the site on the same cores.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection and the token that each request on it shows.
pub struct Line {
    stream: TcpStream,
    /// What was read and not yet understood.
    input: Vec<u8>,
    output: Vec<u8>,
    head: String,
}

impl Line {
    pub async fn open(addr: SocketAddr, token: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr).await.context("connecting to the site")?;
        stream.set_nodelay(true)?;
        let head = format!("host: {addr}\r\nauthorization: Bearer {token}\r\n");
        Ok(Self { stream, input: Vec::new(), output: Vec::new(), head })
    }

    pub async fn post<A: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        let body = serde_json::to_vec(body)?;
        self.begin("POST", path);
        let length =
            format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        self.output.extend_from_slice(length.as_bytes());
        self.output.extend_from_slice(&body);
        self.answer(path).await
    }

    pub async fn get<A: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<A> {
        self.begin("GET", path);
        self.output.extend_from_slice(b"\r\n");
        self.answer(path).await
    }

    fn begin(&mut self, method: &str, path: &str) {
        self.output.clear();
        let first = format!("{method} /api/v1{path} HTTP/1.1\r\n{}", self.head);
        self.output.extend_from_slice(first.as_bytes());
    }

    async fn answer<A: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<A> {
        self.stream.write_all(&self.output).await?;
        let (status, length) =
            self.head().await.with_context(|| format!("the answer to {path}"))?;
        let body = match length {
            Some(length) => self.take(length).await?,
            None => self.chunks().await?,
        };
        if !(200..300).contains(&status) {
            bail!("{path}: {status} {}", String::from_utf8_lossy(&body));
        }
        // A route without an answer says nothing, which reads as `null`.
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(body).with_context(|| format!("the answer to {path}"))
    }

    /// The status, and the length where it is said; else the body comes in chunks.
    async fn head(&mut self) -> anyhow::Result<(u16, Option<usize>)> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.map(|length| length.trim().parse()).transpose()?;
        Ok((status, length.or((status == 204).then_some(0))))
    }

    async fn chunks(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(String::from_utf8_lossy(&size).trim(), 16)?;
            let chunk = self.take(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn until(&mut self, end: &[u8]) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.input.windows(end.len()).position(|part| part == end) {
                return Ok(self.input.drain(..at + end.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn take(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        while self.input.len() < length {
            self.more().await?;
        }
        Ok(self.input.drain(..length).collect())
    }

    async fn more(&mut self) -> anyhow::Result<()> {
        self.input.reserve(2048);
        if self.stream.read_buf(&mut self.input).await? == 0 {
            bail!("the site closed the connection");
        }
        Ok(())
    }
}
