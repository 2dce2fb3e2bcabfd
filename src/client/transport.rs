//! One request over HTTP: a time-out on each, versions compared, problems read.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ClientError, Endpoint};
use crate::api::{Code, Problem, VERSION_HEADER};
use crate::model::Secret;

/// How long a request that is not held may take. The slowest one asks a forge.
const TIMEOUT: Duration = Duration::from_secs(60);

/// On top of the time a request asks to be held.
const HELD_SLACK: Duration = Duration::from_secs(30);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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
    pub(super) token: Option<Secret>,
    /// Kept open while a path through `/proc/self/fd` leads to the socket.
    _folder: Option<Arc<File>>,
}

impl Transport {
    pub(super) fn new(endpoint: Endpoint, version: &str) -> Result<Self, ClientError> {
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
                (builder, url.clone(), None)
            }
        };
        let http = builder.build().map_err(|e| failed(innermost(&e)))?;
        Ok(Self {
            http,
            base,
            endpoint,
            version: version.to_owned(),
            token: None,
            _folder: folder.map(Arc::new),
        })
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
        match self.send(Method::GET, &path, None, held).await {
            Err(ClientError::Unreachable { .. }) => {
                read(&path, &self.send(Method::GET, &path, None, held).await?)
            }
            other => read(&path, &other?),
        }
    }

    /// A write, sent once. Callers that may repeat it do so themselves.
    pub(super) async fn post<B: Serialize + Sync, A: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<A, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| bad_answer(path, &e))?;
        let bytes = self.send(Method::POST, path, Some(body), Duration::ZERO).await?;
        // A route without an answer says nothing, which reads as `null`.
        read(path, if bytes.is_empty() { b"null" } else { &bytes })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        held: Duration,
    ) -> Result<bytes::Bytes, ClientError> {
        let after = if held.is_zero() { TIMEOUT } else { held + HELD_SLACK };
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .header(VERSION_HEADER, &self.version)
            .timeout(after);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(body) = body {
            request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        }
        let failed = |e: &reqwest::Error| self.failed(e, path, after);
        let response = request.send().await.map_err(|e| failed(&e))?;
        let status = response.status();
        let theirs =
            response.headers().get(VERSION_HEADER).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let bytes = response.bytes().await.map_err(|e| failed(&e))?;
        if let Some(theirs) = theirs.filter(|theirs| *theirs != self.version) {
            return Err(ClientError::Version { theirs, ours: self.version.clone() });
        }
        if status.is_success() { Ok(bytes) } else { Err(refused(path, status, &bytes)) }
    }

    fn failed(&self, error: &reqwest::Error, route: &str, after: Duration) -> ClientError {
        let endpoint = self.endpoint.to_string();
        if error.is_timeout() && !error.is_connect() {
            ClientError::TimedOut { endpoint, route: route.to_owned(), after }
        } else {
            ClientError::Unreachable { endpoint, why: innermost(error) }
        }
    }
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

fn read<A: DeserializeOwned>(route: &str, bytes: &[u8]) -> Result<A, ClientError> {
    serde_json::from_slice(bytes).map_err(|e| bad_answer(route, &e))
}

/// A refusal that is no problem document comes from something else than relay: a proxy, a page.
fn refused(route: &str, status: http::StatusCode, bytes: &[u8]) -> ClientError {
    ClientError::Refused(serde_json::from_slice(bytes).unwrap_or_else(|_| Problem {
        status: status.as_u16(),
        code: if status == http::StatusCode::NOT_FOUND { Code::NotFound } else { Code::Unknown },
        detail: format!("{route} was answered with {status}"),
        hint: None,
    }))
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
