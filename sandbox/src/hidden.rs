//! Where a person's logins and keys are: one table for claude's own sandbox and for the walls.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What is hidden in the home: logins, keys, histories, and what the vendors' programs read at
/// their start.
pub(crate) const HIDDEN: &[&str] = &[
    ".harness",
    ".claude",
    ".claude.json",
    ".codex",
    ".grok",
    ".fx",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".oci",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".vault-token",
    ".gitconfig",
    ".git-credentials",
    ".password-store",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".Xauthority",
    ".ICEauthority",
    ".mozilla",
    ".thunderbird",
    ".bundle/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".composer/auth.json",
    ".gem/credentials",
    ".gradle/gradle.properties",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".terraform.d",
    ".config/chromium",
    ".config/composer/auth.json",
    ".config/containers",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".config/github-copilot",
    ".config/glab-cli",
    ".config/google-chrome",
    ".config/hub",
    ".config/op",
    ".config/pnpm",
    ".config/rclone",
    ".config/relay",
    ".config/sops",
    ".config/systemd",
    ".local/share/keyrings",
    "Library/Keychains",
    "Library/LaunchAgents",
];

/// Variables that name another place for something of [`HIDDEN`], and what of that place is hidden.
const MOVING: &[(&str, &str)] = &[
    ("CLAUDE_CONFIG_DIR", ""),
    ("CODEX_HOME", ""),
    ("GROK_HOME", ""),
    ("GH_CONFIG_DIR", ""),
    ("GNUPGHOME", ""),
    ("AWS_CONFIG_FILE", ""),
    ("AWS_SHARED_CREDENTIALS_FILE", ""),
    ("AZURE_CONFIG_DIR", ""),
    ("CLOUDSDK_CONFIG", ""),
    ("GOOGLE_APPLICATION_CREDENTIALS", ""),
    ("DOCKER_CONFIG", ""),
    ("KUBECONFIG", ""),
    ("GIT_CONFIG_GLOBAL", ""),
    ("NPM_CONFIG_USERCONFIG", ""),
    ("npm_config_userconfig", ""),
    ("NETRC", ""),
    ("PGPASSFILE", ""),
    ("HISTFILE", ""),
    ("XAUTHORITY", ""),
    ("SSH_AUTH_SOCK", ""),
    ("CARGO_HOME", "credentials"),
    ("CARGO_HOME", "credentials.toml"),
    ("GRADLE_USER_HOME", "gradle.properties"),
];

/// Variables that move a whole folder of the home, with all that is hidden in it.
const MOVING_FOLDERS: &[(&str, &str)] =
    &[("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share")];

/// The variables that [`moved_logins`] goes by.
pub fn moving_names() -> impl Iterator<Item = &'static str> {
    MOVING.iter().chain(MOVING_FOLDERS).map(|(name, _)| *name)
}

/// Where `environment` says that logins are kept. A relative path says nothing.
#[must_use]
pub fn moved_logins(environment: &BTreeMap<OsString, OsString>) -> Vec<PathBuf> {
    let places = |name: &str| {
        let value = environment.get(OsStr::new(name)).cloned().unwrap_or_default();
        std::env::split_paths(&value).filter(|path| path.is_absolute()).collect::<Vec<_>>()
    };
    let mut moved = Vec::new();
    for (name, part) in MOVING {
        let whole = part.is_empty();
        moved.extend(places(name).into_iter().map(|p| if whole { p } else { p.join(part) }));
    }
    for (name, folder) in MOVING_FOLDERS {
        for place in places(name) {
            let parts = HIDDEN.iter().filter_map(|path| Path::new(path).strip_prefix(folder).ok());
            moved.extend(parts.map(|part| place.join(part)));
        }
    }
    moved
}

/// All that is hidden from a lane whose person's home is `home`, whether it is there or not.
/// relay's own folder is among it, with the lane's copy inside.
#[must_use]
pub fn hidden_paths(home: &Path, relay_home: &Path, moved: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = HIDDEN.iter().map(|path| home.join(path)).collect();
    // `/`, the home itself or /dev/null is no place of logins, and nothing runs without it.
    let is_place = |path: &&PathBuf| !home.starts_with(path) && !path.starts_with("/dev");
    let moved = moved.iter().filter(is_place);
    for path in std::iter::once(relay_home).chain(moved.map(PathBuf::as_path)) {
        if !paths.iter().any(|known| known == path) {
            paths.push(path.to_owned());
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_variable_moved_is_hidden_where_it_is() {
        let environment = [
            ("GH_CONFIG_DIR", "/srv/gh"),
            ("CARGO_HOME", "/srv/cargo"),
            ("XDG_CONFIG_HOME", "/srv/config"),
            ("XDG_DATA_HOME", "/srv/data"),
            ("KUBECONFIG", "/srv/one:relative:/srv/two"),
            ("GNUPGHOME", "/home"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ];
        let environment = environment.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let (home, relay_home) = (Path::new("/home/ada"), Path::new("/srv/relay"));
        let hidden = hidden_paths(home, relay_home, &moved_logins(&environment));
        for path in [
            "/home/ada/.config/gh",
            "/srv/relay",
            "/srv/gh",
            "/srv/cargo/credentials.toml",
            "/srv/config/gh",
            "/srv/config/sops",
            "/srv/data/keyrings",
            "/srv/one",
            "/srv/two",
        ] {
            assert!(hidden.iter().any(|hidden| hidden == Path::new(path)), "{path}");
        }
        for path in ["/home", "/dev/null", "/srv/config", "/srv/cargo", "relative"] {
            assert!(!hidden.iter().any(|hidden| hidden == Path::new(path)), "{path}");
        }
    }

    #[test]
    fn without_a_word_nothing_has_moved() {
        assert_eq!(moved_logins(&BTreeMap::new()), Vec::<PathBuf>::new());
    }
}
