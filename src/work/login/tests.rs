//! A person's login and a run's copy of it, as both change.

use super::*;
use relay_lanes::{claude, codex, fx};
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
    let _ = lane.keep_in_step();
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
    let _ = lane.keep_in_step();
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
        let _ = lane.keep_in_step();
        assert_eq!(bench.persons_file(), before, "{lanes_login}");
    }
    fs::remove_file(&at).unwrap();
    std::os::unix::fs::symlink(&secret, &at).unwrap();
    let _ = lane.keep_in_step();
    assert_eq!(bench.persons_file(), before, "a link was followed");
    fs::remove_file(&at).unwrap();
    rustix::fs::mknodat(CWD, &at, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _ = lane.keep_in_step();
    // While claude itself refreshes, nobody else writes.
    fs::remove_file(&at).unwrap();
    let lock = bench.dir.path().join(".claude").join(REFRESHING);
    fs::create_dir(&lock).unwrap();
    lanes(&lane, &login("new", 20));
    assert!(!lane.keep_in_step());
    assert_eq!((bench.persons_file(), lock.exists()), (before, true));
    fs::remove_dir(&lock).unwrap();
}

/// Days ago a claude was killed while it refreshed.
#[test]
fn a_lock_that_a_dead_program_left_loses_no_refreshed_login() {
    let bench = Bench::new();
    let lock = bench.dir.path().join(".claude").join(REFRESHING);
    let long = Duration::from_secs(3 * 24 * 3600);
    // Also where the clock was set back since.
    for (at, is_past) in [(20, true), (30, false)] {
        let lane = bench.logins.take("c").unwrap();
        fs::create_dir(&lock).unwrap();
        let made = fs::metadata(&lock).unwrap().modified().unwrap();
        let time = if is_past { made - long } else { made + long };
        File::open(&lock).unwrap().set_modified(time).unwrap();
        lanes(&lane, &login("new", at));
        drop(lane);
        assert_eq!(bench.persons_file()["claudeAiOauth"], login("new", at));
        assert_eq!(fs::read_dir(bench.dir.path().join("vendor")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(bench.dir.path().join(".claude")).unwrap().count(), 1);
    }
}

#[test]
fn a_login_that_cannot_be_brought_back_is_kept_for_the_next_start() {
    let bench = Bench::new();
    let mut lane = bench.logins.take("c").unwrap();
    lane.patience = Duration::ZERO;
    let (before, lock) = (bench.persons_file(), bench.dir.path().join(".claude").join(REFRESHING));
    fs::create_dir(&lock).unwrap();
    lanes(&lane, &login("new", 20));
    let file = lane.home().join(LOGIN);
    drop(lane);
    assert_eq!(bench.persons_file(), before);
    assert_eq!(json_of(&file)["claudeAiOauth"], login("new", 20));
    fs::remove_dir(&lock).unwrap();
    bench.logins.sweep();
    assert_eq!(bench.persons_file()["claudeAiOauth"], login("new", 20));
    assert_eq!(fs::read_dir(bench.dir.path().join("vendor")).unwrap().count(), 0);
}

#[test]
fn new_tokens_are_told_as_soon_as_they_are_in_the_runs_home() {
    let bench = Bench::new();
    let settings = json!({ "primaryApiKey": "key-of-ada", "oauthAccount": {"x": "y"} });
    fs::write(bench.dir.path().join(".claude.json"), settings.to_string()).unwrap();
    let mut lane = bench.logins.take("c").unwrap();
    let told = |secrets: Vec<Secret>| -> Vec<String> {
        secrets.iter().map(|secret| secret.expose().to_owned()).collect()
    };
    assert_eq!(told(lane.secrets()), ["access-old", "refresh-old", "key-of-ada"]);
    let fresh = lane.refreshes();
    assert_eq!(told(fresh()), ["access-old", "refresh-old"]);
    lanes(&lane, &login("lanes", 20));
    assert_eq!(told(fresh()), ["access-lanes", "refresh-lanes"]);
    assert_eq!(fresh().len(), 0, "nothing is new");
    assert!(lane.keep_in_step());
    bench.persons(&login("hers", 30));
    assert!(lane.keep_in_step());
    assert_eq!(told(fresh()), ["access-hers", "refresh-hers"]);
    // A lane may write it as often as it likes.
    for n in 0..100 {
        lanes(&lane, &login(&format!("{n:03}"), 40));
        assert!(fresh().len() <= 2);
    }
    lanes(&lane, &login("last", 50));
    assert_eq!(fresh().len(), 0);
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
    let _ = lane.keep_in_step();
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
    let _ = lane.keep_in_step();
    let kept = of_grok("access-new", "refresh-new", "2026-11-30T16:00:00Z");
    assert_eq!(json_of(&persons), kept, "only what a refresh changes");

    for (refresh, expires) in [
        ("refresh-odd", "2026-11-30T15:59:59Z"),
        ("refresh odd", "2026-11-30T17:00:00Z"),
        ("refresh-odd", "no time"),
        ("refresh-odd", ""),
    ] {
        fs::write(&file, of_grok("access-odd", refresh, expires).to_string()).unwrap();
        let _ = lane.keep_in_step();
        assert_eq!(json_of(&persons), kept, "{refresh} {expires}");
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
        let _ = lane.keep_in_step();
        assert_eq!(json_of(&file), old);
    }
    fs::write(&ours, new.to_string()).unwrap();
    let _ = lane.keep_in_step();
    let mut expected = of_codex("new", "2026-11-29T11:00:00.5Z");
    expected["agent_identity"] = json!("another's");
    assert_eq!(json_of(&file), expected);
    fs::remove_file(&file).unwrap();
    drop(lane);
    assert!(!logins.take("c").unwrap().is_there(), "nobody is logged in");
}

/// A login of fx's, with tokens of this name.
fn of_fx(name: &str, expires: u64) -> Value {
    json!({
        "version": 1, "access_token": format!("access-{name}"),
        "refresh_token": format!("refresh-{name}"), "expires_at_ms": expires,
        "account_id": "ada",
    })
}

/// fx finds its home by its name alone: the run's stands in its place, and the folder around it may
/// be a whole home.
#[test]
fn a_home_that_no_variable_names_is_called_as_the_persons_is() {
    let dir = tempfile::tempdir().unwrap();
    let persons = dir.path().join(".fx");
    fs::create_dir(&persons).unwrap();
    let write = |folder: &Path, login: &Value| {
        fs::write(folder.join("chatgpt-auth.json"), login.to_string()).unwrap();
    };
    write(&persons, &of_fx("old", 10));
    fs::write(persons.join("grok-auth.json"), of_fx("grok", 10).to_string()).unwrap();
    let logins = |vendor| Logins::new(dir.path().join("vendor"), vendor, dir.path(), None);
    let own = logins(&fx::CODEX);
    let run = own.take("c").unwrap();
    assert_eq!(run.home(), run.folder().join(".fx"));
    assert_eq!(run.replaces(), Some((persons.clone(), run.home())));
    let names: Vec<_> = fs::read_dir(run.home()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["chatgpt-auth.json"], "nothing else of the person's");
    let mode = fs::metadata(run.home().join("chatgpt-auth.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "fx reads no other");
    assert_eq!(json_of(&run.home().join("chatgpt-auth.json")), of_fx("old", 10));

    // Its worker was killed. What sweeps the homes of codex's own runs leaves it, and what sweeps its
    // own brings the login home.
    write(&run.home(), &of_fx("new", 20));
    let lock = run.lock_path.clone();
    std::mem::forget(run);
    fs::remove_file(&lock).unwrap();
    File::create(&lock).unwrap();
    logins(&codex::VENDOR).sweep();
    assert_eq!(json_of(&persons.join("chatgpt-auth.json")), of_fx("old", 10));
    own.sweep();
    assert_eq!(json_of(&persons.join("chatgpt-auth.json")), of_fx("new", 20));
    assert_eq!(fs::read_dir(dir.path().join("vendor")).unwrap().count(), 0);
}

/// Its tokens and their time, and nothing else that the run left there.
#[test]
fn what_fx_refreshed_is_brought_to_the_persons_file() {
    let dir = tempfile::tempdir().unwrap();
    let persons = dir.path().join(".fx");
    fs::create_dir(&persons).unwrap();
    let file = persons.join("grok-auth.json");
    fs::write(&file, of_fx("old", 10).to_string()).unwrap();
    let logins = Logins::new(dir.path().join("vendor"), &fx::GROK, dir.path(), None);
    let run = logins.take("c").unwrap();
    let mut evil = of_fx("new", 20);
    evil["account_id"] = json!("bob");
    evil["more"] = json!("of the lane's");
    fs::write(run.home().join("grok-auth.json"), evil.to_string()).unwrap();
    drop(run);
    assert_eq!(json_of(&file), of_fx("new", 20));
    assert_eq!(fs::read_dir(dir.path().join("vendor")).unwrap().count(), 0);
}
