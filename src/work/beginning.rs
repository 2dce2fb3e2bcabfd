//! The beginning of a text that somebody else wrote, and that may be as long as texts get.

/// So many characters are enough to know it by.
const CHARS: usize = 200;

/// The beginning, with a sign where there is more.
pub(super) fn beginning(text: &str) -> String {
    match text.char_indices().nth(CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_cut_between_characters_and_says_so() {
        let whole = "ä".repeat(CHARS);
        assert_eq!(beginning(&whole), whole);
        assert_eq!(beginning(&format!("{whole}x")), format!("{whole}…"));
    }
}
