//! A vendor's home for one run: a folder with a copy of the person's login and nothing else, so that
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

use relay_lanes::{Home, Vendor};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use serde_json::{Map, Value};

use crate::git::remove_tree;
use crate::model::Secret;

/// How often the two logins are compared.
const STEP: Duration = Duration::from_millis(500);
/// What is read of a file at most: a person's settings may have grown for years.
const MOST: u64 = 64 << 20;
/// Files of a lane's are believed to be a login up to here.
const MOST_OF_LANE: u64 = 256 << 10;
/// What stands in for a folder of the person's, in the run's own.
const STAND_IN: &str = "stands-in";

/// Where one vendor's homes of runs stand, and whose login they are made from.
#[derive(Clone, Debug)]
pub struct Logins {
    root: PathBuf,
    vendor: &'static Vendor,
    persons: PathBuf,
    beside: Option<PathBuf>,
}

/// One run's home of a vendor. Dropping it keeps a login that was refreshed and removes the rest.
#[derive(Debug)]
pub struct Login {
    folder: PathBuf,
    vendor: &'static Vendor,
    /// Opened before the lane runs: its name is the lane's to change.
    home: OwnedFd,
    persons: PathBuf,
    seen_path: PathBuf,
    /// The login when both sides were last the same.
    seen: Option<Value>,
    stands_in: Option<(PathBuf, PathBuf)>,
    lock_path: PathBuf,
    _lock: File,
}

impl Logins {
    /// Under `root`, from the vendor's folder in the person's `home`, or where its variable
    /// `moved` it.
    #[must_use]
    pub fn new(root: PathBuf, vendor: &'static Vendor, home: &Path, moved: Option<&Path>) -> Self {
        let persons = moved.map_or_else(|| home.join(vendor.home.folder), Path::to_owned);
        let beside = vendor.home.beside.map(|beside| moved.unwrap_or(home).join(beside.file));
        Self { root, vendor, persons, beside }
    }

    /// Makes the home of the run whose copy is called `name`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn take(&self, name: &str) -> io::Result<Login> {
        private_folder(&self.root)?;
        let name = format!("{name}.{}", self.vendor.lane);
        let lock_path = self.root.join(format!("{name}.lock"));
        let lock = lock(&lock_path)?
            .ok_or_else(|| io::Error::other(format!("{} is in use", lock_path.display())))?;
        let folder = self.root.join(name);
        remove_tree(&folder)?;
        private_folder(&folder.join(self.vendor.lane))?;
        let mut login = self.open(folder, lock_path, lock)?;
        login.seen = None;
        if let (Some(beside), Some(path)) = (self.vendor.home.beside, &self.beside) {
            let settings = read(CWD, path, MOST).unwrap_or_default();
            login.put(beside.file, &only(settings, beside.fields))?;
        }
        login.keep_in_step();
        Ok(login)
    }

    /// Ends what workers that died left behind: a login that was refreshed is kept.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        let end = format!(".{}.lock", self.vendor.lane);
        for lock_path in entries.flatten().map(|entry| entry.path()) {
            let is_lock = lock_path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes());
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
        let home = openat(CWD, folder.join(self.vendor.lane), flags, Mode::empty())?;
        let seen_path = lock_path.with_extension("seen");
        let seen = read(CWD, &seen_path, MOST).map(Value::Object);
        let (vendor, persons) = (self.vendor, self.persons.clone());
        let stands_in = None;
        Ok(Login {
            folder,
            vendor,
            home,
            persons,
            seen_path,
            seen,
            stands_in,
            lock_path,
            _lock: lock,
        })
    }
}

impl Login {
    /// What the run may write: the vendor's home, and beside it a lock that the program may make.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The vendor's home (what [`relay_lanes::Home::variable`] names for the run).
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.folder.join(self.vendor.lane)
    }

    /// Whether there is a login in it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.seen.is_some()
    }

    /// The tokens of the login as the run begins, to be kept out of what it prints.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let tokens = self.seen.iter().flat_map(|login| self.tokens(login));
        tokens.flatten().filter_map(Value::as_str).map(Secret::new).collect()
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
        if !self.is_seen(Some(&theirs)) {
            match self.put(self.vendor.home.file, &theirs) {
                Ok(()) => self.note(theirs),
                Err(error) => tracing::warn!(%error, "the login was not brought to the lane"),
            }
            return;
        }
        let Some(refreshed) = self.refreshed(&theirs) else { return };
        let lock = self.vendor.home.lock.map(|name| self.persons.join(name));
        if lock.as_ref().is_some_and(|lock| fs::create_dir(lock).is_err()) {
            return;
        }
        // The person's own program may have been at it while nobody held the lock.
        if self.is_seen(self.theirs().as_ref()) {
            match write_persons(&self.persons.join(self.vendor.home.file), &refreshed) {
                Ok(()) => self.note(refreshed),
                Err(error) => tracing::warn!(%error, "a refreshed login was not kept"),
            }
        }
        if let Some(lock) = lock {
            let _gone_already = fs::remove_dir(lock);
        }
    }

    fn theirs(&self) -> Option<Value> {
        self.login_in(read(CWD, &self.persons.join(self.vendor.home.file), MOST)?)
    }

    /// The login's part of its file, where there is one.
    fn login_in(&self, file: Map<String, Value>) -> Option<Value> {
        let home = &self.vendor.home;
        let login = if home.each { Value::Object(file) } else { only(file, home.fields) };
        self.tokens(&login).iter().any(Option::is_some).then_some(login)
    }

    fn tokens<'a>(&self, login: &'a Value) -> Vec<Option<&'a Value>> {
        let home = &self.vendor.home;
        let logins = each(home, login).into_iter().filter_map(|at| login.pointer(&at));
        logins.flat_map(|one| home.tokens.iter().map(|pointer| one.pointer(pointer))).collect()
    }

    /// Whether a login is the one that both sides last had: by its tokens.
    fn is_seen(&self, login: Option<&Value>) -> bool {
        let tokens = |login: Option<&Value>| {
            let tokens = self.tokens(login?);
            Some(tokens.into_iter().map(Option::<&Value>::cloned).collect::<Vec<_>>())
        };
        tokens(login) == tokens(self.seen.as_ref())
    }

    /// `theirs` with what the lane's program refreshed, where it did.
    fn refreshed(&self, theirs: &Value) -> Option<Value> {
        let home = &self.vendor.home;
        let ours = self.login_in(read_lanes(&self.home, home.file)?)?;
        let mut login = theirs.clone();
        let mut any = false;
        for at in each(home, theirs) {
            if let (Some(ours), Some(place)) = (ours.pointer(&at), login.pointer_mut(&at))
                && let Some(new) = renewed(home, ours, place)
            {
                *place = new;
                any = true;
            }
        }
        any.then_some(login)
    }

    /// Puts a folder with one file into the place of a folder of the person's, for this run: to be
    /// read by the program, and never to be the person's. The place is made where nothing is.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn stand_in(&mut self, place: &Path, file: &str, text: &str) -> io::Result<()> {
        private_folder(place)?;
        let folder = self.folder.join(STAND_IN);
        private_folder(&folder)?;
        write_private(&folder.join(file), text.as_bytes())?;
        self.stands_in = Some((place.to_owned(), folder));
        Ok(())
    }

    /// The place that is taken by a folder of the run's own, and that folder.
    #[must_use]
    pub fn stands_in(&self) -> Option<&(PathBuf, PathBuf)> {
        self.stands_in.as_ref()
    }

    fn note(&mut self, login: Value) {
        if let Err(error) = write_private(&self.seen_path, login.to_string().as_bytes()) {
            tracing::warn!(%error, "the state of the login was not noted");
        }
        self.seen = Some(login);
    }

    /// Writes a file of the run's home, whatever the lane has put in its place.
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
        tracing::warn!(path = %folder.display(), %error, "a run's home of its vendor stays");
        return;
    }
    let _never_made = fs::remove_file(lock_path.with_extension("seen"));
    let _gone_already = fs::remove_file(lock_path);
}

/// Where the logins of a file are, as pointers: the file itself is one, or each field of it.
fn each(home: &Home, login: &Value) -> Vec<String> {
    if !home.each {
        return vec![String::new()];
    }
    let names = login.as_object().into_iter().flat_map(Map::keys);
    names.map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

/// `theirs` with what is newer in `ours`, where it is newer and looks like a login.
fn renewed(home: &Home, ours: &Value, theirs: &Value) -> Option<Value> {
    if !is_later(ours.pointer(home.later)?, theirs.pointer(home.later)) {
        return None;
    }
    let mut login = theirs.clone();
    for pointer in home.refreshed {
        let new = ours.pointer(pointer)?;
        let is_token = home.tokens.contains(pointer) || new.is_string();
        if is_token && !new.as_str().is_some_and(is_one_word) {
            return None;
        }
        let (around, field) = pointer.rsplit_once('/')?;
        login.pointer_mut(around)?.as_object_mut()?.insert(field.to_owned(), new.clone());
    }
    Some(login)
}

/// The named fields of an object.
fn only(object: Map<String, Value>, fields: &[&str]) -> Value {
    object.into_iter().filter(|(field, _)| fields.contains(&field.as_str())).collect()
}

/// Whether one time is later than another: both numbers, or both texts of one form.
fn is_later(one: &Value, other: Option<&Value>) -> bool {
    match (one, other) {
        (Value::String(one), Some(Value::String(other))) => one > other,
        (Value::String(one), None | Some(Value::Null)) => !one.is_empty(),
        (one, other) => {
            one.as_u64().is_some_and(|one| one > other.and_then(Value::as_u64).unwrap_or(0))
        }
    }
}

fn is_one_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Replaces the login in the person's file, and nothing else of it.
fn write_persons(path: &Path, login: &Value) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let mut file = read(CWD, &path, MOST).ok_or(io::ErrorKind::InvalidData)?;
    file.extend(login.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
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
    use relay_lanes::{claude, codex};
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    const LOGIN: &str = ".credentials.json";
    const REFRESHING: &str = ".oauth_refresh.lock";

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
            let root = dir.path().join("vendor");
            let logins = Logins::new(root, &claude::VENDOR, dir.path(), None);
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

    /// A file as grok has it: a table of logins.
    fn of_grok(key: &str, refresh: &str, expires: &str) -> Value {
        json!({
            "https://auth.x.example::c/1": {
                "key": key, "auth_mode": "oidc", "user_id": "u", "refresh_token": refresh,
                "expires_at": expires,
            },
            "xai::api_key": { "key": "xai-key-of-ada", "auth_mode": "api_key" },
        })
    }

    #[test]
    fn of_a_table_each_login_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let persons = dir.path().join(".grok/auth.json");
        fs::create_dir(dir.path().join(".grok")).unwrap();
        fs::write(dir.path().join(".grok/config.toml"), "[mcp_servers.mine]").unwrap();
        let old = of_grok("access-old", "refresh-old", "2026-11-30T10:00:00Z");
        fs::write(&persons, old.to_string()).unwrap();
        let root = dir.path().join("vendor");
        let logins = Logins::new(root.clone(), &relay_lanes::grok::VENDOR, dir.path(), None);
        let mut lane = logins.take("c").unwrap();
        let file = lane.home().join("auth.json");
        assert_eq!(json_of(&file), old);
        assert_eq!(fs::read_dir(lane.home()).unwrap().count(), 1, "the login alone");
        let secrets = lane.secrets();
        let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
        assert_eq!(secrets, ["access-old", "refresh-old", "xai-key-of-ada"]);

        let mut new = of_grok("access-new", "refresh-new", "2026-11-30T16:00:00Z");
        new["https://auth.x.example::c/1"]["user_id"] = json!("mallory");
        new["xai::api_key"]["key"] = json!("xai-key-of-mallory");
        new["https://evil.example::c"] = json!({ "key": "evil" });
        fs::write(&file, new.to_string()).unwrap();
        lane.keep_in_step();
        let kept = of_grok("access-new", "refresh-new", "2026-11-30T16:00:00Z");
        assert_eq!(json_of(&persons), kept, "only what a refresh changes");

        for expires in ["2026-11-30T15:59:59Z", "no time", ""] {
            let older = of_grok("access-odd", "refresh odd", expires);
            fs::write(&file, older.to_string()).unwrap();
            lane.keep_in_step();
            assert_eq!(json_of(&persons), kept, "{expires}");
        }
        drop(lane);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_stands_in_is_the_runs_and_goes_with_it() {
        let bench = Bench::new();
        let place = bench.dir.path().join(".other");
        let mut lane = bench.logins.take("c").unwrap();
        lane.stand_in(&place, "settings.json", "{}").unwrap();
        let (at, by) = lane.stands_in().unwrap().clone();
        assert_eq!(at, place);
        assert!(by.starts_with(lane.folder()), "it is inside of what the run may write");
        assert_eq!(fs::read_to_string(by.join("settings.json")).unwrap(), "{}");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "nothing is written to the person's");
        drop(lane);
        assert!(!by.exists() && place.is_dir());
    }

    fn of_codex(name: &str, refreshed: &str) -> Value {
        json!({
            "auth_mode": "chatgpt", "OPENAI_API_KEY": null, "last_refresh": refreshed,
            "tokens": {
                "id_token": format!("id-{name}"), "access_token": format!("access-{name}"),
                "refresh_token": format!("refresh-{name}"), "account_id": "account",
            },
        })
    }

    #[test]
    fn a_login_of_codex_is_kept_in_step_too() {
        let dir = tempfile::tempdir().unwrap();
        let (persons, root) = (dir.path().join("moved"), dir.path().join("vendor"));
        fs::create_dir(&persons).unwrap();
        let file = persons.join("auth.json");
        let mut old = of_codex("old", "2026-11-29T10:00:00.5Z");
        old["agent_identity"] = json!("another's");
        fs::write(&file, old.to_string()).unwrap();
        fs::write(persons.join("config.toml"), "x = 1").unwrap();
        let logins = Logins::new(root, &codex::VENDOR, dir.path(), Some(&persons));
        let mut lane = logins.take("c").unwrap();
        let ours = lane.home().join("auth.json");
        assert!(lane.is_there());
        assert_eq!(json_of(&ours), of_codex("old", "2026-11-29T10:00:00.5Z"));
        assert_eq!(fs::read_dir(lane.home()).unwrap().count(), 1);
        assert_eq!(lane.secrets().len(), 3);
        let mut new = of_codex("new", "2026-11-29T11:00:00.5Z");
        new["OPENAI_API_KEY"] = json!("the-lanes");
        new["tokens"]["account_id"] = json!("the-lanes");
        for wrong in
            [of_codex("new", "2026-11-29T09:00:00.5Z"), of_codex("a b", "2026-12-01T00:00:00Z")]
        {
            fs::write(&ours, wrong.to_string()).unwrap();
            lane.keep_in_step();
            assert_eq!(json_of(&file), old);
        }
        fs::write(&ours, new.to_string()).unwrap();
        lane.keep_in_step();
        let mut expected = of_codex("new", "2026-11-29T11:00:00.5Z");
        expected["agent_identity"] = json!("another's");
        assert_eq!(json_of(&file), expected);
        fs::remove_file(&file).unwrap();
        drop(lane);
        assert!(!logins.take("c").unwrap().is_there(), "nobody is logged in");
    }
}
