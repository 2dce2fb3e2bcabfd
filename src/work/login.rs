//! A vendor's home for one run: a folder with a copy of the person's login and nothing else, so that
//! nothing a lane puts there is ever the person's. While the run lasts both logins are kept in
//! step: a token that was refreshed on one side would end the other's (docs/design/walls.md).

mod seat;
mod whose;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use relay_lanes::{Home, Vendor};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, statat, unlinkat};
use serde_json::{Map, Value};

pub use self::seat::{CLAIMING, Holder, NoSeat, Seat, look};
pub(super) use self::whose::lock_beside;
pub use self::whose::{Place, Whose};
use crate::files;
use crate::git::remove_tree;
use crate::model::Secret;

/// How often the two logins are compared.
const STEP: Duration = Duration::from_millis(500);
/// A lock that its holder has not touched for so long is a dead program's. Not measured: programs
/// that take such a lock touch it every few seconds, and a refresh is one request.
const STALE: Duration = Duration::from_secs(10);
/// So long a refreshed login waits at a run's end for a lock that is held: until it would be stale.
const BRINGING_BACK: Duration = Duration::from_secs(12);
/// What is read of a file at most: a person's settings may have grown for years.
const MOST: u64 = 64 << 20;
/// Files of a lane's are believed to be a login up to here.
const MOST_OF_LANE: u64 = 256 << 10;
/// New tokens that are looked for in a run's output: a lane may write its login as often as it likes.
const MOST_TOKENS: usize = 64;
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
    home: Arc<OwnedFd>,
    persons: PathBuf,
    seen_path: PathBuf,
    /// The login when both sides were last the same.
    seen: Option<Value>,
    /// Keys of the file beside it.
    keys: Vec<Secret>,
    /// How long its end may take.
    patience: Duration,
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

    /// Whether there is a login of the person's that a run would get.
    #[must_use]
    pub fn are_there(&self) -> bool {
        let home = &self.vendor.home;
        let Some(file) = read(CWD, &self.persons.join(home.file), MOST) else { return false };
        let login = if home.each { Value::Object(file) } else { only(file, home.fields) };
        let logins = each(home, &login).into_iter().filter_map(|at| login.pointer(&at));
        logins.flat_map(|one| home.tokens.iter().map(|at| one.pointer(at))).any(|one| one.is_some())
    }

    /// Makes the home of the run whose copy is called `name`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn take(&self, name: &str) -> io::Result<Login> {
        private_folder(&self.root)?;
        let name = format!("{name}.{}", self.vendor.name());
        let lock_path = self.root.join(format!("{name}.lock"));
        let lock = lock(&lock_path)?
            .ok_or_else(|| io::Error::other(format!("{} is in use", lock_path.display())))?;
        let folder = self.root.join(name);
        remove_tree(&folder)?;
        private_folder(&folder.join(folder_of(self.vendor)))?;
        let mut login = self.open(folder, lock_path, lock)?;
        login.seen = None;
        if let (Some(beside), Some(path)) = (self.vendor.home.beside, &self.beside) {
            let settings = read(CWD, path, MOST).unwrap_or_default();
            let settings = only(settings, beside.fields);
            let keys = beside.keys.iter().filter_map(|key| settings.pointer(key)?.as_str());
            login.keys = keys.map(Secret::new).collect();
            login.put(beside.file, &settings)?;
        }
        let _nothing_to_bring_back = login.keep_in_step();
        Ok(login)
    }

    /// Ends what workers that died left behind: a login that was refreshed is kept.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        let end = format!(".{}.lock", self.vendor.name());
        for lock_path in entries.flatten().map(|entry| entry.path()) {
            let is_lock = lock_path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes());
            if !is_lock || !fs::symlink_metadata(&lock_path).is_ok_and(|meta| meta.is_file()) {
                continue;
            }
            let Ok(Some(lock)) = lock(&lock_path) else { continue };
            let folder = lock_path.with_extension("");
            match self.open(folder.clone(), lock_path.clone(), lock) {
                Ok(mut left_over) => {
                    // Whoever has the lock is alive; the next sweep comes.
                    left_over.patience = Duration::ZERO;
                    drop(left_over);
                }
                Err(_) => remove(&folder, &lock_path),
            }
        }
    }

    fn open(&self, folder: PathBuf, lock_path: PathBuf, lock: File) -> io::Result<Login> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let home =
            Arc::new(openat(CWD, folder.join(folder_of(self.vendor)), flags, Mode::empty())?);
        let seen_path = lock_path.with_extension("seen");
        let seen = read(CWD, &seen_path, MOST).map(Value::Object);
        let (vendor, persons) = (self.vendor, self.persons.clone());
        Ok(Login {
            folder,
            vendor,
            home,
            persons,
            seen_path,
            seen,
            keys: Vec::new(),
            patience: BRINGING_BACK,
            stands_in: None,
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
        self.folder.join(folder_of(self.vendor))
    }

    /// The person's folder that it stands in the place of, and itself, where no variable names it.
    #[must_use]
    pub fn replaces(&self) -> Option<(PathBuf, PathBuf)> {
        self.vendor.home.variable.is_none().then(|| (self.persons.clone(), self.home()))
    }

    /// Whether there is a login in it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.seen.is_some()
    }

    /// The tokens of the login as the run begins, to be kept out of what it prints.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let tokens = self.seen.iter().flat_map(|login| tokens(self.vendor, login));
        let tokens = tokens.flatten().filter_map(Value::as_str).map(Secret::new);
        tokens.chain(self.keys.iter().cloned()).collect()
    }

    /// Gives, each time it is asked, the tokens that came into the run's home since: a program may
    /// print a token as soon as it has it, or as soon as the person's own refresh is brought to it.
    pub fn refreshes(&self) -> impl Fn() -> Vec<Secret> + Send + Sync + 'static {
        let (vendor, home) = (self.vendor, Arc::clone(&self.home));
        let last = Mutex::new((None, 0));
        move || {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let (stamp, found) = &mut *last;
            let now = statat(&*home, vendor.home.file, AtFlags::SYMLINK_NOFOLLOW).ok();
            let now = now.map(|at| (at.st_ino, at.st_size, at.st_mtime, at.st_mtime_nsec));
            if now.is_none() || now == *stamp || *found >= MOST_TOKENS {
                return Vec::new();
            }
            *stamp = now;
            let file = read_lanes(&home, vendor.home.file).unwrap_or_default();
            let login = Value::Object(file);
            let tokens = tokens(vendor, &login).into_iter().flatten();
            let tokens = tokens.filter_map(Value::as_str).filter(|token| is_one_word(token));
            let tokens: Vec<Secret> = tokens.take(MOST_TOKENS - *found).map(Secret::new).collect();
            *found += tokens.len();
            tokens
        }
    }

    /// Waits for `run`, and keeps the logins in step meanwhile.
    pub async fn beside<T>(&mut self, run: impl Future<Output = T>) -> T {
        let mut run = pin!(run);
        let mut steps = tokio::time::interval(STEP);
        loop {
            tokio::select! {
                end = &mut run => return end,
                // What could not be brought over is tried again in the next step, and at the end.
                _ = steps.tick() => { let _is_in_step = self.keep_in_step(); }
            }
        }
    }

    /// Brings a login that was refreshed to the other side. Where both were, the person's stays.
    /// False where the lane's is still to be brought to the person.
    #[must_use]
    fn keep_in_step(&mut self) -> bool {
        // Without a login there is nothing to keep: whoever logged out meanwhile stays so.
        let Some(theirs) = self.theirs() else { return true };
        if !self.is_seen(Some(&theirs)) {
            match self.put(self.vendor.home.file, &theirs) {
                Ok(()) => self.note(theirs),
                Err(error) => tracing::warn!(%error, "the login was not brought to the lane"),
            }
            return true;
        }
        let Some(refreshed) = self.refreshed(&theirs) else { return true };
        let lock = self.vendor.home.lock.map(|name| self.persons.join(name));
        if lock.as_ref().is_some_and(|lock| !take_lock(lock)) {
            return false;
        }
        let mut is_kept = true;
        // The person's own program may have been at it while nobody held the lock.
        if self.is_seen(self.theirs().as_ref()) {
            match write_persons(&self.persons.join(self.vendor.home.file), &refreshed) {
                Ok(()) => self.note(refreshed),
                Err(error) => {
                    tracing::warn!(%error, "a refreshed login was not kept");
                    is_kept = false;
                }
            }
        }
        if let Some(lock) = lock {
            let _gone_already = fs::remove_dir(lock);
        }
        is_kept
    }

    fn theirs(&self) -> Option<Value> {
        self.login_in(read(CWD, &self.persons.join(self.vendor.home.file), MOST)?)
    }

    /// The login's part of its file, where there is one.
    fn login_in(&self, file: Map<String, Value>) -> Option<Value> {
        let home = &self.vendor.home;
        let login = if home.each { Value::Object(file) } else { only(file, home.fields) };
        tokens(self.vendor, &login).iter().any(Option::is_some).then_some(login)
    }

    /// Whether a login is the one that both sides last had: by its tokens.
    fn is_seen(&self, login: Option<&Value>) -> bool {
        let tokens = |login: Option<&Value>| {
            let tokens = tokens(self.vendor, login?);
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
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, name: &str, value: &Value) -> io::Result<()> {
        let new = format!("{name}.relay");
        let _not_there = unlinkat(&*self.home, &new, AtFlags::empty());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = File::from(openat(&*self.home, &new, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(value.to_string().as_bytes())?;
        Ok(renameat(&*self.home, &new, &*self.home, name)?)
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        let mut left = self.patience;
        while !self.keep_in_step() {
            if left.is_zero() {
                let path = self.home().join(self.vendor.home.file);
                let what = "the login that a run refreshed is kept here: it could not be brought to \
                            the person's, and the next run tries again";
                tracing::warn!(path = %path.display(), "{what}");
                return;
            }
            left = left.saturating_sub(STEP);
            std::thread::sleep(STEP);
        }
        remove(&self.folder, &self.lock_path);
    }
}

/// Takes the lock that a vendor's program refreshes under, also from one that died with it.
fn take_lock(lock: &Path) -> bool {
    fs::create_dir(lock).is_ok()
        || is_stale(lock) && fs::remove_dir(lock).is_ok() && fs::create_dir(lock).is_ok()
}

/// By the clock of its disk, which gave the lock its time.
fn is_stale(lock: &Path) -> bool {
    let beside = lock.with_extension("relay-now");
    let _left_by_a_killed_worker = fs::remove_dir(&beside);
    let now = fs::create_dir(&beside).and_then(|()| fs::metadata(&beside)?.modified());
    let _made_none = fs::remove_dir(&beside);
    let touched = fs::symlink_metadata(lock).and_then(|meta| meta.modified());
    let (Ok(now), Ok(touched)) = (now, touched) else { return false };
    // A time to come is from before the clock was set back.
    now.duration_since(touched).unwrap_or_else(|error| error.duration()) > STALE
}

/// The home's name in the run's folder. Of a program that finds it by its name alone it has that one,
/// so that the run's folder may be the whole home as well.
fn folder_of(vendor: &Vendor) -> &'static str {
    if vendor.home.variable.is_some() { vendor.lane } else { vendor.home.folder }
}

fn remove(folder: &Path, lock_path: &Path) {
    if let Err(error) = remove_tree(folder) {
        tracing::warn!(path = %folder.display(), %error, "a run's home of its vendor stays");
        return;
    }
    let _never_made = fs::remove_file(lock_path.with_extension("seen"));
    let _gone_already = fs::remove_file(lock_path);
}

/// The tokens of each login in a file, in their order.
fn tokens<'a>(vendor: &Vendor, login: &'a Value) -> Vec<Option<&'a Value>> {
    let home = &vendor.home;
    let logins = each(home, login).into_iter().filter_map(|at| login.pointer(&at));
    logins.flat_map(|one| home.tokens.iter().map(|pointer| one.pointer(pointer))).collect()
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
    files::replace(&path, Value::Object(file).to_string().as_bytes())
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
mod tests;
