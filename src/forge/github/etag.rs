//! Answers kept by their ETag: asked again with it, an unchanged one costs no quota.
//!
//! Kept in memory, of one login only: what one token may see another may not.

use std::collections::HashMap;
use std::sync::Mutex;

/// All kept bodies together; the oldest go first.
const LIMIT: usize = 4 * 1024 * 1024;

/// One kept answer.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) etag: String,
    /// The part of the answer that is read, as JSON.
    pub(super) body: Vec<u8>,
    /// Whether the list had another page.
    pub(super) more: bool,
    used: u64,
}

/// The cache of one login.
#[derive(Default)]
pub(super) struct Etags(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    by_path: HashMap<String, Kept>,
    size: usize,
    uses: u64,
}

impl Etags {
    pub(super) fn find(&self, path: &str) -> Option<Kept> {
        let mut inner = self.0.lock().unwrap_or_else(|e| e.into_inner());
        inner.uses += 1;
        let used = inner.uses;
        let kept = inner.by_path.get_mut(path)?;
        kept.used = used;
        Some(kept.clone())
    }

    pub(super) fn keep(&self, path: &str, etag: &str, body: Vec<u8>, more: bool) {
        let mut inner = self.0.lock().unwrap_or_else(|e| e.into_inner());
        inner.uses += 1;
        inner.size += body.len();
        let kept = Kept { etag: etag.to_owned(), body, more, used: inner.uses };
        if let Some(old) = inner.by_path.insert(path.to_owned(), kept) {
            inner.size -= old.body.len();
        }
        while inner.size > LIMIT {
            let oldest =
                inner.by_path.iter().min_by_key(|(_, k)| k.used).map(|(path, _)| path.clone());
            let Some(gone) = oldest.and_then(|path| inner.by_path.remove(&path)) else { return };
            inner.size -= gone.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_the_cache_is_full() {
        let etags = Etags::default();
        etags.keep("a", "1", vec![0; LIMIT / 2], false);
        etags.keep("b", "2", vec![0; LIMIT / 2], true);
        assert_eq!(etags.find("a").map(|k| k.etag), Some("1".to_owned()));
        etags.keep("c", "3", vec![0; 10], false);
        assert!(etags.find("b").is_none(), "b was used longest ago");
        assert!(etags.find("a").is_some() && etags.find("c").is_some());
        etags.keep("c", "4", vec![0; 10], false);
        assert_eq!(etags.0.lock().unwrap().size, LIMIT / 2 + 10);
    }
}
