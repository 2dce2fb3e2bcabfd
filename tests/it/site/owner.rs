//! One owner a home.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use relay::client::{Client, ClientError, Endpoint, VERSION};
use relay::model::LEASE;
use relay::site::owner::{Access, OwnerError, Role, connect};
use relay::system::SystemClock;

use super::fixture::{Home, client, config, socket_of, until};
use crate::support::PATIENCE;

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().expect("it is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn a_second_worker_of_a_home_is_told_the_owners_process() {
    let home = Home::open().await;
    let second = connect(config(home.folder.path(), Role::Work, Arc::new(SystemClock)));
    let second = tokio::time::timeout(PATIENCE, second).await.expect("it waits");
    let error = second.map(|_| ()).expect_err("it is taken");
    let OwnerError::Taken { pid, role, .. } = &error else { panic!("{error}") };
    assert_eq!((*pid, *role), (std::process::id(), Role::Work));
    assert!(error.to_string().contains(&pid.to_string()), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("RELAY_HOME")));
    home.owner.close().await;
}

#[tokio::test]
async fn a_command_goes_to_the_living_owner_and_else_owns_the_home_for_its_moment() {
    let home = Home::open().await;
    home.link("shop").await;
    let moment = || config(home.folder.path(), Role::Moment, Arc::new(SystemClock));
    let living = connect(moment()).await.expect("a way in");
    assert!(matches!(&living, Access::Living(l) if l.pid == std::process::id()));
    assert_eq!(client(living.socket()).projects().await.expect("projects").len(), 1);
    living.close().await;

    let Home { folder, owner, .. } = home;
    owner.close().await;
    let own = connect(config(folder.path(), Role::Moment, Arc::new(SystemClock))).await;
    let own = own.expect("a way in");
    assert!(matches!(&own, Access::Own(_)));
    assert_eq!(client(own.socket()).projects().await.expect("projects").len(), 1);
    own.close().await;
}

#[tokio::test]
async fn a_worker_waits_for_a_command_that_holds_the_home_for_its_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let moment = config(folder.path(), Role::Moment, Arc::new(SystemClock));
    let moment = connect(moment).await.expect("a way in");
    let worker = config(folder.path(), Role::Work, Arc::new(SystemClock));
    let worker = tokio::spawn(connect(worker));
    until(|| moment.socket().exists()).await;
    assert!(!worker.is_finished());
    moment.close().await;
    let worker = worker.await.expect("a task").expect("an owner");
    assert!(matches!(&worker, Access::Own(_)));
    worker.close().await;
}

#[tokio::test]
async fn the_home_and_its_socket_are_closed_to_others_and_the_socket_goes_with_the_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("home");
    std::fs::create_dir(&path).expect("a folder");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a mode");
    let own = connect(config(folder.path(), Role::Moment, Arc::new(SystemClock))).await;
    let own = own.expect("a way in");
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("relay.sock")), 0o600);
    assert_eq!(mode(&path.join("relay.lock")), 0o600);
    own.close().await;
    assert!(!path.join("relay.sock").exists());
}

#[tokio::test]
async fn a_socket_left_by_a_killed_owner_is_taken_over_and_another_file_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("home");
    std::fs::create_dir(&path).expect("a folder");
    drop(std::os::unix::net::UnixListener::bind(path.join("relay.sock")).expect("a socket"));
    let own = connect(config(folder.path(), Role::Moment, Arc::new(SystemClock))).await;
    let own = own.expect("a way in");
    assert!(client(own.socket()).status().await.is_ok());
    own.close().await;

    std::fs::write(path.join("relay.sock"), "a person's file").expect("a file");
    let refused = connect(config(folder.path(), Role::Moment, Arc::new(SystemClock))).await;
    let error = refused.map(|_| ()).expect_err("it is no socket");
    assert!(matches!(error, OwnerError::Socket { .. }), "{error}");
    assert!(path.join("relay.sock").exists());
}

#[tokio::test]
async fn a_home_with_a_very_long_path_is_served_and_reached() {
    let folder = tempfile::tempdir().expect("a folder");
    let deep = folder.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).expect("folders");
    let own = connect(config(&deep, Role::Moment, Arc::new(SystemClock))).await;
    let own = own.expect("a way in");
    assert!(own.socket().as_os_str().len() > 200);
    assert!(client(own.socket()).status().await.is_ok());
    let other = connect(config(&deep, Role::Moment, Arc::new(SystemClock))).await;
    assert!(matches!(other.expect("a way in"), Access::Living(_)));
    own.close().await;
}

#[tokio::test]
async fn another_version_is_refused_at_connect_and_at_each_request() {
    let home = Home::open().await;
    let mut other = config(home.folder.path(), Role::Moment, Arc::new(SystemClock));
    other.version = "9.9.9".to_owned();
    let error = connect(other).await.map(|_| ()).expect_err("another version");
    let OwnerError::Version { theirs, ours, .. } = &error else { panic!("{error}") };
    assert_eq!((theirs.as_str(), ours.as_str()), (VERSION, "9.9.9"));
    assert!(error.hint().is_some_and(|hint| hint.contains("relay work")));

    let endpoint = Endpoint::Unix(home.owner.socket().to_owned());
    let old = Client::of_version(endpoint, "9.9.9").expect("a client");
    let expected = ClientError::Version { theirs: VERSION.to_owned(), ours: "9.9.9".to_owned() };
    assert_eq!(old.tasks(None).await, Err(expected.clone()));
    assert_eq!(old.cancel(&"a/b#1".parse().expect("a task"), "ann").await, Err(expected));
    home.owner.close().await;
}

#[tokio::test]
async fn closing_lets_held_bells_go_and_nobody_is_reached_after_it() {
    let home = Home::open().await;
    let worker = home.worker("w").await;
    let held = worker.hold(1, 0);
    home.held(1).await;
    let Home { folder, owner, client, .. } = home;
    owner.close().await;
    assert_eq!(held.await.expect("an answer").queued, 0);
    let gone = client.status().await.expect_err("nobody is there");
    assert!(matches!(gone, ClientError::Unreachable { .. }), "{gone}");
    assert!(gone.is_passing() && gone.hint().is_some());
    assert!(!socket_of(folder.path()).exists());
}

#[tokio::test]
async fn what_stood_before_a_restart_stands_after_it() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    home.client.log(&task.id, &worker.chunk(&lease, 0, "before\n")).await.expect("a log");
    let version = home.owner.site().bell.version();

    home.clock.advance(Duration::from_secs(1));
    let home = home.restart().await;
    assert!(home.owner.site().bell.version() > version);
    let taken = home.client.log(&task.id, &worker.chunk(&lease, 7, "after\n")).await;
    assert_eq!(taken.map(|t| t.next), Ok(13));
    let log = home.client.task_log(&task.id, &relay::api::LogQuery::default()).await;
    assert_eq!(log.expect("its log").text, "before\nafter\n");
    // The timer of the lease is armed again.
    home.pass(LEASE - Duration::from_secs(10)).await;
    let held = worker.hold(0, 0);
    home.held(1).await;
    home.clock.advance(Duration::from_secs(10));
    assert_eq!(held.await.expect("an answer").revoked, [lease.reference()]);
    home.owner.close().await;
}
