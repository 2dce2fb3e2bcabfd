//! The lane's copy: its own complete `.git`, sharing no file with the mirror, and the worker's
//! own index of it kept where the lane cannot write.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::isolation::{Command, joined};
use super::mirror::{Mirror, blocking, make_folder, remove_folder};
use super::remove::remove_tree;
use super::stubs::excluding;
use super::{Commit, GitError, check_branch, open};
use crate::model::RepoProblem;

/// A file of the copy's folder that names the copy.
pub(super) const COPY_NOTE: &str = "copy";

/// A checked-out copy for one run of a lane. Dropping it removes nothing: see [`Copy::remove`].
#[derive(Debug)]
pub struct Copy {
    /// Where the lane works.
    dir: PathBuf,
    /// A bare repository of the worker's beside the mirror, with the mirror's objects as
    /// alternates: it holds the index of this copy, what to exclude from the next snapshot, and
    /// the objects of a snapshot until it is accepted.
    pub(super) folder: PathBuf,
    base: Commit,
    /// Where the base has submodules; their folders are empty in the copy.
    pub(super) submodules: Vec<PathBuf>,
    /// Names at its top that a sandbox may leave behind.
    pub(super) stubs: Vec<String>,
    /// The folder itself, whatever stands at its path later. While it is open the disk gives its
    /// number to nothing else.
    opened: fs::File,
}

impl Copy {
    /// Where the lane works.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The commit it was checked out from.
    #[must_use]
    pub fn base(&self) -> &Commit {
        &self.base
    }

    /// Whether the folder at the copy's path is the one that was checked out: a lane may have put
    /// a link, another folder or nothing in its place, or in the place of a folder above.
    ///
    /// # Errors
    /// [`RepoProblem::CheckoutFailed`] where it is not: the lane's doing, and another run would
    /// spend the same again.
    pub(super) fn check_identity(&self) -> Result<(), GitError> {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let opened = identity(self.opened.metadata().map_err(GitError::disk(&self.dir))?);
        let found = fs::symlink_metadata(&self.dir).map(identity);
        match found {
            Ok(found) if found == opened => return Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(GitError::disk(&self.dir)(error));
            }
            _ => {}
        }
        let what = if found.is_ok() { "put something else" } else { "left no folder" };
        let text = format!("the lane {what} at {}", self.dir.display());
        Err(GitError::Repo { why: RepoProblem::CheckoutFailed, text })
    }

    /// Removes the copy and what the worker kept about it, also folders that the lane made
    /// unreadable. Nothing of the run may be alive any more.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub async fn remove(self) -> Result<(), GitError> {
        let Self { dir, folder, .. } = self;
        blocking(&dir.clone(), move || {
            remove_tree(&dir).map_err(GitError::disk(&dir))?;
            remove_folder(&folder)
        })
        .await
    }

    /// `git` on the copy with the worker's own repository and the index at `index`.
    pub(super) fn git<S: AsRef<OsStr>>(
        &self,
        index: &str,
        name: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> Command<'static> {
        let mut command = Command::in_repo(&self.folder, name, args);
        command.args.insert(1, joined("--work-tree=", &self.dir));
        command.env.push(("GIT_INDEX_FILE", self.folder.join(index).into()));
        command
    }
}

impl Mirror {
    /// Checks `base` out to `dest` (made by this call; an empty folder is taken) on a new branch
    /// `branch`. `stubs` are names at the top of the copy that a sandbox covers and may leave
    /// behind: the lane's git ignores them, and a snapshot has only what is not empty there. Submodules are not checked out.
    ///
    /// # Errors
    /// Where `dest` is in use, the disk refuses, an object of the mirror is broken
    /// ([`RepoProblem::CheckoutFailed`]; the next fetch makes the mirror again), or what is stored
    /// with LFS is not to be had. Nothing is left behind then.
    pub async fn checkout(
        &self,
        base: &Commit,
        branch: &str,
        dest: &Path,
        stubs: &[&str],
    ) -> Result<Copy, GitError> {
        check_branch(branch)?;
        let name = dest.file_name().ok_or_else(|| GitError::Disk {
            path: dest.to_owned(),
            source: std::io::ErrorKind::InvalidInput.into(),
        })?;
        let _lock = self.lock(false).await?;
        make_folder(dest)?;
        if fs::read_dir(dest).map_err(GitError::disk(dest))?.next().is_some() {
            let source = std::io::ErrorKind::DirectoryNotEmpty.into();
            return Err(GitError::Disk { path: dest.to_owned(), source });
        }
        let opened = fs::File::open(dest).map_err(GitError::disk(dest))?;
        let copy = Copy {
            dir: dest.to_owned(),
            folder: self.paths.runs.join(name),
            base: base.clone(),
            submodules: Vec::new(),
            stubs: stubs.iter().map(|&stub| stub.to_owned()).collect(),
            opened,
        };
        match self.fill(&copy, branch).await {
            Ok(submodules) => Ok(Copy { submodules, ..copy }),
            Err(error) => {
                let _ = copy.remove().await;
                Err(error)
            }
        }
    }

    /// Fills the copy, and says where its submodules are.
    async fn fill(&self, copy: &Copy, branch: &str) -> Result<Vec<PathBuf>, GitError> {
        remove_folder(&copy.folder)?;
        let exclude = excluding(copy.stubs.iter().map(String::as_str));
        write_worker_folder(copy, &self.paths.mirror)?;
        let dot_git = copy.dir.join(".git");
        write_lane_repository(&dot_git, &copy.base, branch, &exclude, &copy.folder)?;
        let (from, to) = (self.paths.mirror.join("objects"), dot_git.join("objects"));
        let objects = blocking(&copy.dir, move || copy_objects(&from, &to));
        let files = self.check_out_files(copy);
        tokio::try_join!(objects, files)?;
        let (index, mirror) = (copy.folder.join(INDEX), self.paths.mirror.clone());
        let found = blocking(&copy.folder, move || read_index(&index, &mirror)).await?;
        if found.names_lfs {
            let listed = copy.git(INDEX, "ls-files", ["-z", "--", ":(attr:filter=lfs)"]);
            let listed = self.git.run(listed).await?;
            if !listed.is_empty() {
                self.fill_in_lfs(copy, listed).await?;
            }
        }
        // The lane's git sees the same files, so it can have the same index: `git status` is
        // clean at once and reads no file.
        copy_file(&copy.folder.join(INDEX), &dot_git.join("index"))?;
        self.leave_submodules(copy, found.submodules).await
    }

    async fn check_out_files(&self, copy: &Copy) -> Result<(), GitError> {
        let command = copy.git(INDEX, "read-tree", ["-m", "-u", copy.base.as_str()]);
        match self.git.run(command).await {
            Err(GitError::Failed { text, .. }) => {
                self.note_broken();
                Err(GitError::Repo { why: RepoProblem::CheckoutFailed, text })
            }
            other => other.map(drop),
        }
    }

    /// git then never looks into a submodule's folder, whatever a lane puts there.
    async fn leave_submodules(
        &self,
        copy: &Copy,
        submodules: Vec<u8>,
    ) -> Result<Vec<PathBuf>, GitError> {
        let paths = submodules.split(|&b| b == 0).filter(|path| !path.is_empty());
        let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
        if !submodules.is_empty() {
            let args = ["-z", "--skip-worktree", "--stdin"];
            let mut mark = copy.git(INDEX, "update-index", args);
            mark.stdin = submodules;
            self.git.run(mark).await?;
        }
        Ok(paths)
    }
}

/// The worker's index of the copy, as it was checked out.
pub(super) const INDEX: &str = "index";

fn write_worker_folder(copy: &Copy, mirror: &Path) -> Result<(), GitError> {
    let folder = &copy.folder;
    for inner in ["objects/info", "objects/pack", "refs", "info"] {
        make_folder(&folder.join(inner))?;
    }
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(GitError::disk(&path))
    };
    let mut alternates = mirror.join("objects").into_os_string().into_encoded_bytes();
    alternates.push(b'\n');
    write("objects/info/alternates", &alternates)?;
    write("HEAD", format!("{}\n", copy.base).as_bytes())?;
    write("config", probed_config(&copy.dir)?.as_bytes())?;
    write(COPY_NOTE, copy.dir.as_os_str().as_encoded_bytes())
}

/// The lane's own `.git`, without objects and index: no remote, no hooks, nothing of relay's.
fn write_lane_repository(
    dot_git: &Path,
    base: &Commit,
    branch: &str,
    exclude: &str,
    worker_folder: &Path,
) -> Result<(), GitError> {
    let head = dot_git.join("refs/heads").join(branch);
    for folder in
        [&dot_git.join("objects/info"), &dot_git.join("objects/pack"), &dot_git.join("info")]
    {
        make_folder(folder)?;
    }
    if let Some(parent) = head.parent() {
        make_folder(parent)?;
    }
    let write = |path: &Path, text: &str| fs::write(path, text).map_err(GitError::disk(path));
    write(&head, &format!("{base}\n"))?;
    write(&dot_git.join("HEAD"), &format!("ref: refs/heads/{branch}\n"))?;
    write(&dot_git.join("info/exclude"), exclude)?;
    copy_file(&worker_folder.join("config"), &dot_git.join("config"))
}

/// What `git init` would find out about the disk under `dir`.
fn probed_config(dir: &Path) -> Result<String, GitError> {
    let probe = dir.join(".relay-probe");
    let mut file = fs::File::create_new(&probe).map_err(GitError::disk(&probe))?;
    file.write_all(b"x").map_err(GitError::disk(&probe))?;
    let ignores_case = fs::symlink_metadata(dir.join(".RELAY-PROBE")).is_ok();
    let mode = fs::Permissions::from_mode(0o700);
    let keeps_mode = fs::set_permissions(&probe, mode).is_ok()
        && fs::metadata(&probe).is_ok_and(|m| m.permissions().mode() & 0o111 == 0o100);
    fs::remove_file(&probe).map_err(GitError::disk(&probe))?;
    let has_links = std::os::unix::fs::symlink("x", &probe).is_ok();
    if has_links {
        fs::remove_file(&probe).map_err(GitError::disk(&probe))?;
    }
    // Only one system writes names in another Unicode form than it was given.
    let composes = if cfg!(target_os = "macos") { "\tprecomposeunicode = true\n" } else { "" };
    Ok(format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = true\n\
         \tfilemode = {keeps_mode}\n\tsymlinks = {has_links}\n\tignorecase = {ignores_case}\n{composes}"
    ))
}

/// Copies every object: by reflink where the disk can, never by hard link, through which a lane
/// could write into the mirror.
fn copy_objects(from: &Path, to: &Path) -> Result<(), GitError> {
    let list = |folder: &Path| -> Result<Vec<PathBuf>, GitError> {
        let entries = fs::read_dir(folder).map_err(GitError::disk(folder))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    };
    for path in list(from)? {
        let Some(name) = path.file_name().and_then(OsStr::to_str) else { continue };
        let is_loose = name.len() == 2 && name.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_loose {
            continue;
        }
        make_folder(&to.join(name))?;
        for object in list(&path)? {
            if let Some(id) =
                object.file_name().filter(|id| !id.to_string_lossy().starts_with("tmp_"))
            {
                copy_file(&object, &to.join(name).join(id))?;
            }
        }
    }
    // A pack counts once its index is there; what is written meanwhile is left out whole.
    for index in list(&from.join("pack"))? {
        if index.extension() != Some("idx".as_ref()) {
            continue;
        }
        for extension in ["pack", "rev", "idx"] {
            let part = index.with_extension(extension);
            let (Some(name), true) = (part.file_name(), part.exists()) else { continue };
            copy_file(&part, &to.join("pack").join(name))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<(), GitError> {
    fs::copy(from, to).map_err(GitError::disk(to)).map(drop)
}

struct Found {
    names_lfs: bool,
    /// Paths of submodules, each followed by a zero byte.
    submodules: Vec<u8>,
}

fn read_index(index: &Path, mirror: &Path) -> Result<Found, GitError> {
    let (index, repo) = (git2::Index::open(index)?, open(mirror)?);
    let mut found = Found { names_lfs: false, submodules: Vec::new() };
    for entry in index.iter() {
        if entry.mode == 0o160_000 {
            found.submodules.extend_from_slice(&entry.path);
            found.submodules.push(0);
        } else if entry.path.rsplit(|&b| b == b'/').next() == Some(b".gitattributes") {
            let blob = repo.find_blob(entry.id)?;
            found.names_lfs |= blob.content().windows(10).any(|word| word == b"filter=lfs");
        }
    }
    Ok(found)
}
