//! A task's whole way through the routes, and what people ask for.

use relay::api::{
    Code, CreateTask, EventsQuery, HeartbeatRequest, LeaseAnswer, LinkProject, LogQuery,
    OpenLocalPull, PreferRequest, RecordRequest,
};
use relay::model::{
    Effect, ForgeKind, PreferenceKey, Scope, StopReason, TaskState, WaitReason, WorkerState,
};

use super::fixture::Home;

#[tokio::test]
async fn a_task_goes_from_register_to_release() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    assert_eq!(task.id.to_string(), "local/shop#1");

    let told = worker.ring(1, 0, 300).await;
    assert_eq!((told.queued, told.revoked.len()), (1, 0));
    let claim = worker.claim().await.expect("the task");
    assert_eq!((&claim.task.id, claim.task.state), (&task.id, TaskState::Claimed));
    assert_eq!(claim.branch, "relay/claude-1");
    assert_eq!(worker.claim().await, None, "it is taken");
    let lease = claim.lease;

    assert_eq!(worker.start(&lease).await.state, TaskState::Running);
    let pushed = Effect::Pushed { commit: "c0ffee".to_owned(), branch: claim.branch.clone() };
    let record = RecordRequest {
        worker_id: worker.worker.id.clone(),
        epoch: lease.epoch,
        effect: pushed.clone(),
    };
    home.client.record(&task.id, &record).await.expect("an effect");
    let taken = home.client.log(&task.id, &worker.chunk(&lease, 0, "begun\n")).await;
    assert_eq!(taken.map(|t| t.next), Ok(6));
    let pull = OpenLocalPull {
        lease: lease.reference(),
        worker_id: worker.worker.id.clone(),
        title: "claude: Mend the shop".to_owned(),
        body: "Closes #1".to_owned(),
        branch: claim.branch,
        base: "main".to_owned(),
        head: "c0ffee".to_owned(),
        diff: "+mended".to_owned(),
        comment: None,
    };
    let opened = home.client.open_local_pull(&project.slug, &pull).await.expect("a pull request");
    assert_eq!((opened.number, opened.diff.as_str()), (1, "+mended"));

    let mut end = worker.end(&lease, StopReason::Finished);
    end.pr = Some(1);
    let released = home.client.release(&lease.reference(), &end).await.expect("it is released");
    assert_eq!((released.task.state, released.task.pr), (TaskState::Review, Some(1)));
    let again = home.client.release(&lease.reference(), &end).await.expect("said twice");
    assert_eq!(again.task.state, TaskState::Review);

    let detail = home.client.task(&task.id).await.expect("the task");
    assert_eq!(detail.runs.len(), 1);
    assert_eq!(detail.effects, [pushed]);
    assert_eq!(detail.local_pull.map(|p| p.title), Some("claude: Mend the shop".to_owned()));
    let log = home.client.task_log(&task.id, &LogQuery::default()).await.expect("its log");
    assert_eq!((log.text.as_str(), log.next, log.end), ("begun\n", 6, false));
    let query = LogQuery { offset: 6, ..LogQuery::default() };
    assert!(home.client.task_log(&task.id, &query).await.expect("its log").end);

    let done = home.client.done(&task.id, "ann").await.expect("it is done");
    assert_eq!(done.state, TaskState::Done);
    let query = EventsQuery { task: Some(task.id.to_string()), ..EventsQuery::default() };
    let events = home.client.events(&query).await.expect("events");
    let kinds: Vec<&str> = events.iter().map(|e| e.kind.as_str()).collect();
    for kind in ["task.queued", "run.claimed", "run.started", "run.finished", "task.done"] {
        assert!(kinds.contains(&kind), "{kind} is missing in {kinds:?}");
    }
    home.owner.close().await;
}

#[tokio::test]
async fn a_heartbeat_is_answered_lease_by_lease() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let worker = home.worker("w").await;
    home.add(&project, "claude").await;
    let lease = worker.claim().await.expect("the task").lease;
    let gone = relay::model::LeaseRef { task: lease.task.clone(), epoch: relay::model::Epoch(9) };
    let request = HeartbeatRequest {
        instance_id: worker.request.instance_id.clone(),
        offline: false,
        interval_ms: Some(60_000),
        leases: vec![lease.reference(), gone],
    };
    let answer = home.client.heartbeat(&worker.worker.id, &request).await.expect("an answer");
    assert_eq!(answer.leases[0], LeaseAnswer::Renewed { expires_at: lease.expires_at });
    assert_eq!(answer.leases[1], LeaseAnswer::Lost { reason: StopReason::LeaseLost });

    let request = HeartbeatRequest { offline: true, leases: Vec::new(), ..request };
    home.client.heartbeat(&worker.worker.id, &request).await.expect("an answer");
    let workers = home.client.workers().await.expect("workers");
    assert_eq!(workers[0].state, WorkerState::Offline);
    home.owner.close().await;
}

#[tokio::test]
async fn one_issue_may_have_several_lanes_and_a_path_names_each() {
    let home = Home::open().await;
    let link = LinkProject {
        forge: ForgeKind::Github,
        slug: "acme/shop".parse().expect("a slug"),
        path: None,
        host: "machine".to_owned(),
    };
    let project = home.client.link(&link).await.expect("a project");
    let mut request = CreateTask {
        slug: project.slug.clone(),
        lane: "claude".parse().expect("a lane"),
        issue: Some(12),
        title: None,
        body: None,
        asked_by: "ann".to_owned(),
    };
    let first = home.client.create_task(&request).await.expect("a task");
    assert_eq!((first.title.as_str(), first.body.as_str()), ("Issue 12", "As filed."));
    assert_eq!(home.client.create_task(&request).await.map(|t| t.id), Ok(first.id.clone()));
    request.lane = "process:edit".parse().expect("a lane");
    let second = home.client.create_task(&request).await.expect("a task");
    assert_eq!(second.id.to_string(), "acme/shop#12:process:edit");
    for task in [&first, &second] {
        let found = home.client.task(&task.id).await.expect("the task");
        assert_eq!(found.task.lane, task.lane);
        assert_eq!(found.waiting, [WaitReason::NoWorker]);
    }
    request.issue = Some(404);
    let refused = home.client.create_task(&request).await.expect_err("there is no such issue");
    assert_eq!(refused.code(), Some(Code::NotFound));
    home.owner.close().await;
}

#[tokio::test]
async fn a_path_keeps_its_slug_and_a_second_path_gets_another() {
    let home = Home::open().await;
    let link = |path: &str| LinkProject {
        forge: ForgeKind::Local,
        slug: "local/shop".parse().expect("a slug"),
        path: Some(path.to_owned()),
        host: "machine".to_owned(),
    };
    for (path, slug) in
        [("/a/shop", "local/shop"), ("/b/shop", "local/shop-2"), ("/a/shop", "local/shop")]
    {
        let project = home.client.link(&link(path)).await.expect("a project");
        assert_eq!(project.slug.to_string(), slug, "{path}");
    }
    let relative = home.client.link(&link("shop")).await.expect_err("not absolute");
    assert_eq!(relative.code(), Some(Code::BadRequest));
    assert_eq!(home.client.projects().await.expect("projects").len(), 2);
    home.owner.close().await;
}

#[tokio::test]
async fn a_required_label_keeps_a_task_until_a_worker_has_it() {
    let home = Home::open().await;
    let project = home.link("shop").await;
    let request = PreferRequest {
        key: PreferenceKey::LaneLabels,
        scope: Scope::Project { slug: project.slug.clone() },
        value: Some("gpu".to_owned()),
        by: "ann".to_owned(),
    };
    assert_eq!(home.client.prefer(&request).await.expect("preferences").len(), 1);
    let worker = home.worker("w").await;
    let task = home.add(&project, "claude").await;
    let held = worker.hold(1, 0);
    home.held(1).await;
    let waiting = home.client.task(&task.id).await.expect("the task").waiting;
    assert!(matches!(waiting[0], WaitReason::NoLabel { .. }), "{waiting:?}");
    assert!(!held.is_finished());

    let request = PreferRequest { value: None, ..request };
    assert_eq!(home.client.prefer(&request).await.expect("preferences").len(), 0);
    assert_eq!(held.await.expect("an answer").queued, 1);
    home.owner.close().await;
}
