//! `@path` in a prompt. claude and grok read such a file by themselves and put it before the model,
//! which no tool asked for and, of grok's, no rule was asked about. Issues are strangers' text.

use std::borrow::Cow;

/// What stands in the place of `@`: read as one, and none to a program.
const WIDE: char = '\u{ff20}';

/// What the model is told of it; without the sign itself, which would be one.
const NOTE: &str = "\nThe sign \u{ff20} (U+FF20) in this prompt stands for the usual U+0040, which would name a file to \
     be read: write the usual one in code.\n";

/// `prompt` with nothing in it that names a file to be read.
///
/// A mention is `@` and a path, with or without blanks between them, wherever a word does not go on
/// (grok 1.0.41: behind any sign but a letter, a digit and `_`; claude 2.1.332: behind a blank). So
/// `ann@host` stays as it is.
pub fn without_mentions(prompt: &str) -> Cow<'_, str> {
    let mut plain = String::new();
    let mut from = 0;
    for (at, _) in prompt.match_indices('@') {
        if !prompt[..at].ends_with(|before: char| before.is_ascii_alphanumeric()) {
            plain.push_str(&prompt[from..at]);
            plain.push(WIDE);
            from = at + 1;
        }
    }
    if from == 0 {
        return prompt.into();
    }
    plain.push_str(&prompt[from..]);
    plain.push_str(NOTE);
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_file_is_broken_up_and_stays_readable() {
        for (prompt, plain) in [
            ("> see @/proc/self/environ", "> see ＠/proc/self/environ"),
            ("@a", "＠a"),
            ("x\n@ a", "x\n＠ a"),
            ("(@a), \"@a\" `@a` /@a =@a x.@a _@a", "(＠a), \"＠a\" `＠a` /＠a =＠a x.＠a _＠a"),
            ("\u{200b}@a a\u{301}@a é@a", "\u{200b}＠a a\u{301}＠a é＠a"),
            ("@@a x@@a", "＠＠a x@＠a"),
            ("@decorator, bump @types/node", "＠decorator, bump ＠types/node"),
        ] {
            let found = without_mentions(prompt);
            assert_eq!(found, format!("{plain}{NOTE}"));
            assert!(!NOTE.contains('@'), "a note that is one itself");
        }
    }

    #[test]
    fn addresses_stay_and_a_prompt_without_mentions_is_as_it_was() {
        for prompt in ["", "Fix it.", "mail ann@host.example, git@github.com:acme/shop 2@x Z@"] {
            assert!(matches!(without_mentions(prompt), Cow::Borrowed(same) if same == prompt));
        }
    }
}
