//! The gate before one API as one login: shut while a rate limit lasts, for all who share it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::Timestamp;

/// Which limit shut the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The hour's quota is used up.
    Primary,
    /// Too much in a short time, whatever is left of the quota.
    Secondary,
    /// The server did not say which.
    Unnamed,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary limit",
            Self::Secondary => "secondary limit",
            Self::Unnamed => "rate limit",
        })
    }
}

/// How it stands with one API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateState {
    /// The last answer of whatever kind.
    pub reached_at: Option<Timestamp>,
    /// No call before this, and why.
    pub shut: Option<(Timestamp, Limit)>,
    /// Calls answered since this process began.
    pub calls: u64,
    /// Those of them that cost quota: all but "not modified".
    pub counted: u64,
    /// How far the server's clock is ahead of this machine's, in milliseconds.
    pub ahead_ms: i64,
}

/// Clocks that differ by less are as good as one: both are read to the second, and the network
/// takes its time.
const ONE_CLOCK_MS: i64 = 60_000;
/// A difference that moved by less is the same one, so that a time is not read in two ways.
const SAME_MS: i64 = 30_000;

/// Shared by everything in one process that uses one login at one API.
#[derive(Debug, Default)]
pub struct Gate(Mutex<GateState>);

impl Gate {
    /// How it stands.
    #[must_use]
    pub fn state(&self) -> GateState {
        *self.lock()
    }

    /// Until when nothing may be asked, where that is not yet over.
    pub(super) fn shut_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.lock().shut.map(|(until, _)| until).filter(|until| now < *until)
    }

    /// Nothing may be asked before `until`; a later time that is known already stays.
    pub(super) fn shut(&self, until: Timestamp, limit: Limit) {
        let mut state = self.lock();
        if state.shut.is_none_or(|(there, _)| there < until) {
            state.shut = Some((until, limit));
        }
    }

    /// The time of this machine's clock at which the server's shows `at`.
    pub(super) fn here(&self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_sub(self.lock().ahead_ms))
    }

    /// An answer came, with the server's own time where it says one.
    pub(super) fn answered(&self, at: Timestamp, counted: bool, date: Option<Timestamp>) {
        let mut state = self.lock();
        let ahead = date.map_or(0, |date| date.0.saturating_sub(at.0));
        let ahead = if ahead.abs() < ONE_CLOCK_MS { 0 } else { ahead };
        if ahead.abs_diff(state.ahead_ms) >= SAME_MS.unsigned_abs() {
            state.ahead_ms = ahead;
        }
        state.reached_at = Some(at);
        state.calls += 1;
        state.counted += u64::from(counted);
    }

    /// Each change is one assignment of plain values, so a panic elsewhere leaves them whole.
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_clock_is_told_from_a_slow_network() {
        let gate = Gate::default();
        let shown = |now: i64, date: i64| {
            gate.answered(Timestamp(now), true, Some(Timestamp(date)));
            gate.here(Timestamp(date)).0
        };
        assert_eq!(shown(100_000, 99_000), 99_000, "a second is no difference");
        assert_eq!(shown(100_000, 3_700_000), 100_000, "an hour ahead");
        assert_eq!(shown(101_000, 3_702_000), 102_000, "the same hour");
        assert_eq!(shown(102_000, 102_000), 102_000, "the clock was set right");
        assert_eq!(shown(3_700_000, 100_000), 3_700_000, "an hour behind");
    }

    #[test]
    fn the_later_end_of_two_limits_counts() {
        let gate = Gate::default();
        gate.shut(Timestamp(90), Limit::Secondary);
        gate.shut(Timestamp(60), Limit::Unnamed);
        assert_eq!(gate.shut_until(Timestamp(89)), Some(Timestamp(90)));
        assert_eq!(gate.shut_until(Timestamp(90)), None);
        assert_eq!(gate.state().shut, Some((Timestamp(90), Limit::Secondary)));
    }
}
