//! A home whose queue is kept in another database than its own file.

use crate::support::house::{House, Ran};
use crate::support::postgres::Database;
use crate::support::served::Served;

#[track_caller]
fn refused(house: &House, args: &[&str], place: &str) -> Ran {
    let ran = house.relay(args);
    assert_eq!(ran.code, 5, "{args:?}: {ran:?}");
    let home = house.home.display();
    let error =
        format!("error: the queue of {home} is kept in {place}, and its site does not run\n");
    assert!(ran.err.starts_with(&error), "{}", ran.err);
    assert!(ran.err.contains("hint: start it: `relay serve` with its DATABASE_URL"), "{}", ran.err);
    ran
}

/// No command opens the home's own file once a site kept its queue at `url`.
fn go_through(url: &str, place: &str) {
    let mut served = Served::on(Some(url.to_owned()));
    served.house.process_lane("edit", "echo more >> README.md", r#"{"reply":"done"}"#);
    let slug = served.house.link();
    let task = served.house.task(&slug, "process:edit", "a wish");
    assert_eq!(served.end(), 0);
    let house = &served.house;
    let note = house.home.join("queue.json");
    let text = std::fs::read_to_string(&note).expect("the note");
    assert!(text.contains(place) && !text.contains('@'), "{text}");
    for args in [
        &["task", "ls"][..],
        &["link", house.repo.to_str().expect("a path")],
        &["token", "ls"],
        &["work", "--once", "--lanes", "process:edit"],
        &["serve", "--addr", "127.0.0.1:0"],
    ] {
        refused(house, args, place);
    }
    let backup = house.relay(&["db", "backup", "/nowhere/backup.db"]);
    // A server has its own programs for that.
    let (code, word) = if url.starts_with("postgres") { (9, "pg_dump") } else { (2, "--database") };
    assert!(backup.code == code && backup.err.contains(word), "{backup:?}");
    assert!(!house.home.join("relay.db").exists(), "it was opened");
    let doctor = house.relay(&["doctor", "--patience", "60"]);
    assert!(doctor.out.contains("is kept in"), "{}", doctor.out);

    served.start();
    assert_eq!(served.house.state(&task), "queued");
    assert_eq!(served.end(), 0);
    // What the hint says, it does.
    let hinted = refused(&served.house, &["task", "ls"], place);
    assert!(hinted.err.contains(&format!("`rm {}`", note.display())), "{}", hinted.err);
    std::fs::remove_file(note).expect("it is there");
    assert_eq!(served.house.json(&["task", "ls", "--json"])["tasks"], serde_json::json!([]));
}

#[test]
fn a_home_whose_queue_is_in_another_file_does_not_open_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queue.db").display().to_string();
    go_through(&format!("sqlite://{file}"), &file);
}

#[test]
fn pg_a_home_whose_queue_is_on_a_server_does_not_open_its_own_file() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(database) = runtime.block_on(Database::new()) else { return };
    let (_, address) = database.url.rsplit_once('@').expect("a login");
    go_through(&database.url, &format!("postgres://{address}"));
}

#[test]
fn a_site_that_is_told_to_keeps_its_queue_in_its_home_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut served = Served::on(Some(format!("sqlite://{}/queue.db", folder.path().display())));
    assert_eq!(served.end(), 0);
    let own = format!("sqlite://{}", served.house.home.join("relay.db").display());
    served.keep_in(Some(own));
    served.start();
    assert_eq!(served.end(), 0);
    served.house.relay(&["task", "ls"]).ok();
    served.keep_in(None);
    served.start();
}
