//! A home whose queue is kept in another database remembers so: without the site's settings it would
//! open its own file, which is another, empty queue.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::owner::OwnerError;
use crate::files;

/// The note's name in the home.
const NOTE: &str = "queue.json";

/// The note. It tells where, and holds no login.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    kept_in: String,
}

/// Where a home's note is, whether or not it is there.
pub(super) fn note_in(home: &Path) -> PathBuf {
    home.join(NOTE)
}

/// The database that the queue of `home` is kept in, where it is not the home's own file. A note that
/// cannot be understood says that much.
///
/// # Errors
/// [`OwnerError::Home`] where the disk refuses.
pub fn kept_in(home: &Path) -> Result<Option<String>, OwnerError> {
    let path = note_in(home);
    match std::fs::read(&path) {
        Ok(text) => Ok(Some(match serde_json::from_slice::<Note>(&text) {
            Ok(note) => note.kept_in,
            Err(_) => format!("another database ({} is damaged)", path.display()),
        })),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(OwnerError::Home { path, what: "cannot be read", cause }),
    }
}

/// Notes that the queue of `home` is kept at `url`, whole or not at all.
pub(super) fn note(home: &Path, url: &str) -> Result<(), OwnerError> {
    let path = note_in(home);
    let written = match place(home, url) {
        Some(kept_in) => write(&path, &Note { kept_in }),
        None => match std::fs::remove_file(&path) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
            _ => Ok(()),
        },
    };
    written.map_err(|cause| OwnerError::Home { path, what: "cannot be written", cause })
}

fn write(path: &Path, note: &Note) -> Result<(), Error> {
    files::replace(path, &serde_json::to_vec(note)?)
}

/// The database in words for people: of a server its address and the database's name, since all else
/// of a URL may be a secret. `None` for the home's own file.
fn place(home: &Path, url: &str) -> Option<String> {
    match url.split_once("://") {
        Some(("sqlite", file)) if Path::new(file) == home.join("relay.db") => None,
        Some(("sqlite", file)) => Some(file.to_owned()),
        _ => Some(server(url).unwrap_or_else(|| "a Postgres".to_owned())),
    }
}

fn server(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("postgres://{}{port}{}", url.host()?, url.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_without_what_opens_it() {
        let place = |url: &str| place(Path::new("/home"), url);
        assert_eq!(place("sqlite:///home/relay.db"), None);
        assert_eq!(place("sqlite:///else/relay.db").as_deref(), Some("/else/relay.db"));
        let server = place("postgres://ann:p%40ss@db.example:5433/relay?password=hush");
        assert_eq!(server.as_deref(), Some("postgres://db.example:5433/relay"));
        assert_eq!(place("postgres:///relay?host=/run").as_deref(), Some("a Postgres"));
        assert_eq!(place("postgres://a b:c@d/e").as_deref(), Some("a Postgres"));
    }

    #[test]
    fn a_note_is_written_over_taken_away_and_believed_when_it_is_damaged() {
        let home = tempfile::tempdir().expect("a folder");
        let home = home.path();
        assert_eq!(kept_in(home).expect("a look"), None);
        note(home, "sqlite:///else/relay.db").expect("it is written");
        note(home, "postgres://db/relay").expect("it is written");
        assert_eq!(kept_in(home).expect("a look").as_deref(), Some("postgres://db/relay"));
        std::fs::write(note_in(home), "{").expect("damage");
        assert!(kept_in(home).expect("a look").is_some_and(|place| place.contains("damaged")));
        let own = format!("sqlite://{}/relay.db", home.display());
        note(home, &own).expect("it is taken away");
        note(home, &own).expect("it is gone already");
        assert_eq!(kept_in(home).expect("a look"), None);
    }
}
