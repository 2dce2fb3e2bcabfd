//! A certificate authority of a test's own.

use std::path::Path;
use std::process::Command;

/// An authority, `ca.pem`, and what it says of these names (`DNS:localhost`), `site.pem` and `site.key`.
#[expect(clippy::disallowed_methods, reason = "a test makes its certificates with a program")]
pub fn certificate(openssl: &Path, dir: &Path, names: &str) {
    let run = |args: &[&str]| {
        let done = Command::new(openssl).args(args).current_dir(dir).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let new =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    run(&[&new[..], &["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a test", "-days", "2"]]
        .concat());
    let names = format!("subjectAltName={names}");
    let of_site = [
        "-keyout",
        "site.key",
        "-out",
        "site.pem",
        "-subj",
        "/CN=a site",
        "-days",
        "2",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-addext",
        &names,
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ];
    run(&[&new[..], &of_site].concat());
}
