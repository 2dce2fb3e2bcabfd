//! claude's home for one run: a folder with a copy of the person's login and nothing else, so that
//! nothing a lane puts there is ever the person's. While the run lasts both logins are kept in
//! step: a token that was refreshed on one side would end the other's (docs/design/walls.md).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use serde_json::{Map, Value, json};

use crate::git::remove_tree;
use crate::model::Secret;

/// How often the two logins are compared.
const STEP: Duration = Duration::from_millis(500);
/// What is read of a file at most: a person's settings may have grown for years.
const MOST: u64 = 64 << 20;
/// Files of a lane's are believed to be a login up to here.
const MOST_OF_LANE: u64 = 256 << 10;

/// The file of the login, in claude's home.
const LOGIN: &str = ".credentials.json";
/// The part of it that is claude's own. The rest are logins of a person's MCP servers.
const OAUTH: &str = "claudeAiOauth";
/// What changes when it is refreshed. A lane is believed nothing else.
const REFRESHED: [&str; 3] = ["accessToken", "refreshToken", "expiresAt"];
/// What of the person's settings is login: an account, an API key of the console.
const ACCOUNT: [&str; 5] =
    ["oauthAccount", "primaryApiKey", "customApiKeyResponses", "userID", "hasCompletedOnboarding"];
/// Held by claude while it refreshes its login.
const REFRESHING: &str = ".oauth_refresh.lock";

/// Where claude's homes of runs stand, and whose login they are made from.
#[derive(Clone, Debug)]
pub struct Logins {
    root: PathBuf,
    persons: PathBuf,
    settings: PathBuf,
}

/// One run's home of claude. Dropping it keeps a login that was refreshed and removes the rest.
#[derive(Debug)]
pub struct Login {
    folder: PathBuf,
    /// Opened before the lane runs: its name is the lane's to change.
    home: OwnedFd,
    persons: PathBuf,
    seen_path: PathBuf,
    /// The login when both sides were last the same.
    seen: Option<Map<String, Value>>,
    lock_path: PathBuf,
    _lock: File,
}

impl Logins {
    /// Under `root`, from the login in `persons` (`~/.claude`) and the account in the file
    /// `settings` (`~/.claude.json`).
    #[must_use]
    pub fn new(root: PathBuf, persons: PathBuf, settings: PathBuf) -> Self {
        Self { root, persons, settings }
    }

    /// Makes the home of the run whose copy is called `name`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn take(&self, name: &str) -> io::Result<Login> {
        private_folder(&self.root)?;
        let lock_path = self.root.join(format!("{name}.lock"));
        let lock = lock(&lock_path)?
            .ok_or_else(|| io::Error::other(format!("{} is in use", lock_path.display())))?;
        let folder = self.root.join(name);
        remove_tree(&folder)?;
        private_folder(&folder.join("claude"))?;
        let mut login = self.open(folder, lock_path, lock)?;
        login.seen = None;
        let account = read(CWD, &self.settings, MOST).unwrap_or_default();
        let account: Map<String, Value> =
            account.into_iter().filter(|(key, _)| ACCOUNT.contains(&key.as_str())).collect();
        login.put(".claude.json", &Value::Object(account))?;
        login.keep_in_step();
        Ok(login)
    }

    /// Ends what workers that died left behind: a login that was refreshed is kept.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for lock_path in entries.flatten().map(|entry| entry.path()) {
            let is_lock = lock_path.extension() == Some("lock".as_ref());
            if !is_lock || !fs::symlink_metadata(&lock_path).is_ok_and(|meta| meta.is_file()) {
                continue;
            }
            let Ok(Some(lock)) = lock(&lock_path) else { continue };
            let folder = lock_path.with_extension("");
            match self.open(folder.clone(), lock_path.clone(), lock) {
                Ok(left_over) => drop(left_over),
                Err(_) => remove(&folder, &lock_path),
            }
        }
    }

    fn open(&self, folder: PathBuf, lock_path: PathBuf, lock: File) -> io::Result<Login> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let home = openat(CWD, folder.join("claude"), flags, Mode::empty())?;
        let seen_path = lock_path.with_extension("seen");
        let seen = read(CWD, &seen_path, MOST);
        let persons = self.persons.clone();
        Ok(Login { folder, home, persons, seen_path, seen, lock_path, _lock: lock })
    }
}

impl Login {
    /// What the run may write: claude's home, and beside it the lock that claude makes there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// claude's home (`CLAUDE_CONFIG_DIR`).
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.folder.join("claude")
    }

    /// The tokens of the login as the run begins, to be kept out of what it prints.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let seen = self
            .seen
            .iter()
            .flat_map(|login| ["accessToken", "refreshToken"].map(|n| login.get(n)));
        seen.flatten().filter_map(Value::as_str).map(Secret::new).collect()
    }

    /// Waits for `run`, and keeps the logins in step meanwhile.
    pub async fn beside<T>(&mut self, run: impl Future<Output = T>) -> T {
        let mut run = pin!(run);
        let mut steps = tokio::time::interval(STEP);
        loop {
            tokio::select! {
                end = &mut run => return end,
                _ = steps.tick() => self.keep_in_step(),
            }
        }
    }

    /// Brings a login that was refreshed to the other side. Where both were, the person's stays.
    fn keep_in_step(&mut self) {
        // Without a login there is nothing to keep: whoever logged out meanwhile stays so.
        let Some(theirs) = self.theirs() else { return };
        if !same(Some(&theirs), self.seen.as_ref()) {
            match self.put(LOGIN, &json!({ OAUTH: theirs })) {
                Ok(()) => self.note(theirs),
                Err(error) => tracing::warn!(%error, "the login was not brought to the lane"),
            }
            return;
        }
        let Some(refreshed) = self.refreshed(&theirs) else { return };
        let lock = self.persons.join(REFRESHING);
        if fs::create_dir(&lock).is_err() {
            return;
        }
        // The person's own claude may have been at it while nobody held the lock.
        if same(self.theirs().as_ref(), self.seen.as_ref()) {
            match write_persons(&self.persons.join(LOGIN), &refreshed) {
                Ok(()) => self.note(refreshed),
                Err(error) => tracing::warn!(%error, "a refreshed login was not kept"),
            }
        }
        let _gone_already = fs::remove_dir(&lock);
    }

    fn theirs(&self) -> Option<Map<String, Value>> {
        oauth(read(CWD, &self.persons.join(LOGIN), MOST)?)
    }

    /// `theirs` with what the lane's claude refreshed, where it did.
    fn refreshed(&self, theirs: &Map<String, Value>) -> Option<Map<String, Value>> {
        let ours = oauth(read_lanes(&self.home, LOGIN)?)?;
        let at = |login: &Map<String, Value>| login.get("expiresAt").and_then(Value::as_u64);
        let token = |name: &str| {
            let text = ours.get(name).and_then(Value::as_str).unwrap_or_default();
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let newer = at(&ours)? > at(theirs).unwrap_or(0);
        if !newer || !token("accessToken") || !token("refreshToken") {
            return None;
        }
        let mut login = theirs.clone();
        for name in REFRESHED {
            login.insert(name.to_owned(), ours.get(name)?.clone());
        }
        Some(login)
    }

    fn note(&mut self, login: Map<String, Value>) {
        let text = Value::Object(login.clone()).to_string();
        if let Err(error) = write_private(&self.seen_path, text.as_bytes()) {
            tracing::warn!(%error, "the state of the login was not noted");
        }
        self.seen = Some(login);
    }

    /// Writes a file of claude's home, whatever the lane has put in its place.
    fn put(&self, name: &str, value: &Value) -> io::Result<()> {
        let new = format!("{name}.relay");
        let _not_there = unlinkat(&self.home, &new, AtFlags::empty());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.home, &new, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(value.to_string().as_bytes())?;
        Ok(renameat(&self.home, &new, &self.home, name)?)
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.keep_in_step();
        remove(&self.folder, &self.lock_path);
    }
}

fn remove(folder: &Path, lock_path: &Path) {
    if let Err(error) = remove_tree(folder) {
        tracing::warn!(path = %folder.display(), %error, "a lane's home of claude stays");
        return;
    }
    let _never_made = fs::remove_file(lock_path.with_extension("seen"));
    let _gone_already = fs::remove_file(lock_path);
}

/// Whether two logins are the same one: by their tokens.
fn same(one: Option<&Map<String, Value>>, other: Option<&Map<String, Value>>) -> bool {
    let tokens = |login: Option<&Map<String, Value>>| {
        let login = login?;
        Some([login.get("accessToken").cloned(), login.get("refreshToken").cloned()])
    };
    tokens(one) == tokens(other)
}

fn oauth(mut file: Map<String, Value>) -> Option<Map<String, Value>> {
    match file.remove(OAUTH)? {
        Value::Object(login) => Some(login),
        _ => None,
    }
}

/// Replaces the login in the person's file, and nothing else of it.
fn write_persons(path: &Path, login: &Map<String, Value>) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let mut file = read(CWD, &path, MOST).ok_or(io::ErrorKind::InvalidData)?;
    file.insert(OAUTH.to_owned(), Value::Object(login.clone()));
    let new = path.with_extension("json.relay");
    write_private(&new, Value::Object(file).to_string().as_bytes())?;
    fs::rename(&new, &path)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let _not_there = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn read(folder: impl std::os::fd::AsFd, path: &Path, most: u64) -> Option<Map<String, Value>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    parse(File::from(openat(folder, path, flags, Mode::empty()).ok()?), most)
}

/// A file that the lane could have made: no link, no pipe, nothing large.
fn read_lanes(home: &OwnedFd, name: &str) -> Option<Map<String, Value>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    parse(File::from(openat(home, name, flags, Mode::empty()).ok()?), MOST_OF_LANE)
}

fn parse(file: File, most: u64) -> Option<Map<String, Value>> {
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > most {
        return None;
    }
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The lock, unless another worker holds it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let lock = File::create(path)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Bench {
        dir: tempfile::TempDir,
        logins: Logins,
    }

    fn login(name: &str, expires: u64) -> Value {
        json!({
            "accessToken": format!("access-{name}"), "refreshToken": format!("refresh-{name}"),
            "expiresAt": expires, "scopes": ["user:inference"],
        })
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let persons = dir.path().join(".claude");
            let settings = dir.path().join(".claude.json");
            fs::create_dir(&persons).unwrap();
            let text = json!({
                "oauthAccount": {"emailAddress": "ada@example.com"},
                "mcpServers": {"mine": {"command": "x"}}, "projects": {"/home/ada/x": {}},
            });
            fs::write(&settings, text.to_string()).unwrap();
            let logins = Logins::new(dir.path().join("vendor"), persons, settings);
            let bench = Self { dir, logins };
            bench.persons(&login("old", 10));
            bench
        }

        fn persons(&self, login: &Value) {
            let file = json!({ "claudeAiOauth": login, "mcpOAuth": {"mine": "token"} });
            fs::write(self.dir.path().join(".claude/.credentials.json"), file.to_string()).unwrap();
        }

        fn persons_file(&self) -> Value {
            json_of(&self.dir.path().join(".claude/.credentials.json"))
        }
    }

    fn json_of(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    fn lanes(lane: &Login, login: &Value) {
        let file = json!({ "claudeAiOauth": login, "mcpOAuth": {"evil": "x"} });
        fs::write(lane.home().join(LOGIN), file.to_string()).unwrap();
    }

    #[test]
    fn a_run_has_the_login_and_nothing_else_and_leaves_nothing() {
        let bench = Bench::new();
        let lane = bench.logins.take("c").unwrap();
        assert_eq!(json_of(&lane.home().join(LOGIN)), json!({"claudeAiOauth": login("old", 10)}));
        let settings = json_of(&lane.home().join(".claude.json"));
        assert_eq!(settings, json!({"oauthAccount": {"emailAddress": "ada@example.com"}}));
        let secrets = lane.secrets();
        let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
        assert_eq!(secrets, ["access-old", "refresh-old"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&lane.home()), mode(&lane.home().join(LOGIN))), (0o700, 0o600));
        assert!(bench.logins.take("c").is_err(), "a living run's home was taken twice");
        let before = bench.persons_file();
        fs::write(lane.home().join("settings.json"), "{}").unwrap();
        drop(lane);
        assert_eq!(bench.persons_file(), before);
        assert_eq!(fs::read_dir(bench.dir.path().join("vendor")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(bench.dir.path().join(".claude")).unwrap().count(), 1);
    }

    #[test]
    fn a_refreshed_login_is_kept_and_nothing_else_of_the_file_changes() {
        let bench = Bench::new();
        let mut lane = bench.logins.take("c").unwrap();
        let mut new = login("new", 20);
        new["scopes"] = json!(["everything"]);
        lanes(&lane, &new);
        lane.keep_in_step();
        let expected = json!({ "claudeAiOauth": login("new", 20), "mcpOAuth": {"mine": "token"} });
        assert_eq!(bench.persons_file(), expected);
        let path = bench.dir.path().join(".claude/.credentials.json");
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(bench.dir.path().join(".claude")).unwrap().count(), 1);
    }

    #[test]
    fn the_persons_own_refresh_and_logout_win() {
        let bench = Bench::new();
        let mut lane = bench.logins.take("c").unwrap();
        bench.persons(&login("hers", 15));
        lanes(&lane, &login("lanes", 20));
        lane.keep_in_step();
        assert_eq!(bench.persons_file()["claudeAiOauth"], login("hers", 15));
        assert_eq!(json_of(&lane.home().join(LOGIN))["claudeAiOauth"], login("hers", 15));
        lanes(&lane, &login("lanes", 30));
        let file = bench.dir.path().join(".claude/.credentials.json");
        fs::remove_file(&file).unwrap();
        drop(lane);
        assert!(!file.exists(), "a login came back after a logout");
    }

    #[test]
    fn what_is_no_newer_login_is_not_kept() {
        let bench = Bench::new();
        let mut lane = bench.logins.take("c").unwrap();
        let secret = bench.dir.path().join("secret");
        fs::write(&secret, json!({"claudeAiOauth": login("linked", 99)}).to_string()).unwrap();
        let at = lane.home().join(LOGIN);
        let before = bench.persons_file();
        let mut odd = login("odd", 20);
        odd["refreshToken"] = json!("two\nlines");
        for lanes_login in [login("older", 5), login("same-age", 10), odd, json!("text")] {
            lanes(&lane, &lanes_login);
            lane.keep_in_step();
            assert_eq!(bench.persons_file(), before, "{lanes_login}");
        }
        fs::remove_file(&at).unwrap();
        std::os::unix::fs::symlink(&secret, &at).unwrap();
        lane.keep_in_step();
        assert_eq!(bench.persons_file(), before, "a link was followed");
        fs::remove_file(&at).unwrap();
        rustix::fs::mknodat(CWD, &at, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        lane.keep_in_step();
        // While claude itself refreshes, nobody else writes.
        fs::remove_file(&at).unwrap();
        fs::create_dir(bench.dir.path().join(".claude").join(REFRESHING)).unwrap();
        lanes(&lane, &login("new", 20));
        lane.keep_in_step();
        assert_eq!(bench.persons_file(), before);
    }

    #[test]
    fn a_folder_that_the_lane_moved_away_is_not_written_through() {
        let bench = Bench::new();
        let mut lane = bench.logins.take("c").unwrap();
        let elsewhere = bench.dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::rename(lane.home(), lane.folder().join("away")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, lane.home()).unwrap();
        bench.persons(&login("hers", 15));
        lane.keep_in_step();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        drop(lane);
        assert!(elsewhere.exists());
    }

    #[test]
    fn what_a_dead_worker_left_is_put_right_at_the_next_start() {
        let bench = Bench::new();
        let lane = bench.logins.take("c").unwrap();
        lanes(&lane, &login("new", 20));
        bench.logins.sweep();
        assert!(lane.home().exists(), "a living run's home was swept");
        // As after SIGKILL: the lock is let go and nothing is put away.
        let folder = bench.dir.path().join("vendor");
        let kept = bench.dir.path().join("kept");
        fs::rename(&folder, &kept).unwrap();
        drop(lane);
        bench.persons(&login("old", 10));
        fs::rename(&kept, &folder).unwrap();
        bench.logins.sweep();
        assert_eq!(bench.persons_file()["claudeAiOauth"], login("new", 20));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
