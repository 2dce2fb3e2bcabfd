//! What a refusal means: statuses and headers as [`ForgeError`].

use std::time::Duration;

use http::header::DATE;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::Limit;
use crate::forge::ForgeError;
use crate::model::{ForgeProblem, Timestamp};

/// GitHub asks for at least a minute after a secondary limit.
const AT_LEAST: Duration = Duration::from_secs(60);
/// Primary limits start anew every hour; a header that says more is not believed.
const AT_MOST: Duration = Duration::from_secs(2 * 60 * 60);

/// Reads an answer that is not a success.
pub(super) fn classify(
    ask: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> ForgeError {
    let said = message(body);
    if limited(status, headers, &said) {
        return ForgeError::RateLimited { until: until(headers, now) };
    }
    let code = status.as_u16();
    let text =
        if said.is_empty() { format!("{ask}: {code}") } else { format!("{ask}: {code} {said}") };
    let refused = |why| ForgeError::Refused { why, text: text.clone() };
    match code {
        401 => refused(ForgeProblem::Unauthorized),
        403 | 451 => refused(ForgeProblem::Forbidden),
        404 | 410 => refused(ForgeProblem::NotFound),
        408 | 500..=599 => ForgeError::Unreachable(text),
        // Not followed: the token is for this host, and a renamed repository wants a new link.
        300..=399 => ForgeError::Refused {
            why: ForgeProblem::Moved,
            text: format!("{text} (it was renamed: link it under its new name)"),
        },
        400..=499 => refused(ForgeProblem::Invalid),
        _ => ForgeError::BadAnswer(text),
    }
}

/// An error with its causes; octocrab's own text is often one word.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    short(&text)
}

fn limited(status: StatusCode, headers: &HeaderMap, said: &str) -> bool {
    match status.as_u16() {
        429 => true,
        403 => {
            headers.contains_key("retry-after")
                || number(headers, "x-ratelimit-remaining") == Some(0)
                || is_secondary(said)
        }
        _ => false,
    }
}

/// Which limit it is.
pub(super) fn limit(headers: &HeaderMap, body: &[u8]) -> Limit {
    if number(headers, "x-ratelimit-remaining") == Some(0) {
        Limit::Primary
    } else if headers.contains_key("retry-after") || is_secondary(&message(body)) {
        Limit::Secondary
    } else {
        Limit::Unnamed
    }
}

/// When it is worth asking again, by this machine's clock.
fn until(headers: &HeaderMap, now: Timestamp) -> Timestamp {
    let after = number(headers, "retry-after").map(Duration::from_secs);
    // The reset is a time of the server's clock, so it is measured from the server's own now.
    let servers_now = date(headers).unwrap_or(now);
    let reset = (number(headers, "x-ratelimit-remaining") == Some(0))
        .then(|| number(headers, "x-ratelimit-reset"))
        .flatten()
        .and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000))
        .map(|at| Timestamp(at).since(servers_now));
    now + after.max(reset).unwrap_or(AT_LEAST).clamp(AT_LEAST, AT_MOST)
}

/// When the server says it answered.
pub(super) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let at = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let since = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp(i64::try_from(since.as_millis()).ok()?))
}

fn is_secondary(said: &str) -> bool {
    said.to_ascii_lowercase().contains("secondary rate limit")
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// GitHub's own words, with the first of its details.
fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        message: String,
        #[serde(default)]
        errors: serde_json::Value,
    }
    let Ok(Body { message, errors }) = serde_json::from_slice(body) else { return String::new() };
    let detail = match &errors[0] {
        serde_json::Value::String(text) => Some(text.clone()),
        object => object["message"].as_str().map(str::to_owned).or_else(|| {
            Some(format!("{} {}", object["field"].as_str()?, object["code"].as_str()?))
        }),
    };
    short(&detail.map_or(message.clone(), |detail| format!("{message}: {detail}")))
}

fn short(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn read(status: u16, headers: &[(&'static str, &str)], body: &str) -> ForgeError {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        classify("GET /x", StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes(), NOW)
    }

    #[test]
    fn statuses_become_problems() {
        for (status, problem) in [
            (301, ForgeProblem::Moved),
            (401, ForgeProblem::Unauthorized),
            (403, ForgeProblem::Forbidden),
            (404, ForgeProblem::NotFound),
            (410, ForgeProblem::NotFound),
            (422, ForgeProblem::Invalid),
            (429, ForgeProblem::RateLimited),
            (500, ForgeProblem::Unreachable),
            (502, ForgeProblem::Unreachable),
        ] {
            assert_eq!(read(status, &[], "").problem(), problem, "{status}");
        }
    }

    #[test]
    fn a_refusal_says_what_github_said() {
        let body = r#"{"message":"Validation Failed","errors":[{"message":"A pull request already exists"}]}"#;
        assert_eq!(
            read(422, &[], body).to_string(),
            "GET /x: 422 Validation Failed: A pull request already exists"
        );
        let body = r#"{"message":"Validation Failed","errors":[{"resource":"PullRequest","field":"base","code":"invalid"}]}"#;
        assert_eq!(read(422, &[], body).to_string(), "GET /x: 422 Validation Failed: base invalid");
        assert_eq!(read(404, &[], "<html>").to_string(), "GET /x: 404");
    }

    #[test]
    fn a_rate_limit_is_told_from_a_refusal() {
        let at =
            |seconds: i64| ForgeError::RateLimited { until: Timestamp(NOW.0 + seconds * 1000) };
        assert_eq!(read(429, &[("retry-after", "7")], ""), at(60), "never under a minute");
        assert_eq!(read(403, &[("retry-after", "90")], ""), at(90));
        assert_eq!(
            read(429, &[("retry-after", "999999999")], ""),
            at(7200),
            "never over two hours"
        );
        let secondary = r#"{"message":"You have exceeded a secondary rate limit."}"#;
        assert_eq!(read(403, &[], secondary), at(60));
        let reset = (NOW.0 / 1000 + 600).to_string();
        let primary = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset.as_str())];
        assert_eq!(read(403, &primary, ""), at(600));
        // The server's clock is an hour ahead of this one, then an hour behind.
        for (date, reset) in [
            ("Mon, 12 Jan 1970 14:46:40 GMT", 1_004_200),
            ("Mon, 12 Jan 1970 12:46:40 GMT", 997_000),
        ] {
            let reset = reset.to_string();
            let skewed = [
                ("date", date),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", reset.as_str()),
            ];
            assert_eq!(read(403, &skewed, ""), at(600), "{date}");
        }
        let some_left = [("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", reset.as_str())];
        assert_eq!(read(403, &some_left, "").problem(), ForgeProblem::Forbidden);
    }
}
