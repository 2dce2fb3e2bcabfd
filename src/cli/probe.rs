//! `relay probe`: one tiny real run of a vendor's lane, which tells that its login works and keeps it
//! fresh.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use relay_lanes::VENDORS;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::context::Context;
use super::error::Failure;
use super::exit::Exit;
use super::machine;
use super::output::{Output, Tone, one_line};
use super::time::{span, until};
use super::words::{grouped, shut};
use crate::model::{LaneName, ModelName, RunPreferences, StopReason, Timestamp, Usage};
use crate::process::adopt_orphans;
use crate::work::StopSignal;
use crate::work::copies::Copies;
use crate::work::errand::TRIES_AGAIN;
use crate::work::gate::Shut;
use crate::work::lane::{Installed, Lanes};
use crate::work::login::{Holder, Seat};
use crate::work::ping::Ping;
use crate::work::probe::{LaneState, PATIENCE, vendor_status, version};

/// How often a login in use is asked for with --wait.
const LOOK: Duration = Duration::from_secs(1);

/// Options of `relay probe`.
#[derive(Debug, Args)]
pub struct Options {
    /// The lane, and after a colon the model: claude, codex:gpt-6.2-sol
    #[arg(value_name = "LANE[:MODEL]")]
    what: String,
    /// Wait for a login that is in use, however long
    #[arg(long)]
    wait: bool,
    /// Run it without its sandbox, as `relay work --no-sandbox` does
    #[arg(long)]
    no_sandbox: bool,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// What `relay probe --json` prints.
#[derive(Debug, Serialize)]
struct Probed {
    lane: LaneName,
    /// The program that did the lane's work, where it is not the vendor's own.
    through: Option<&'static str>,
    /// Whether the model answered.
    answered: bool,
    program: Option<PathBuf>,
    /// After the run.
    version: Option<String>,
    /// Before it, where that was another: the program was updated meanwhile.
    updated_from: Option<String>,
    /// What the program says of its login.
    login: String,
    /// The model that did the work, else the one that was asked for; `null` where the program chose
    /// and does not tell.
    model: Option<String>,
    stop_reason: Option<StopReason>,
    error: Option<String>,
    hint: Option<String>,
    /// The model's words.
    said: Option<String>,
    /// `null` in it is "not reported".
    usage: Usage,
    /// From its start to its end, in milliseconds.
    took_ms: u64,
    /// When the quota is there again, where it is used up.
    out_of_quota_until: Option<Timestamp>,
}

impl Options {
    /// Makes the run and prints what came of it.
    ///
    /// # Errors
    /// When there is no such lane, its program is missing, or its login is in use.
    pub async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (lane, model) = parse(&self.what)?;
        if let Err(error) = adopt_orphans() {
            tracing::warn!(%error, "what a killed supervisor leaves behind may live on");
        }
        let signal = StopSignal::default();
        stop_on_signals(signal.clone())?;
        let secrets = context.config.site_secrets.clone();
        let mut lanes = machine::lanes(context, !self.no_sandbox, secrets).await;
        let asked = lanes.vendors.iter_mut().find(|known| known.vendor.lane == lane.as_str());
        let installed = asked.ok_or_else(|| no_lane(&lane))?;
        installed.model = model.or_else(|| installed.model.take());
        let installed = installed.clone();
        if installed.program.is_none() {
            let text = format!("the program `{}` is not on PATH", installed.vendor.program);
            return Err(Failure::new(Exit::NotReady, text).hint(installed.vendor.install).into());
        }
        let seat = self.seat(context, &lanes, &installed, &signal).await?;
        let probed = probe(context, &lanes, &installed, &signal, &seat).await?;
        drop(seat);
        if self.json {
            context.output.json(&probed)?;
        } else {
            context.output.text(&probed.show(context.output, context.clock.now()))?;
        }
        Ok(probed.exit())
    }

    /// The login, from whoever has it once it is free.
    async fn seat(
        &self,
        context: &Context,
        lanes: &Lanes,
        installed: &Installed,
        signal: &StopSignal,
    ) -> anyhow::Result<Seat> {
        let lane = installed.vendor.lane;
        let holder = Holder {
            pid: std::process::id(),
            home: lanes.relay_home.clone(),
            doing: format!("relay probe {lane}"),
            since: context.clock.now(),
        };
        let mut told = false;
        loop {
            let why = match Seat::take_soon(&lanes.whose(installed), &holder).await {
                Ok(seat) => return Ok(seat),
                Err(why) => Shut::from(why),
            };
            let text = format!("{lane}: {}", shut(&why, holder.since));
            if !matches!(why, Shut::InUse(_)) {
                return Err(Failure::new(Exit::Failed, text).into());
            }
            if !self.wait {
                let hint =
                    format!("a run keeps the login fresh as well; relay probe {lane} --wait");
                return Err(Failure::new(Exit::Conflict, text).hint(hint).into());
            }
            if !std::mem::replace(&mut told, true) {
                context.output.note(format!("{text}; waiting"));
            }
            if signal.guard(tokio::time::sleep(LOOK)).await.is_err() {
                return Err(Failure::new(Exit::Conflict, text).into());
            }
        }
    }
}

async fn probe(
    context: &Context,
    lanes: &Lanes,
    installed: &Installed,
    signal: &StopSignal,
    seat: &Seat,
) -> anyhow::Result<Probed> {
    let lane: LaneName = installed.vendor.lane.parse()?;
    let mut probed = Probed {
        lane,
        through: installed.vendor.through(),
        answered: false,
        program: installed.program.clone(),
        version: None,
        updated_from: None,
        login: String::new(),
        model: installed.model(&RunPreferences::default()).map(str::to_owned),
        stop_reason: None,
        error: None,
        hint: None,
        said: None,
        usage: Usage::default(),
        took_ms: 0,
        out_of_quota_until: None,
    };
    match signal.guard(vendor_status(lanes, installed, PATIENCE)).await {
        Ok(Some(seen)) if seen.state == LaneState::NotLoggedIn => {
            (probed.version, probed.login) = (seen.version, seen.detail.clone());
            (probed.error, probed.hint) = (Some(seen.detail), seen.hint);
            probed.stop_reason = Some(StopReason::NotLoggedIn);
            return Ok(probed);
        }
        Ok(Some(seen)) => (probed.version, probed.login) = (seen.version, seen.detail),
        Ok(None) => {}
        Err(reason) => {
            probed.stop_reason = Some(reason);
            return Ok(probed);
        }
    }
    let copies = Copies::open(lanes.relay_home.join("work"))?;
    let (ids, supervisor) = (context.ids(), machine::own_program()?);
    let ping = Ping {
        lanes,
        installed,
        copies: &copies,
        supervisor: &supervisor,
        clock: &*context.clock,
        ids: &*ids,
        signal,
    };
    let began = context.clock.uptime();
    let ended = ping.send(seat).await?;
    let took = context.clock.uptime().saturating_sub(began);
    let after = signal.guard(version(lanes, installed)).await.unwrap_or_default();
    probed.took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    probed.updated_from = probed.version.clone().filter(|_| probed.version != after);
    probed.version = after.or(probed.version);
    match ended {
        Ok(result) => {
            probed.stop_reason = result.stop;
            // A worker would try it again.
            let hint = result.hint.filter(|hint| hint != TRIES_AGAIN);
            (probed.error, probed.hint) = (result.error, hint);
            probed.said = result.summary;
            probed.model = result.usage.model.clone().or(probed.model);
            probed.usage = result.usage;
        }
        Err(stop) => {
            probed.error = stop.told();
            probed.stop_reason = Some(stop.reason);
        }
    }
    // A model that used its turns up answered.
    probed.answered =
        matches!(probed.stop_reason, None | Some(StopReason::MaxTurns | StopReason::Skipped));
    if let Some(StopReason::Quota { until }) = probed.stop_reason {
        probed.out_of_quota_until = Some(until);
    }
    Ok(probed)
}

impl Probed {
    fn show(&self, output: Output, now: Timestamp) -> String {
        let version = self.version.as_deref().unwrap_or("of unknown version");
        let took = span(Duration::from_millis(self.took_ms));
        let (tone, how) = match &self.stop_reason {
            _ if self.answered => (Tone::Good, "answered".to_owned()),
            Some(StopReason::Quota { until: at }) => {
                (Tone::Warn, format!("is out of quota {}", until(now, *at)))
            }
            Some(reason) => (Tone::Bad, format!("did not answer: {reason}")),
            None => (Tone::Bad, "did not answer".to_owned()),
        };
        let through = self.through.map(|fx| format!(" through {fx}")).unwrap_or_default();
        let how = output.paint(tone, &how);
        let mut text = format!("{}{through} {version} {how}, {took}\n", self.lane);
        let mut field = |name: &str, value: &str| {
            text.push_str(&format!("  {name:<8} {}\n", one_line(value)));
        };
        if let Some(before) = &self.updated_from {
            field("updated", &format!("from {before} while it was asked"));
        }
        field("login", &self.login);
        field("model", self.model.as_deref().unwrap_or("chosen by the program, not reported"));
        field("tokens", &tokens(&self.usage));
        let cost = self.usage.cost_usd.map(|cost| format!("${cost:.4} at list price"));
        field("cost", cost.as_deref().unwrap_or("not reported"));
        for (name, value) in [("said", &self.said), ("error", &self.error), ("hint", &self.hint)] {
            if let Some(value) = value {
                field(name, value);
            }
        }
        text
    }

    fn exit(&self) -> Exit {
        match &self.stop_reason {
            _ if self.answered => Exit::Ok,
            Some(StopReason::NotLoggedIn | StopReason::SandboxUnavailable) => Exit::NotReady,
            Some(StopReason::VendorUnreachable | StopReason::Stalled | StopReason::TimedOut) => {
                Exit::Unreachable
            }
            _ => Exit::TaskFailed,
        }
    }
}

fn tokens(usage: &Usage) -> String {
    let of = |tokens: Option<u64>, word: &str| Some(format!("{} {word}", grouped(tokens?)));
    let parts = [
        of(usage.input_tokens, "in"),
        of(usage.cache_read_tokens, "from cache"),
        of(usage.cache_write_tokens, "to cache"),
        of(usage.output_tokens, "out"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "not reported".to_owned() } else { parts.join(", ") }
}

/// `claude`, `codex:gpt-6.2-sol`. What a process lane is called has a colon too.
fn parse(what: &str) -> anyhow::Result<(LaneName, Option<String>)> {
    let lanes = || VENDORS.iter().map(|vendor| vendor.lane).collect::<Vec<_>>().join(", ");
    if what.starts_with("process:") {
        let text = format!("{what} is a program of your own: it has no login to keep fresh");
        return Err(Failure::new(Exit::Usage, text)
            .hint(format!(
                "relay probe takes {}; docs/LANES.md says how to run yours by hand",
                lanes()
            ))
            .into());
    }
    let (lane, model) = match what.split_once(':') {
        Some((lane, model)) => (lane, Some(model.parse::<ModelName>()?.to_string())),
        None => (what, None),
    };
    Ok((lane.parse()?, model))
}

fn no_lane(lane: &LaneName) -> Failure {
    Failure::new(Exit::NotFound, format!("this version of relay has no lane `{lane}`"))
        .hint("relay lane ls")
}

/// A run that is called off keeps its login too, and leaves nothing.
fn stop_on_signals(stop: StopSignal) -> std::io::Result<()> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.stop(StopReason::WorkerStopped);
    });
    Ok(())
}
