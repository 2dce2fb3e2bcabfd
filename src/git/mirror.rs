//! The bare repository relay keeps of each repository: the branch that work starts from, whole
//! blobs, fetched incrementally, repacked only under the lock that keeps everybody else out.
//!
//! No other branch is fetched: git's check refuses all that is fetched for one object of it, and
//! anybody with a right to push could make the repository unusable for every worker.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::checkout::COPY_NOTE;
use super::isolation::{ASK, Address, Command, LOCAL, TRANSFER};
use super::prune::note_use;
use super::{Commit, Git, GitError, Remote, check_branch, error, open};
use crate::model::{RepoName, RepoProblem};

/// So many packs are put together again: each fetch that brings something adds one, and each
/// costs every later read a little.
const PACKS: usize = 40;

/// relay's own copy of a repository, as of the last fetch.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub(super) git: Git,
    pub(super) paths: Paths,
    repo: RepoName,
    remote: Remote,
}

/// The files of one repository under the cache. A repository's name ends neither in `.git` nor in
/// `.lock`, so the names of two repositories do not meet.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// The bare repository.
    pub mirror: PathBuf,
    /// Shared by whoever reads or writes, exclusive for fetch, repack and making it again.
    pub lock: PathBuf,
    /// A home with the configuration that calls a path safe.
    pub home: PathBuf,
    /// Contents that the repository stores with LFS; they outlive the mirror.
    pub lfs: PathBuf,
    /// One folder a lane's copy: the worker's own index of it and unaccepted objects.
    pub runs: PathBuf,
}

impl Git {
    /// Opens or makes the mirror of `repo` and brings its `branch` up to date with `remote`. A
    /// mirror that is broken, or is of another remote, is made again.
    ///
    /// # Errors
    /// Where the remote cannot be reached, is not there, does not let this login read, or has no
    /// commit or no such branch; where git's check refuses the branch; where the disk refuses.
    pub async fn mirror(
        &self,
        repo: &RepoName,
        remote: &Remote,
        branch: &str,
    ) -> Result<Mirror, GitError> {
        check_branch(branch)?;
        let paths = Paths::of(self.cache(), repo);
        make_folder(&self.cache().join(repo.owner()))?;
        let address = Address::of(remote, &paths.home)?;
        let mirror =
            Mirror { git: self.clone(), paths, repo: repo.clone(), remote: remote.clone() };
        let _lock = mirror.lock(true).await?;
        mirror.forget_gone_copies();
        if !mirror.is_sound() {
            mirror.make_again(&address, branch).await?;
        } else if let Err(error) = mirror.fetch(&mirror.paths.mirror, &address, branch).await {
            // What no known problem explains is most likely a broken mirror.
            if !matches!(error, GitError::Failed { .. } | GitError::Objects(_)) {
                return Err(error);
            }
            tracing::warn!(%repo, %error, "the mirror is made again");
            mirror.make_again(&address, branch).await?;
        }
        mirror.repack_if_scattered().await;
        Ok(mirror)
    }

    /// The name of the branch that the remote calls its default.
    ///
    /// # Errors
    /// As [`Git::mirror`]; and where the remote's HEAD is on no branch.
    pub async fn remote_head(&self, repo: &RepoName, remote: &Remote) -> Result<String, GitError> {
        let paths = Paths::of(self.cache(), repo);
        make_folder(&self.cache().join(repo.owner()))?;
        let address = Address::of(remote, &paths.home)?;
        let args: [&OsStr; 3] = ["--symref".as_ref(), &address.url, "HEAD".as_ref()];
        let ask = Command::nowhere("ls-remote", args).talking_to(&address, ASK);
        let printed = self.run(ask).await?;
        let printed = String::from_utf8_lossy(&printed);
        let name = printed.lines().find_map(|line| {
            line.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD").map(str::to_owned)
        });
        match name {
            Some(name) => Ok(name),
            // A HEAD on a branch that is not there is not told.
            None if printed.trim().is_empty() => {
                Err(self.lacking(repo, &address, GitError::NoDefaultBranch).await)
            }
            None => Err(GitError::NoDefaultBranch),
        }
    }

    /// Why a branch was not found: the repository has none at all, or `other`.
    async fn lacking(&self, repo: &RepoName, address: &Address, other: GitError) -> GitError {
        let args: [&OsStr; 2] = ["--heads".as_ref(), &address.url];
        let ask = Command::nowhere("ls-remote", args).talking_to(address, ASK);
        match self.run(ask).await {
            Ok(heads) if heads.is_empty() => {
                let text = format!("{repo} has no commit");
                GitError::Repo { why: RepoProblem::Empty, text }
            }
            Ok(_) => other,
            Err(error) => error,
        }
    }
}

impl Mirror {
    /// The repository this is a mirror of.
    #[must_use]
    pub fn repo(&self) -> &RepoName {
        &self.repo
    }

    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The commit `branch` stood at when it was last fetched.
    ///
    /// # Errors
    /// Where it never was.
    pub fn tip(&self, branch: &str) -> Result<Commit, GitError> {
        check_branch(branch)?;
        let repo = open(&self.paths.mirror)?;
        match repo.refname_to_id(&format!("refs/heads/{branch}")) {
            Ok(oid) => Ok(oid.into()),
            Err(error) if error.code() == git2::ErrorCode::NotFound => {
                Err(GitError::NoBranch(branch.to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Fetches `branch` once more, and gives the commit that it is at now. Unlike [`Git::mirror`]
    /// it never makes the mirror again: a run's commit is in it.
    ///
    /// # Errors
    /// As [`Git::mirror`].
    pub async fn refresh(&self, branch: &str) -> Result<Commit, GitError> {
        check_branch(branch)?;
        let address = Address::of(&self.remote, &self.paths.home)?;
        let _lock = self.lock(true).await?;
        self.fetch(&self.paths.mirror, &address, branch).await?;
        self.tip(branch)
    }

    /// The name of the branch that the remote calls its default, asked now.
    ///
    /// # Errors
    /// As [`Git::remote_head`].
    pub async fn remote_head(&self) -> Result<String, GitError> {
        self.git.remote_head(&self.repo, &self.remote).await
    }

    /// Whether the mirror holds this commit: a run's work that was kept, for one.
    ///
    /// # Errors
    /// Where the mirror cannot be read.
    pub fn holds(&self, commit: &Commit) -> Result<bool, GitError> {
        let repo = open(&self.paths.mirror)?;
        Ok(repo.find_commit(commit.oid()?).is_ok())
    }

    /// Removes what the worker kept about the copy that stood at `dest`: its index, and what a
    /// snapshot wrote. The run is over.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub async fn forget_copy(&self, dest: &Path) -> Result<(), GitError> {
        let Some(name) = dest.file_name() else { return Ok(()) };
        let folder = self.paths.runs.join(name);
        blocking(dest, move || remove_folder(&folder)).await
    }

    /// Waits for the mirror's lock; it is held until the file is dropped.
    pub(super) async fn lock(&self, exclusive: bool) -> Result<File, GitError> {
        let path = self.paths.lock.clone();
        let wait = move || -> Result<File, GitError> {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(GitError::disk(&path))?;
            let taken = if exclusive { file.lock() } else { file.lock_shared() };
            taken.map_err(GitError::disk(&path))?;
            if exclusive {
                note_use(&file);
            }
            Ok(file)
        };
        blocking(&self.paths.lock, wait).await
    }

    /// Notes that an object could not be read, so that the next fetch makes the mirror again.
    pub(super) fn note_broken(&self) {
        if let Err(error) = fs::write(self.paths.mirror.join(BROKEN), "") {
            tracing::warn!(repo = %self.repo, %error, "the mirror could not be marked as broken");
        }
    }

    fn is_sound(&self) -> bool {
        let mirror = &self.paths.mirror;
        fs::read_to_string(mirror.join(REMOTE)).is_ok_and(|url| url == self.remote.url)
            && !mirror.join(BROKEN).exists()
            && open(mirror).is_ok()
    }

    /// Makes the mirror in a folder beside it, so that an interrupted first fetch is never taken
    /// for a mirror.
    async fn make_again(&self, address: &Address, branch: &str) -> Result<(), GitError> {
        let (mirror, new) = (&self.paths.mirror, self.paths.mirror.with_extension("git.new"));
        remove_folder(&new)?;
        let args: [&OsStr; 4] =
            ["--bare".as_ref(), "--quiet".as_ref(), "--template=".as_ref(), new.as_os_str()];
        self.git.run(Command::anywhere("init", args)).await?;
        let note = new.join(REMOTE);
        fs::write(&note, &self.remote.url).map_err(GitError::disk(&note))?;
        if let Err(error) = self.fetch(&new, address, branch).await {
            let _ = remove_folder(&new);
            return Err(error);
        }
        remove_folder(mirror)?;
        fs::rename(&new, mirror).map_err(GitError::disk(mirror))
    }

    async fn fetch(&self, into: &Path, address: &Address, branch: &str) -> Result<(), GitError> {
        remove_leftovers(into);
        make_way(into, branch)?;
        let args = [
            "--no-tags",
            "--force",
            "--no-write-fetch-head",
            // A repository on this disk may itself be a shallow clone.
            "--update-shallow",
        ];
        let mut fetch = Command::in_repo(into, "fetch", args).talking_to(address, TRANSFER);
        fetch.args.push(address.url.clone());
        fetch.args.push(format!("+refs/heads/{branch}:refs/heads/{branch}").into());
        let output = self.git.try_run(fetch).await?;
        // git gets by without a pack it cannot read, and says so; the lane's git would as well.
        let said = error::text_of(&output);
        let is_whole = output.code == Some(0) && !said.lines().any(|l| l.starts_with("error: "));
        if is_whole {
            return Ok(());
        }
        if said.to_lowercase().contains(NOT_THERE) {
            let other = GitError::NoBranch(branch.to_owned());
            return Err(self.git.lacking(&self.repo, address, other).await);
        }
        Err(GitError::told("fetch", &output))
    }

    /// Best effort: a git before 2.32 cannot, and reads on with many packs.
    async fn repack_if_scattered(&self) {
        let packs = fs::read_dir(self.paths.mirror.join("objects/pack")).map_or(0, |entries| {
            entries.flatten().filter(|e| e.path().extension() == Some("pack".as_ref())).count()
        });
        if packs <= PACKS {
            return;
        }
        // By size of packs and not by what is reachable: commits that a run still stands on, or
        // that were kept, stay.
        let mut repack =
            Command::in_repo(&self.paths.mirror, "repack", ["--geometric=2", "-d", "--quiet"]);
        repack.time = LOCAL;
        if let Err(error) = self.git.run(repack).await {
            tracing::debug!(repo = %self.repo, %error, "the mirror was not repacked");
        }
    }

    /// Removes what a killed worker left of copies that are gone.
    fn forget_gone_copies(&self) {
        let Ok(entries) = fs::read_dir(&self.paths.runs) else { return };
        for entry in entries.flatten() {
            let gone = fs::read(entry.path().join(COPY_NOTE))
                .map_or(true, |copy| !Path::new(OsStr::from_bytes(&copy)).exists());
            if gone {
                let _ = remove_folder(&entry.path());
            }
        }
    }
}

/// Holds the address the mirror was made from.
const REMOTE: &str = "relay-remote";
/// Says that the mirror has to be made again.
const BROKEN: &str = "relay-broken";
/// What git says of a branch that the remote does not have.
const NOT_THERE: &str = "couldn't find remote ref";

impl Paths {
    pub fn of(cache: &Path, repo: &RepoName) -> Self {
        let in_owner =
            |suffix: &str| cache.join(repo.owner()).join(format!("{}{suffix}", repo.name()));
        Self {
            mirror: in_owner(".git"),
            lock: in_owner(".lock"),
            home: in_owner(".git.home"),
            lfs: in_owner(".git.lfs"),
            runs: in_owner(".git.runs"),
        }
    }
}

/// Removes branches of before that cannot stand beside `branch`: a name is a branch or a folder of
/// them. What the mirror has of their commits stays.
fn make_way(mirror: &Path, branch: &str) -> Result<(), GitError> {
    let repo = open(mirror)?;
    let above = Path::new(branch).ancestors().skip(1).filter_map(Path::to_str);
    for name in above.filter(|name| !name.is_empty()) {
        if let Ok(mut old) = repo.find_reference(&format!("refs/heads/{name}")) {
            old.delete()?;
        }
    }
    for old in repo.references_glob(&format!("refs/heads/{branch}/*"))? {
        old?.delete()?;
    }
    Ok(())
}

/// Removes what a killed fetch left: half a pack, and locks that nobody holds any more. Called
/// under the exclusive lock.
fn remove_leftovers(mirror: &Path) {
    let remove = |folder: &Path, is_leftover: &dyn Fn(&str) -> bool| {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_leftover) {
                let _ = fs::remove_file(entry.path());
            }
        }
    };
    remove(&mirror.join("objects/pack"), &|name| name.starts_with("tmp_"));
    let mut folders = vec![mirror.to_owned(), mirror.join("refs")];
    while let Some(folder) = folders.pop() {
        remove(&folder, &|name| name.ends_with(".lock"));
        if folder != mirror {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(
                entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()),
            );
        }
    }
}

/// Makes a folder that only this user can look into, with the folders above it.
pub(super) fn make_folder(path: &Path) -> Result<(), GitError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(GitError::disk(path))
}

/// Removes a folder of relay's; one that is not there is removed.
pub(super) fn remove_folder(path: &Path) -> Result<(), GitError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::disk(path)(error)),
        _ => Ok(()),
    }
}

/// Runs work that blocks on the disk outside the runtime's own threads.
pub(super) async fn blocking<T: Send + 'static>(
    about: &Path,
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(GitError::disk(about)(io::Error::other(error))),
    }
}
