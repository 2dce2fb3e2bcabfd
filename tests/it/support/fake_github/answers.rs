//! What the fake's world says: the routes of GitHub that relay uses, as GitHub answers them.

use relay::model::Timestamp;
use serde_json::{Value, json};

use super::serve::{Asked, Said, decoded};
use super::{Comment, FakeGitHub, Happened, Item, PullPart, Repo, World, seconds};

impl FakeGitHub {
    pub(super) fn say(&self, asked: &Asked<'_>) -> Said {
        let now = seconds(self.date());
        let mut world = self.world();
        match (asked.method, asked.path.as_slice()) {
            ("GET", ["user"]) => Said::ok(json!({ "login": asked.login })),
            ("POST", ["graphql"]) if !world.no_graphql => world.graphql(asked),
            (_, ["repos", owner, name, rest @ ..]) => {
                let name = format!("{owner}/{name}");
                let id = world.new_id();
                if let Some(new) = world.moved.get(&name) {
                    return Said::no(301, &format!("Moved Permanently to {new}"));
                }
                match world.repos.get_mut(&name) {
                    Some(repo) => repo.say(&self.base, &name, rest, asked, now, id),
                    None => Said::no(404, "Not Found"),
                }
            }
            _ => Said::no(404, "Not Found"),
        }
    }
}

impl World {
    fn graphql(&self, asked: &Asked<'_>) -> Said {
        let query = asked.text("query");
        if query.contains("viewer") {
            return Said::ok(json!({ "data": { "viewer": { "login": asked.login } } }));
        }
        assert!(query.contains("lastEditedAt"), "the fake knows one query only: {query}");
        let variable = |name: &str| asked.body["variables"][name].clone();
        let name = format!(
            "{}/{}",
            variable("owner").as_str().unwrap(),
            variable("name").as_str().unwrap()
        );
        let number = variable("number").as_u64().unwrap();
        let Some(item) = self.repos.get(&name).and_then(|repo| repo.items.get(&number)) else {
            let error = json!({ "type": "NOT_FOUND", "message": "Could not resolve" });
            return Said::ok(json!({ "data": { "repository": null }, "errors": [error] }));
        };
        let renamed = item.events.iter().rfind(|event| event.what == "renamed");
        let nodes: Vec<_> = renamed.iter().map(|e| json!({ "createdAt": iso(e.at) })).collect();
        Said::ok(json!({ "data": { "repository": { "issue": {
            "title": item.title,
            "body": item.body,
            "lastEditedAt": item.last_edited_at.map(iso),
            "timelineItems": { "nodes": nodes },
        } } } }))
    }
}

impl Repo {
    fn say(
        &mut self,
        base: &str,
        name: &str,
        rest: &[&str],
        asked: &Asked<'_>,
        now: Timestamp,
        id: u64,
    ) -> Said {
        let permission = self.permissions.get(asked.login).cloned().unwrap_or_default();
        let writes = ["admin", "maintain", "write"].contains(&permission.as_str());
        match (asked.method, rest) {
            ("GET", []) => Said::ok(json!({
                "full_name": name,
                "default_branch": self.default_branch,
                "archived": self.archived,
                "fork": self.fork,
                "permissions": { "pull": true, "push": writes, "admin": permission == "admin" },
                "clone_url": self.clone_url,
                "html_url": format!("{base}/{name}"),
            })),
            ("GET", ["collaborators", login, "permission"]) => {
                if !writes {
                    return Said::no(403, "Must have push access to view collaborator permission.");
                }
                match self.permissions.get(&decoded(login)) {
                    Some(has) => Said::ok(json!({
                        "permission": match has.as_str() {
                            "maintain" => "write",
                            "triage" => "read",
                            other => other,
                        },
                        "role_name": has,
                    })),
                    None => Said::no(404, "Not Found"),
                }
            }
            ("GET", ["issues"]) => asked.page(self.listed(base, name, asked)),
            ("POST", ["issues"]) => {
                let number =
                    self.add(asked.login, &asked.text("title"), &asked.text("body"), None, now);
                let labels = asked.body["labels"].as_array().cloned().unwrap_or_default();
                let item = self.items.get_mut(&number).unwrap();
                for label in labels.iter().filter_map(Value::as_str).filter(|_| writes) {
                    item.labels.push(label.to_owned());
                    item.events.push(Happened {
                        what: "labeled",
                        by: asked.login.to_owned(),
                        label: Some(label.to_owned()),
                        at: now,
                    });
                }
                Said::made(item.issue_json(base, name))
            }
            ("GET", ["pulls"]) => asked.page(self.listed_pulls(base, name, asked)),
            ("POST", ["pulls"]) => self.open_pull(base, name, asked, now, writes),
            (_, ["issues" | "pulls", number, rest @ ..]) => {
                let number = number.parse().ok().filter(|n| self.items.contains_key(n));
                let Some(number) = number else { return Said::no(404, "Not Found") };
                let head = self.shown(&self.items[&number]);
                let item = self.items.get_mut(&number).unwrap();
                item.say(base, name, rest, asked, (now, id, head))
            }
            _ => Said::no(404, "Not Found"),
        }
    }

    fn listed(&self, base: &str, name: &str, asked: &Asked<'_>) -> Vec<Value> {
        let label = asked.query("labels");
        let state = asked.query("state").unwrap_or("open");
        let newest_first = asked.query("direction") == Some("desc");
        let mut items: Vec<&Item> = self.items.values().collect();
        if newest_first {
            items.reverse();
        }
        items
            .into_iter()
            .filter(|item| asked.query("creator").is_none_or(|by| by == item.by))
            .filter(|item| state == "all" || (state == "open") == item.open)
            .filter(|item| label.is_none_or(|label| item.labels.iter().any(|have| have == label)))
            .map(|item| item.issue_json(base, name))
            .collect()
    }

    fn listed_pulls(&self, base: &str, name: &str, asked: &Asked<'_>) -> Vec<Value> {
        let head = asked.query("head").and_then(|head| head.split_once(':')).map(|(_, b)| b);
        let state = asked.query("state").unwrap_or("open");
        let newest_first = self.items.values().rev();
        newest_first
            .filter(|item| state == "all" || (state == "open") == item.open)
            .filter(|item| item.pull.as_ref().is_some_and(|p| head.is_none_or(|h| h == p.branch)))
            .map(|item| item.pull_json(base, name, self.shown(item)))
            .collect()
    }

    fn open_pull(
        &mut self,
        base: &str,
        name: &str,
        asked: &Asked<'_>,
        now: Timestamp,
        writes: bool,
    ) -> Said {
        let branch = asked.text("head");
        let there = self
            .items
            .values()
            .any(|item| item.open && item.pull.as_ref().is_some_and(|p| p.branch == branch));
        if !writes {
            return Said::no(403, "Resource not accessible by personal access token");
        }
        let invalid = ["base", "head"].into_iter().find(|part| !self.has_branch(&asked.text(part)));
        if let Some(field) = invalid {
            let error = json!({ "resource": "PullRequest", "field": field, "code": "invalid" });
            let body = json!({ "message": "Validation Failed", "errors": [error] });
            return Said { status: 422, body, more: false };
        }
        if there {
            let owner = name.split('/').next().unwrap();
            return Said {
                status: 422,
                body: json!({ "message": "Validation Failed", "errors": [{
                    "message": format!("A pull request already exists for {owner}:{branch}.")
                }]}),
                more: false,
            };
        }
        let pull = PullPart { branch, base: asked.text("base"), head: None, merged_at: None };
        let number =
            self.add(asked.login, &asked.text("title"), &asked.text("body"), Some(pull), now);
        let item = &self.items[&number];
        Said::made(item.pull_json(base, name, self.shown(item)))
    }
}

impl Item {
    fn say(
        &mut self,
        base: &str,
        name: &str,
        rest: &[&str],
        asked: &Asked<'_>,
        (now, id, head): (Timestamp, u64, Option<String>),
    ) -> Said {
        match (asked.method, asked.path[3], rest) {
            ("GET", "issues", []) => Said::ok(self.issue_json(base, name)),
            ("GET", "pulls", []) if self.pull.is_some() => {
                Said::ok(self.pull_json(base, name, head))
            }
            ("GET", "issues", ["events"]) => {
                asked.page(self.events.iter().map(Happened::json).collect())
            }
            ("GET", "issues", ["comments"]) => {
                asked.page(self.comments.iter().map(Comment::json).collect())
            }
            ("POST", "issues", ["comments"]) => {
                let comment =
                    Comment { id, by: asked.login.to_owned(), body: asked.text("body"), at: now };
                let said = Said::made(comment.json());
                self.comments.push(comment);
                self.updated_at = now;
                said
            }
            _ => Said::no(404, "Not Found"),
        }
    }

    fn issue_json(&self, base: &str, name: &str) -> Value {
        let labels: Vec<_> = self.labels.iter().map(|label| json!({ "name": label })).collect();
        let mut issue = json!({
            "number": self.number,
            "title": self.title,
            "body": if self.body.is_empty() { Value::Null } else { json!(self.body) },
            "state": if self.open { "open" } else { "closed" },
            "labels": labels,
            "user": { "login": self.by },
            "created_at": iso(self.created_at),
            "updated_at": iso(self.updated_at),
            "html_url": format!("{base}/{name}/issues/{}", self.number),
        });
        if self.pull.is_some() {
            issue["pull_request"] = json!({ "url": "…" });
        }
        issue
    }

    fn pull_json(&self, base: &str, name: &str, head: Option<String>) -> Value {
        let pull = self.pull.as_ref().unwrap();
        json!({
            "number": self.number,
            "title": self.title,
            "body": self.body,
            "state": if self.open { "open" } else { "closed" },
            "merged": pull.merged_at.is_some(),
            "merged_at": pull.merged_at.map(iso),
            "head": { "ref": pull.branch, "sha": head },
            "base": { "ref": pull.base },
            "html_url": format!("{base}/{name}/pull/{}", self.number),
        })
    }
}

impl Happened {
    fn json(&self) -> Value {
        let mut event = json!({
            "event": self.what,
            "actor": { "login": self.by },
            "created_at": iso(self.at),
        });
        if let Some(label) = &self.label {
            event["label"] = json!({ "name": label });
        }
        event
    }
}

impl Comment {
    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "user": {
                "login": self.by,
                "type": if self.by.ends_with("[bot]") { "Bot" } else { "User" },
            },
            "body": self.body,
            "created_at": iso(self.at),
        })
    }
}

/// A time as GitHub writes it. Written the other way round than relay reads it: day by day.
fn iso(at: Timestamp) -> String {
    let seconds = at.0 / 1000;
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(leap(year)) {
        days -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}
