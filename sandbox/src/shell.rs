//! A shell that runs each of a program's commands in a sandbox of the command's own, for a vendor
//! that brings none which would keep its login from what it runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the file has to be called: a vendor looks at a shell's name for how to speak to it.
pub const SHELL: &str = "bash";

/// The text of that shell: bash, where `hidden` is an empty folder, no process of the vendor's is
/// there, `unset` are no variables, and everything a command started ends with it.
///
/// It has none of root's capabilities, so that root cannot take it down from inside either.
#[must_use]
pub fn shell(bwrap: &Path, hidden: &Path, unset: &[&str]) -> Vec<u8> {
    let mut text = b"#!/bin/sh\n".to_vec();
    for name in unset {
        text.extend(format!("unset {name}\n").bytes());
    }
    text.extend(b"exec ");
    text.extend(quoted(bwrap.as_os_str()));
    text.extend(
        b" --die-with-parent --unshare-pid --cap-drop ALL --dev-bind / / --proc /proc --tmpfs ",
    );
    text.extend(quoted(hidden.as_os_str()));
    text.extend(b" -- bash \"$@\"\n");
    text
}

/// As one word of a shell's.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend(br"'\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shells_words_are_words() {
        let text = shell(Path::new("/usr/bin/bwrap"), Path::new("/it's $HOME"), &["A", "B"]);
        let expected = "#!/bin/sh\nunset A\nunset B\nexec '/usr/bin/bwrap' --die-with-parent \
                        --unshare-pid --cap-drop ALL --dev-bind / / --proc /proc \
                        --tmpfs '/it'\\''s $HOME' -- bash \"$@\"\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
