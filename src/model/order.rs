//! What people tell a worker: to take nothing for a while, to go on, to end once its runs have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Actor, LaneName, Timestamp};

/// What a worker can be told. Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Take nothing more until it is resumed; what runs goes on.
    Pause,
    /// Go on. Of no drain: a worker that was told to end ends.
    Resume,
    /// Take nothing more, let what runs finish, then end.
    Drain,
}

/// What a worker was told, and holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Orders {
    /// Pauses, the one of the whole worker first, then by lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Pause>,
    /// It is to end once its runs have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// A pause: it holds until somebody resumes it, also over a restart of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// The lane; `None` is the whole worker.
    #[serde(default)]
    pub lane: Option<LaneName>,
    /// Who said so.
    pub by: Actor,
    /// When.
    pub at: Timestamp,
}

/// A drain: it is for one start of the worker, and gone with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Who said so.
    pub by: Actor,
    /// When.
    pub at: Timestamp,
}

impl Orders {
    /// Whether it was told nothing: it works as it should.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.paused.is_empty() && self.drain.is_none()
    }

    /// The same in a word, by which worker and site see that they mean the same: `!` for a drain,
    /// `*` for a pause of the whole worker, else lanes, between commas. Empty where there is none.
    #[must_use]
    pub fn digest(&self) -> String {
        let drain = self.drain.iter().map(|_| "!");
        let paused = self.paused.iter().map(|p| p.lane.as_ref().map_or("*", LaneName::as_str));
        drain.chain(paused).collect::<Vec<_>>().join(",")
    }

    /// The pause of the whole worker.
    #[must_use]
    pub fn pause(&self) -> Option<&Pause> {
        self.paused.iter().find(|pause| pause.lane.is_none())
    }

    /// The pause that keeps it from this lane, the whole worker's before the lane's.
    #[must_use]
    pub fn pause_of(&self, lane: &LaneName) -> Option<&Pause> {
        self.paused.iter().find(|pause| pause.lane.as_ref().is_none_or(|paused| paused == lane))
    }

    /// Whether it may take a task of this lane.
    #[must_use]
    pub fn let_take(&self, lane: &LaneName) -> bool {
        self.drain.is_none() && self.pause_of(lane).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(lane: Option<&str>) -> Pause {
        let lane = lane.map(|lane| lane.parse().expect("a lane"));
        Pause { lane, by: Actor::user("ann"), at: Timestamp(1) }
    }

    #[test]
    fn a_lane_is_kept_from_a_worker_by_its_own_pause_the_workers_or_a_drain() {
        let claude: LaneName = "claude".parse().expect("a lane");
        let takes = |orders: &Orders| orders.let_take(&claude);
        assert!(takes(&Orders::default()) && Orders::default().is_none());
        let of = |lane| Orders { paused: vec![pause(lane)], drain: None };
        assert!(takes(&of(Some("codex"))));
        assert!(!takes(&of(Some("claude"))) && !takes(&of(None)));
        let drain = Some(Drain { by: Actor::user("ann"), at: Timestamp(1) });
        let ending = Orders { paused: vec![pause(None), pause(Some("codex"))], drain };
        assert!(!takes(&Orders { paused: Vec::new(), ..ending.clone() }));
        assert_eq!(ending.digest(), "!,*,codex");
        let both = Orders { paused: vec![pause(None), pause(Some("claude"))], drain: None };
        assert_eq!(both.pause_of(&claude), both.pause());
    }

    #[test]
    fn no_orders_are_no_words_on_the_wire() {
        assert_eq!(serde_json::to_string(&Orders::default()).expect("JSON"), "{}");
        assert_eq!(serde_json::from_str::<Orders>("{}").expect("orders"), Orders::default());
    }
}
