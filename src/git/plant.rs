//! A new repository with one commit: what the demo works on.

use std::fs;
use std::path::Path;

use super::{GitError, Identity};
use crate::model::Timestamp;

/// Makes `folder` a repository on branch `main` whose one commit holds `files` (name and text).
/// Templates of the machine are left out: they would bring their hooks along.
///
/// # Errors
/// When the folder is there already, or cannot be written.
pub fn plant(
    folder: &Path,
    files: &[(&str, &str)],
    identity: &Identity,
    message: &str,
    at: Timestamp,
) -> Result<(), GitError> {
    fs::create_dir(folder).map_err(GitError::disk(folder))?;
    let mut options = git2::RepositoryInitOptions::new();
    options.initial_head("main").external_template(false);
    let repo = git2::Repository::init_opts(folder, &options)?;
    let mut index = repo.index()?;
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(GitError::disk(&path))?;
        index.add_path(Path::new(name))?;
    }
    index.write()?;
    let tree = repo.find_tree(index.write_tree()?)?;
    let time = git2::Time::new(at.0.div_euclid(1000), 0);
    let by = git2::Signature::new(&identity.name, &identity.email, &time)?;
    repo.commit(Some("HEAD"), &by, &by, message, &tree, &[])?;
    Ok(())
}
