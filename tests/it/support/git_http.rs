//! A git host on loopback: the genuine `git http-backend` behind a small server that checks
//! tokens, writes down what it was sent, and can hold a request back.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use relay::git::{HostToken, Remote};
use relay::model::Secret;
use tokio::sync::oneshot;

use super::repo::{git_program, path_env};

/// Serves every `<root>/<path>.git`; ends with the runtime of the test.
pub struct GitHttp {
    /// `http://127.0.0.1:<port>`.
    pub url: String,
    shared: Arc<Shared>,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET /a/b.git/info/refs?service=git-upload-pack`.
    pub line: String,
    /// The header, as it came.
    pub authorization: Option<String>,
    /// What came back.
    pub status: u16,
}

/// A request that is to be held back.
pub struct Held {
    arrived: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}

impl Held {
    /// Waits until the request is there.
    pub async fn arrived(&mut self) {
        (&mut self.arrived).await.expect("the request came");
    }

    /// Lets it through.
    pub fn release(self) {
        let _ = self.release.send(());
    }
}

struct Shared {
    root: PathBuf,
    url: String,
    /// The `Authorization` header of each known token, and whose it is.
    users: Mutex<HashMap<String, String>>,
    asked: Mutex<Vec<Asked>>,
    holds: Mutex<Vec<Hold>>,
    losses: Mutex<Vec<(String, String)>>,
    refusal: Mutex<Option<Refusal>>,
}

/// What every request is answered whose line contains `line_has`.
#[derive(Clone)]
struct Refusal {
    line_has: String,
    status: u16,
    text: String,
}

struct Hold {
    line_has: String,
    user: String,
    arrived: oneshot::Sender<()>,
    release: oneshot::Receiver<()>,
}

impl GitHttp {
    /// Serves the repositories under `root`. Until a token is allowed, anybody may read and write.
    pub async fn serve(root: &Path) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            url: url.clone(),
            users: Mutex::default(),
            asked: Mutex::default(),
            holds: Mutex::default(),
            losses: Mutex::default(),
            refusal: Mutex::default(),
        });
        let app = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, shared }
    }

    /// From now on a request needs a token, and this is one, of `user`.
    pub fn allow(&self, token: &str, user: &str) {
        let header = format!("Basic {}", STANDARD.encode(format!("x-access-token:{token}")));
        self.shared.users.lock().unwrap().insert(header, user.to_owned());
    }

    /// How relay is told of the repository at `<root>/<path>.git`.
    pub fn remote(&self, path: &str, token: Option<&str>) -> Remote {
        Remote { url: format!("{}/{path}.git", self.url), token: token.map(own) }
    }

    /// Every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Serves the next such request, and answers as if the server behind had died meanwhile.
    pub fn lose_answer(&self, user: &str, line_has: &str) {
        self.shared.losses.lock().unwrap().push((user.to_owned(), line_has.to_owned()));
    }

    /// From now on, whoever asks such a thing is answered this, in GitHub's way.
    pub fn refuse(&self, line_has: &str, status: u16, text: &str) {
        let (line_has, text) = (line_has.to_owned(), text.to_owned());
        *self.shared.refusal.lock().unwrap() = Some(Refusal { line_has, status, text });
    }

    /// Answers again.
    pub fn accept(&self) {
        *self.shared.refusal.lock().unwrap() = None;
    }

    /// Holds back the next request of `user` (empty: anybody) whose line contains `line_has`.
    pub fn hold(&self, user: &str, line_has: &str) -> Held {
        let ((arrived, is_there), (release, may_go)) = (oneshot::channel(), oneshot::channel());
        let (line_has, user) = (line_has.to_owned(), user.to_owned());
        let hold = Hold { line_has, user, arrived, release: may_go };
        self.shared.holds.lock().unwrap().push(hold);
        Held { arrived: is_there, release }
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let text = |name: &str| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let authorization = text("authorization");
    let user = {
        let users = shared.users.lock().unwrap();
        match &authorization {
            _ if users.is_empty() => Some("anybody".to_owned()),
            Some(header) => users.get(header).cloned(),
            None => None,
        }
    };
    let refusal = shared.refusal.lock().unwrap().clone();
    let refusal = refusal.filter(|refusal| line.contains(&refusal.line_has));
    let response = match (user, refusal) {
        // As with a store of its own: the address is the right to it.
        _ if super::lfs::is_content(head.uri.path()) => {
            let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            super::lfs::content(&shared.root, &head.method, head.uri.path(), &body)
        }
        (None, _) => challenge(),
        (Some(_), Some(refusal)) => refused(&refusal),
        (Some(user), None) => {
            let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            if head.uri.path().ends_with("/info/lfs/objects/batch") {
                let answer = super::lfs::batch(&shared.root, &shared.url, &body);
                shared.asked.lock().unwrap().push(Asked { line, authorization, status: 200 });
                return answer;
            }
            let hold = {
                let mut holds = shared.holds.lock().unwrap();
                let at = holds.iter().position(|hold| {
                    line.contains(&hold.line_has) && (hold.user.is_empty() || hold.user == user)
                });
                at.map(|at| holds.remove(at))
            };
            if let Some(hold) = hold {
                let _ = hold.arrived.send(());
                let _ = hold.release.await;
            }
            let is_lost = {
                let mut losses = shared.losses.lock().unwrap();
                let at = losses.iter().position(|(who, has)| *who == user && line.contains(has));
                at.map(|at| losses.remove(at)).is_some()
            };
            let root = shared.root.clone();
            let answer = tokio::task::spawn_blocking(move || {
                backend(&root, &user, head.method.as_str(), &head.uri, &head.headers, &body)
            })
            .await
            .expect("the backend ran");
            if is_lost { bad_gateway() } else { answer }
        }
    };
    let status = response.status().as_u16();
    shared.asked.lock().unwrap().push(Asked { line, authorization, status });
    response
}

fn refused(refusal: &Refusal) -> Response {
    Response::builder()
        .status(refusal.status)
        .header("content-type", "text/plain")
        .header("location", "http://127.0.0.1:9/elsewhere.git/info/refs")
        .body(Body::from(refusal.text.clone()))
        .unwrap()
}

fn bad_gateway() -> Response {
    Response::builder().status(StatusCode::BAD_GATEWAY).body(Body::empty()).unwrap()
}

fn challenge() -> Response {
    Response::builder()
        .status(StatusCode::UNAUTHORIZED)
        .header("www-authenticate", "Basic realm=\"git\"")
        .body(Body::empty())
        .unwrap()
}

/// One CGI call.
fn backend(
    root: &Path,
    user: &str,
    method: &str,
    uri: &axum::http::Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    #[expect(clippy::disallowed_methods, reason = "the test's host runs git's own program")]
    let mut command = Command::new(git_program());
    command
        .arg("http-backend")
        .env_clear()
        .env("PATH", path_env())
        .env("HOME", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", uri.path())
        .env("QUERY_STRING", uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", method)
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("REMOTE_USER", user)
        .env("REMOTE_ADDR", "127.0.0.1");
    for (header, name) in [
        ("content-type", "CONTENT_TYPE"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ] {
        if let Some(value) = headers.get(header) {
            command.env(name, value.to_str().unwrap());
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("git http-backend starts");
    let mut stdin = child.stdin.take().unwrap();
    let body = body.clone();
    let feed = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().expect("git http-backend ends");
    let _ = feed.join();
    let end = output.stdout.windows(4).position(|w| w == b"\r\n\r\n").expect("CGI headers");
    let mut response = Response::builder();
    for header in String::from_utf8_lossy(&output.stdout[..end]).lines() {
        let (name, value) = header.split_once(": ").expect("a CGI header");
        response = if name.eq_ignore_ascii_case("status") {
            response.status(value[..3].parse::<u16>().unwrap())
        } else {
            response.header(name, value)
        };
    }
    response.body(Body::from(output.stdout[end + 4..].to_vec())).unwrap()
}

/// A token for this machine.
fn own(token: &str) -> HostToken {
    HostToken { host: "127.0.0.1".to_owned(), token: Secret::new(token) }
}
