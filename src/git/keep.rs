//! How a snapshot's commit gets into the mirror: as one pack that was looked at as a fetch looks at
//! what a remote sends.
//!
//! git refuses to fetch some files from anybody: a `.gitmodules` with a command, for one. A branch
//! with such a file, once pushed, would fail every fetch of every other worker and make the
//! repository unusable for all of them until a person deletes it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use git2::{Delta, Oid, Repository};

use super::checkout::Copy;
use super::isolation::Command;
use super::mirror::{Mirror, blocking};
use super::tree_rules::changed;
use super::{Commit, GitError, error, open};
use crate::process::Output;

impl Mirror {
    /// Packs an accepted commit into the mirror and holds it there by a ref; or says which path
    /// git's own check refuses. Then the mirror has nothing of it.
    pub(super) async fn keep(
        &self,
        copy: &Copy,
        commit: &Commit,
    ) -> Result<Option<String>, GitError> {
        let mut pack = Command::in_repo(&copy.folder, "pack-objects", ["--revs", "--quiet"]);
        pack.args.push(copy.folder.join(PACK).into());
        pack.stdin = format!("{commit}\n^{}\n", copy.base()).into_bytes();
        let hash = self.git.run(pack).await?;
        let hash = String::from_utf8_lossy(&hash).trim().to_owned();
        let made = copy.folder.join(format!("{PACK}-{hash}.pack"));
        let mut check = Command::in_repo(&copy.folder, "index-pack", ["--verify", "--strict"]);
        check.args.push(made.clone().into());
        let checked = self.git.try_run(check).await?;
        if checked.code != Some(0)
            && let Some(path) = self.refused(copy, commit, checked).await?
        {
            return Ok(Some(path));
        }
        let kept = self.paths.mirror.join(format!("objects/pack/pack-{hash}.pack"));
        // A pack counts once its index is there. A git before 2.41 writes no reverse index.
        for extension in ["pack", "rev", "idx"] {
            let (from, to) = (made.with_extension(extension), kept.with_extension(extension));
            if extension != "rev" || from.exists() {
                fs::rename(&from, &to).map_err(GitError::disk(&to))?;
            }
        }
        self.hold(commit)?;
        Ok(None)
    }

    /// The first changed path that the check refused. What the base has already is no work of the
    /// lane's and does not count; a check that failed for another reason is an error.
    async fn refused(
        &self,
        copy: &Copy,
        commit: &Commit,
        checked: Output,
    ) -> Result<Option<String>, GitError> {
        let (folder, mirror) = (copy.folder.clone(), self.paths.mirror.clone());
        let (base, commit) = (copy.base().oid()?, commit.oid()?);
        blocking(copy.dir(), move || {
            let refused = objects_in(&checked);
            if let Some(path) = changed_to(&open(&folder)?, base, commit, &refused)? {
                return Ok(Some(path));
            }
            let (mirror, known) = (open(&mirror)?, !refused.is_empty());
            let mirror = mirror.odb()?;
            let old = known && refused.iter().all(|&object| mirror.exists(object));
            if old { Ok(None) } else { Err(error::told_of_files("index-pack", &checked)) }
        })
        .await
    }
}

/// What a pack is called, beside its hash, until it was looked at.
const PACK: &str = "snapshot";

/// The objects that the check named: `error: object ID: gitmodulesUrl: …`.
fn objects_in(checked: &Output) -> HashSet<Oid> {
    let said = String::from_utf8_lossy(&checked.stderr);
    let named = said.lines().filter_map(|line| line.strip_prefix("error: object "));
    named.filter_map(|rest| Oid::from_str(rest.split([':', ' ']).next()?).ok()).collect()
}

/// The first file, or folder above one, that `commit` changed to one of `objects`.
fn changed_to(
    repo: &Repository,
    base: Oid,
    commit: Oid,
    objects: &HashSet<Oid>,
) -> Result<Option<String>, GitError> {
    let (base, new) = (repo.find_commit(base)?.tree()?, repo.find_commit(commit)?.tree()?);
    for delta in changed(repo, &base, &new)?.deltas() {
        let Some(path) = delta.new_file().path_bytes() else { continue };
        if delta.status() == Delta::Deleted {
            continue;
        }
        let path = Path::new(OsStr::from_bytes(path));
        for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
            if objects.contains(&new.get_path(part)?.id()) {
                return Ok(Some(part.to_string_lossy().into_owned()));
            }
        }
    }
    Ok(None)
}
