//! `relay work pause`, `resume` and `drain`: a person tells a worker what to take, by way of the site.

use clap::Args;

use super::super::context::Context;
use super::super::error::Failure;
use super::super::exit::Exit;
use super::super::output::one_line;
use super::super::site::Site;
use super::super::time::{ago, date};
use super::super::words::actor;
use crate::api::OrderRequest;
use crate::client::Client;
use crate::model::{LaneName, Order, Orders, Timestamp, Worker, WorkerName, WorkerState};

/// Options of `relay work pause` and `relay work resume`.
#[derive(Debug, Args)]
pub struct LaneOptions {
    /// The worker, as `relay work status` lists it (default: this machine's)
    worker: Option<WorkerName>,
    /// Only these lanes of it
    #[arg(long = "lane", value_name = "LANE,…", value_delimiter = ',')]
    lanes: Vec<LaneName>,
    /// Print the worker as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `relay work drain`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// The worker, as `relay work status` lists it (default: this machine's)
    worker: Option<WorkerName>,
    /// Print the worker as JSON
    #[arg(long)]
    json: bool,
}

impl DrainOptions {
    /// Tells the worker to end once its runs have.
    ///
    /// # Errors
    /// When there is no such worker, or the token is another machine's.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let Self { worker, json } = self;
        LaneOptions { worker, lanes: Vec::new(), json }.run(context, Order::Drain).await
    }
}

impl LaneOptions {
    /// Tells the worker, and prints how it stands then.
    ///
    /// # Errors
    /// When there is no such worker or lane, or the token is another machine's.
    pub async fn run(self, context: &Context, order: Order) -> anyhow::Result<Exit> {
        let Self { worker, lanes, json } = self;
        let telling = async |site: &Site| {
            let worker = match &worker {
                Some(worker) => worker.clone(),
                None => own(context, site).await?,
            };
            let by = context.config.user.clone();
            let request = OrderRequest { worker, order, lanes: lanes.clone(), by };
            Ok::<_, anyhow::Error>(site.order(&request).await?)
        };
        let worker = context.ask(telling).await?;
        if json {
            context.output.json(&worker)?;
        }
        if order == Order::Resume
            && (worker.ending || worker.orders.drain.is_some())
            && worker.state != WorkerState::Offline
        {
            return Err(ends(&worker).into());
        }
        if !json {
            context.output.line(said(&worker, order, &lanes))?;
        }
        Ok(Exit::Ok)
    }
}

/// The worker that is meant where nobody names one: the one the token speaks for, else the only one
/// of this machine, of several the only one that is there.
async fn own(context: &Context, site: &Client) -> anyhow::Result<WorkerName> {
    if let Some(worker) = &context.config.worker {
        return Ok(worker.clone());
    }
    if context.config.token.is_some()
        && let Some(worker) = site.who_am_i().await?.worker
    {
        return Ok(worker);
    }
    let mut here = site.workers().await?;
    here.retain(|worker| worker.host == context.host());
    if here.len() > 1 && here.iter().any(|worker| worker.state != WorkerState::Offline) {
        here.retain(|worker| worker.state != WorkerState::Offline);
    }
    match &here[..] {
        [only] => Ok(only.name.clone()),
        [] => Err(Failure::new(Exit::NotFound, "no worker of this machine has registered")
            .hint("name one of those that `relay work status` lists")
            .into()),
        several => {
            let names: Vec<&str> = several.iter().map(|worker| worker.name.as_str()).collect();
            let text = format!("this machine has several workers: {}", names.join(", "));
            Err(Failure::new(Exit::Usage, text).hint("name the one that is meant").into())
        }
    }
}

/// No word takes a drain back: what a person asked for who resumes such a worker does not happen. One
/// that has ended is as any other that is not there: its next start knows nothing of the drain.
fn ends(worker: &Worker) -> Failure {
    let (name, host) = (&worker.name, one_line(&worker.host));
    let runs: Vec<String> = worker.leases.iter().map(|lease| lease.task.to_string()).collect();
    let then = match &runs[..] {
        [] => "takes nothing more".to_owned(),
        runs => format!("takes nothing more, and has {} to end", runs.join(", ")),
    };
    let text = format!("{name} was told to end, which is not taken back: it {then}");
    Failure::new(Exit::Conflict, text)
        .hint(format!("start it again on {host}, once it has ended: relay work --name {name}"))
}

/// What a person reads once it was told.
fn said(worker: &Worker, order: Order, lanes: &[LaneName]) -> String {
    let name = &worker.name;
    let runs: Vec<String> = worker.leases.iter().map(|lease| lease.task.to_string()).collect();
    let (runs, none) = (runs.join(", "), runs.is_empty());
    let of: Vec<&str> = lanes.iter().map(LaneName::as_str).collect();
    let of = of.join(", ");
    match order {
        Order::Pause => {
            let goes_on = if none { String::new() } else { format!("; what runs goes on: {runs}") };
            if lanes.is_empty() {
                format!("{name} takes nothing until `relay work resume {name}`{goes_on}")
            } else {
                let flag = of.replace(", ", ",");
                format!(
                    "{name} takes nothing of {of} until `relay work resume {name} --lane {flag}`{goes_on}"
                )
            }
        }
        Order::Resume if worker.orders.pause().is_some() => {
            format!("{name} is still paused as a whole: `relay work resume {name}`")
        }
        Order::Resume if worker.state == WorkerState::Offline => {
            let lanes = if lanes.is_empty() { String::new() } else { format!(" with {of}") };
            format!("{name} is not there; it goes on{lanes} once `relay work` is started there")
        }
        Order::Resume if lanes.is_empty() => format!("{name} goes on"),
        Order::Resume => format!("{name} goes on with {of}"),
        Order::Drain if worker.state == WorkerState::Offline && none => {
            format!("{name} is not there: nothing is to end")
        }
        Order::Drain if worker.state == WorkerState::Idle => {
            let then = if none { String::new() } else { format!(" after {runs}") };
            format!(
                "{name} was not heard of for two minutes or longer: where it still runs, it takes \
                 nothing more and ends{then}"
            )
        }
        Order::Drain if none => format!("{name} ends: nothing runs"),
        Order::Drain => format!("{name} takes nothing more, and ends after {runs}"),
    }
}

/// What keeps a worker from taking what it could, a line each: what people told it, or a token that
/// is none, for `relay work status`.
pub(super) fn standing(worker: &Worker, now: Timestamp) -> Vec<String> {
    let (name, Orders { paused, drain }) = (&worker.name, &worker.orders);
    let since = |at: Timestamp| format!("since {} ({})", date(at), ago(now, at));
    let mut lines = Vec::new();
    if worker.revoked {
        lines.push(format!("{name}: its token was revoked; `relay setup` and `relay work` there"));
    }
    for pause in paused {
        let (by, since) = (actor(&pause.by), since(pause.at));
        lines.push(match &pause.lane {
            None => format!("{name}: paused by {by} {since}; `relay work resume {name}`"),
            Some(lane) => format!(
                "{name}: {lane} paused by {by} {since}; `relay work resume {name} --lane {lane}`"
            ),
        });
    }
    if drain.is_none() && worker.ending && worker.state != WorkerState::Offline {
        let runs: Vec<String> = worker.leases.iter().map(|lease| lease.task.to_string()).collect();
        lines.push(format!("{name}: told to end by a signal; waits for {}", runs.join(", ")));
    }
    if let Some(drain) = drain {
        let runs: Vec<String> = worker.leases.iter().map(|lease| lease.task.to_string()).collect();
        let (by, since) = (actor(&drain.by), since(drain.at));
        lines.push(match (worker.state, &runs[..]) {
            (WorkerState::Offline, _) => format!("{name}: ended, as {by} told it {since}"),
            (WorkerState::Idle, _) => {
                let seen = ago(now, worker.last_seen);
                format!("{name}: told to end by {by} {since}; was heard of {seen}, and not since")
            }
            (_, []) => format!("{name}: told to end by {by} {since}; nothing runs"),
            (_, runs) => {
                format!("{name}: told to end by {by} {since}; waits for {}", runs.join(", "))
            }
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Actor, Drain, Epoch, LeaseRef, Pause};

    fn worker(orders: Orders, runs: &[&str]) -> Worker {
        let lease = |task: &&str| LeaseRef { task: task.parse().unwrap(), epoch: Epoch(1) };
        Worker {
            id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
            name: "desk".parse().unwrap(),
            host: "desk".to_owned(),
            lanes: vec!["codex".parse().unwrap()],
            labels: Vec::new(),
            forges: Vec::new(),
            version: "0".to_owned(),
            state: WorkerState::Online,
            last_seen: Timestamp(0),
            interval_ms: None,
            leases: runs.iter().map(lease).collect(),
            ending: false,
            revoked: false,
            orders,
        }
    }

    fn paused(lane: Option<&str>) -> Orders {
        let lane = lane.map(|lane| lane.parse().unwrap());
        let pause = Pause { lane, by: Actor::user("ann"), at: Timestamp(0) };
        Orders { paused: vec![pause], drain: None }
    }

    fn ending() -> Orders {
        let drain = Some(Drain { by: Actor::user("ann"), at: Timestamp(0) });
        Orders { paused: Vec::new(), drain }
    }

    #[test]
    fn each_order_says_what_follows_from_it() {
        let codex: LaneName = "codex".parse().unwrap();
        let busy = |orders| worker(orders, &["a/b#1", "a/b#2"]);
        assert_eq!(
            said(&busy(paused(None)), Order::Pause, &[]),
            "desk takes nothing until `relay work resume desk`; what runs goes on: a/b#1, a/b#2"
        );
        assert_eq!(
            said(&worker(paused(Some("codex")), &[]), Order::Pause, std::slice::from_ref(&codex)),
            "desk takes nothing of codex until `relay work resume desk --lane codex`"
        );
        assert_eq!(
            said(&worker(paused(None), &[]), Order::Resume, &[codex]),
            "desk is still paused as a whole: `relay work resume desk`"
        );
        assert_eq!(
            said(&busy(ending()), Order::Drain, &[]),
            "desk takes nothing more, and ends after a/b#1, a/b#2"
        );
        assert_eq!(said(&worker(ending(), &[]), Order::Drain, &[]), "desk ends: nothing runs");
        let silent = |runs| Worker { state: WorkerState::Idle, ..worker(ending(), runs) };
        let unsure = "desk was not heard of for two minutes or longer: where it still runs, it takes \
                      nothing more and ends";
        assert_eq!(said(&silent(&[]), Order::Drain, &[]), unsure);
        assert_eq!(said(&silent(&["a/b#1"]), Order::Drain, &[]), format!("{unsure} after a/b#1"));
    }

    #[test]
    fn resumed_it_does_not_go_on_where_it_is_not_there_or_was_told_to_end() {
        let gone = |orders| Worker { state: WorkerState::Offline, ..worker(orders, &[]) };
        assert_eq!(
            said(&gone(Orders::default()), Order::Resume, &[]),
            "desk is not there; it goes on once `relay work` is started there"
        );
        let ends = |worker| {
            let failure = ends(&worker);
            assert_eq!(failure.exit(), Exit::Conflict);
            failure.to_string()
        };
        let told = "desk was told to end, which is not taken back: it";
        assert_eq!(
            ends(worker(ending(), &["a/b#1"])),
            format!("{told} takes nothing more, and has a/b#1 to end")
        );
        assert_eq!(ends(worker(ending(), &[])), format!("{told} takes nothing more"));
        assert_eq!(
            said(&gone(ending()), Order::Resume, &[]),
            "desk is not there; it goes on once `relay work` is started there"
        );
    }

    #[test]
    fn status_says_by_whom_since_when_and_what_it_waits_for() {
        let now = Timestamp(300_000);
        let since = "since 1970-01-01 00:00:00 UTC (5m ago)";
        assert_eq!(
            standing(&worker(paused(Some("codex")), &[]), now),
            [format!("desk: codex paused by ann {since}; `relay work resume desk --lane codex`")]
        );
        assert_eq!(
            standing(&worker(ending(), &["a/b#1"]), now),
            [format!("desk: told to end by ann {since}; waits for a/b#1")]
        );
        let silent = Worker { state: WorkerState::Idle, ..worker(ending(), &["a/b#1"]) };
        assert_eq!(
            standing(&silent, now),
            [format!("desk: told to end by ann {since}; was heard of 5m ago, and not since")]
        );
        assert!(standing(&worker(Orders::default(), &[]), now).is_empty());
        let signalled = Worker { ending: true, ..worker(Orders::default(), &["a/b#1"]) };
        assert_eq!(standing(&signalled, now), ["desk: told to end by a signal; waits for a/b#1"]);
        let gone = Worker { state: WorkerState::Offline, ..signalled };
        assert!(standing(&gone, now).is_empty());
        let revoked = Worker { revoked: true, ..gone };
        assert_eq!(
            standing(&revoked, now),
            ["desk: its token was revoked; `relay setup` and `relay work` there"]
        );
    }
}
