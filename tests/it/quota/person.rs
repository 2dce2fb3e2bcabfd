//! A person's machine with a stand-in for claude, which does as it is told.

use std::fs;
use std::path::{Path, PathBuf};

use relay::model::Clock as _;
use relay::system::SystemClock;
use serde_json::{Value, json};

use crate::support::house::{House, Ran, Working, only_has};

/// The process lane that other tasks go to.
pub const EDIT: &str = "process:edit";

/// A person's machine with a stand-in for claude, logged in.
pub struct Person {
    pub house: House,
    pub slug: String,
}

impl Person {
    pub fn new() -> Self {
        let house = House::new();
        let person = Self { slug: house.link(), house };
        person.stand_in(person.dir());
        fs::create_dir(person.dir().join(".claude")).unwrap();
        person.logs_in("ada", 1);
        person.house.process_lane("edit", "echo change >> README.md", r#"{"reply":"done"}"#);
        person
    }

    /// Another home of relay's, under the same login.
    pub fn other_home(&self) -> Self {
        let mut house = House::new();
        house.set("HOME", self.dir().to_str().unwrap());
        let person = Self { slug: house.link(), house };
        person.stand_in(self.dir());
        person
    }

    pub fn dir(&self) -> &Path {
        self.house.dir.path()
    }

    /// claude: notes each run in `called`, does as the file `says` says, and waits for the file `go`
    /// where it is told to.
    pub fn stand_in(&self, told: &Path) {
        let told = told.display();
        let done = json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "ready",
            "num_turns": 1, "total_cost_usd": 0.01,
            "usage": { "input_tokens": 12, "output_tokens": 3 },
        });
        let begun = json!({
            "type": "assistant",
            "message": { "content": [{ "type": "text", "text": "I begin." }] },
        });
        let quiet = json!({ "type": "result", "is_error": false, "result": "ready" });
        let body = format!(
            "echo run >> '{told}/called'\nsays=$(cat '{told}/says' 2>/dev/null)\n\
             case $says in\n\
             script) . '{told}/script';;\n\
             hold) while [ ! -e '{told}/go' ]; do sleep 0.02; done;;\n\
             limit|refused) echo '{begun}'; cat '{told}/answer'; exit 1;;\n\
             quiet) echo '{quiet}'; exit 0;;\n\
             refresh) sed 's/-1\"/-2\"/g; s/00001,/00002,/' '{told}/.claude/.credentials.json' \
             > \"$CLAUDE_CONFIG_DIR/.credentials.json\";;\n\
             update*) sed s/2.1.332/2.1.333/ \"$0\" > \"$0.new\"; chmod +x \"$0.new\"; \
             mv \"$0.new\" \"$0\";;\n\
             esac\n\
             case $says in break|'update and break') : > '{told}/says'; echo broken; exit 1;; esac\n\
             echo change >> README.md; echo '{done}'"
        );
        self.house.claude(&body, 0);
    }

    /// Logs in anew: each time with other tokens.
    pub fn logs_in(&self, account: &str, time: u64) {
        let login = json!({ "claudeAiOauth": {
            "accessToken": format!("access-{account}-{time}"),
            "refreshToken": format!("refresh-{account}-{time}"),
            "expiresAt": 4_000_000_000_000_u64 + time,
        }});
        fs::write(self.dir().join(".claude/.credentials.json"), login.to_string()).unwrap();
        let settings = json!({ "oauthAccount": { "accountUuid": account } });
        fs::write(self.dir().join(".claude.json"), settings.to_string()).unwrap();
    }

    /// From now on the vendor says this.
    pub fn vendor_says(&self, word: &str) {
        fs::write(self.dir().join("says"), word).unwrap();
    }

    /// From now on its program does this, in a shell in the copy, before it answers.
    pub fn vendor_does(&self, script: &str) {
        fs::write(self.dir().join("script"), script).unwrap();
        self.vendor_says("script");
    }

    /// From now on the vendor is out of quota until `seconds` since 1970.
    pub fn vendor_limits_until(&self, seconds: i64) {
        self.vendor_refuses(429, &format!("Claude AI usage limit reached|{seconds}"));
    }

    pub fn vendor_refuses(&self, status: u16, words: &str) {
        let answer = json!({
            "type": "result", "subtype": "success", "is_error": true, "api_error_status": status,
            "terminal_reason": "api_error", "result": words,
        });
        fs::write(self.dir().join("answer"), format!("{answer}\n")).unwrap();
        self.vendor_says(if status == 401 { "refused" } else { "limit" });
    }

    /// `relay probe` with these, past the walls that would hide the test's folder.
    pub fn probe(&self, what: &str, more: &[&str]) -> Ran {
        self.house.relay(&[&["probe", what, "--no-sandbox"], more].concat())
    }

    pub fn login(&self) -> Value {
        let path = self.dir().join(".claude/.credentials.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    pub fn go(&self) {
        fs::write(self.dir().join("go"), "").unwrap();
    }

    /// How often the vendor's program was run.
    pub fn calls(&self) -> usize {
        fs::read_to_string(self.dir().join("called")).unwrap_or_default().lines().count()
    }

    pub fn task(&self, lane: &str) -> String {
        self.house.task(&self.slug, lane, "Add a line")
    }

    pub fn drain(&self) {
        let args = ["work", "--once", "--name", "w", "--lanes", "claude", "--no-sandbox"];
        self.house.relay(&args).ok();
    }

    /// A worker in the background, whose claude sees the test's folder.
    pub fn work(&self, jobs: &str) -> Working {
        let lanes = format!("claude,{EDIT}");
        let lanes =
            if self.house.home.join("lanes/edit.json").exists() { &lanes } else { "claude" };
        let args = ["--name", "w", "--lanes", lanes, "--jobs", jobs, "--no-sandbox"];
        self.house.work(&args)
    }

    pub fn is(&self, task: &str, state: &str) -> bool {
        self.house.state(task) == state
    }

    pub fn stop(&self, task: &str) -> Value {
        let detail = self.house.json(&["task", "get", task, "--json"]);
        detail["task"]["stop_reason"].clone()
    }

    /// What `lane ls --json` says of claude.
    pub fn lane(&self) -> Value {
        let lanes = self.house.json(&["lane", "ls", "--json", "--patience", "60"]);
        lanes["lanes"].as_array().unwrap().iter().find(|l| l["lane"] == "claude").unwrap().clone()
    }

    /// The one mark of this home.
    pub fn mark(&self) -> PathBuf {
        let folder = self.house.home.join("quota");
        let names = only_has(&folder, &[]);
        assert_eq!(names.len(), 1, "{names:?}");
        folder.join(&names[0])
    }

    /// Whether there is a file of a lock beside the login.
    pub fn is_locked(&self) -> bool {
        self.dir().join(".claude/.credentials.json.relay-lock").exists()
    }

    pub fn marks(&self) -> Vec<String> {
        only_has(&self.house.home.join("quota"), &[])
    }
}

pub fn now() -> i64 {
    SystemClock.now().0
}
