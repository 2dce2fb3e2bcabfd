//! Who waits: the workers with their held doorbells, and in which order they are woken. Workers
//! that can do the same stand in one line, so that the one to wake is found without asking all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::backlog::{Backlog, Kind, Queued, Slot};
use super::board::Ask;
use crate::model::{
    ForgeKind, InstanceId, Label, LaneName, LeaseRef, Orders, Timestamp, Worker, WorkerId,
};

/// A held doorbell's place: the lower, the longer it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u64);

/// A held doorbell.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ask: Ask,
    /// A later doorbell of the same worker: this one's line is probably dead, it gets no offer.
    pub(super) superseded: bool,
    /// Another instance took the name over, and these leases with it.
    pub(super) replaced: Option<Vec<LeaseRef>>,
    /// The worker was told something meanwhile: it is to hear of it, and is woken for no task.
    pub(super) ordered: bool,
}

/// What is known of one worker.
#[derive(Debug, Default)]
pub(super) struct Attendant {
    /// What it said when it registered.
    pub(super) known: Option<Known>,
    /// Its held doorbells; all but the living one are superseded.
    places: Vec<Place>,
    living: Option<Place>,
    /// Tasks it was woken for just now, and whether an answer told it.
    pub(super) offers: BTreeMap<Slot, bool>,
    /// Tasks that say it was told of them.
    pub(super) told: BTreeSet<Slot>,
    /// Tasks that say it refused them.
    pub(super) declined: BTreeSet<Slot>,
    /// Leases it has lost.
    pub(super) revoked: Vec<Revoked>,
    standing: Option<Standing>,
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) instance: Option<InstanceId>,
    host: Arc<str>,
    labels: Vec<Label>,
    forges: Vec<String>,
    /// What people told it, and the same in a word.
    pub(super) orders: Orders,
    digest: String,
}

#[derive(Debug)]
pub(super) struct Revoked {
    pub(super) lease: LeaseRef,
    /// The version of the answer that told it; dropped once the worker shows that version.
    pub(super) told: Option<i64>,
}

/// Which line a worker stands in, and where: first who has fewest offers, then who waits longest.
#[derive(Debug)]
struct Standing {
    at: (usize, Place),
    room: usize,
    skills: Arc<Skills>,
    host: Arc<str>,
}

/// What a waiting worker can do, wherever it is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Skills {
    lanes: Vec<LaneName>,
    labels: Vec<Label>,
    forges: Vec<String>,
}

/// Workers that can be woken, in the order in which they are.
type Line = BTreeSet<(usize, Place)>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    places: u64,
    waiting: BTreeMap<Place, Waiter>,
    /// Those of them that only look.
    readers: BTreeSet<Place>,
    workers: HashMap<WorkerId, Attendant>,
    lines: HashMap<Arc<Skills>, Line>,
    /// The same workers by their machine, for what only one machine can do.
    hosts: HashMap<Arc<str>, Line>,
}

impl Known {
    pub(super) fn new(worker: &Worker, instance: Option<InstanceId>) -> Self {
        Self {
            instance,
            host: worker.host.as_str().into(),
            labels: worker.labels.clone(),
            forges: worker.forges.clone(),
            digest: worker.orders.digest(),
            orders: worker.orders.clone(),
        }
    }

    /// Says what people told it now. False where that is nothing new.
    pub(super) fn tell(&mut self, orders: Orders) -> bool {
        if self.orders == orders {
            return false;
        }
        self.digest = orders.digest();
        self.orders = orders;
        true
    }

    /// Whether whoever asks knows of it, or does not listen.
    pub(super) fn is_known_by(&self, ask: &Ask) -> bool {
        ask.told.as_ref().is_none_or(|told| *told == self.digest)
    }

    /// Takes out of a question what the worker may not have.
    pub(super) fn narrow(&self, ask: &mut Ask) {
        if !self.orders.is_none() {
            ask.lanes.retain(|lane| self.orders.let_take(lane));
        }
    }

    fn can(&self, lanes: &[LaneName], kind: &Kind) -> bool {
        able(lanes, &self.labels, &self.forges, kind) && is_here(&self.host, kind)
    }
}

impl Attendant {
    /// Whether the worker could do what this asks, in one of these lanes.
    pub(super) fn can(&self, lanes: &[LaneName], kind: &Kind) -> bool {
        self.known.as_ref().is_some_and(|known| known.can(lanes, kind))
    }

    /// Whether it was woken for something that no answer has told it.
    pub(super) fn has_news(&self) -> bool {
        self.offers.values().any(|told| !told)
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    fn is_forgotten(&self) -> bool {
        self.known.is_none()
            && self.places.is_empty()
            && self.offers.is_empty()
            && self.told.is_empty()
            && self.declined.is_empty()
            && self.revoked.is_empty()
    }
}

impl Crowd {
    pub(super) fn get(&self, place: Place) -> Option<&Waiter> {
        self.waiting.get(&place)
    }

    pub(super) fn worker(&self, worker: &WorkerId) -> Option<&Attendant> {
        self.workers.get(worker)
    }

    /// What is known of the worker, to be changed; after it [`Crowd::stand`].
    pub(super) fn attend(&mut self, worker: &WorkerId) -> &mut Attendant {
        if !self.workers.contains_key(worker) {
            self.workers.insert(worker.clone(), Attendant::default());
        }
        self.workers.entry(worker.clone()).or_default()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Place, &Waiter)> {
        self.waiting.iter().map(|(place, waiter)| (*place, waiter))
    }

    pub(super) fn readers(&self) -> impl Iterator<Item = Place> {
        self.readers.iter().copied()
    }

    /// Takes a place; the worker's earlier ones are superseded.
    pub(super) fn enter(&mut self, ask: Ask) -> Place {
        self.places += 1;
        let place = Place(self.places);
        if let Some(worker) = ask.worker.clone() {
            let attendant = self.workers.entry(worker).or_default();
            for earlier in &attendant.places {
                if let Some(waiter) = self.waiting.get_mut(earlier) {
                    waiter.superseded = true;
                }
            }
            attendant.places.push(place);
            attendant.living = Some(place);
        } else {
            self.readers.insert(place);
        }
        let (superseded, replaced, ordered) = (false, None, false);
        self.waiting.insert(place, Waiter { ask, superseded, replaced, ordered });
        place
    }

    pub(super) fn leave(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.waiting.remove(&place)?;
        let Some(worker) = &waiter.ask.worker else {
            self.readers.remove(&place);
            return Some(waiter);
        };
        if let Some(attendant) = self.workers.get_mut(worker) {
            attendant.places.retain(|held| *held != place);
            attendant.living = attendant.living.filter(|living| *living != place);
        }
        self.stand(worker);
        Some(waiter)
    }

    /// Another instance took the worker's name over: the lines of the one before are ended.
    pub(super) fn replace(
        &mut self,
        worker: &WorkerId,
        instance: Option<&InstanceId>,
        ended: &[LeaseRef],
    ) -> Vec<Place> {
        let places = self.workers.get(worker).map(|a| a.places.clone()).unwrap_or_default();
        let mut woken = Vec::new();
        for place in places {
            let Some(waiter) = self.waiting.get_mut(&place) else { continue };
            if waiter.ask.instance.is_some() && waiter.ask.instance.as_ref() != instance {
                waiter.replaced = Some(ended.to_vec());
                woken.push(place);
            }
        }
        woken
    }

    /// The worker was told something: who waits for it hears of that. Gives those places.
    pub(super) fn ordered(&mut self, worker: &WorkerId) -> Vec<Place> {
        let Some(attendant) = self.workers.get(worker) else { return Vec::new() };
        for place in &attendant.places {
            if let Some(waiter) = self.waiting.get_mut(place) {
                waiter.ordered = true;
            }
        }
        attendant.places.clone()
    }

    /// Puts the worker where it belongs now: to be called after whatever changes that.
    pub(super) fn stand(&mut self, worker: &WorkerId) {
        let Some(attendant) = self.workers.get_mut(worker) else { return };
        if let Some(Standing { at, skills, host, .. }) = attendant.standing.take() {
            step_out(&mut self.lines, &skills, at);
            step_out(&mut self.hosts, &host, at);
        }
        if attendant.is_forgotten() {
            self.workers.remove(worker);
            return;
        }
        let living = attendant.living.and_then(|place| Some((place, self.waiting.get(&place)?)));
        let waits = |(_, waiter): &(Place, &Waiter)| waiter.replaced.is_none() && !waiter.ordered;
        let Some((place, waiter)) = living.filter(waits) else { return };
        let Some(known) = &attendant.known else { return };
        let free = usize::try_from(waiter.ask.free).unwrap_or(usize::MAX);
        let open = attendant.offers.len();
        if open >= free {
            return;
        }
        let skills = Arc::new(Skills {
            lanes: sorted(&waiter.ask.lanes),
            labels: sorted(&known.labels),
            forges: sorted(&known.forges),
        });
        // One set of skills for the whole line, not one a worker.
        let skills = self.lines.get_key_value(&skills).map_or(skills, |(same, _)| Arc::clone(same));
        let host = &known.host;
        let host = self.hosts.get_key_value(host).map_or(host, |(same, _)| same).clone();
        let at = (open, place);
        self.lines.entry(Arc::clone(&skills)).or_default().insert(at);
        self.hosts.entry(Arc::clone(&host)).or_default().insert(at);
        attendant.standing = Some(Standing { at, room: free - open, skills, host });
    }

    /// Lets a worker go of whom nothing is left to know.
    pub(super) fn tidy(&mut self, worker: &WorkerId) {
        if self.workers.get(worker).is_some_and(Attendant::is_forgotten) {
            self.workers.remove(worker);
        }
    }

    /// The tasks that the worker would be woken for first, if nobody else were.
    pub(super) fn wants(&self, worker: &WorkerId, backlog: &Backlog, now: Timestamp) -> Vec<Slot> {
        let standing = self.workers.get(worker).and_then(|attendant| attendant.standing.as_ref());
        let Some(Standing { at, room, skills, host }) = standing else { return Vec::new() };
        let Some(Waiter { ask, .. }) = self.waiting.get(&at.1) else { return Vec::new() };
        let news = |slot: &&Slot| {
            backlog.get(**slot).is_some_and(|q| q.is_news_to(worker, now) && ask.takes(&q.need))
        };
        let kinds = backlog.free().filter(|(kind, _)| skills.fit(kind) && is_here(host, kind));
        kinds.flat_map(|(_, free)| free.iter().filter(news).take(*room)).copied().collect()
    }

    /// The worker to wake for the task: one that was not told yet, has fewest offers, and waits
    /// longest.
    pub(super) fn whom(&self, queued: &Queued, now: Timestamp) -> Option<Place> {
        let kind = Kind::of(&queued.need);
        let lines: Vec<&Line> = match kind.forge {
            ForgeKind::Local => self.hosts.get(kind.host.as_str()).into_iter().collect(),
            ForgeKind::Github => {
                let able = self.lines.iter().filter(|(skills, _)| skills.fit(&kind));
                able.map(|(_, line)| line).collect()
            }
        };
        let of_one_machine = kind.forge == ForgeKind::Local;
        let mut best: Option<(bool, (usize, Place))> = None;
        for line in lines {
            for at in line {
                if best.is_some_and(|best| best < (false, *at)) {
                    break;
                }
                let Some(Waiter { ask, .. }) = self.waiting.get(&at.1) else { continue };
                let Some(worker) = &ask.worker else { continue };
                if !queued.is_news_to(worker, now)
                    || !ask.takes(&queued.need)
                    || (of_one_machine && !self.skills(worker).is_some_and(|s| s.fit(&kind)))
                {
                    continue;
                }
                let rank = (queued.told.contains_key(worker), *at);
                best = Some(best.map_or(rank, |best| best.min(rank)));
                if !rank.0 {
                    break;
                }
            }
        }
        best.map(|(_, (_, place))| place)
    }

    fn skills(&self, worker: &WorkerId) -> Option<&Skills> {
        self.workers.get(worker)?.standing.as_ref().map(|standing| &*standing.skills)
    }
}

impl Skills {
    fn fit(&self, kind: &Kind) -> bool {
        able(&self.lanes, &self.labels, &self.forges, kind)
    }
}

/// Whether lanes, labels and logins are enough.
fn able(lanes: &[LaneName], labels: &[Label], forges: &[String], kind: &Kind) -> bool {
    lanes.contains(&kind.lane)
        && (kind.forge == ForgeKind::Local || forges.contains(&kind.host))
        && kind.labels.iter().all(|label| labels.contains(label))
}

/// Whether the machine is one where this can be done.
fn is_here(host: &str, kind: &Kind) -> bool {
    kind.forge != ForgeKind::Local || host == kind.host
}

fn sorted<T: Ord + Clone>(names: &[T]) -> Vec<T> {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

/// Takes one out of its line, and an empty line away.
fn step_out<K: Eq + std::hash::Hash>(lines: &mut HashMap<K, Line>, of: &K, at: (usize, Place)) {
    if let Some(line) = lines.get_mut(of) {
        line.remove(&at);
        if line.is_empty() {
            lines.remove(of);
        }
    }
}
