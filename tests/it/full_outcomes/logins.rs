//! The real programs where nobody is logged in, as `relay lane ls` tells it.

use serde_json::json;

use super::start_script;
use crate::support::house::House;

#[test]
fn full_nobody_is_logged_in() {
    let house = House::new();
    for lane in ["claude", "codex", "grok"] {
        if start_script(&house, lane, "").is_none() {
            return;
        }
    }
    let told = house.json(&["lane", "ls", "--json", "--patience", "60"]);
    println!("{told:#}");
    for (lane, login) in
        [("claude", "claude auth login"), ("codex", "codex login"), ("grok", "grok login")]
    {
        let lane = told["lanes"].as_array().unwrap().iter().find(|l| l["lane"] == lane).unwrap();
        assert_eq!(
            (&lane["served"], &lane["state"]),
            (&json!(false), &json!("not_logged_in")),
            "{lane:#}"
        );
        assert_eq!(lane["detail"], format!("run `{login}` as this user"), "{lane:#}");
        assert_eq!(lane["hint"], login, "{lane:#}");
        assert!(lane["version"].is_string(), "{lane:#}");
    }
}
