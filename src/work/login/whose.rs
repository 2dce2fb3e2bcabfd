//! Whose login a run is under. Two logins of one vendor are told apart by what stays the same when
//! one is refreshed, and nothing of them can be read back from their names here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use relay_lanes::{Home, Vendor};
use ring::digest::{Context, SHA256};
use rustix::fs::CWD;
use serde_json::Value;

use super::{MOST, each, read};

/// What is put behind the name of the login's file for its lock.
const LOCK: &str = ".relay-lock";

/// A vendor's login, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Names the login: its place, its account, and the keys that a run is let through. The same
    /// after a refresh.
    pub key: String,
    /// Names its tokens as they are now.
    pub tokens: String,
    /// The lock that a run under it holds, beside the login's own file so that everybody who has
    /// the login finds it. `None` where it is never refreshed: then runs do not harm each other.
    pub lock: Option<PathBuf>,
}

/// Where a vendor's login of the person's is.
#[derive(Clone, Debug)]
pub struct Place {
    vendor: &'static Vendor,
    folder: PathBuf,
    beside: Option<PathBuf>,
    is_file: bool,
}

impl Place {
    /// In the vendor's folder in the person's `home`, or where its variable `moved` it; `is_file` is
    /// false where it is in a keychain.
    #[must_use]
    pub fn new(vendor: &'static Vendor, home: &Path, moved: Option<&Path>, is_file: bool) -> Self {
        let folder = moved.map_or_else(|| home.join(vendor.home.folder), Path::to_owned);
        let beside = vendor.home.beside.map(|beside| moved.unwrap_or(home).join(beside.file));
        Self { vendor, folder, beside, is_file }
    }

    /// Whose it is now, with what is let through of a worker's `environment`: these `names`.
    #[must_use]
    pub fn whose(&self, environment: &BTreeMap<OsString, OsString>, names: &[String]) -> Whose {
        let home = &self.vendor.home;
        let path = self.folder.join(home.file);
        let path = fs::canonicalize(&path).unwrap_or(path);
        let login = Value::Object(read(CWD, &path, MOST).unwrap_or_default());
        let beside =
            self.beside.as_ref().and_then(|path| read(CWD, path, MOST)).unwrap_or_default();

        let (mut key, mut tokens) = (Name::new(self.vendor), Name::new(self.vendor));
        key.path(&path);
        let let_through = |key: &&&str| names.iter().any(|name| name == **key);
        for name in self.vendor.keys.iter().filter(let_through) {
            let value = environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
            let Some(value) = value else { continue };
            key.part(name.as_bytes());
            key.part(value.as_encoded_bytes());
            tokens.part(value.as_encoded_bytes());
        }
        for at in each(home, &login) {
            let Some(one) = login.pointer(&at) else { continue };
            key.part(at.as_bytes());
            key.values(one, home.account);
            tokens.values(one, home.tokens);
        }
        if let Some(file) = home.beside {
            key.values(&Value::Object(beside), file.account);
        }
        let lock = self.is_refreshed(home, &login).then(|| lock_beside(path));
        Whose { key: key.finish(), tokens: tokens.finish(), lock }
    }

    /// A key given to the run does not say that the program leaves a stored login alone, so only
    /// a login without such a token is free of the lock.
    fn is_refreshed(&self, home: &Home, login: &Value) -> bool {
        let token = |at: String| login.pointer(&at)?.pointer(home.refresh)?.as_str();
        // What a keychain holds is not looked at.
        !self.is_file
            || each(home, login).into_iter().filter_map(token).any(|token| !token.is_empty())
    }
}

/// The lock of the login in the file at `path`.
pub(in crate::work) fn lock_beside(path: PathBuf) -> PathBuf {
    let mut lock = path.into_os_string();
    lock.push(LOCK);
    lock.into()
}

/// A name made of parts that it does not tell.
struct Name(Context);

impl Name {
    fn new(vendor: &Vendor) -> Self {
        let mut name = Self(Context::new(&SHA256));
        name.part(vendor.lane.as_bytes());
        name
    }

    fn part(&mut self, part: &[u8]) {
        self.0.update(&part.len().to_be_bytes());
        self.0.update(part);
    }

    fn path(&mut self, path: &Path) {
        self.part(path.as_os_str().as_encoded_bytes());
    }

    fn values(&mut self, of: &Value, pointers: &[&str]) {
        for pointer in pointers {
            let value = of.pointer(pointer).filter(|value| !value.is_null());
            self.part(value.map(Value::to_string).unwrap_or_default().as_bytes());
        }
    }

    /// 128 bits are more than are ever told apart.
    fn finish(self) -> String {
        let digest = self.0.finish();
        digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay_lanes::{claude, codex, grok};
    use serde_json::json;

    struct Bench {
        dir: tempfile::TempDir,
        place: Place,
        file: &'static str,
    }

    impl Bench {
        fn new(vendor: &'static Vendor) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let place = Place::new(vendor, dir.path(), None, true);
            fs::create_dir(&place.folder).unwrap();
            Self { dir, place, file: vendor.home.file }
        }

        fn login(&self, login: &Value) -> Whose {
            fs::write(self.place.folder.join(self.file), login.to_string()).unwrap();
            self.whose(&[], &[])
        }

        fn whose(&self, environment: &[(&str, &str)], names: &[&str]) -> Whose {
            let environment =
                environment.iter().map(|(k, v)| (k.into(), v.into())).collect::<BTreeMap<_, _>>();
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            self.place.whose(&environment, &names)
        }
    }

    fn differ(one: &Whose, other: &Whose) -> (bool, bool) {
        (one.key != other.key, one.tokens != other.tokens)
    }

    #[test]
    fn a_refresh_keeps_a_login_and_another_account_does_not() {
        let bench = Bench::new(&codex::VENDOR);
        let login = |account: &str, token: &str| {
            json!({ "auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": {
                "account_id": account, "access_token": token, "refresh_token": token,
            }})
        };
        let ada = bench.login(&login("ada", "1"));
        assert_eq!(differ(&ada, &bench.login(&login("ada", "1"))), (false, false));
        assert_eq!(differ(&ada, &bench.login(&login("ada", "2"))), (false, true));
        assert_eq!(differ(&ada, &bench.login(&login("bob", "1"))), (true, false));
        let key = |key: &str| json!({ "auth_mode": "apikey", "OPENAI_API_KEY": key });
        let (one, two) = (bench.login(&key("k1")), bench.login(&key("k2")));
        assert_eq!(differ(&one, &two), (true, true));
        assert_eq!((one.lock, ada.lock.is_some()), (None, true), "a key is not refreshed");
        assert!(!one.key.contains("k1") && one.key.len() == 32);

        let grok = Bench::new(&grok::VENDOR);
        let login = |user: &str, key: &str| {
            json!({ "https://auth.x.example::c": {
                "user_id": user, "key": key, "refresh_token": "r",
            }})
        };
        let ada = grok.login(&login("ada", "1"));
        assert!(ada.lock.is_some());
        assert_eq!(differ(&ada, &grok.login(&login("ada", "2"))), (false, true));
        assert_eq!(differ(&ada, &grok.login(&login("bob", "1"))), (true, false));
    }

    #[test]
    fn what_is_let_through_makes_another_login_and_what_is_not_does_not() {
        let bench = Bench::new(&claude::VENDOR);
        let login = json!({ "claudeAiOauth": { "accessToken": "a", "refreshToken": "r" } });
        let own = bench.login(&login);
        let (key, url) = (("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://gateway"));
        assert_eq!(own, bench.whose(&[key, url], &["SOMETHING_ELSE"]));
        let with = |key, names: &[&str]| differ(&own, &bench.whose(&[key], names)).0;
        assert!(with(key, &["ANTHROPIC_API_KEY"]) && with(url, &["ANTHROPIC_BASE_URL"]));
        assert!(!with(("ANTHROPIC_API_KEY", ""), &["ANTHROPIC_API_KEY"]));
        // The account of a second file, and a place of its own, are told apart as well.
        let settings = json!({ "oauthAccount": { "accountUuid": "ada" }, "projects": {} });
        fs::write(bench.dir.path().join(".claude.json"), settings.to_string()).unwrap();
        assert!(differ(&own, &bench.whose(&[], &[])).0);
        let moved = bench.dir.path().join("moved");
        fs::create_dir(&moved).unwrap();
        fs::write(moved.join(".credentials.json"), login.to_string()).unwrap();
        let elsewhere = Place::new(&claude::VENDOR, bench.dir.path(), Some(&moved), true);
        assert!(differ(&own, &elsewhere.whose(&BTreeMap::new(), &[])).0);
    }

    /// Two folders with one login are one login, and have one lock.
    #[test]
    fn a_login_that_is_linked_to_is_the_one_it_leads_to() {
        let bench = Bench::new(&claude::VENDOR);
        let own = bench.login(&json!({ "claudeAiOauth": { "refreshToken": "r" } }));
        let linked = bench.dir.path().join("linked");
        fs::create_dir(&linked).unwrap();
        let file = bench.place.folder.join(".credentials.json");
        std::os::unix::fs::symlink(&file, linked.join(".credentials.json")).unwrap();
        let other = Place::new(&claude::VENDOR, bench.dir.path(), Some(&linked), true);
        assert_eq!(own, other.whose(&BTreeMap::new(), &[]));
        let real = fs::canonicalize(&file).unwrap();
        assert_eq!(own.lock, Some(format!("{}{LOCK}", real.display()).into()));
        // A keychain is not looked into.
        let keychain = Place::new(&claude::VENDOR, &bench.dir.path().join("none"), None, false);
        assert!(keychain.whose(&BTreeMap::new(), &[]).lock.is_some());
    }
}
