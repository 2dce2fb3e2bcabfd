//! Text of strangers: which characters a reader would not see.

/// Whether `c` shows nothing, or turns the direction of what follows: soft hyphens, fillers,
/// zero-width and bidi characters, line separators, variation selectors (but the one that makes
/// an emoji), musical formatting, tags. Control characters are for the caller to judge.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Text without the characters that do not show. Line ends and tabs stay, and a line break that an
/// editor shows as one becomes one.
#[must_use]
pub fn visible(text: &str) -> String {
    text.chars()
        .map(|c| if matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}') { '\n' } else { c })
        .filter(|c| !is_hidden(*c) && (!c.is_control() || matches!(c, '\n' | '\r' | '\t')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_nothing_is_hidden_and_what_shows_is_not() {
        for c in
            ['\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}', '\u{e0041}', '\u{e0100}', '\u{feff}']
        {
            assert!(is_hidden(c), "{:x}", c as u32);
        }
        for c in ['a', ' ', '\n', 'é', '漢', '🚂', '\u{fe0f}', '\u{301}'] {
            assert!(!is_hidden(c), "{:x}", c as u32);
        }
    }
}
