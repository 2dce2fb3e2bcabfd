//! A site and workers that are killed at random: no task is lost, none is finished twice.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::house::Working;
use crate::support::postgres::{Cluster, Database};
use crate::support::served::Served;

const LANE: &str = "process:edit";
const TASKS: usize = 9;

/// Numbers that differ from run to run.
fn any(most: usize) -> usize {
    let id = relay::model::Ids::uuid(&relay::system::SystemIds);
    usize::from_str_radix(&id[id.len() - 6..], 16).unwrap() % most
}

fn worker(served: &Served, name: &str) -> Working {
    served.work(name, &["--lanes", LANE])
}

fn tasks(served: &Served) -> Vec<Value> {
    served.house.json(&["task", "ls", "--json"])["tasks"].as_array().unwrap().clone()
}

#[test]
fn no_task_is_lost_and_none_is_finished_twice_whoever_is_killed() {
    go_through(Served::new());
}

#[test]
fn pg_no_task_is_lost_on_postgres_whoever_is_killed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(database) = runtime.block_on(Database::new()) {
        go_through(Served::on(Some(database.url.clone())));
    }
}

#[test]
fn pg_a_database_that_is_away_costs_a_worker_patience_alone() {
    let Some(cluster) = Cluster::start() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(Database::on(&cluster.url));
    let served = Served::on(Some(database.url.clone()));
    let dir = served.house.dir.path();
    let (begun, go) = (dir.join("begun"), dir.join("go"));
    let body = format!(
        "echo run >> {}; while [ ! -e {} ]; do sleep 0.02; done; echo x >> README.md",
        begun.display(),
        go.display()
    );
    served.house.process_lane("edit", &body, r#"{"reply":"Done."}"#);
    let slug = served.house.link();
    let task = served.house.task(&slug, LANE, "Say more");
    let worker = worker(&served, "a");
    worker.until("the lane", || begun.exists());
    cluster.down();
    std::fs::write(go, "").unwrap();
    let before = served.proxy.count("/record");
    worker.until("it is told again", || served.proxy.count("/record") >= before + 3);
    cluster.up();
    worker.until("the end", || {
        served.house.relay(&["task", "get", &task, "--json"]).out.contains("\"review\"")
    });
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "run\n", "{}", worker.said());
}

fn go_through(mut served: Served) {
    served.house.process_lane("edit", "sleep 0.2; echo x >> README.md", r#"{"reply":"Done."}"#);
    let slug = served.house.link();
    for n in 0..TASKS {
        served.house.task(&slug, LANE, &format!("Task {n}"));
    }
    let mut workers: Vec<Working> = ["a", "b", "c"].map(|name| worker(&served, name)).into();
    for round in 0..4 {
        let more = served.proxy.count("") + 5 + any(40);
        served.site().until("requests", || {
            let over = tasks(&served).iter().all(|task| task["state"] == "review");
            over || served.proxy.count("") >= more
        });
        served.kill();
        if round == 1 {
            let which = any(workers.len());
            workers[which].signal(Signal::KILL);
            workers[which].ended();
            served.start();
            workers[which] = worker(&served, ["a", "b", "c"][which]);
        } else {
            served.start();
        }
    }
    workers[0]
        .until("every task's end", || tasks(&served).iter().all(|task| task["state"] == "review"));
    let said = served.house.json(&["events", "--last", "1000", "--json"]);
    let mut finished: BTreeMap<&str, usize> = BTreeMap::new();
    let mut live: BTreeMap<&str, i64> = BTreeMap::new();
    for event in said["events"].as_array().unwrap() {
        let Some(task) = event["task"].as_str() else { continue };
        let epoch = event["data"]["epoch"].as_i64();
        match event["kind"].as_str().unwrap() {
            "run.claimed" if event["data"]["renewed"] != true => {
                assert_eq!(live.insert(task, epoch.unwrap()), None, "two leases: {said:#}");
            }
            "lease.expired" => assert_eq!(live.remove(task), epoch, "{said:#}"),
            "run.finished" => {
                assert_eq!(live.remove(task), epoch, "an old epoch landed: {said:#}");
                *finished.entry(task).or_default() += 1;
            }
            _ => {}
        }
    }
    assert_eq!(finished.len(), TASKS, "{finished:?}");
    assert!(finished.values().all(|times| *times == 1), "{finished:?}");
    for mut worker in workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.ended(), 0, "{}", worker.said());
    }
    assert_eq!(served.end(), 0);
}
