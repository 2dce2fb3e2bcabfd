//! What a script is run by. A vendor's program from npm can be one that `node` runs, and a service
//! has a shorter PATH than the shell in which it was installed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The first line that the kernel reads of a script, at most (`BINPRM_BUF_SIZE`).
const LINE: u64 = 256;

/// The program that `script` asks for and that is not on `path`; `None` where it is no script, or
/// all is there.
#[must_use]
pub fn missing(script: &Path, path: Option<&OsStr>) -> Option<String> {
    let mut start = Vec::new();
    File::open(script).ok()?.take(LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    // As the kernel splits it: the sign that Windows leaves at the end of a line is part of a name.
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let interpreter = words.next()?;
    if !Path::new(interpreter).is_file() {
        return Some(interpreter.escape_debug().to_string());
    }
    if Path::new(interpreter).file_name() != Some(OsStr::new("env")) {
        return None;
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    which::which_in(name, path, "/").is_err().then(|| name.escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_asks_for_is_looked_for_where_it_would_be() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str, path: &str| {
            let script = folder.path().join("program");
            std::fs::write(&script, text).unwrap();
            missing(&script, Some(OsStr::new(path)))
        };
        let launcher = "#!/usr/bin/env node\nimport x\n";
        assert_eq!(of(launcher, "/nowhere").as_deref(), Some("node"));
        assert_eq!(of("#!/usr/bin/env -S node --x\n", "/nowhere").as_deref(), Some("node"));
        assert_eq!(
            of("#!/opt/node/bin/node\n", "/usr/bin:/bin").as_deref(),
            Some("/opt/node/bin/node")
        );
        assert_eq!(of("#!/usr/bin/env sh\n", "/usr/bin:/bin"), None);
        assert_eq!(of("#!/bin/sh\n", "/nowhere"), None);
        assert_eq!(of("#!/bin/sh\r\n", "/bin").as_deref(), Some("/bin/sh\\r"));
        assert_eq!(of("#! /usr/bin/env\tsh\r\n", "/bin").as_deref(), Some("sh\\r"));
        for binary in ["\x7fELF", "", "#!"] {
            assert_eq!(of(binary, "/nowhere"), None, "{binary:?}");
        }
        assert_eq!(missing(Path::new("/nowhere/at/all"), None), None);
    }
}
