//! Taking secrets out of what a program writes, by their exact value.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::model::Secret;

/// What stands in a secret's place.
pub const MASK: &str = "[redacted]";

/// Secrets shorter than this, in bytes, are not looked for: they would also be found in words
/// that are none, and no token that relay is handed is that short.
pub const SHORTEST_SECRET: usize = 8;

/// Finds secrets by their exact value, and in the usual spellings: base64 (both alphabets, whatever
/// stands before and behind, as in HTTP's basic authentication), hex, percent-encoded where a URL
/// needs it or throughout, and with JSON's escapes where needed or throughout. It does not find a
/// secret that was changed in another way: reversed, split over two lines or two files, encoded
/// twice, compressed. It is the last net, and not the reason a secret stays where it belongs.
///
/// Its clones share what they look for: what one of them learns ([`Redactor::add`]), all of them
/// and their streams take out from then on.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Known>>,
}

/// What is looked for, and who may know more of it.
#[derive(Default)]
struct Known {
    /// Each at least [`SHORTEST_SECRET`] bytes, the longest first.
    patterns: Arc<[Vec<u8>]>,
    source: Option<Arc<Source>>,
}

/// Gives the secrets that came to be since it was last asked.
type Source = dyn Fn() -> Vec<Secret> + Send + Sync;

impl Redactor {
    /// Looks for these. Secrets shorter than [`SHORTEST_SECRET`] bytes are left out.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let redactor = Self::default();
        redactor.add(secrets);
        redactor
    }

    /// From now on looks for these as well.
    pub fn add(&self, secrets: impl IntoIterator<Item = Secret>) {
        let new: Vec<Vec<u8>> = secrets
            .into_iter()
            .filter(|secret| secret.expose().len() >= SHORTEST_SECRET)
            .flat_map(|secret| forms(secret.expose()))
            .collect();
        if new.is_empty() {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut patterns = [&known.patterns[..], &new[..]].concat();
        patterns.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        patterns.dedup();
        known.patterns = patterns.into();
    }

    /// Asks `source` before each piece of a stream for secrets that came to be meanwhile; it takes
    /// the place of an earlier one.
    pub fn ask(&self, source: impl Fn() -> Vec<Secret> + Send + Sync + 'static) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.source = Some(Arc::new(source));
    }

    fn patterns(&self) -> Arc<[Vec<u8>]> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).patterns)
    }

    /// Adds what the source knows by now.
    fn learn(&self) {
        let source = self.known.read().unwrap_or_else(PoisonError::into_inner).source.clone();
        if let Some(source) = source {
            self.add(source());
        }
    }

    /// The longest text that is looked for, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.patterns().first().map_or(0, Vec::len)
    }

    /// The text without secrets.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut stream = self.stream();
        let mut out = stream.push(text.as_bytes());
        out.extend(stream.end());
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns().is_empty()
    }

    /// Whether a secret stands in `bytes`.
    #[must_use]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        let patterns = self.patterns();
        let starts = starts(&patterns);
        (0..bytes.len()).any(|at| {
            starts[usize::from(bytes[at])]
                && patterns.iter().any(|pattern| bytes[at..].starts_with(pattern))
        })
    }

    /// A filter for a text that comes in pieces.
    #[must_use]
    pub fn stream(&self) -> RedactorStream {
        let patterns = self.patterns();
        RedactorStream {
            redactor: self.clone(),
            starts: starts(&patterns),
            patterns,
            held: Vec::new(),
            inside: 0,
        }
    }
}

/// The bytes with which a pattern begins.
fn starts(patterns: &[Vec<u8>]) -> [bool; 256] {
    let mut starts = [false; 256];
    for first in patterns.iter().filter_map(|pattern| pattern.first()) {
        starts[usize::from(*first)] = true;
    }
    starts
}

/// How many patterns there are, and none of them.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} patterns)", self.patterns().len())
    }
}

/// A redactor in the middle of a text. It gives back at once what cannot be the beginning of a
/// secret, and never holds back more than the longest secret.
pub struct RedactorStream {
    redactor: Redactor,
    /// Those of the redactor, as it was last looked at.
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
        self.look_again();
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

    fn look_again(&mut self) {
        self.redactor.learn();
        let patterns = self.redactor.patterns();
        if !Arc::ptr_eq(&patterns, &self.patterns) {
            self.starts = starts(&patterns);
            self.patterns = patterns;
        }
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
    let json = json.trim_matches('"');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut forms = vec![
        secret.to_owned(),
        STANDARD_NO_PAD.encode(&basic),
        URL_SAFE_NO_PAD.encode(&basic),
        json.to_owned(),
        json.replace('/', "\\/"),
    ];
    for in_capitals in [false, true] {
        forms.push(spelled(secret, "", in_capitals, |_| false));
        forms.push(spelled(secret, "%", in_capitals, is_plain));
        forms.push(spelled(secret, "%", in_capitals, |_| false));
        forms.push(spelled(secret, "\\u00", in_capitals, |_| false));
    }
    for before in 0..3 {
        forms.extend(inside_base64(secret, before));
    }
    forms.into_iter().map(String::into_bytes).collect()
}

/// Each byte as `mark` and two digits, but those that stay.
fn spelled(text: &str, mark: &str, in_capitals: bool, stays: impl Fn(u8) -> bool) -> String {
    let spell = |byte: u8| match (stays(byte), in_capitals) {
        (true, _) => char::from(byte).to_string(),
        (false, true) => format!("{mark}{byte:02X}"),
        (false, false) => format!("{mark}{byte:02x}"),
    };
    text.bytes().map(spell).collect()
}

/// The digits of a base64 text that depend on `secret` alone, where it stands `before` bytes
/// behind a multiple of three; in both alphabets.
fn inside_base64(secret: &str, before: usize) -> [String; 2] {
    let padded = [vec![0; before], secret.as_bytes().to_vec()].concat();
    // Six bits a digit: from the first that begins within the secret to the last that ends there.
    let digits = (before * 8).div_ceil(6)..padded.len() * 8 / 6;
    [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)]
        .map(|text| text[digits.clone()].to_owned())
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
    fn secrets_go_in_every_usual_spelling() {
        let secret = "ghp_Canary/0123+9";
        let r = redactor(&[secret]);
        let told = |text: &str| assert!(r.finds(text.as_bytes()), "{text} was let through");
        for before in ["", "a", "ab", "abc", "x-access-token:"] {
            for after in ["", "y", "yz", "xyz"] {
                let text = format!("{before}{secret}{after}");
                told(&STANDARD_NO_PAD.encode(&text));
                told(&URL_SAFE_NO_PAD.encode(&text));
            }
        }
        let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
        let escaped: String = secret.bytes().map(|b| format!("\\u{b:04x}")).collect();
        let quoted: String = secret.bytes().map(|b| format!("%{b:02x}")).collect();
        for text in [&hex, &hex.to_uppercase(), &escaped, &quoted, &quoted.to_uppercase()] {
            told(text);
            assert_eq!(r.text(&format!("a {text} b")), "a [redacted] b");
        }
        told("ghp_Canary%2f0123%2b9");
        told(r"ghp_Canary\/0123+9");
        assert!(!r.finds(b"ghp_Canary/0123+8") && !Redactor::default().finds(secret.as_bytes()));
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
    fn what_one_learns_all_its_clones_and_streams_take_out() {
        let r = redactor(&["secret-token"]);
        let (clone, mut stream) = (r.clone(), r.stream());
        assert_eq!(stream.push(b"later-token; sec"), b"later-token; ");
        r.add([Secret::new("later-token"), Secret::new("short")]);
        assert_eq!(stream.push(b"ret-token later-token short"), b"[redacted] [redacted] short");
        assert_eq!(clone.text("secret-token later-token"), "[redacted] [redacted]");
        assert!(clone.finds(b"later-token") && !redactor(&[]).finds(b"later-token"));
        assert_eq!(r.longest(), "\\u0000".len() * "secret-token".len());
    }

    #[test]
    fn a_stream_asks_for_what_came_to_be_before_each_piece() {
        let r = Redactor::default();
        let came = Arc::new(RwLock::new(Vec::new()));
        let source = Arc::clone(&came);
        r.ask(move || std::mem::take(&mut *source.write().unwrap()));
        let mut stream = r.stream();
        assert_eq!(stream.push(b"fresh-token "), b"fresh-token ");
        came.write().unwrap().push(Secret::new("fresh-token"));
        assert_eq!(stream.push(b"fresh-token "), b"[redacted] ");
        assert_eq!(r.text("fresh-token"), "[redacted]", "and it is kept");
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
                prop_assert!(stream.held.len() < r.longest());
            }
            pieces.extend(stream.end());
            prop_assert_eq!(String::from_utf8_lossy(&pieces), whole.as_str());
            for secret in &secrets {
                prop_assert!(!whole.contains(secret.as_str()), "{} in {}", secret, whole);
            }
        }
    }
}
