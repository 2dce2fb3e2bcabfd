//! The worker's own secrets do not leave in a commit: a lane that has one may have written it into
//! a file, a link or a name.

use git2::{Delta, DiffOptions, FileMode, Repository, Tree};

use super::GitError;
use crate::process::Redactor;

/// The first path where `new` differs from `base` that holds one of `secrets`, as it is or in a
/// usual spelling, in its content or its name. The name is given without it.
pub(super) fn secret_in(
    repo: &Repository,
    base: &Tree<'_>,
    new: &Tree<'_>,
    secrets: &Redactor,
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
                && secrets.finds(repo.find_blob(file.id())?.content()));
        if is_told {
            return Ok(Some(secrets.text(&String::from_utf8_lossy(path))));
        }
    }
    Ok(None)
}
