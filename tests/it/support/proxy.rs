//! What may stand between a worker and its site: a proxy on loopback that passes everything on, or
//! cuts, buffers, falls silent, answers by itself. It can be told another way at any moment.

use std::convert::Infallible;
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener as Bound};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::serve::{IncomingStream, Listener};
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It is passed on, and its answer as it comes.
    Pass,
    /// Nothing comes back, ever: the network is cut.
    Silent,
    /// The connection is closed.
    Closed,
    /// It is passed on; the connection is closed when the answer has not ended after this.
    CutAfter(Duration),
    /// It is passed on; the answer is collected whole. After this a page says 504.
    Buffer(Duration),
    /// It is passed on, and its answer is lost.
    LoseAnswer,
    /// A page, in the site's place, with a header `Retry-After` where there is one.
    Page(u16, Option<u32>),
}

/// A running proxy; it ends with its value.
pub struct Proxy {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Says what becomes of a request to this path.
type Rule = dyn Fn(&str) -> Fate + Send + Sync;

/// Changes an answer's JSON.
type Edit = dyn Fn(&mut serde_json::Value) + Send + Sync;

struct Shared {
    upstream: reqwest::Client,
    base: String,
    rule: Mutex<Arc<Rule>>,
    /// Of answers to paths that hold this.
    edit: Mutex<Option<(&'static str, Arc<Edit>)>>,
    /// Connections of a number below this are dead, and nobody was told.
    dead_below: Mutex<u64>,
    lines: Mutex<Vec<Line>>,
    asked: Mutex<Vec<String>>,
}

/// One connection.
#[derive(Clone, Debug)]
struct Line {
    number: u64,
    cut: CancellationToken,
}

impl Proxy {
    /// In front of `http://HOST:PORT`.
    pub fn of_url(url: &str) -> Self {
        Self::start(reqwest::Client::builder(), url.to_owned())
    }

    /// In front of a home's socket. Whoever comes this way is the home's owner.
    pub fn of_socket(socket: &Path) -> Self {
        let client = reqwest::Client::builder().unix_socket(socket.to_owned());
        Self::start(client, "http://relay.local".to_owned())
    }

    fn start(client: reqwest::ClientBuilder, base: String) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = client.no_proxy().http1_only().pool_max_idle_per_host(0);
        let upstream = client.timeout(Duration::from_secs(400)).build().unwrap();
        let listener = Bound::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            upstream,
            base,
            rule: Mutex::new(Arc::new(|_: &str| Fate::Pass)),
            edit: Mutex::default(),
            dead_below: Mutex::default(),
            lines: Mutex::default(),
            asked: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let entry = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let doors = Doors { listener: TcpListener::from_std(listener).unwrap(), entry };
                let app = app.into_make_service_with_connect_info::<Line>();
                tokio::select! {
                    ended = axum::serve(doors, app) => ended.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self { port, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// What a client is given as its site.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Does this with every request from now on.
    pub fn all(&self, fate: Fate) {
        self.by(move |_| fate.clone());
    }

    /// Does this with requests whose path holds `part`, and passes the others on.
    pub fn only(&self, part: &'static str, fate: Fate) {
        self.by(move |path| if path.contains(part) { fate.clone() } else { Fate::Pass });
    }

    /// Asks `rule` with each request's path.
    pub fn by(&self, rule: impl Fn(&str) -> Fate + Send + Sync + 'static) {
        *self.shared.rule.lock().unwrap() = Arc::new(rule);
    }

    /// Changes what the site answers to requests whose path holds `part`.
    pub fn edit(
        &self,
        part: &'static str,
        edit: impl Fn(&mut serde_json::Value) + Send + Sync + 'static,
    ) {
        *self.shared.edit.lock().unwrap() = Some((part, Arc::new(edit)));
    }

    /// Closes every connection that is open.
    pub fn cut(&self) {
        for line in std::mem::take(&mut *self.shared.lines.lock().unwrap()) {
            line.cut.cancel();
        }
    }

    /// Nothing passes any more on the connections that are open, and nobody is told.
    pub fn drop_silently(&self) {
        let below = self.shared.lines.lock().unwrap().last().map_or(0, |line| line.number + 1);
        *self.shared.dead_below.lock().unwrap() = below;
    }

    /// How many requests came whose method and path hold `part`.
    pub fn count(&self, part: &str) -> usize {
        self.shared.asked.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
) -> std::result::Result<Response<Body>, Infallible> {
    let path = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
    shared.asked.lock().unwrap().push(format!("{} {path}", request.method()));
    if line.number < *shared.dead_below.lock().unwrap() {
        return std::future::pending().await;
    }
    let rule = Arc::clone(&*shared.rule.lock().unwrap());
    Ok(match rule(&path) {
        Fate::Silent => std::future::pending().await,
        Fate::Closed => hang_up(&line).await,
        Fate::Page(status, retry_after) => page(status, retry_after),
        Fate::Pass => pass(&shared, request, &path).await,
        Fate::LoseAnswer => {
            let answer = pass(&shared, request, &path).await;
            let _lost = axum::body::to_bytes(answer.into_body(), 64 << 20).await;
            hang_up(&line).await
        }
        Fate::CutAfter(time) => {
            let cut = line.cut.clone();
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                cut.cancel();
            });
            pass(&shared, request, &path).await
        }
        Fate::Buffer(time) => {
            let whole = async {
                let (parts, body) = pass(&shared, request, &path).await.into_parts();
                let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap_or_default();
                Response::from_parts(parts, Body::from(bytes))
            };
            tokio::time::timeout(time, whole).await.unwrap_or_else(|_| page(504, None))
        }
    })
}

/// A site that is not there is told as nginx does.
async fn pass(shared: &Shared, request: Request, path: &str) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 64 << 20).await.unwrap_or_default();
    let sent = shared
        .upstream
        .request(parts.method, format!("{}{path}", shared.base))
        .headers(end_to_end(&parts.headers))
        .body(bytes)
        .send()
        .await;
    let Ok(answer) = sent else { return page(502, None) };
    let mut response = Response::builder().status(answer.status());
    *response.headers_mut().unwrap() = end_to_end(answer.headers());
    let edit = shared.edit.lock().unwrap().clone().filter(|(part, _)| path.contains(part));
    if let Some((_, edit)) = edit {
        let mut json = answer.json().await.unwrap_or_default();
        edit(&mut json);
        return response.body(Body::from(json.to_string())).unwrap();
    }
    let pieces = stream::unfold(answer, |mut answer| async move {
        let piece = answer.chunk().await.transpose()?;
        Some((piece.map_err(|e| Error::other(e.to_string())), answer))
    });
    response.body(Body::from_stream(pieces.map(|piece: Result<Bytes>| piece))).unwrap()
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let hops =
        [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::HOST];
    for hop in hops {
        headers.remove(hop);
    }
    headers
}

fn page(status: u16, retry_after: Option<u32>) -> Response<Body> {
    let mut page = Response::new(Body::from("<html><body><h1>a proxy's page</h1></body></html>"));
    *page.status_mut() = StatusCode::from_u16(status).unwrap();
    page.headers_mut().insert(header::CONTENT_TYPE, "text/html".parse().unwrap());
    if let Some(seconds) = retry_after {
        page.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    page
}

async fn hang_up(line: &Line) -> Response<Body> {
    line.cut.cancel();
    std::future::pending().await
}

/// Takes connections, and remembers how to cut them.
struct Doors {
    listener: TcpListener,
    entry: Arc<Shared>,
}

impl Listener for Doors {
    type Io = Wire;
    type Addr = Line;

    async fn accept(&mut self) -> (Wire, Line) {
        let (stream, _) = loop {
            if let Ok(accepted) = self.listener.accept().await {
                break accepted;
            }
        };
        let mut lines = self.entry.lines.lock().unwrap();
        let number = lines.last().map_or(*self.entry.dead_below.lock().unwrap(), |l| l.number + 1);
        let line = Line { number, cut: CancellationToken::new() };
        lines.push(line.clone());
        (Wire { stream, cut: Box::pin(line.cut.clone().cancelled_owned()), is_cut: false }, line)
    }

    fn local_addr(&self) -> Result<Line> {
        Err(Error::other("it has none"))
    }
}

impl Connected<IncomingStream<'_, Doors>> for Line {
    fn connect_info(stream: IncomingStream<'_, Doors>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A connection that ends when it is cut.
struct Wire {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    is_cut: bool,
}

impl Wire {
    fn whole(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.is_cut = self.is_cut || self.cut.as_mut().poll(cx).is_ready();
        if self.is_cut { Err(ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        self.whole(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        self.whole(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
