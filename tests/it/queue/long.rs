//! Ten thousand tasks.

use relay::model::{StopReason, TaskState};
use relay::queue::NEEDS_MOST;
use sqlx::{AnyPool, AssertSqlSafe};

use super::bench::{Bench, github};
use crate::support::house::House;

/// Queues tasks `from` to `to` of a project, each with a text of a few kilobytes.
pub async fn fill(url: &str, slug: &str, from: u64, to: u64) {
    sqlx::any::install_default_drivers();
    let pool = AnyPool::connect(url).await.expect("a pool");
    let text = format!(
        "with recursive n(n) as (select {from} union all select n + 1 from n where n < {to})
        insert into tasks (id, slug, number, lane, state, title, body, asked_by, seen_at, asked_at,
            created_at, updated_at)
        select '{slug}#' || n, '{slug}', n, 'claude', 'queued', 'Issue ' || n,
            hex(zeroblob(1000)), 'ann', 1, n, n, n from n"
    );
    sqlx::query(AssertSqlSafe(text)).execute(&pool).await.expect("tasks");
    pool.close().await;
}

#[tokio::test]
async fn the_bell_is_told_of_the_oldest_of_each_project_and_claims_go_on_in_order() {
    let b = Bench::in_memory().await;
    b.queue.link(github("acme/other")).await.expect("a project");
    fill(&b.url, "acme/shop", 1, 10_000).await;
    fill(&b.url, "acme/other", 20_000, 20_001).await;
    let needs = b.queue.needs().await.expect("needs");
    let most = usize::try_from(NEEDS_MOST).expect("a small number");
    assert_eq!(needs.len(), most + 2);
    assert_eq!(needs[most - 1].task.number, u64::from(NEEDS_MOST));
    assert_eq!(needs[most].task.repo.name(), "other");
    let hand = b.worker("desk", &["claude"]).await;
    for number in 1..=50 {
        let claimed = b.claim(&hand).await.expect("work");
        assert_eq!(claimed.task.id.number, number);
        let lease = claimed.lease.reference();
        b.finish(&lease, &hand, StopReason::NoChanges).await.expect("an end");
    }
    let lines = b.queue.task_lines(Some(TaskState::Queued)).await.expect("lines");
    assert_eq!(lines.len(), 9_952);
    assert!(lines.iter().all(|task| task.body.is_empty()));
    let events = b.queue.last_events(0, None, 3).await.expect("events");
    assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!(events.last().map(|e| e.kind.as_str()), Some("run.failed"));
}

#[test]
fn a_person_lists_ten_thousand_tasks_and_a_title_of_100_kb() {
    let house = House::new();
    let slug = house.link();
    let title = "long ".repeat(20_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    runtime.block_on(async {
        let url = format!("sqlite://{}/relay.db", house.home.display());
        fill(&url, &slug, 1, 10_000).await;
        let pool = AnyPool::connect(&url).await.expect("a pool");
        let longer = sqlx::query("update tasks set title = $1 where number = 7");
        longer.bind(title.clone()).execute(&pool).await.expect("a title");
        pool.close().await;
    });
    let list = house.relay(&["task", "ls"]).ok();
    assert_eq!(list.lines().count(), 10_001);
    assert!(list.lines().all(|line| line.chars().count() < 250), "a line is too long");
    assert!(list.contains("long long") && list.contains('…'));
    let all = house.json(&["task", "ls", "--json"]);
    let tasks = all["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 10_000);
    // A line a task, also for a program: the whole of one is asked for by its name.
    let short = title.get(..300).expect("its start");
    assert!(tasks.iter().any(|task| task["title"] == short), "the title is not cut");
    assert!(tasks.iter().all(|task| task["body"] == ""));
    assert!(all.to_string().len() < 10_000 * 1_000, "a list of lines has no end");
    let one = house.json(&["task", "get", &format!("{slug}#7"), "--json"]);
    assert_eq!(one["task"]["title"], title.as_str());
    assert_eq!(one["task"]["body"].as_str().map(str::len), Some(2000));
    house.relay(&["work", "status"]).ok();
    assert_eq!(house.json(&["events", "--json", "--last", "2"])["events"], serde_json::json!([]));
}
