//! The worker's token on a whole machine: real git over HTTP, GitHub's REST, a lane that was told
//! the token and writes it wherever it can. It is in no file, argument, environment, log, comment
//! or answer.

use std::path::Path;

use crate::support::hosted::{Hosted, TOKEN};

/// Every file below `folder`, links not followed.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_run_leaves_the_token_nowhere() {
    let mut hosted = Hosted::new(&[("README.md", "# shop\n")]).await;
    hosted.house.set("RELAY_DEBUG", "1");
    hosted.house.process_lane("edit", "echo change >> README.md", r#"{"reply":"Done."}"#);
    let task = hosted.task("process:edit", "Say more");
    let ran = hosted.house.relay(&["work", "--once", "--name", "w", "--lanes", "process:edit"]);
    let detail = hosted.house.json(&["task", "get", &task, "--json"]);
    assert_eq!(detail["task"]["state"], "review", "{detail:#}\n{}", ran.err);
    assert!(!format!("{ran:?}{detail}").contains(TOKEN));
    for file in files(&hosted.house.home) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(TOKEN.len()).any(|w| w == TOKEN.as_bytes()), "{}", file.display());
    }
    assert!(hosted.origin.at("refs/heads/relay/process-edit-1").is_some());
    assert!(hosted.host.asked().iter().any(|asked| asked.authorization.is_some()));
    assert_eq!(hosted.shop.pulls().len(), 1);
    assert!(hosted.hub.calls().iter().all(|call| call.status < 400));
}
