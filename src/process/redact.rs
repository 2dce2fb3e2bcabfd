//! Taking secrets out of what a program writes, by their exact value.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::model::Secret;

/// What stands in a secret's place.
pub const MASK: &str = "[redacted]";

/// Secrets shorter than this, in bytes, are not looked for: they would also be found in words
/// that are none, and no token that relay is handed is that short.
pub const SHORTEST_SECRET: usize = 8;

/// Finds secrets by their exact value, and in the forms in which a git command or a JSON text
/// would show them: base64 of `x-access-token:SECRET` (HTTP basic authentication), percent-encoded,
/// and with JSON's escapes. It does not find a secret that was changed in another way; it is the
/// last net, and not the reason a secret stays where it belongs.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Each at least [`SHORTEST_SECRET`] bytes, the longest first.
    patterns: Arc<[Vec<u8>]>,
}

impl Redactor {
    /// Looks for these. Secrets shorter than [`SHORTEST_SECRET`] bytes are left out.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut patterns: Vec<Vec<u8>> = secrets
            .into_iter()
            .filter(|secret| secret.expose().len() >= SHORTEST_SECRET)
            .flat_map(|secret| forms(secret.expose()))
            .collect();
        patterns.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        patterns.dedup();
        Self { patterns: patterns.into() }
    }

    /// The text without secrets.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut stream = self.stream();
        let mut out = stream.push(text.as_bytes());
        out.extend(stream.end());
        String::from_utf8_lossy(&out).into_owned()
    }

    /// A filter for a text that comes in pieces.
    #[must_use]
    pub fn stream(&self) -> RedactorStream {
        let mut starts = [false; 256];
        for pattern in self.patterns.iter() {
            if let Some(first) = pattern.first() {
                starts[usize::from(*first)] = true;
            }
        }
        RedactorStream { patterns: Arc::clone(&self.patterns), starts, held: Vec::new(), inside: 0 }
    }
}

/// How many patterns there are, and none of them.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} patterns)", self.patterns.len())
    }
}

/// A redactor in the middle of a text. It gives back at once what cannot be the beginning of a
/// secret, and never holds back more than the longest secret.
pub struct RedactorStream {
    patterns: Arc<[Vec<u8>]>,
    /// Bytes with which a pattern begins.
    starts: [bool; 256],
    /// What may be the beginning of a secret.
    held: Vec<u8>,
    /// How many of the next bytes belong to a secret that was already masked.
    inside: usize,
}

impl RedactorStream {
    /// Takes the next piece and gives back what is sure.
    #[must_use]
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(piece);
        let mut out = Vec::with_capacity(text.len());
        let sure = self.scan(&text, false, &mut out);
        self.held = text.split_off(sure);
        out
    }

    /// The text is over: gives back the rest.
    #[must_use]
    pub fn end(mut self) -> Vec<u8> {
        let text = std::mem::take(&mut self.held);
        let mut out = Vec::with_capacity(text.len());
        self.scan(&text, true, &mut out);
        out
    }

    /// Decides byte by byte, up to the first that depends on what comes next; returns how many
    /// were decided. Secrets that overlap are masked together, so that no rest of one is left.
    fn scan(&mut self, text: &[u8], last: bool, out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let mut found = 0;
            if self.starts[usize::from(rest[0])] {
                for pattern in self.patterns.iter() {
                    if rest.starts_with(pattern) {
                        found = pattern.len();
                        break;
                    }
                    if !last && pattern.starts_with(rest) {
                        return at;
                    }
                }
            }
            if found > self.inside {
                if self.inside == 0 {
                    out.extend_from_slice(MASK.as_bytes());
                }
                self.inside = found;
            }
            if self.inside == 0 {
                out.push(rest[0]);
            } else {
                self.inside -= 1;
            }
            at += 1;
        }
        at
    }
}

impl fmt::Debug for RedactorStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedactorStream({} bytes held)", self.held.len())
    }
}

fn forms(secret: &str) -> Vec<Vec<u8>> {
    let basic = format!("x-access-token:{secret}");
    let json = serde_json::Value::from(secret).to_string();
    vec![
        secret.as_bytes().to_vec(),
        STANDARD_NO_PAD.encode(&basic).into_bytes(),
        URL_SAFE_NO_PAD.encode(&basic).into_bytes(),
        percent_encoded(secret).into_bytes(),
        json.trim_matches('"').as_bytes().to_vec(),
    ]
}

fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        Redactor::new(secrets.iter().map(Secret::new))
    }

    #[test]
    fn secrets_go_in_every_form() {
        let r = redactor(&["ghp_abc/def+123"]);
        let basic = STANDARD_NO_PAD.encode("x-access-token:ghp_abc/def+123");
        let text = format!("a ghp_abc/def+123 b {basic}== c ghp_abc%2Fdef%2B123 d");
        assert_eq!(r.text(&text), "a [redacted] b [redacted]== c [redacted] d");
        assert_eq!(
            redactor(&["quo\"ted-1"]).text(r#"{"a":"quo\"ted-1"}"#),
            r#"{"a":"[redacted]"}"#
        );
    }

    #[test]
    fn short_secrets_are_left_alone() {
        assert_eq!(redactor(&["1234567", ""]).text("1234567 stays"), "1234567 stays");
        assert_eq!(redactor(&["12345678"]).text("12345678 goes"), "[redacted] goes");
    }

    #[test]
    fn of_two_secrets_the_longer_goes_and_overlaps_go_whole() {
        let r = redactor(&["abcdefgh", "abcdefghij", "ghij5678"]);
        assert_eq!(r.text("abcdefgh|abcdefghij|abcdefghi"), "[redacted]|[redacted]|[redacted]i");
        assert_eq!(r.text("abcdefghij5678."), "[redacted].");
    }

    #[test]
    fn nothing_is_held_back_without_need() {
        let mut stream = redactor(&["secret-token"]).stream();
        assert_eq!(stream.push(b"a line\n"), b"a line\n");
        assert_eq!(stream.push(b"a sec"), b"a ");
        assert_eq!(stream.push(b"ond"), b"second");
        assert_eq!(stream.push(b"secret-"), b"");
        assert_eq!(stream.push(b"token"), b"[redacted]");
        assert_eq!(stream.push(b"secret"), b"");
        assert_eq!(stream.end(), b"secret");
    }

    #[test]
    fn debug_shows_no_secret() {
        let r = redactor(&["secret-token"]);
        let mut stream = r.stream();
        assert!(stream.push(b"secret").is_empty());
        assert!(!format!("{r:?} {stream:?}").contains("sec"));
    }

    proptest! {
        /// Over two letters, so that secrets are often begun, repeated, and overlap.
        #[test]
        fn pieces_are_redacted_like_the_whole(
            secrets in prop::collection::vec("[ab]{8,10}", 1..4),
            parts in prop::collection::vec("[ab]{0,12}", 0..12),
            at in prop::collection::vec((0usize..12, 0usize..4), 0..4),
        ) {
            let mut parts = parts;
            for (place, which) in at {
                if let (Some(part), Some(secret)) = (parts.get_mut(place), secrets.get(which)) {
                    part.push_str(secret);
                }
            }
            let r = Redactor::new(secrets.iter().map(Secret::new));
            let whole = r.text(&parts.concat());
            let mut stream = r.stream();
            let mut pieces = Vec::new();
            for part in &parts {
                pieces.extend(stream.push(part.as_bytes()));
                prop_assert!(stream.held.len() < r.patterns[0].len());
            }
            pieces.extend(stream.end());
            prop_assert_eq!(String::from_utf8_lossy(&pieces), whole.as_str());
            for secret in &secrets {
                prop_assert!(!whole.contains(secret.as_str()), "{} in {}", secret, whole);
            }
        }
    }
}
