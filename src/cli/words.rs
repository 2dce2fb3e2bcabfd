//! Sentences a person reads about a task, each in one place.

use std::time::Duration;

use relay_lanes::VENDORS;

use super::output::{Tone, one_line};
use super::time::{ago, date, span, until};
use crate::model::{
    Actor, ForgeProblem, PushProblem, RepoProblem, Scope, StopReason, TaskState, Timestamp, Usage,
    WaitReason,
};
use crate::work::gate::Shut;

/// How a state looks.
#[must_use]
pub const fn tone(state: TaskState) -> Tone {
    match state {
        TaskState::Queued | TaskState::Claimed | TaskState::Running => Tone::Busy,
        TaskState::Review | TaskState::Done => Tone::Good,
        TaskState::Parked => Tone::Warn,
        TaskState::Failed => Tone::Bad,
        TaskState::Cancelled => Tone::Faint,
    }
}

/// Why a task waits, and what to do about it.
#[must_use]
pub fn waiting(why: &WaitReason, now: Timestamp) -> String {
    match why {
        WaitReason::NoWorker => "no worker is there: start one with `relay work`".to_owned(),
        WaitReason::Offline { worker, last_seen, revoked, paused } => {
            let (how, then) = match revoked {
                true => ("has a token that was revoked", "`relay setup` and"),
                false => ("is away", "start"),
            };
            let paused = match paused {
                true => format!("; it is paused as well: `relay work resume {worker}`"),
                false => String::new(),
            };
            format!(
                "the worker that could take it {how}: {worker} was there {}; {then} `relay work` \
                 there{paused}",
                ago(now, *last_seen)
            )
        }
        WaitReason::Paused { until } => format!(
            "every worker that could take it is out of quota until {} ({})",
            date(*until),
            ago(now, *until)
        ),
        WaitReason::WorkersPaused { workers, by, since } => {
            let names: Vec<&str> = workers.iter().map(|name| name.as_str()).collect();
            format!(
                "every worker that could take it is paused, or told to end, by {} since {} ({}): {}; \
                 `relay work resume WORKER` lets a paused one go on, and one that was told to end is started again",
                actor(by),
                date(*since),
                ago(now, *since),
                names.join(", ")
            )
        }
        WaitReason::Ending { workers } => {
            let names: Vec<&str> = workers.iter().map(|name| name.as_str()).collect();
            format!(
                "every worker that could take it ends once its runs have: {}; start `relay work` \
                 there again",
                names.join(", ")
            )
        }
        WaitReason::LoginRefused { lane, workers } => {
            let names: Vec<&str> = workers.iter().map(|name| name.as_str()).collect();
            let vendor = VENDORS.iter().find(|vendor| vendor.lane == lane.as_str());
            let log_in = vendor.map_or("log in", |vendor| vendor.log_in);
            format!(
                "the login of {lane} on {} was refused: `{log_in}` there, or `relay probe {lane}` \
                 where the login is good",
                names.join(", ")
            )
        }
        WaitReason::LaneFull { lane, workers } => {
            let names: Vec<&str> = workers.iter().map(|name| name.as_str()).collect();
            format!(
                "as many runs of {lane} as it may have at once are on at {}; `relay work --limit \
                 {lane}=N` allows more",
                names.join(", ")
            )
        }
        WaitReason::RepoFull { runs } => {
            let (n, names) = (runs.len(), runs.iter().map(ToString::to_string));
            format!(
                "{n} of {n} runs in this repository are on: {}; `relay work --per-repo N` allows more",
                names.collect::<Vec<_>>().join(", ")
            )
        }
        WaitReason::Unreachable { error } => {
            format!("its repository could not be looked at: {}", one_line(error))
        }
        WaitReason::NoLane { lane } => {
            format!(
                "no worker serves the lane {lane}: `relay lane ls` on a worker says why; one that \
                 was started with --lanes serves those alone"
            )
        }
        WaitReason::NoLabel { missing } => {
            let missing: Vec<&str> = missing.iter().map(|l| l.as_str()).collect();
            format!(
                "no worker of the lane has the label {}: `relay work --labels …`, or `relay prefer` \
                 to require less",
                missing.join(", ")
            )
        }
        WaitReason::OtherHost { host } => {
            format!("the repository is on {host}: only a worker there can take it")
        }
        WaitReason::NoForgeLogin { forge } => {
            format!("no worker of the lane is logged in to {forge}: `gh auth login` there")
        }
        WaitReason::Silent { worker, last_seen, interval_ms } => {
            let every = interval_ms.map(|ms| span(Duration::from_millis(ms)));
            let every = every.map(|every| format!(", and asks every {every} where it runs"));
            format!(
                "the worker that could take it is silent: {worker} was there {}{}; see that `relay work` \
                 runs there",
                ago(now, *last_seen),
                every.unwrap_or_default()
            )
        }
        WaitReason::Busy => "every worker that could take it is busy, or about to ask".to_owned(),
        WaitReason::Parked { until, stopped } => {
            let why = stopped.as_ref().map(|why| format!(": {}", paused(why))).unwrap_or_default();
            format!("parked until {} ({}){why}", date(*until), ago(now, *until))
        }
        WaitReason::Budget { scope, usd_day, spent_usd, until } => {
            let (of, flags) = (spender(scope), scope_flags(scope));
            let more = format!("`relay prefer budget.usd_day AMOUNT{flags}` gives more");
            match until {
                Some(until) => format!(
                    "{of} has spent ${spent_usd} of the ${usd_day} a day: goes on at {} ({}); {more}",
                    date(*until),
                    ago(now, *until)
                ),
                None => format!("{of} has a budget of nothing: {more}"),
            }
        }
        WaitReason::Unknown => {
            "for a reason that this version does not know: bring relay up to date".to_owned()
        }
    }
}

/// Why a run that is tried again by itself stopped.
fn paused(stopped: &StopReason) -> String {
    match stopped {
        StopReason::Quota { .. } => "the vendor's quota is used up".to_owned(),
        StopReason::ForgeLimited { .. } => "the forge's rate limit is used up".to_owned(),
        StopReason::VendorUnreachable => "the vendor could not be reached".to_owned(),
        StopReason::Crashed => "the lane's program crashed".to_owned(),
        StopReason::Stalled => "the lane fell silent".to_owned(),
        StopReason::RepoUnusable { why: RepoProblem::Unreachable }
        | StopReason::PushRefused { why: PushProblem::Unreachable } => {
            "the repository could not be reached".to_owned()
        }
        StopReason::ForgeRefused { why: ForgeProblem::Unreachable } => {
            "the forge could not be reached".to_owned()
        }
        StopReason::RepoUnusable { why: RepoProblem::Disk } => {
            "the worker's disk had no room".to_owned()
        }
        other => other.to_string(),
    }
}

/// A scope as a person reads it.
#[must_use]
pub fn scope_words(scope: &Scope) -> String {
    match scope {
        Scope::Global => "global".to_owned(),
        Scope::Lane { lane } => format!("lane {lane}"),
        Scope::Project { slug } => format!("project {slug}"),
        Scope::ProjectLane { slug, lane } => format!("project {slug}, lane {lane}"),
    }
}

/// `user:ann` as a person reads it. A site can say any name.
#[must_use]
pub fn actor(by: &Actor) -> String {
    one_line(by.0.strip_prefix("user:").unwrap_or(&by.0))
}

/// Who has spent a budget.
fn spender(scope: &Scope) -> String {
    match scope {
        Scope::Global => "the site".to_owned(),
        Scope::Lane { lane } => format!("the lane {lane}"),
        Scope::Project { slug } => slug.to_string(),
        Scope::ProjectLane { slug, lane } => format!("the lane {lane} of {slug}"),
    }
}

/// The flags of `relay prefer` that name a scope, with a space before them.
fn scope_flags(scope: &Scope) -> String {
    match scope {
        Scope::Global => String::new(),
        Scope::Lane { lane } => format!(" --scope lane --scope-id {lane}"),
        Scope::Project { slug } => format!(" --scope project --scope-id {slug}"),
        Scope::ProjectLane { slug, lane } => {
            format!(" --scope project-lane --scope-id {slug}:{lane}")
        }
    }
}

/// What a person may want to do next.
#[must_use]
pub fn next(state: TaskState, id: &str) -> Option<String> {
    match state {
        TaskState::Running | TaskState::Claimed => {
            Some(format!("relay task log {} --follow", quoted(id)))
        }
        TaskState::Failed | TaskState::Cancelled => {
            Some(format!("relay task retry {}", quoted(id)))
        }
        TaskState::Queued | TaskState::Parked | TaskState::Review | TaskState::Done => None,
    }
}

/// Why a lane is not asked for, to follow its name and a colon.
#[must_use]
pub fn shut(why: &Shut, now: Timestamp) -> String {
    let words = match why {
        Shut::OutOfQuota(at) => format!("out of quota {}", until(now, *at)),
        Shut::ForgeLimit(at) => {
            format!("the forge's rate limit is used up {}", until(now, *at))
        }
        Shut::VendorAway(at) => {
            format!("its vendor did not answer: nothing of it is taken {}", until(now, *at))
        }
        Shut::Refused { until: at, lane, log_in } => {
            format!(
                "not logged in, or its login was refused: nothing of it is taken {} (hint: `{log_in}`, \
                 or `relay probe {lane}` where the login is good)",
                until(now, *at)
            )
        }
        Shut::InUse(Some(holder)) => format!("its login is in use by {holder}; one run at a time"),
        Shut::InUse(None) => "its login is in use; one run at a time".to_owned(),
        Shut::NoLock(error) => format!("its login cannot be locked: {error}"),
        Shut::Gone(program) => {
            format!("its program is not at {} any more", program.display())
        }
    };
    // Whoever holds a login has written its note by itself.
    one_line(&words)
}

/// What a run cost. Parts that were not reported are not there; nothing at all says so.
#[must_use]
pub fn usage(usage: &Usage) -> String {
    let mut parts = Vec::new();
    let mut part = |value: Option<u64>, word: &str| {
        if let Some(n) = value {
            parts.push(format!("{} {word}", grouped(n)));
        }
    };
    part(usage.input_tokens, "tokens in");
    part(usage.cache_read_tokens, "from cache");
    part(usage.cache_write_tokens, "to cache");
    part(usage.output_tokens, "out");
    part(usage.model_calls, "model calls");
    part(usage.turns, "turns");
    if let Some(cost) = usage.cost_usd {
        parts.push(format!("${cost:.2} at list price"));
    }
    if let Some(model) = &usage.model {
        parts.push(model.clone());
    }
    if !usage.is_reported() {
        parts.insert(0, "not reported".to_owned());
    }
    if let Some(ms) = usage.duration_ms {
        parts.push(span(Duration::from_millis(ms)));
    }
    parts.join(", ")
}

/// An id as it can be pasted into a shell, where `#` may begin a comment.
fn quoted(id: &str) -> String {
    format!("'{id}'")
}

/// `12,345`.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::login::Holder;

    #[test]
    fn names_and_notes_of_others_cannot_steer_the_terminal() {
        let by = Actor("user:m\x1b]0;x\x07\nMAINPID=1".to_owned());
        assert_eq!(actor(&by), "m\u{fffd}]0;x\u{fffd} MAINPID=1");
        let holder = Holder {
            pid: 7,
            home: "/home/\x1b[2J".into(),
            doing: "relay work\n\x1b[1A, a/b#1".to_owned(),
            since: Timestamp(0),
        };
        assert_eq!(
            shut(&Shut::InUse(Some(holder)), Timestamp(0)),
            "its login is in use by relay work \u{fffd}[1A, a/b#1, process 7 of /home/\u{fffd}[2J; \
             one run at a time"
        );
    }

    #[test]
    fn what_was_not_reported_is_not_zero() {
        let silent = Usage { duration_ms: Some(1_500), ..Usage::default() };
        assert_eq!(usage(&silent), "not reported, 1s");
        let told = Usage {
            model: Some("opus".to_owned()),
            input_tokens: Some(12_345),
            output_tokens: Some(0),
            cost_usd: Some(0.4251),
            ..Usage::default()
        };
        assert_eq!(usage(&told), "12,345 tokens in, 0 out, $0.43 at list price, opus");
    }

    #[test]
    fn a_worker_that_is_away_is_named_with_all_that_keeps_it_away() {
        let words = |revoked, paused| {
            let (worker, last_seen) = ("desk".parse().expect("valid"), Timestamp(0));
            let away = WaitReason::Offline { worker, last_seen, revoked, paused };
            waiting(&away, Timestamp(300_000))
        };
        assert_eq!(
            words(false, false),
            "the worker that could take it is away: desk was there 5m ago; start `relay work` there"
        );
        assert_eq!(
            words(true, false),
            "the worker that could take it has a token that was revoked: desk was there 5m ago; \
             `relay setup` and `relay work` there"
        );
        let silent = WaitReason::Silent {
            worker: "desk".parse().expect("valid"),
            last_seen: Timestamp(0),
            interval_ms: Some(300_000),
        };
        assert_eq!(
            waiting(&silent, Timestamp(180_000)),
            "the worker that could take it is silent: desk was there 3m ago, and asks every 5m where \
             it runs; see that `relay work` runs there"
        );
        let paused = words(false, true);
        let as_well = "`relay work` there; it is paused as well: `relay work resume desk`";
        assert!(paused.ends_with(as_well), "{paused}");
    }

    #[test]
    fn waiting_names_what_is_missing() {
        let missing = WaitReason::NoLabel { missing: vec!["gpu".parse().expect("valid")] };
        assert!(waiting(&missing, Timestamp(0)).contains("label gpu"));
        let workers = vec!["desk".parse().expect("valid")];
        let refused = WaitReason::LoginRefused { lane: "codex".parse().expect("valid"), workers };
        assert_eq!(
            waiting(&refused, Timestamp(0)),
            "the login of codex on desk was refused: `codex login` there, or `relay probe codex` \
             where the login is good"
        );
        let workers = vec!["desk".parse().expect("valid"), "lap".parse().expect("valid")];
        let lane = "codex".parse().expect("valid");
        assert_eq!(
            waiting(&WaitReason::LaneFull { lane, workers }, Timestamp(0)),
            "as many runs of codex as it may have at once are on at desk, lap; `relay work --limit \
             codex=N` allows more"
        );
        let runs = vec!["a/b#1".parse().expect("valid"), "a/b#2".parse().expect("valid")];
        assert_eq!(
            waiting(&WaitReason::RepoFull { runs }, Timestamp(0)),
            "2 of 2 runs in this repository are on: a/b#1, a/b#2; `relay work --per-repo N` allows \
             more"
        );
        let until = Timestamp(60_000);
        let parked = |stopped| waiting(&WaitReason::Parked { until, stopped }, Timestamp(0));
        assert_eq!(parked(None), "parked until 1970-01-01 00:01:00 UTC (in 1m)");
        assert_eq!(
            parked(Some(StopReason::Quota { until })),
            "parked until 1970-01-01 00:01:00 UTC (in 1m): the vendor's quota is used up"
        );
    }
}
