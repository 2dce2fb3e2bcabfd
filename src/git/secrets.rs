//! The worker's own secrets do not leave in a commit: a lane that has one may have written it into
//! a file, a link or a name.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use git2::{Delta, DiffOptions, FileMode, Repository, Tree};

use super::GitError;
use super::lfs::{place, pointer};
use crate::process::Redactor;

/// The first path where `new` differs from `base` that holds one of `secrets`, as it is or in a
/// usual spelling, in its content or its name. The name is given without it. Of a file that is
/// stored with LFS the content in `lfs` counts, and is removed there.
pub(super) fn secret_in(
    repo: &Repository,
    base: &Tree<'_>,
    new: &Tree<'_>,
    secrets: &Redactor,
    lfs: &Path,
) -> Result<Option<String>, GitError> {
    if secrets.is_empty() {
        return Ok(None);
    }
    let mut options = DiffOptions::new();
    options.include_typechange(true).skip_binary_check(true).context_lines(0);
    let diff = repo.diff_tree_to_tree(Some(base), Some(new), Some(&mut options))?;
    for delta in diff.deltas().filter(|delta| delta.status() != Delta::Deleted) {
        let file = delta.new_file();
        let path = file.path_bytes().unwrap_or_default();
        let is_told = secrets.finds(path)
            || (file.mode() != FileMode::Commit
                && in_content(repo.find_blob(file.id())?.content(), secrets, lfs)?);
        if is_told {
            return Ok(Some(secrets.text(&String::from_utf8_lossy(path))));
        }
    }
    Ok(None)
}

fn in_content(blob: &[u8], secrets: &Redactor, lfs: &Path) -> Result<bool, GitError> {
    let content = pointer(blob).map(|oid| place(lfs, &oid));
    if let Some(content) = content.filter(|content| content.is_file())
        && in_file(&content, secrets).map_err(GitError::disk(&content))?
    {
        fs::remove_file(&content).map_err(GitError::disk(&content))?;
        return Ok(true);
    }
    Ok(secrets.finds(blob))
}

/// What is stored with LFS may be larger than memory.
fn in_file(path: &Path, secrets: &Redactor) -> std::io::Result<bool> {
    const PIECE: u64 = 1 << 20;
    // A secret may stand across two pieces.
    let overlap = secrets.longest();
    let (mut file, mut text) = (File::open(path)?, Vec::new());
    loop {
        let before = text.len();
        (&mut file).take(PIECE).read_to_end(&mut text)?;
        if secrets.finds(&text) {
            return Ok(true);
        }
        if text.len() == before {
            return Ok(false);
        }
        text.drain(..text.len().saturating_sub(overlap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Secret;

    #[test]
    fn what_is_stored_with_lfs_is_read_where_it_is_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Redactor::new([Secret::new("ghp_canary0123456789")]);
        let oid = "ab".repeat(32);
        let blob =
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 9\n");
        let content = place(dir.path(), &oid);
        let told = || in_content(blob.as_bytes(), &secrets, dir.path()).unwrap();
        assert!(!told(), "nothing is there");
        fs::create_dir_all(content.parent().unwrap()).unwrap();
        // Across two pieces.
        let mut text = vec![b'x'; (1 << 20) - 5];
        text.extend_from_slice(b"ghp_canary012345678");
        fs::write(&content, &text).unwrap();
        assert!(!told() && content.exists());
        text.push(b'9');
        fs::write(&content, &text).unwrap();
        assert!(told() && !content.exists());
    }
}
