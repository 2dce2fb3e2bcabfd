//! What is queued, by what it asks of a worker: which tasks nobody was just told of, who was told
//! of which, and when the next offer ends.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::board::Reading;
use crate::model::{ForgeKind, Label, LaneName, RepoName, TaskId, Timestamp, WorkerId};
use crate::queue::{NEEDS_MOST, Need};

/// As [`NEEDS_MOST`].
pub(super) const NEEDS: usize = NEEDS_MOST as usize;

/// A queued task's place in the order in which the tasks were first seen. Which task a worker is
/// woken for says nothing of which it gets: a claim takes the oldest it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(u64);

/// What a task asks of a worker. There are few of these beside many tasks and many workers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) lane: LaneName,
    pub(super) labels: Vec<Label>,
    pub(super) forge: ForgeKind,
    pub(super) host: String,
}

/// A lane of a project: of each the oldest needs are read.
type Class = (LaneName, RepoName);

/// A queued task.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) need: Need,
    /// The reading that first showed it.
    pub(super) entered: Reading,
    pub(super) offer: Option<Offer>,
    /// Who was told of it, at which version, and when it may be told again.
    pub(super) told: HashMap<WorkerId, (i64, Timestamp)>,
    /// Whose claim came back empty although this was there.
    pub(super) declined: HashSet<WorkerId>,
}

/// A worker was just woken for the task.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) worker: WorkerId,
    pub(super) until: Timestamp,
}

/// What the clock alone brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// The offer of this task is over.
    Offered(Slot),
    /// This worker may be told of this task again.
    Told(Slot, WorkerId),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    slots: u64,
    tasks: HashMap<TaskId, Slot>,
    queued: BTreeMap<Slot, Queued>,
    kinds: HashMap<Kind, Row>,
    lanes: HashMap<LaneName, usize>,
    classes: HashMap<Class, usize>,
    /// What has more queued tasks than were read.
    cut: HashSet<Class>,
    alarms: BTreeSet<(Timestamp, Alarm)>,
}

/// The tasks of one kind.
#[derive(Debug, Default)]
struct Row {
    count: usize,
    /// Those that nobody was just told of.
    free: BTreeSet<Slot>,
}

impl Kind {
    pub(super) fn of(need: &Need) -> Self {
        let Need { task: _, lane, labels, forge, host } = need.clone();
        Self { lane, labels, forge, host }
    }
}

impl Queued {
    /// Whether the worker is neither to be told of it now nor has refused it.
    pub(super) fn is_news_to(&self, worker: &WorkerId, now: Timestamp) -> bool {
        !self.declined.contains(worker)
            && self.told.get(worker).is_none_or(|(_, again)| *again <= now)
    }
}

impl Backlog {
    pub(super) fn get(&self, slot: Slot) -> Option<&Queued> {
        self.queued.get(&slot)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Slot, &Queued)> {
        self.queued.iter().map(|(slot, queued)| (*slot, queued))
    }

    pub(super) fn find(&self, task: &TaskId) -> Option<Slot> {
        self.tasks.get(task).copied()
    }

    /// Each kind that has tasks nobody was just told of, with these in order.
    pub(super) fn free(&self) -> impl Iterator<Item = (&Kind, &BTreeSet<Slot>)> {
        self.kinds.iter().map(|(kind, row)| (kind, &row.free))
    }

    /// How many tasks of these lanes are queued.
    pub(super) fn count(&self, lanes: &[LaneName]) -> usize {
        let once = lanes.iter().enumerate().filter(|(i, lane)| !lanes[..*i].contains(lane));
        once.filter_map(|(_, lane)| self.lanes.get(lane)).sum()
    }

    /// When the next alarm is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Takes the next alarm that is due.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Alarm> {
        if self.next()? > now {
            return None;
        }
        self.alarms.pop_first().map(|(_, alarm)| alarm)
    }

    /// Says of which lanes of which projects only a part is known: `needs` is all that was read.
    pub(super) fn measure(&mut self, needs: &[Need]) {
        let mut classes: HashMap<Class, usize> = HashMap::new();
        for need in needs {
            *classes.entry(class(need)).or_default() += 1;
        }
        self.cut = classes.into_iter().filter(|(_, n)| *n >= NEEDS).map(|(of, _)| of).collect();
    }

    /// Whether more tasks like this one are queued than are known, and those that are known come
    /// to an end.
    pub(super) fn is_low(&self, need: &Need) -> bool {
        let of = class(need);
        self.cut.contains(&of) && self.classes.get(&of).copied().unwrap_or_default() < NEEDS / 2
    }

    pub(super) fn add(&mut self, need: Need, entered: Reading) -> Slot {
        self.slots += 1;
        let slot = Slot(self.slots);
        let row = self.kinds.entry(Kind::of(&need)).or_default();
        row.count += 1;
        row.free.insert(slot);
        *self.lanes.entry(need.lane.clone()).or_default() += 1;
        *self.classes.entry(class(&need)).or_default() += 1;
        self.tasks.insert(need.task.clone(), slot);
        let (told, declined) = (HashMap::new(), HashSet::new());
        self.queued.insert(slot, Queued { need, entered, offer: None, told, declined });
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Queued> {
        let queued = self.queued.remove(&slot)?;
        if let Some(offer) = &queued.offer {
            self.alarms.remove(&(offer.until, Alarm::Offered(slot)));
        }
        for (worker, (_, again)) in &queued.told {
            self.alarms.remove(&(*again, Alarm::Told(slot, worker.clone())));
        }
        self.tasks.remove(&queued.need.task);
        let kind = Kind::of(&queued.need);
        if let Some(row) = self.kinds.get_mut(&kind) {
            row.free.remove(&slot);
            row.count -= 1;
            if row.count == 0 {
                self.kinds.remove(&kind);
            }
        }
        less(&mut self.lanes, &queued.need.lane);
        less(&mut self.classes, &class(&queued.need));
        Some(queued)
    }

    /// The worker is woken for the task.
    pub(super) fn offer(&mut self, slot: Slot, offer: Offer) {
        let Some(queued) = self.queued.get_mut(&slot) else { return };
        self.alarms.insert((offer.until, Alarm::Offered(slot)));
        queued.offer = Some(offer);
        if let Some(row) = self.kinds.get_mut(&Kind::of(&queued.need)) {
            row.free.remove(&slot);
        }
    }

    /// Nobody is woken for the task any longer; who was.
    pub(super) fn take_offer(&mut self, slot: Slot) -> Option<WorkerId> {
        let queued = self.queued.get_mut(&slot)?;
        let Offer { worker, until } = queued.offer.take()?;
        self.alarms.remove(&(until, Alarm::Offered(slot)));
        if let Some(row) = self.kinds.get_mut(&Kind::of(&queued.need)) {
            row.free.insert(slot);
        }
        Some(worker)
    }

    /// The worker was told of the task by the answer that carries `version`.
    pub(super) fn tell(&mut self, slot: Slot, worker: &WorkerId, version: i64, again: Timestamp) {
        self.untell(slot, worker);
        let Some(queued) = self.queued.get_mut(&slot) else { return };
        queued.told.insert(worker.clone(), (version, again));
        self.alarms.insert((again, Alarm::Told(slot, worker.clone())));
    }

    /// As if the worker had never been told.
    pub(super) fn untell(&mut self, slot: Slot, worker: &WorkerId) {
        let Some(queued) = self.queued.get_mut(&slot) else { return };
        if let Some((_, again)) = queued.told.remove(worker) {
            self.alarms.remove(&(again, Alarm::Told(slot, worker.clone())));
        }
    }

    /// The worker's claim came back empty. True where that was not known.
    pub(super) fn decline(&mut self, slot: Slot, worker: &WorkerId) -> bool {
        self.queued.get_mut(&slot).is_some_and(|queued| queued.declined.insert(worker.clone()))
    }

    /// The worker may be told of it.
    pub(super) fn undecline(&mut self, slot: Slot, worker: &WorkerId) {
        if let Some(queued) = self.queued.get_mut(&slot) {
            queued.declined.remove(worker);
        }
    }
}

fn class(need: &Need) -> Class {
    (need.lane.clone(), need.task.repo.clone())
}

/// Counts one less, and forgets what there is none of.
fn less<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
