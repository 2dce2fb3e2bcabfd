//! What `relay setup` leaves in RELAY_HOME: `config.json` with the site, `credentials.json` with
//! the token, for this user alone.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::client::Endpoint;
use crate::files;
use crate::model::disk::quoted;
use crate::model::{Secret, WorkerName};

const SITE: &str = "config.json";
const TOKEN: &str = "credentials.json";

/// More than either file ever holds.
const MOST: u64 = 64 * 1024;

/// What a home knows of its site.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The site it was set up with.
    pub site: Option<Endpoint>,
    /// Whether a site that is no loopback may be spoken to without TLS.
    pub plain_http: bool,
    /// The token, and the site it is for.
    pub token: Option<KeptToken>,
}

/// A token and whom it is for.
#[derive(Clone, Debug)]
pub struct KeptToken {
    /// The only site it is shown to.
    pub site: Endpoint,
    /// Itself.
    pub token: Secret,
    /// The worker it speaks for.
    pub worker: Option<WorkerName>,
}

/// Why what was kept is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct KeptError {
    path: PathBuf,
    why: String,
    hint: Option<String>,
}

impl KeptError {
    fn of(path: &Path, why: impl Into<String>, hint: Option<String>) -> Self {
        Self { path: path.to_owned(), why: why.into(), hint }
    }

    /// The command that helps.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

#[derive(Serialize, Deserialize)]
struct SiteFile {
    site: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    plain_http: bool,
}

#[derive(Serialize, Deserialize)]
struct TokenFile {
    site: String,
    token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerName>,
}

impl Kept {
    /// Reads both files; one that is not there says nothing.
    ///
    /// # Errors
    /// Where one cannot be read, or could have been read or made by others.
    pub fn read(home: &Path) -> Result<Self, KeptError> {
        let mut kept = Self::default();
        // Another user's home is refused where it is opened, in words of its own.
        let user = rustix::process::geteuid().as_raw();
        if home.metadata().is_ok_and(|meta| meta.uid() != user) {
            return Ok(kept);
        }
        if let Some(file) = read::<SiteFile>(&home.join(SITE), false)? {
            kept.site = Some(endpoint(&home.join(SITE), &file.site)?);
            kept.plain_http = file.plain_http;
        }
        let path = home.join(TOKEN);
        if let Some(TokenFile { site, token, worker }) = read::<TokenFile>(&path, true)? {
            let (site, token) = (endpoint(&path, &site)?, Secret::new(token));
            kept.token = Some(KeptToken { site, token, worker });
        }
        Ok(kept)
    }

    /// Writes both files, the token first: a site without its token is refused by name, a token
    /// without its site is shown to nobody.
    ///
    /// # Errors
    /// Where one cannot be written, or something that is not this user's own file is in its place.
    pub fn write(home: &Path, token: &KeptToken, plain_http: bool) -> Result<(), KeptError> {
        let site = token.site.to_string();
        let file = TokenFile {
            site: site.clone(),
            token: token.token.expose().to_owned(),
            worker: token.worker.clone(),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(home)
            .map_err(|e| KeptError::of(home, format!("cannot be made: {e}"), None))?;
        write(home, TOKEN, &file)?;
        write(home, SITE, &SiteFile { site, plain_http })
    }

    /// Removes both files. True where there was one.
    ///
    /// # Errors
    /// Where one cannot be removed.
    pub fn forget(home: &Path) -> Result<bool, KeptError> {
        let mut found = false;
        for path in [home.join(TOKEN), home.join(SITE)] {
            match std::fs::remove_file(&path) {
                Ok(()) => found = true,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => {
                    return Err(KeptError::of(&path, format!("cannot be removed: {e}"), None));
                }
            }
        }
        Ok(found)
    }
}

fn endpoint(path: &Path, site: &str) -> Result<Endpoint, KeptError> {
    site.parse().map_err(|e| KeptError::of(path, format!("{e}"), Some(anew(path))))
}

/// Reads one file. What is asked of a `secret` one is asked of the opened file, so that it cannot
/// be another by then.
fn read<T: serde::de::DeserializeOwned>(path: &Path, secret: bool) -> Result<Option<T>, KeptError> {
    let failed = |e: &io::Error| KeptError::of(path, format!("cannot be read: {e}"), None);
    let mut file = match OpenOptions::new().read(true).custom_flags(no_follow()).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if path.is_symlink() => {
            tracing::debug!(%e, "a link is not followed");
            return Err(in_the_way(path, "is a symbolic link"));
        }
        Err(e) => return Err(failed(&e)),
    };
    ours(path, &file)?;
    let mode = file.metadata().map_err(|e| failed(&e))?.mode();
    if secret && mode & 0o077 != 0 {
        let why = format!(
            "others can read it (mode {:04o}), so the token in it is not used",
            mode & 0o7777
        );
        let hint = format!(
            "chmod 600 {}; if others use this machine, have the token revoked and run `relay setup` anew",
            quoted(path)
        );
        return Err(KeptError::of(path, why, Some(hint)));
    }
    let mut text = String::new();
    (&mut file).take(MOST).read_to_string(&mut text).map_err(|e| failed(&e))?;
    serde_json::from_str(&text).map(Some).map_err(|e| {
        // serde's words may hold a piece of the text.
        let why = format!("is not what relay wrote (line {}, column {})", e.line(), e.column());
        KeptError::of(path, why, Some(anew(path)))
    })
}

/// Writes a file of mode 0600 beside the other and puts it in its place, whole or not at all.
fn write(home: &Path, name: &str, value: &impl Serialize) -> Result<(), KeptError> {
    let path = home.join(name);
    let failed = |e: io::Error| KeptError::of(&path, format!("cannot be written: {e}"), None);
    match OpenOptions::new().read(true).custom_flags(no_follow()).open(&path) {
        Ok(file) => ours(&path, &file)?,
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(_) if path.is_symlink() => return Err(in_the_way(&path, "is a symbolic link")),
        Err(e) => return Err(failed(e)),
    }
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| failed(e.into()))?;
    text.push(b'\n');
    files::replace(&path, &text).map_err(failed)
}

/// A regular file of this user's.
fn ours(path: &Path, file: &File) -> Result<(), KeptError> {
    let meta = file.metadata().map_err(|e| KeptError::of(path, e.to_string(), None))?;
    if !meta.is_file() {
        return Err(in_the_way(path, "is no file"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(in_the_way(path, &format!("belongs to another user (uid {})", meta.uid())));
    }
    Ok(())
}

fn in_the_way(path: &Path, why: &str) -> KeptError {
    KeptError::of(path, why, Some(anew(path)))
}

fn anew(path: &Path) -> String {
    format!("rm -r {}, then `relay setup --site URL`", quoted(path))
}

fn no_follow() -> i32 {
    // A named pipe in its place is not waited for.
    (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn token() -> KeptToken {
        KeptToken {
            site: "https://relay.example".parse().unwrap(),
            token: Secret::new("relay_hush"),
            worker: Some("desk".parse().unwrap()),
        }
    }

    #[test]
    fn what_was_written_is_read_and_for_its_user_alone() {
        let home = tempfile::tempdir().unwrap();
        assert!(Kept::read(home.path()).unwrap().token.is_none());
        Kept::write(home.path(), &token(), false).unwrap();
        let path = home.path().join(TOKEN);
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        let kept = Kept::read(home.path()).unwrap();
        assert_eq!(kept.site, Some(token().site));
        let read = kept.token.unwrap();
        assert_eq!((read.token.expose(), read.worker), ("relay_hush", token().worker));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2, "nothing beside them");
        assert_eq!(Kept::forget(home.path()), Ok(true));
        assert_eq!(Kept::forget(home.path()), Ok(false));
    }

    #[test]
    fn a_token_that_others_can_read_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        Kept::write(home.path(), &token(), false).unwrap();
        for mode in [0o640, 0o604, 0o610] {
            let path = home.path().join(TOKEN);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = Kept::read(home.path()).unwrap_err();
            assert!(error.to_string().contains("others can read it"), "{error}");
            assert!(error.hint().unwrap().starts_with("chmod 600 "));
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_neither_read_nor_written_through() {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = home.path().join("elsewhere");
        std::fs::write(&elsewhere, "{\"site\":\"https://evil.example\",\"token\":\"x\"}").unwrap();
        for name in [TOKEN, SITE] {
            let path = home.path().join(name);
            let _ = std::fs::remove_file(home.path().join(TOKEN));
            symlink(&elsewhere, &path).unwrap();
            let error = Kept::read(home.path()).unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{error}");
            assert!(Kept::write(home.path(), &token(), false).is_err());
            assert!(std::fs::read_to_string(&elsewhere).unwrap().contains("evil"));
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_damaged_file_is_named_and_its_text_is_not() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(TOKEN);
        std::fs::write(&path, "{\"site\":1,\"token\":\"relay_hush\"}").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = Kept::read(home.path()).unwrap_err();
        assert!(error.to_string().contains("credentials.json: is not what relay wrote"), "{error}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}
