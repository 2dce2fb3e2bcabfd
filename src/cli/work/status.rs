//! `relay work status`: the service, the site, the repositories it watches, its workers, and the last
//! lines of the service's log.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::super::context::Context;
use super::super::exit::Exit;
use super::super::logins::{LoginState, login_states};
use super::super::machine;
use super::super::output::{Output, Tone, one_line};
use super::super::site::Site;
use super::super::table::{Cell, Table};
use super::super::time::{ago, clock_time, span};
use super::service::{self, ServiceStatus};
use super::{logfile, orders};
use crate::api::StatusAnswer;
use crate::api::feed::{ForgeStatus, HostStatus};
use crate::client::ClientError;
use crate::model::{LaneName, Timestamp, Worker, WorkerState};
use crate::work::egress::{PASSED_BY, passed_by};

/// Options of `relay work status`.
#[derive(Debug, Args)]
pub struct Options {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// What is printed with `--json`.
#[derive(Debug, Serialize)]
struct Status {
    /// Whether a site runs; without one this command looked into the home by itself.
    running: bool,
    /// What keeps `relay work` running on this machine.
    service: ServiceStatus,
    /// Missing where a far site did not answer, whose workers are not known then.
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<StatusAnswer>,
    workers: Vec<Worker>,
    /// Lanes of this machine whose program passed relay's proxy by in its last run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    past_proxy: Vec<LaneName>,
    /// Lanes of this machine that another program serves than the vendor's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    through: Vec<Through>,
    /// Logins of this machine that nothing is taken for now: out of quota, refused, in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logins: Vec<LoginState>,
    /// The last lines of the service's log.
    log: Vec<String>,
}

/// A lane, and what serves it.
#[derive(Debug, Serialize)]
struct Through {
    lane: LaneName,
    program: &'static str,
}

/// So many lines of the log are shown.
const LINES: usize = 10;

impl Options {
    /// Prints it.
    ///
    /// # Errors
    /// When the site cannot be asked; what this machine knows was printed then, of a far site.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let asking = async |site: &Site| {
            let (running, kept_by) = (!site.is_for_a_moment(), site.kept_by());
            let (status, workers) = tokio::try_join!(site.status(), site.workers())?;
            Ok::<_, ClientError>((running, kept_by, status, workers))
        };
        let (asked, service) = tokio::join!(context.ask(asking), service::status(context));
        // What this machine knows by itself is shown although a far site says nothing.
        let (asked, failed) = match asked {
            Ok(answers) => (Some(answers), None),
            Err(error) if context.config.site.is_some() => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let kept_by = asked.as_ref().and_then(|(_, kept_by, ..)| *kept_by);
        let (running, site, workers) = match asked {
            Some((running, _, site, workers)) => (running, Some(site), workers),
            None => (false, None, Vec::new()),
        };
        let past_proxy = passed_by(&context.config.home);
        let (through, logins) = (through(context), login_states(context));
        let log = logfile::last_lines(&context.config.home, LINES);
        let status = Status { running, service, site, workers, past_proxy, through, logins, log };
        if self.json {
            context.output.json(&status)?;
        } else {
            context.output.text(&status.show(context, kept_by))?;
        }
        failed.map_or(Ok(Exit::Ok), Err)
    }
}

impl Status {
    fn show(&self, context: &Context, kept_by: Option<&str>) -> String {
        let home = context.config.home.display();
        let mut text = match (&context.config.site, &self.site) {
            (Some(site), Some(told)) => {
                format!("{site}: relay {}, pid {}\n", one_line(&told.version), told.pid)
            }
            (Some(site), None) => format!("{site}: no answer\n"),
            (None, Some(told)) if self.running => {
                format!("{home}: `{}` runs, pid {}\n", kept_by.unwrap_or("relay work"), told.pid)
            }
            (None, _) => format!("{home}: no `relay work` runs\n"),
        };
        text.push_str(&self.service.show(context.output));
        // Times are the site's, so they are told by the site's clock.
        let now = self.site.as_ref().map_or_else(|| context.clock.now(), |site| site.ts);
        if let Some(site) = &self.site {
            text.push_str(&self.of_site(site, context.output));
        }
        if !self.logins.is_empty() || !self.through.is_empty() {
            text.push('\n');
        }
        for Through { lane, program } in &self.through {
            text.push_str(&format!("{lane}: served through {program}\n"));
        }
        for login in &self.logins {
            text.push_str(&format!("{}: {}\n", login.lane, login.words(context.clock.now())));
        }
        for line in self.workers.iter().flat_map(|worker| orders::standing(worker, now)) {
            text.push_str(&format!("{line}\n"));
        }
        for lane in &self.past_proxy {
            text.push_str(&format!("\n{lane}: {PASSED_BY}\n"));
        }
        if !self.log.is_empty() {
            let log = logfile::path(&context.config.home);
            text.push_str(&format!("\nthe end of {}:\n", log.display()));
            for line in &self.log {
                text.push_str(&format!("  {line}\n"));
            }
        }
        text
    }

    /// What only the site knows.
    fn of_site(&self, site: &StatusAnswer, output: Output) -> String {
        let mut text = String::new();
        for host in &site.hosts {
            text.push_str(&standing(host, site.ts));
        }
        if !site.forges.is_empty() {
            text.push('\n');
            text.push_str(&forges(&site.forges, site.ts, output));
        }
        text.push('\n');
        if self.workers.is_empty() {
            text.push_str("no worker has registered; `relay work` starts one\n");
        } else {
            text.push_str(&workers(&self.workers, site.ts, output));
        }
        text
    }
}

fn through(context: &Context) -> Vec<Through> {
    let through = |vendor| {
        let vendor = machine::installed(&context.config, vendor).vendor;
        Some(Through { lane: vendor.lane.parse().ok()?, program: vendor.through()? })
    };
    relay_lanes::VENDORS.iter().copied().filter_map(through).collect()
}

/// `github.com: waiting until 14:05 UTC (secondary limit), reached 3s ago, 120 calls, 9 counted`.
fn standing(host: &HostStatus, now: Timestamp) -> String {
    let mut said = Vec::new();
    if let Some(until) = host.waiting_until {
        let limit = host.limit.as_deref().unwrap_or("rate limit");
        said.push(format!("waiting until {} ({limit})", clock_time(until)));
    }
    match host.reached_at {
        Some(at) => said.push(format!("reached {}", ago(now, at))),
        None => said.push("not reached yet".to_owned()),
    }
    said.push(format!("{} calls, {} counted", host.calls, host.counted));
    // All of it is the site's words.
    format!("{}\n", one_line(&format!("{}: {}", host.host, said.join(", "))))
}

fn forges(forges: &[ForgeStatus], now: Timestamp, output: Output) -> String {
    let mut table = Table::new(["PROJECT", "LOOKED AT", ""]);
    for forge in forges {
        let asked = forge.polled_at.map_or_else(|| "not yet".to_owned(), |at| ago(now, at));
        let mut news = forge.error.as_deref().map(one_line).unwrap_or_default();
        if let Some(until) = forge.cooling_until.filter(|until| *until > now) {
            news.push_str(&format!(" (again {})", ago(now, until)));
        }
        table.row([(&forge.slug).into(), asked.into(), Cell::toned(Tone::Warn, news)]);
    }
    table.show(output)
}

fn workers(workers: &[Worker], now: Timestamp, output: Output) -> String {
    let mut table = Table::new(["WORKER", "STATE", "SEEN", "EVERY", "LANES", "LABELS", "TASKS"]);
    for worker in workers {
        let (tone, state) = state(worker);
        let every = worker.interval_ms.map(|ms| span(Duration::from_millis(ms)));
        let tasks: Vec<String> = worker.leases.iter().map(|l| l.task.to_string()).collect();
        table.row([
            worker.name.as_str().into(),
            Cell::toned(tone, state),
            ago(now, worker.last_seen).into(),
            every.unwrap_or_default().into(),
            Cell::names(&worker.lanes),
            Cell::names(&worker.labels),
            tasks.join(", ").into(),
        ]);
    }
    table.show(output)
}

/// What it is at: one that is there may have been told to take nothing.
fn state(worker: &Worker) -> (Tone, &'static str) {
    let orders = &worker.orders;
    match worker.state {
        WorkerState::Offline => (Tone::Faint, worker.state.as_str()),
        _ if worker.ending || orders.drain.is_some() => (Tone::Warn, "draining"),
        _ if !orders.is_none() && !worker.lanes.iter().any(|lane| orders.let_take(lane)) => {
            (Tone::Warn, "paused")
        }
        WorkerState::Online => (Tone::Good, worker.state.as_str()),
        WorkerState::Idle => (Tone::Busy, worker.state.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Actor, Drain, Orders, Pause};

    #[test]
    fn a_worker_that_takes_nothing_is_not_called_online() {
        let shown = |seen: WorkerState, lanes: &[Option<&str>], drains: bool| {
            let (by, at) = (Actor::user("ann"), Timestamp(0));
            let pause = |lane: &Option<&str>| {
                let lane = lane.map(|lane| lane.parse().unwrap());
                Pause { lane, by: by.clone(), at }
            };
            let drain = drains.then(|| Drain { by: by.clone(), at });
            let worker = Worker {
                id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
                name: "desk".parse().unwrap(),
                host: "desk".to_owned(),
                lanes: vec!["claude".parse().unwrap(), "codex".parse().unwrap()],
                labels: Vec::new(),
                forges: Vec::new(),
                version: "0".to_owned(),
                state: seen,
                last_seen: at,
                interval_ms: None,
                leases: Vec::new(),
                ending: false,
                revoked: false,
                orders: Orders { paused: lanes.iter().map(pause).collect(), drain },
            };
            let ends = Worker { ending: true, ..worker.clone() };
            let gone = seen == WorkerState::Offline;
            assert_eq!(state(&ends).1, if gone { "offline" } else { "draining" }, "by a signal");
            state(&worker).1
        };
        let (online, idle) = (WorkerState::Online, WorkerState::Idle);
        assert_eq!(shown(online, &[], false), "online");
        assert_eq!(shown(online, &[Some("codex")], false), "online", "it takes of claude");
        assert_eq!(shown(online, &[Some("claude"), Some("codex")], false), "paused");
        assert_eq!(shown(idle, &[None], false), "paused");
        assert_eq!(shown(online, &[None], true), "draining");
        assert_eq!(shown(WorkerState::Offline, &[None], true), "offline");
    }

    #[test]
    fn what_a_site_calls_a_forge_and_its_limit_cannot_steer_the_terminal() {
        let host = HostStatus {
            host: "a.example\n\x1b[2J".to_owned(),
            waiting_until: Some(Timestamp(0)),
            limit: Some("\x1b]0;x\x07".to_owned()),
            reached_at: None,
            calls: 1,
            counted: 0,
        };
        let said = standing(&host, Timestamp(0));
        assert!(said.starts_with("a.example \u{fffd}[2J: waiting until "), "{said:?}");
        assert!(!said.trim_end_matches('\n').contains(char::is_control), "{said:?}");
    }
}
