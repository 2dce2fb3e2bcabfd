//! Repositories made by the plain `git` program, for tests to work on.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where this machine's git is.
pub fn git_program() -> PathBuf {
    which::which("git").expect("git is needed to test")
}

/// PATH of this test.
pub fn path_env() -> std::ffi::OsString {
    #[expect(clippy::disallowed_methods, reason = "a test starts programs as they are installed")]
    std::env::var_os("PATH").unwrap_or_default()
}

/// Runs git in `dir` with nobody's configuration, and hands back what it printed, trimmed.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = command(dir, args).output().expect("git runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?} in {}: {stderr}", dir.display());
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Whether git in `dir` ends well.
pub fn git_succeeds(dir: &Path, args: &[&str]) -> bool {
    command(dir, args).output().expect("git runs").status.success()
}

fn command(dir: &Path, args: &[&str]) -> Command {
    #[expect(clippy::disallowed_methods, reason = "a test makes its repositories with plain git")]
    let mut command = Command::new(git_program());
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", path_env())
        .env("HOME", "/dev/null")
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "Ada")
            .env(format!("GIT_{who}_EMAIL"), "ada@example.com")
            .env(format!("GIT_{who}_DATE"), "1700000000 +0000");
    }
    command
}

/// A bare repository with the branch `main`, and a clone a person works in.
pub struct Origin {
    /// The bare repository, `<root>/<name>.git`.
    pub bare: PathBuf,
    /// The person's clone.
    pub person: PathBuf,
}

impl Origin {
    /// Makes `<root>/<name>.git` with one commit that has `files`.
    pub fn new(root: &Path, name: &str, files: &[(&str, &str)]) -> Self {
        let bare = root.join(format!("{name}.git"));
        let person = root.join(format!("{name}.person"));
        let [bare_text, person_text] = [&bare, &person].map(|p| p.to_str().expect("utf-8"));
        git(root, &["init", "-q", "--bare", "-b", "main", bare_text]);
        git(&bare, &["config", "http.receivepack", "true"]);
        git(root, &["init", "-q", "-b", "main", person_text]);
        git(&person, &["remote", "add", "origin", bare_text]);
        let origin = Self { bare, person };
        origin.commit("main", files);
        origin
    }

    /// The person commits `files` to `branch` and pushes it; the commit's id.
    pub fn commit(&self, branch: &str, files: &[(&str, &str)]) -> String {
        if git_succeeds(&self.person, &["rev-parse", "-q", "--verify", "HEAD"]) {
            git(&self.person, &["checkout", "-q", "-B", branch]);
        }
        for (path, content) in files {
            let path = self.person.join(path);
            std::fs::create_dir_all(path.parent().expect("inside")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        git(&self.person, &["add", "-A"]);
        git(&self.person, &["commit", "-q", "--allow-empty", "-m", "by a person"]);
        git(&self.person, &["push", "-q", "origin", branch]);
        git(&self.person, &["rev-parse", "HEAD"])
    }

    /// What a ref of the bare repository points to.
    pub fn at(&self, name: &str) -> Option<String> {
        git_succeeds(&self.bare, &["rev-parse", "-q", "--verify", name])
            .then(|| git(&self.bare, &["rev-parse", name]))
    }
}
