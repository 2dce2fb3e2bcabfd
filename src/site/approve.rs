//! The pages on which a person answers machines that ask for a token. Plain HTML, no script.

use std::sync::Arc;

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::desk::{Asking, SESSION_LIVES, Session, long_code};
use super::problem::Answer;
use super::route::{Operation, Takes};
use super::state::Site;
use crate::api::route::DEVICE_PAGE;
use crate::model::TokenHash;
use crate::queue::WORKER_SCOPES;

const COOKIE: &str = "relay_session";

/// The same over https: a browser takes a cookie of such a name from this very host alone, and gives
/// it to no other program there that is spoken to without TLS.
const HOST_COOKIE: &str = "__Host-relay_session";

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}\
section{border:1px solid;border-radius:.5rem;padding:0 1rem 1rem;margin:1rem 0}\
h2{font:700 1.5rem/2 ui-monospace,monospace;letter-spacing:.1em;margin:.5rem 0 0}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem}\
dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}\
button{font:inherit;padding:.4rem 1rem;margin-right:.5rem}\
[role=status],[role=alert]{border-left:.25rem solid;padding-left:.75rem}";

/// `GET /open/{code}`: asks for one press of a button. What looks at links before people do (a
/// messenger's preview, a browser that fetches ahead) must not use one up.
pub(super) async fn door(Path(code): Path<String>) -> Response {
    let door = format!(
        "<h1>Sign in to this site</h1><form method=\"post\" action=\"/open/{code}\">\
         <button autofocus>Sign in</button></form>",
        code = escaped(&code)
    );
    page(StatusCode::OK, &door)
}

/// `POST /open/{code}`: uses the link up and signs its bearer in.
pub(super) async fn open(
    State(site): State<Arc<Site>>,
    Path(code): Path<String>,
) -> Answer<Response> {
    let session = long_code(&site.queue.random()?);
    if !site.desk.enter(&code, &session, site.clock.uptime()) {
        return Ok(signed_out());
    }
    // The browser goes on by itself from a page of this site: a redirect on the way from elsewhere
    // would not carry a cookie that is for this site alone.
    let on = format!(
        "<meta http-equiv=\"refresh\" content=\"0;url={DEVICE_PAGE}\">\
         <h1>Signed in</h1><p><a href=\"{DEVICE_PAGE}\">Machines that ask to work</a></p>"
    );
    let mut response = page(StatusCode::OK, &on);
    let secure = is_secure(&site);
    let cookie = format!(
        "{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}",
        if secure { HOST_COOKIE } else { COOKIE },
        session.expose(),
        SESSION_LIVES.as_secs(),
        if secure { "; Secure" } else { "" }
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `GET /device`.
pub(super) async fn show(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    match session(&site, &headers) {
        Some(session) => machines(&site, &session, ""),
        None => signed_out(),
    }
}

/// What a person decided about one machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    csrf: String,
    user_code: String,
    decision: Word,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Approve,
    Deny,
}

/// The document tells of the API alone.
impl Takes for Result<Form<Decision>, FormRejection> {
    fn describe(_: &mut Operation) {}
}

/// `POST /device`.
pub(super) async fn decide(
    State(site): State<Arc<Site>>,
    headers: HeaderMap,
    form: Result<Form<Decision>, FormRejection>,
) -> Response {
    let Some(session) = session(&site, &headers) else { return signed_out() };
    let Ok(Form(form)) = form else {
        return page(StatusCode::BAD_REQUEST, "<h1>That is not the form of this page</h1>");
    };
    // Hashes are compared, so the time it takes says nothing about the token.
    let expected = TokenHash::of(&session.csrf.to_string());
    if TokenHash::of(&form.csrf) != expected {
        return page(StatusCode::FORBIDDEN, "<h1>That form was not of this page</h1>");
    }
    let yes = form.decision == Word::Approve;
    let by = session.by.clone();
    let told = match site.desk.answer(&form.user_code, yes, by, site.clock.uptime()) {
        Some(asking) => {
            let word = if yes { "approved" } else { "denied" };
            format!("<p role=\"status\">{} is {word}.</p>", escaped(asking.worker.as_str()))
        }
        None => "<p role=\"alert\">No machine waits with that code any more.</p>".to_owned(),
    };
    machines(&site, &session, &told)
}

fn machines(site: &Site, session: &Session, told: &str) -> Response {
    let now = site.clock.uptime();
    let waiting = site.desk.waiting(now);
    let mut body = format!("<h1>Machines that ask to work</h1>{told}");
    if waiting.is_empty() {
        body.push_str(
            "<p>None asks now. <code>relay setup --site URL</code> on a machine does.</p>",
        );
    } else {
        body.push_str(
            "<p>Approve a machine only if its own terminal shows the same code, and you began \
             that there.</p>",
        );
    }
    for asking in &waiting {
        let ago = now.saturating_sub(asking.at).as_secs();
        let taken = site.bearers.speaks(&asking.worker);
        body.push_str(&section(asking, ago, taken, &session.csrf));
    }
    page(StatusCode::OK, &body)
}

/// One machine. All that it said of itself is text of a stranger.
fn section(asking: &Asking, ago: u64, taken: bool, csrf: &TokenHash) -> String {
    let scopes: Vec<&str> = WORKER_SCOPES.iter().map(|scope| scope.as_str()).collect();
    let (worker, host) = (escaped(asking.worker.as_str()), escaped(&asking.host));
    let code = escaped(&asking.user_code);
    let warning = if taken {
        "<p role=\"alert\">A token of a worker of that name is good already: this machine would \
         take its place.</p>"
    } else {
        ""
    };
    format!(
        "<section><h2>{code}</h2>\
         <dl><dt>Worker<dd>{worker}<dt>Says it is<dd>{host}<dt>Asked from<dd>{from}\
         <dt>Asked<dd>{ago} s ago<dt>Gets<dd>{scopes}</dl>{warning}\
         <form method=\"post\" action=\"{DEVICE_PAGE}\">\
         <input type=\"hidden\" name=\"csrf\" value=\"{csrf}\">\
         <input type=\"hidden\" name=\"user_code\" value=\"{code}\">\
         <button name=\"decision\" value=\"approve\" aria-label=\"Approve {worker}\">Approve</button>\
         <button name=\"decision\" value=\"deny\" aria-label=\"Deny {worker}\">Deny</button>\
         </form></section>",
        from = escaped(&asking.from),
        scopes = scopes.join(", "),
    )
}

fn signed_out() -> Response {
    page(
        StatusCode::UNAUTHORIZED,
        "<h1>You are not signed in</h1><p>Run <code>relay open</code> on the site's machine, or \
         with an admin's token, and follow its link. A link works once, for five minutes.</p>",
    )
}

/// A page with everything that keeps others out of it.
fn page(status: StatusCode, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>relay: machines that ask to work</title><style>{STYLE}</style></head>\
         <body><main>{body}</main></body></html>"
    );
    let mut response = (status, Html(html)).into_response();
    let style = ring::digest::digest(&ring::digest::SHA256, STYLE.as_bytes());
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
        STANDARD.encode(style)
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether browsers come by https.
fn is_secure(site: &Site) -> bool {
    site.url.as_deref().is_some_and(|url| url.starts_with("https://"))
}

fn session(site: &Site, headers: &HeaderMap) -> Option<Session> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let name = if is_secure(site) { HOST_COOKIE } else { COOKIE };
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    // Another program of the same host can have set one of the same name before.
    pairs
        .filter(|(pair, _)| pair.trim() == name)
        .find_map(|(_, value)| site.desk.session(value.trim(), site.clock.uptime()))
}

/// Text of a stranger as it may stand in a page, in an attribute as well.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Marks that turn the reading direction would show another name than there is.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_says_of_itself_stays_text() {
        let asking = Asking {
            user_code: "BBBB-BBBB".to_owned(),
            worker: "desk".parse().unwrap(),
            host: "<script>alert(1)</script>\" onclick='x' \u{202e}".to_owned(),
            from: "<b>".to_owned(),
            household: None,
            at: std::time::Duration::ZERO,
            answer: None,
        };
        let html = section(&asking, 3, true, &TokenHash::of("x"));
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert!(!html.contains("' ") && !html.contains('\u{202e}'), "{html}");
        assert!(html.contains("&lt;script&gt;") && html.contains("take its place"));
    }

    #[test]
    fn a_page_runs_nothing_and_is_framed_by_nobody() {
        let response = page(StatusCode::OK, "");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    }
}
