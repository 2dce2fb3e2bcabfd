//! Files that a repository stores with LFS: their contents are put into the copy, taken out of it
//! again by the snapshot, and are at the host before the branch is.
//!
//! git-lfs is run as a filter with settings of the worker's own. Contents are fetched and uploaded
//! beside the remote's own address and nowhere else: an `.lfsconfig` that names another host is
//! refused, since that host would be sent what the repository holds, and git-lfs is told the
//! address in a way that no `.lfsconfig` can overrule. Contents lie beside the mirror, so that they
//! outlive it; no lane sees them there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::checkout::{Copy, INDEX};
use super::isolation::{ASK, Address, Command, TRANSFER, joined};
use super::mirror::{Mirror, blocking, make_folder};
use super::porcelain::{Refusal, refusal};
use super::{Commit, Git, GitError, Remote, error, open};
use crate::model::{PushProblem, RepoProblem};

/// The filter as git is told of it, and as the lane's own git is.
const FILTER: [(&str, &str); 4] = [
    ("clean", "git-lfs clean -- %f"),
    ("smudge", "git-lfs smudge -- %f"),
    ("process", "git-lfs filter-process"),
    ("required", "true"),
];
/// What an `.lfsconfig` may say of these does not count: git's own settings stand above it.
const OVERRULED: [&str; 8] = [
    "lfs.fetchinclude=",
    "lfs.fetchexclude=",
    "lfs.skipdownloaderrors=false",
    "lfs.allowincompletepush=false",
    "lfs.locksverify=false",
    "lfs.basictransfersonly=true",
    "lfs.transfer.maxretries=2",
    "lfs.transfer.maxretrydelay=1",
];
/// The longest text that is a pointer (git-lfs, docs/spec.md).
const POINTER: usize = 1024;

impl Git {
    /// Whether git-lfs can be run.
    pub(super) async fn has_lfs(&self) -> bool {
        let ask = || async {
            let mut ask = Command::nowhere("lfs", ["version"]);
            ask.time = ASK;
            self.try_run(ask).await.is_ok_and(|output| output.code == Some(0))
        };
        *self.lfs().get_or_init(ask).await
    }
}

impl Mirror {
    /// Puts contents in place of the pointers at `paths` (each ended by a zero byte).
    pub(super) async fn fill_in_lfs(&self, copy: &Copy, paths: Vec<u8>) -> Result<(), GitError> {
        if !self.git.has_lfs().await {
            let first = paths.split(|&b| b == 0).next().unwrap_or_default();
            let first = String::from_utf8_lossy(first);
            let text = format!("{first} is stored with LFS, and git-lfs is not on this machine");
            return Err(GitError::Repo { why: RepoProblem::NeedsLfs, text });
        }
        self.fetch_contents(copy.base(), &paths).await?;
        // No lane has been here yet: these are the files as they were checked out, and git writes
        // none again that looks as it did.
        for path in paths.split(|&b| b == 0).filter(|path| !path.is_empty()) {
            let path = copy.dir().join(OsStr::from_bytes(path));
            fs::remove_file(&path).map_err(GitError::disk(&path))?;
        }
        let mut checkout = copy.git(INDEX, "checkout-index", ["-f", "-u", "-z", "--stdin"]);
        checkout.stdin = paths;
        self.filter_lfs(&mut checkout);
        self.git.run(checkout).await?;
        let config = copy.dir().join(".git/config");
        let mut text = fs::read_to_string(&config).map_err(GitError::disk(&config))?;
        text.push_str("[filter \"lfs\"]\n");
        text.extend(FILTER.iter().map(|(name, value)| format!("\t{name} = {value}\n")));
        fs::write(&config, text).map_err(GitError::disk(&config))
    }

    /// Lets a command that reads or writes the copy's files run git-lfs on those that ask for it.
    pub(super) fn filter_lfs(&self, command: &mut Command<'_>) {
        let filter = FILTER.iter().map(|(name, value)| format!("filter.lfs.{name}={value}").into());
        self.set(command, filter);
    }

    /// Uploads what `commit` adds to `base`. `None` where the host has all of it then.
    ///
    /// # Errors
    /// Where git or the disk of this machine refuses.
    pub async fn upload_lfs(
        &self,
        remote: &Remote,
        base: &Commit,
        commit: &Commit,
    ) -> Result<Option<(PushProblem, String)>, GitError> {
        let (folder, ids) = (self.paths.mirror.clone(), [base.oid()?, commit.oid()?]);
        let new = blocking(&self.paths.mirror, move || added(&open(&folder)?, ids)).await?;
        let store = self.paths.lfs.clone();
        // A text that looks like a pointer and is none has no content here.
        let here: Vec<String> =
            new.into_keys().filter(|oid| place(&store, oid).is_file()).collect();
        if here.is_empty() {
            return Ok(None);
        }
        if let Some(theirs) = store_of(&remote.url) {
            for oid in here {
                copy_content(&place(&store, &oid), &place(&theirs, &oid))?;
            }
            return Ok(None);
        }
        let endpoint = self.endpoint(commit).await?;
        let address = Address::of(&Remote { url: endpoint, ..remote.clone() }, &self.paths.home)?;
        let args = ["push", "--object-id", &remote.url, "--stdin"];
        let mut push = Command::in_repo(&self.paths.mirror, "lfs", args);
        push.stdin = here.iter().map(|oid| format!("{oid}\n")).collect::<String>().into_bytes();
        self.point_at(&mut push, &address);
        let output = self.git.try_run(push.talking_to(&address, TRANSFER)).await?;
        if output.code == Some(0) {
            return Ok(None);
        }
        let Refusal { why, text } = refusal(&error::text_of(&output));
        let why = if why == PushProblem::Other { PushProblem::LfsRefused } else { why };
        Ok(Some((why, text)))
    }

    /// Brings the contents of `base` at `paths` here, where they are not yet.
    async fn fetch_contents(&self, base: &Commit, paths: &[u8]) -> Result<(), GitError> {
        let endpoint = self.endpoint(base).await?;
        let (folder, id, paths) = (self.paths.mirror.clone(), base.oid()?, paths.to_vec());
        let wanted = blocking(&self.paths.mirror, move || pointers(&open(&folder)?, id, &paths));
        let store = &self.paths.lfs;
        let missing: Vec<(String, String)> =
            wanted.await?.into_iter().filter(|(oid, _)| !place(store, oid).is_file()).collect();
        let Some((_, first)) = missing.first() else { return Ok(()) };
        if let Some(theirs) = store_of(&self.remote().url) {
            for (oid, path) in &missing {
                if !place(&theirs, oid).is_file() {
                    return Err(missing_content(path, &theirs.display().to_string()));
                }
                copy_content(&place(&theirs, oid), &place(store, oid))?;
            }
            return Ok(());
        }
        let remote = Remote { url: endpoint, ..self.remote().clone() };
        let address = Address::of(&remote, &self.paths.home)?;
        let args = ["fetch", self.remote().url.as_str(), base.as_str()];
        let mut fetch = Command::in_repo(&self.paths.mirror, "lfs", args);
        self.point_at(&mut fetch, &address);
        let output = self.git.try_run(fetch.talking_to(&address, TRANSFER)).await?;
        if output.code == Some(0) {
            return Ok(());
        }
        match GitError::told("lfs fetch", &output) {
            GitError::Failed { text, .. } => Err(missing_content(first, &text)),
            GitError::Repo { why: RepoProblem::NotFound, text } => {
                Err(missing_content(first, &text))
            }
            other => Err(other),
        }
    }

    /// The address of the remote's LFS, which has to be beside the remote itself.
    async fn endpoint(&self, commit: &Commit) -> Result<String, GitError> {
        let remote = self.remote().url.trim_end_matches('/');
        let suffix = if remote.ends_with(".git") { "/info/lfs" } else { ".git/info/lfs" };
        let beside = format!("{remote}{suffix}");
        if self.file_at(commit, ".lfsconfig")?.is_none() {
            return Ok(beside);
        }
        let blob = format!("--blob={commit}:.lfsconfig");
        let args = ["-z", &blob, "--get-regexp", r"^(lfs|remote\..*)\.(lfs)?(push)?url$"];
        let asked = self.git.try_run(Command::in_repo(&self.paths.mirror, "config", args)).await?;
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        let elsewhere = |text: String| GitError::Repo { why: RepoProblem::LfsElsewhere, text };
        if !matches!(asked.code, Some(0 | 1)) {
            return Err(elsewhere(".lfsconfig cannot be read".to_owned()));
        }
        let mut named = None;
        for entry in said.split('\0').filter(|entry| !entry.is_empty()) {
            let (key, url) = entry.split_once('\n').unwrap_or((entry, ""));
            if origin(url).is_none() || origin(url) != origin(remote) {
                return Err(elsewhere(format!(
                    ".lfsconfig says {key} = {}, which is not where the repository is",
                    super::isolation::without_login(url)
                )));
            }
            if key == "lfs.url" {
                named = Some(url.trim_end_matches('/').to_owned());
            }
        }
        Ok(named.unwrap_or(beside))
    }

    /// Tells git-lfs where to, above all that a repository could say.
    fn point_at(&self, command: &mut Command<'_>, address: &Address) {
        let url = |key: &str| {
            let mut setting = std::ffi::OsString::from(key);
            setting.push(&address.url);
            setting
        };
        self.set(command, [url("lfs.url="), url("lfs.pushurl=")]);
    }

    fn set(
        &self,
        command: &mut Command<'_>,
        settings: impl IntoIterator<Item = std::ffi::OsString>,
    ) {
        let all = OVERRULED.iter().map(|&setting| setting.into());
        let all = all.chain([joined("lfs.storage=", &self.paths.lfs)]).chain(settings);
        command.args.splice(0..0, all.flat_map(|setting| ["-c".into(), setting]));
    }
}

/// What a pointer names: the SHA-256 of the content, in hex.
pub(super) fn pointer(blob: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(blob.get(..blob.len().min(POINTER))?).ok()?;
    let rest = text.strip_prefix("version https://git-lfs.github.com/spec/v1\n")?;
    let oid = rest.lines().find_map(|line| line.strip_prefix("oid sha256:"))?;
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (oid.len() == 64 && oid.bytes().all(is_hex)).then(|| oid.to_owned())
}

/// The contents that `paths` of a commit name, each with its path.
fn pointers(
    repo: &git2::Repository,
    commit: git2::Oid,
    paths: &[u8],
) -> Result<Vec<(String, String)>, GitError> {
    let tree = repo.find_commit(commit)?.tree()?;
    let mut found = Vec::new();
    for path in paths.split(|&b| b == 0).filter(|path| !path.is_empty()) {
        let entry = tree.get_path(Path::new(OsStr::from_bytes(path)))?;
        let Ok(blob) = repo.find_blob(entry.id()) else { continue };
        if let Some(oid) = pointer(blob.content()) {
            found.push((oid, String::from_utf8_lossy(path).into_owned()));
        }
    }
    Ok(found)
}

/// The contents that are named by files which differ from the base, each with its path.
fn added(
    repo: &git2::Repository,
    [base, commit]: [git2::Oid; 2],
) -> Result<BTreeMap<String, String>, GitError> {
    let (base, new) = (repo.find_commit(base)?.tree()?, repo.find_commit(commit)?.tree()?);
    let mut options = git2::DiffOptions::new();
    options.skip_binary_check(true).context_lines(0);
    let diff = repo.diff_tree_to_tree(Some(&base), Some(&new), Some(&mut options))?;
    let mut found = BTreeMap::new();
    for file in diff
        .deltas()
        .map(|delta| (delta.new_file().id(), delta.new_file().path().map(Path::to_owned)))
    {
        let is_small = repo.odb()?.read_header(file.0).is_ok_and(|(size, _)| size <= POINTER);
        let Some(blob) = is_small.then(|| repo.find_blob(file.0).ok()).flatten() else { continue };
        if let Some(oid) = pointer(blob.content()) {
            found.insert(oid, file.1.unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// Where a store keeps a content.
pub(super) fn place(store: &Path, oid: &str) -> PathBuf {
    store.join("objects").join(&oid[..2]).join(&oid[2..4]).join(oid)
}

/// The store of a repository on this disk.
fn store_of(url: &str) -> Option<PathBuf> {
    let path = Path::new(url).is_absolute().then(|| Path::new(url))?;
    let none: [&Path; 0] = [];
    let repo = git2::Repository::open_ext(path, git2::RepositoryOpenFlags::NO_SEARCH, none).ok()?;
    Some(repo.commondir().join("lfs"))
}

fn copy_content(from: &Path, to: &Path) -> Result<(), GitError> {
    if to.is_file() {
        return Ok(());
    }
    to.parent().map_or(Ok(()), make_folder)?;
    let unfinished = to.with_extension("part");
    fs::copy(from, &unfinished).map_err(GitError::disk(&unfinished))?;
    fs::rename(&unfinished, to).map_err(GitError::disk(to))
}

fn missing_content(path: &str, text: &str) -> GitError {
    let text = format!("the content of {path} is not to be had: {text}");
    GitError::Repo { why: RepoProblem::LfsMissing, text }
}

/// Scheme, host and port; `None` for what is no http address, or one with a login in it.
fn origin(url: &str) -> Option<String> {
    // Programs do not agree on where such an address leads.
    if url.contains(['\\', ' ']) || url.chars().any(char::is_control) {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_plain = matches!(scheme, "http" | "https") && !host.is_empty() && !host.contains('@');
    is_plain.then(|| format!("{scheme}://{}", host.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_known_by_its_form() {
        let oid = "ab".repeat(32);
        let text =
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 5\n");
        assert_eq!(pointer(text.as_bytes()), Some(oid.clone()));
        for other in ["", "version https://git-lfs.github.com/spec/v1\n", &text[..90], "\u{0}"] {
            assert_eq!(pointer(other.as_bytes()), None, "{other}");
        }
        let outside = text.replace(&oid, &format!("../{}", &oid[3..]));
        assert_eq!(pointer(outside.as_bytes()), None);
    }

    #[test]
    fn another_host_is_another_place() {
        let here = origin("https://github.com/acme/shop.git");
        assert_eq!(origin("https://GitHub.com/acme/shop.git/info/lfs"), here);
        for other in [
            "https://github.com.evil.example/x",
            "https://github.com:8443/x",
            "http://github.com/x",
            r"https://github.com\@evil.example/x",
            "https://github.com@evil.example/x",
            "ssh://github.com/x",
            "file:///srv/x",
            "/srv/x",
            "",
        ] {
            assert!(origin(other).is_none() || origin(other) != here, "{other}");
        }
    }
}
