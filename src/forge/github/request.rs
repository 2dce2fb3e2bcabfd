//! One request and its answer: cool-down, ETag, time-out, cap, and the answer as a value.

use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LINK};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited, combinators::BoxBody};
use octocrab::Octocrab;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{GitHub, problem};
use crate::forge::ForgeError;

/// A hundred issues of GitHub's longest text fit; more is no answer of a forge.
const BODY_LIMIT: usize = 32 * 1024 * 1024;
/// Items asked for on one page of a list: GitHub's maximum.
pub(super) const PAGE: usize = 100;

/// An answer that was read.
pub(super) struct Answer<T> {
    /// What it says.
    pub(super) value: T,
    /// Whether a list has another page.
    pub(super) more: bool,
}

impl GitHub {
    /// Reads `path` (with its query), from the cache where the server says it has not changed.
    pub(super) async fn get<T>(&self, path: &str) -> Result<Answer<T>, ForgeError>
    where
        T: Serialize + DeserializeOwned,
    {
        let kept = self.etags.find(path);
        let mut headers = HeaderMap::new();
        if let Some(etag) = kept.as_ref().and_then(|k| HeaderValue::from_str(&k.etag).ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let ask = || format!("GET {}{path}", self.base);
        let sent = self.rest._get_with_headers(path, Some(headers));
        let (parts, body) = self.send(&ask(), sent).await?;
        let unreadable = |e: serde_json::Error| ForgeError::BadAnswer(format!("{}: {e}", ask()));
        if let (StatusCode::NOT_MODIFIED, Some(kept)) = (parts.status, kept) {
            let value = serde_json::from_slice(&kept.body).map_err(unreadable)?;
            return Ok(Answer { value, more: kept.more });
        }
        self.refuse_unless_ok(&ask(), &parts, &body)?;
        let value: T = serde_json::from_slice(&body).map_err(unreadable)?;
        let more = has_next(&parts.headers);
        if let Some(etag) = parts.headers.get(ETAG).and_then(|v| v.to_str().ok()) {
            // Only what is read of it is kept, not the whole answer.
            let body = serde_json::to_vec(&value).map_err(unreadable)?;
            self.etags.keep(path, etag, body, more);
        }
        Ok(Answer { value, more })
    }

    /// Reads a list page by page; `limit` pages are more than anyone has, and an error.
    pub(super) async fn list<T>(&self, path: &str, limit: usize) -> Result<Vec<T>, ForgeError>
    where
        T: Serialize + DeserializeOwned,
    {
        let mut all = Vec::new();
        let sign = if path.contains('?') { '&' } else { '?' };
        for page in 1..=limit {
            let path = format!("{path}{sign}per_page={PAGE}&page={page}");
            let Answer { value, more } = self.get::<Vec<T>>(&path).await?;
            let full = value.len() >= PAGE;
            all.extend(value);
            // A full page may have got a successor without changing its own ETag.
            if !more && !full {
                return Ok(all);
            }
        }
        Err(ForgeError::BadAnswer(format!("GET {}{path}: more than {limit} pages", self.base)))
    }

    /// Sends one POST, once.
    pub(super) async fn post<B, T>(&self, path: &str, what: &B) -> Result<T, ForgeError>
    where
        B: Serialize + ?Sized,
        T: DeserializeOwned,
    {
        self.post_to(&self.rest, path, what).await
    }

    /// Asks the GraphQL endpoint; the answer is the whole document, errors included.
    pub(super) async fn query<B, T>(&self, what: &B) -> Result<T, ForgeError>
    where
        B: Serialize + ?Sized,
        T: DeserializeOwned,
    {
        self.post_to(&self.graphql, "/graphql", what).await
    }

    async fn post_to<B, T>(&self, to: &Octocrab, path: &str, what: &B) -> Result<T, ForgeError>
    where
        B: Serialize + ?Sized,
        T: DeserializeOwned,
    {
        let ask = format!("POST {}{path}", self.base);
        let (parts, body) = self.send(&ask, to._post(path, Some(what))).await?;
        self.refuse_unless_ok(&ask, &parts, &body)?;
        serde_json::from_slice(&body).map_err(|e| ForgeError::BadAnswer(format!("{ask}: {e}")))
    }

    async fn send(
        &self,
        ask: &str,
        request: impl Future<Output = octocrab::Result<Answered>>,
    ) -> Result<(http::response::Parts, Vec<u8>), ForgeError> {
        self.check_cool_down()?;
        let whole = async {
            let lost = |text: String| ForgeError::Unreachable(format!("{ask}: {text}"));
            let response = request.await.map_err(|e| lost(problem::chain(&e)))?;
            let (parts, body) = response.into_parts();
            let counted = parts.status != StatusCode::NOT_MODIFIED;
            let date = problem::date(&parts.headers);
            self.gate.answered(self.clock.now(), counted, date);
            match Limited::new(body, BODY_LIMIT).collect().await {
                Ok(body) => Ok((parts, body.to_bytes().to_vec())),
                Err(error) if error.is::<LengthLimitError>() => Err(ForgeError::BadAnswer(
                    format!("{ask}: an answer of more than {} MiB", BODY_LIMIT / 1024 / 1024),
                )),
                Err(error) => Err(lost(problem::chain(&*error))),
            }
        };
        match tokio::time::timeout(self.time_out, whole).await {
            Ok(answer) => answer,
            Err(_) => Err(ForgeError::Unreachable(format!(
                "{ask}: no answer in {} s",
                self.time_out.as_secs_f64()
            ))),
        }
    }

    fn refuse_unless_ok(
        &self,
        ask: &str,
        parts: &http::response::Parts,
        body: &[u8],
    ) -> Result<(), ForgeError> {
        if parts.status.is_success() {
            return Ok(());
        }
        let error = problem::classify(ask, parts.status, &parts.headers, body, self.clock.now());
        if let ForgeError::RateLimited { until } = &error {
            self.gate.shut(*until, problem::limit(&parts.headers, body));
        }
        Err(error)
    }

    fn check_cool_down(&self) -> Result<(), ForgeError> {
        match self.gate.shut_until(self.clock.now()) {
            Some(until) => Err(ForgeError::RateLimited { until }),
            None => Ok(()),
        }
    }
}

type Answered = Response<BoxBody<bytes::Bytes, octocrab::Error>>;

fn has_next(headers: &HeaderMap) -> bool {
    headers.get_all(LINK).iter().any(|v| v.to_str().is_ok_and(|v| v.contains("rel=\"next\"")))
}

/// A text as one piece of a path or a query.
pub(super) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, b| {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
        out
    })
}
