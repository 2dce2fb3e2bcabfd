//! Cutting text to fit, on character boundaries.

/// The longest beginning of `text` that has at most `bytes` bytes.
pub fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// `text` as one line of at most `chars` characters; what is left out shows as `…`.
pub fn one_line(text: &str, chars: usize) -> String {
    let spaced = text.split_whitespace().flat_map(|word| word.chars().chain([' ']));
    let mut line: Vec<char> = spaced.take(chars + 2).collect();
    line.pop_if(|last| *last == ' ');
    if line.len() > chars {
        line.truncate(chars.saturating_sub(1));
        line.push('…');
    }
    line.into_iter().collect()
}

/// `text` cut to `bytes`, saying so in its last line where something was left out.
pub fn cut(text: &str, bytes: usize) -> String {
    const MARK: &str = "\n[cut]";
    if text.len() <= bytes {
        return text.to_owned();
    }
    format!("{}{MARK}", head(text, bytes.saturating_sub(MARK.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_short_and_whole_characters() {
        assert_eq!(one_line("  a \n\t b  ", 10), "a b");
        assert_eq!(one_line("ééééé", 5), "ééééé");
        assert_eq!(one_line("éééééé", 5), "éééé…");
        assert_eq!(one_line("ab cd ef", 5), "ab c…");
        assert_eq!(one_line("ab cd", 5), "ab cd");
        assert_eq!(one_line(&"x ".repeat(500), 20).chars().count(), 20);
        assert_eq!(one_line("", 5), "");
    }

    #[test]
    fn a_cut_text_says_so_and_fits() {
        assert_eq!(cut("short", 100), "short");
        let long = cut(&"é".repeat(100), 50);
        assert!(long.len() <= 50 && long.starts_with('é') && long.ends_with("\n[cut]"));
        assert_eq!(cut("x", 1), "x");
    }
}
