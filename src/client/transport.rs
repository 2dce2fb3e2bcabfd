//! One request over HTTP: a time-out on each, versions compared, problems read.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ClientError, Endpoint, Outward, Reach};
use crate::api::{Problem, REVISION_HEADER, VERSION_HEADER, lenient};
use crate::model::Secret;

/// How long a request that is not held may take. The slowest one asks a forge.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The same for what a worker says: nobody else is asked for it, and it is said again.
pub(super) const WORK_TIMEOUT: Duration = Duration::from_secs(30);

/// On top of the time a request asks to be held.
const HELD_SLACK: Duration = Duration::from_secs(30);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection over TCP that was not used for so long is not used again: proxies and routers drop
/// such ones, some without a word (from 60 s on).
const POOL_IDLE: Duration = Duration::from_secs(25);

/// How often the system asks whether the other end is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Once two blanks of a held answer came through, the next is there sooner than this, or the line
/// is dead: the site sends one every 20 s.
const PIECE: Duration = Duration::from_secs(60);

/// The longest answer that is read. The largest is a list of tasks.
const ANSWER_MAX: usize = 256 * 1024 * 1024;

/// The longest path that fits a `sockaddr_un` on every system relay runs on (macOS has 104 bytes
/// with the final zero, Linux 108).
const SOCKET_PATH_MAX: usize = 103;

/// The connection pool to one site.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    http: reqwest::Client,
    base: String,
    endpoint: Endpoint,
    version: String,
    revision: u32,
    pub(super) token: Option<Secret>,
    pub(super) reach: Option<Arc<dyn Reach>>,
    /// Kept open while a path through `/proc/self/fd` leads to the socket.
    _folder: Option<Arc<File>>,
}

impl Transport {
    pub(super) fn new(
        endpoint: Endpoint,
        version: &str,
        revision: u32,
        outward: Option<&Outward>,
    ) -> Result<Self, ClientError> {
        let failed = |why: String| ClientError::Setup { endpoint: endpoint.to_string(), why };
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only();
        let (builder, base, folder) = match &endpoint {
            Endpoint::Unix(path) => {
                let (path, folder) = connectable(path).map_err(failed)?;
                // No certificates are read for a socket: a machine may have none.
                let builder = builder.tls_backend_preconfigured(no_roots()?).unix_socket(path);
                (builder, "http://relay.local".to_owned(), folder)
            }
            Endpoint::Http(url) => {
                // Refused only where a provider is there already, which is as good.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let builder = builder.pool_idle_timeout(POOL_IDLE).tcp_keepalive(KEEP_ALIVE);
                let builder = match outward.filter(|_| goes_outward(url)) {
                    Some(outward) => builder.proxy(proxy(outward).map_err(failed)?),
                    None => builder,
                };
                (builder, url.clone(), None)
            }
        };
        let http = builder.build().map_err(|e| failed(innermost(&e)))?;
        Ok(Self {
            http,
            base,
            endpoint,
            version: version.to_owned(),
            revision,
            token: None,
            reach: None,
            _folder: folder.map(Arc::new),
        })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A read. Sent once more where the connection broke before an answer.
    pub(super) async fn get<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        path: &str,
        query: &Q,
        held: Duration,
    ) -> Result<A, ClientError> {
        let query = query_string(path, query)?;
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let after = if held.is_zero() { TIMEOUT } else { held + HELD_SLACK };
        if !held.is_zero() {
            // It may have been cut after a long while: whoever holds it knows what that means.
            let answer = self.exchange(Method::GET, &path, None, after).await;
            if let (Some(reach), Ok(_)) = (&self.reach, &answer) {
                reach.answered(&path);
            }
            return answer?.read(&path);
        }
        let ask = || self.send(Method::GET, &path, None, after);
        match ask().await {
            Err(ClientError::Unreachable { .. }) => ask().await?.read(&path),
            other => other?.read(&path),
        }
    }

    /// A write, sent once. Callers that may repeat it do so themselves.
    pub(super) async fn post<B: Serialize + Sync, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<A, ClientError> {
        self.post_within(TIMEOUT, path, body).await
    }

    /// The same with another time-out.
    pub(super) async fn post_within<B: Serialize + Sync, A: DeserializeOwned>(
        &self,
        after: Duration,
        path: &str,
        body: &B,
    ) -> Result<A, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| bad_answer(path, &e))?;
        self.send(Method::POST, path, Some(body), after).await?.read(path)
    }

    /// One request. Whoever watches over the site's reach hears how it went.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        after: Duration,
    ) -> Result<Said, ClientError> {
        let answer = self.exchange(method, path, body, after).await;
        if let Some(reach) = &self.reach {
            match &answer {
                Ok(_) => reach.answered(path),
                Err(error) => reach.failed(path, error),
            }
        }
        answer
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        after: Duration,
    ) -> Result<Said, ClientError> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .header(VERSION_HEADER, &self.version)
            .header(REVISION_HEADER, self.revision)
            .timeout(after);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(body) = body {
            request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        }
        let mut response = request.send().await.map_err(|e| self.failed(&e, path, after))?;
        let (status, headers) = (response.status(), response.headers().clone());
        // A held answer begins long before it ends, and only a relay says its version.
        let begins = status.is_success() && headers.contains_key(VERSION_HEADER);
        if let Some(reach) = self.reach.as_ref().filter(|_| begins) {
            reach.answered(path);
        }
        let bytes = self.body(&mut response, path, after).await?;
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let is_newer = match text(VERSION_HEADER) {
            Some(theirs) => self.compare(theirs, text(REVISION_HEADER))?,
            None => false,
        };
        let is_json = text("content-type").is_some_and(|kind| {
            kind.starts_with("application/json") || kind.starts_with("application/problem+json")
        });
        if status.is_success() && (is_json || bytes.is_empty()) {
            return Ok(Said { bytes, is_newer });
        }
        let retry_after = retry_after(&headers);
        match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) if !status.is_success() => {
                Err(ClientError::Refused(Problem { retry_after, ..problem }))
            }
            _ => Err(ClientError::Foreign {
                endpoint: self.endpoint.to_string(),
                route: path.to_owned(),
                status: status.as_u16(),
                retry_after,
            }),
        }
    }

    /// The whole answer. Where blanks come through, a line that falls silent is dead.
    async fn body(
        &self,
        response: &mut reqwest::Response,
        path: &str,
        after: Duration,
    ) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        let mut blanks = 0;
        loop {
            let piece = response.chunk();
            let piece = if blanks < 2 {
                piece.await
            } else {
                let silent = |_| self.unreachable("its line fell silent".to_owned(), true);
                tokio::time::timeout(PIECE, piece).await.map_err(silent)?
            };
            match piece.map_err(|e| self.failed(&e, path, after))? {
                Some(piece) if bytes.len() + piece.len() > ANSWER_MAX => {
                    let why = format!("it is longer than {ANSWER_MAX} bytes");
                    return Err(ClientError::BadAnswer { route: path.to_owned(), why });
                }
                Some(piece) => {
                    blanks = if piece.as_ref() == b" " { blanks + 1 } else { 0 };
                    bytes.extend_from_slice(&piece);
                }
                None => return Ok(bytes),
            }
        }
    }

    /// Whether the site is newer by one revision. A home's owner has to be this very version; a
    /// site over the network may be one revision apart (docs/api.md).
    fn compare(&self, version: &str, revision: Option<&str>) -> Result<bool, ClientError> {
        let near = match &self.endpoint {
            Endpoint::Unix(_) => version == self.version,
            Endpoint::Http(_) => revision.is_none_or(|theirs| {
                theirs.parse().is_ok_and(|theirs: u32| theirs.abs_diff(self.revision) <= 1)
            }),
        };
        if !near {
            let (theirs, ours) = (version.to_owned(), self.version.clone());
            return Err(ClientError::Version { theirs, ours });
        }
        Ok(revision.and_then(|r| r.parse().ok()).is_some_and(|theirs: u32| theirs > self.revision))
    }

    fn unreachable(&self, why: String, sent: bool) -> ClientError {
        ClientError::Unreachable { endpoint: self.endpoint.to_string(), why, sent }
    }

    fn failed(&self, error: &reqwest::Error, route: &str, after: Duration) -> ClientError {
        let endpoint = self.endpoint.to_string();
        // On a connection that stood, a request may have come through before.
        if error.is_connect() && speaks_no_tls(error) {
            return ClientError::NoTls { endpoint };
        }
        // The system may give a silent connection up before this client does.
        let is_ours = error.is_timeout() && !error.is_connect() && !is_of_the_system(error);
        if is_ours {
            ClientError::TimedOut { endpoint, route: route.to_owned(), after }
        } else {
            self.unreachable(innermost(error), !error.is_connect())
        }
    }
}

/// Whether the other end answered, and not in TLS.
fn speaks_no_tls(error: &(dyn Error + 'static)) -> bool {
    let no_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<rustls::Error>() == Some(&no_tls) {
            return true;
        }
        // What an I/O error wraps is not its source: that is the source of what it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

/// Whether the system said so, and not a time-out of this program.
fn is_of_the_system(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let said = error.downcast_ref::<std::io::Error>();
        if said.is_some_and(|said| said.raw_os_error().is_some()) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// In how many seconds to ask again. A time is by the clock of whoever answered, so it is measured
/// from that clock's own now.
fn retry_after(headers: &HeaderMap) -> Option<u32> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let wait = text(RETRY_AFTER)?;
    if wait.bytes().all(|byte| byte.is_ascii_digit()) {
        return wait.parse().ok();
    }
    let at = httpdate::parse_http_date(wait).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    let wait = at.duration_since(now).unwrap_or_default();
    Some(u32::try_from(wait.as_secs()).unwrap_or(u32::MAX))
}

/// A path that `connect` takes: where the socket's own path is too long, one through its opened
/// folder.
fn connectable(path: &Path) -> Result<(PathBuf, Option<File>), String> {
    if path.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(format!("`{}` names no socket", path.display()));
    };
    if !cfg!(target_os = "linux") {
        return Err(format!(
            "the path {} is longer than {SOCKET_PATH_MAX} bytes; set RELAY_HOME to a shorter one",
            path.display()
        ));
    }
    let opened = File::open(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&opened);
    Ok((Path::new(&format!("/proc/self/fd/{fd}")).join(name), Some(opened)))
}

/// Whether a site may be reached through a proxy at all.
fn goes_outward(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    url.scheme() == "https" && !here
}

fn proxy(outward: &Outward) -> Result<reqwest::Proxy, String> {
    let bad = |_| "HTTPS_PROXY is not the URL of an HTTP proxy".to_owned();
    let proxy = reqwest::Proxy::https(outward.proxy.expose()).map_err(bad)?;
    Ok(proxy.no_proxy(reqwest::NoProxy::from_string(&outward.except)))
}

fn no_roots() -> Result<rustls::ClientConfig, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ClientError::Setup { endpoint: "tls".to_owned(), why: e.to_string() })?;
    Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

/// The query of a request type, by its own serialisation; `null` fields are left out.
fn query_string<Q: Serialize>(route: &str, query: &Q) -> Result<String, ClientError> {
    let value = serde_json::to_value(query).map_err(|e| bad_answer(route, &e))?;
    let mut url = reqwest::Url::parse("http://relay.local")
        .map_err(|e| ClientError::BadAnswer { route: route.to_owned(), why: e.to_string() })?;
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => {
                url.query_pairs_mut().append_pair(key, text);
            }
            other => {
                url.query_pairs_mut().append_pair(key, &other.to_string());
            }
        }
    }
    Ok(url.query().unwrap_or_default().to_owned())
}

/// An answer of the site.
struct Said {
    bytes: Vec<u8>,
    /// The site is newer: what this client does not know is left out.
    is_newer: bool,
}

impl Said {
    fn read<A: DeserializeOwned>(&self, route: &str) -> Result<A, ClientError> {
        // A route without an answer says nothing, which reads as `null`.
        let bytes = if self.bytes.is_empty() { b"null".as_slice() } else { &self.bytes };
        let read = if self.is_newer {
            serde_json::from_slice(bytes).and_then(lenient::body)
        } else {
            serde_json::from_slice(bytes)
        };
        read.map_err(|e| bad_answer(route, &e))
    }
}

fn bad_answer(route: &str, error: &serde_json::Error) -> ClientError {
    ClientError::BadAnswer { route: route.to_owned(), why: error.to_string() }
}

/// The cause that says something: reqwest's own message only repeats the URL.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_ask_again_is_a_number_or_a_time_of_whoever_answered() {
        let read = |wait: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, wait.parse().expect("a value"));
            if let Some(date) = date {
                headers.insert(DATE, date.parse().expect("a value"));
            }
            retry_after(&headers)
        };
        // A clock that is years behind counts as well as any.
        let now = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(read(" 7 ", None), Some(7));
        assert_eq!(read("Sun, 06 Nov 1994 08:50:00 GMT", now), Some(23));
        assert_eq!(read("Sunday, 06-Nov-94 08:50:00 GMT", now), Some(23));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT", now), Some(0), "it is over");
        for none in ["", "-1", "1.5", "soon", "99999999999"] {
            assert_eq!(read(none, now), None, "{none}");
        }
        assert_eq!(read("Sun, 06 Nov 1994 08:50:00 GMT", None), None, "by which clock?");
    }

    /// Hears of answers.
    #[derive(Debug)]
    struct Heard(tokio::sync::mpsc::UnboundedSender<String>);

    impl Reach for Heard {
        fn answered(&self, route: &str) {
            let _ = self.0.send(route.to_owned());
        }
        fn failed(&self, route: &str, error: &ClientError) {
            let _ = self.0.send(format!("{route}: {error}"));
        }
    }

    /// The answer never ends: what is heard is heard before.
    #[tokio::test]
    async fn a_site_is_there_once_it_begins_to_answer_what_it_holds() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let site = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", site.local_addr().expect("its address"));
        let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let endpoint = url.parse().expect("an endpoint");
        let mut transport = Transport::new(endpoint, "1.0.0", 1, None).expect("a transport");
        transport.reach = Some(Arc::new(Heard(tell)));
        let asking = transport.get::<_, u32>("/bell", &(), Duration::from_secs(300));
        let answering = async {
            let (mut line, _) = site.accept().await.expect("a line");
            let mut request = [0; 4096];
            assert!(line.read(&mut request).await.expect("a request") > 0);
            let head = format!("HTTP/1.1 200 OK\r\n{VERSION_HEADER}: 1.0.0\r\ncontent-length: 9");
            line.write_all(format!("{head}\r\n\r\n ").as_bytes()).await.expect("the head");
            let route = heard.recv().await;
            (route, line)
        };
        tokio::select! {
            answer = asking => panic!("it never ends: {answer:?}"),
            (route, _line) = answering => assert_eq!(route.as_deref(), Some("/bell")),
        }
    }

    #[tokio::test]
    async fn a_request_without_a_connection_was_not_sent_and_one_without_an_answer_may_have_been() {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = async |endpoint: Endpoint| {
            let transport = Transport::new(endpoint, "1.0.0", 1, None).expect("a transport");
            let asking = transport.get::<_, u32>("/status", &(), Duration::from_secs(300));
            asking.await.expect_err("nobody answers")
        };
        let nobody = folder.path().join("closed.sock");
        drop(tokio::net::UnixListener::bind(&nobody).expect("a socket"));
        let error = asked(Endpoint::Unix(nobody)).await;
        assert!(error.was_not_sent() && error.is_passing(), "{error:?}");

        let hangs_up = folder.path().join("open.sock");
        let site = tokio::net::UnixListener::bind(&hangs_up).expect("a socket");
        let hanging_up = async {
            let (line, _) = site.accept().await.expect("a line");
            line.readable().await.expect("a request");
        };
        let (error, ()) = tokio::join!(asked(Endpoint::Unix(hangs_up)), hanging_up);
        assert!(!error.was_not_sent() && error.is_passing(), "{error:?}");
    }

    #[test]
    fn only_a_site_elsewhere_with_https_is_reached_through_a_proxy() {
        assert!(goes_outward("https://relay.example/base"));
        for direct in [
            "http://relay.example",
            "https://localhost:7410",
            "https://127.0.0.1",
            "https://[::1]:7410",
            "https://site.localhost",
        ] {
            assert!(!goes_outward(direct), "{direct}");
        }
    }
}
