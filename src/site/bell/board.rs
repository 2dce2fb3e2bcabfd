//! What the bell remembers, as values: who waits, what is queued, what was offered to whom and
//! which leases were called off. No clock, no waiting, no database.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::model::{
    ForgeKind, InstanceId, Label, LaneName, LeaseRef, RepoName, TaskId, Timestamp, Worker, WorkerId,
};
use crate::queue::{NEEDS_MOST, Need};

/// How long a woken worker has to claim before the next one is woken (DESIGN §3).
pub(super) const OFFER: Duration = Duration::from_secs(1);

/// A worker that was told of a task and did not claim is told again after this, which is the
/// seed's first tick. It keeps a failed claim from losing the task and a deaf worker from spinning.
const TELL_AGAIN: Duration = Duration::from_secs(15);

/// A version that is further ahead than this is nobody's memory of an earlier owner.
const STEP_MOST: Duration = Duration::from_secs(366 * 24 * 3600);

/// As [`NEEDS_MOST`].
const NEEDS: usize = NEEDS_MOST as usize;

/// A lane of a project: of each the oldest needs are read.
type Class = (LaneName, RepoName);

fn class(need: &Need) -> Class {
    (need.lane.clone(), need.task.repo.clone())
}

/// Which claims were running when: see [`Board::declined`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reading(u64);

/// A held doorbell's place on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u64);

/// What a doorbell's caller said.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Who asks; a reader that only looks has none.
    pub worker: Option<WorkerId>,
    /// Which start of it.
    pub instance: Option<InstanceId>,
    /// The lanes it would take now.
    pub lanes: Vec<LaneName>,
    /// How many jobs it could begin.
    pub free: u32,
    /// The version it saw last, which is also its receipt for the answer that carried it.
    pub since: i64,
}

/// The parts of a doorbell's answer that come from the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub version: i64,
    pub queued: u64,
    pub revoked: Vec<LeaseRef>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Board {
    version: i64,
    readings: u64,
    queued: Vec<Queued>,
    known: HashMap<WorkerId, Known>,
    waiting: BTreeMap<Place, Waiter>,
    places: u64,
    revoked: HashMap<WorkerId, Vec<Revoked>>,
    /// Tasks claimed while the needs are being read: what is read may be older than the claim.
    claimed_meanwhile: Option<HashSet<TaskId>>,
    /// What has more queued tasks than were read.
    cut: HashSet<Class>,
    closed: bool,
    /// Held doorbells that have something to hear now.
    woken: Vec<Place>,
}

/// What a worker said when it registered.
#[derive(Debug)]
struct Known {
    instance: Option<InstanceId>,
    host: String,
    labels: Vec<Label>,
    forges: Vec<String>,
}

#[derive(Debug)]
struct Waiter {
    ask: Ask,
    /// A later doorbell of the same worker: this one's line is probably dead, it gets no offer.
    superseded: bool,
    /// Another instance took the name over, and these leases with it.
    replaced: Option<Vec<LeaseRef>>,
}

#[derive(Debug)]
struct Queued {
    need: Need,
    /// The reading that first showed it.
    entered: Reading,
    offer: Option<Offer>,
    /// Who was told of it, at which version, and when it may be told again.
    told: HashMap<WorkerId, (i64, Timestamp)>,
    /// Whose claim came back empty although this was there.
    declined: HashSet<WorkerId>,
}

#[derive(Debug)]
struct Offer {
    worker: WorkerId,
    until: Timestamp,
    told: bool,
}

#[derive(Debug)]
struct Revoked {
    lease: LeaseRef,
    /// The version of the answer that told it; dropped once the worker shows that version.
    told: Option<i64>,
}

/// A held doorbell whose worker can still begin something.
struct Room {
    place: Place,
    worker: WorkerId,
    /// What it was offered and has not answered.
    open: usize,
    free: usize,
}

impl Board {
    /// A board whose versions are above those of every earlier owner of the same home.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { version: now.0, ..Self::default() }
    }

    /// A write that can change what a claim would return.
    pub(super) fn moved(&mut self, now: Timestamp) {
        self.version = now.0.max(self.version + 1);
        let readers = self.waiting.iter().filter(|(_, w)| w.ask.worker.is_none());
        self.woken.extend(readers.map(|(place, _)| *place));
    }

    pub(super) fn version(&self) -> i64 {
        self.version
    }

    /// The newest reading of the needs, to be remembered when a claim begins.
    pub(super) fn reading(&self) -> Reading {
        Reading(self.readings)
    }

    /// The needs are being read now; claims until [`Board::read`] are remembered.
    pub(super) fn reading_begins(&mut self) {
        self.claimed_meanwhile = Some(HashSet::new());
    }

    /// Every queued task, oldest first, as the database told it.
    pub(super) fn read(&mut self, needs: Vec<Need>, now: Timestamp) {
        self.readings += 1;
        let claimed = self.claimed_meanwhile.take().unwrap_or_default();
        let mut before: HashMap<TaskId, Queued> =
            self.queued.drain(..).map(|q| (q.need.task.clone(), q)).collect();
        let mut classes: HashMap<Class, usize> = HashMap::new();
        for need in &needs {
            *classes.entry(class(need)).or_default() += 1;
        }
        self.cut = classes.into_iter().filter(|(_, n)| *n >= NEEDS).map(|(of, _)| of).collect();
        for need in needs {
            if claimed.contains(&need.task) {
                continue;
            }
            let same = before.remove(&need.task).filter(|q| q.need == need);
            self.queued.push(same.unwrap_or_else(|| Queued {
                need,
                entered: Reading(self.readings),
                offer: None,
                told: HashMap::new(),
                declined: HashSet::new(),
            }));
        }
        self.offer(now);
    }

    /// A worker registered, or was found registered by an earlier owner. A new instance ends what
    /// the old one waits for, and is told nothing about the old one's leases.
    pub(super) fn registered(
        &mut self,
        worker: &Worker,
        instance: Option<InstanceId>,
        ended: &[LeaseRef],
        now: Timestamp,
    ) {
        if self.known.get(&worker.id).is_some_and(|known| known.instance != instance) {
            self.revoked.remove(&worker.id);
        }
        for (place, waiter) in &mut self.waiting {
            let other = waiter.ask.instance.is_some() && waiter.ask.instance != instance;
            if waiter.ask.worker.as_ref() == Some(&worker.id) && other {
                waiter.replaced = Some(ended.to_vec());
                self.woken.push(*place);
            }
        }
        for queued in &mut self.queued {
            queued.forget(&worker.id);
        }
        let known = Known {
            instance,
            host: worker.host.clone(),
            labels: worker.labels.clone(),
            forges: worker.forges.clone(),
        };
        self.known.insert(worker.id.clone(), known);
        self.offer(now);
    }

    /// Whether `worker` registered here as `instance`; `None` where it is not known in memory.
    pub(super) fn knows(&self, worker: &WorkerId, instance: Option<&InstanceId>) -> Option<bool> {
        let known = self.known.get(worker)?;
        match (instance, &known.instance) {
            (Some(asked), Some(known)) => Some(asked == known),
            // Somebody has to ask the database which instance it is.
            (Some(_), None) => None,
            (None, _) => Some(true),
        }
    }

    /// The worker said that it goes.
    pub(super) fn left(&mut self, worker: &WorkerId) {
        self.known.remove(worker);
        self.revoked.remove(worker);
    }

    /// The workers that hold the bell now.
    pub(super) fn present(&self) -> Vec<WorkerId> {
        self.waiting.values().filter_map(|w| w.ask.worker.clone()).collect()
    }

    /// A lease was called off or has run out.
    pub(super) fn revoke(&mut self, worker: &WorkerId, lease: LeaseRef, now: Timestamp) {
        self.moved(now);
        let revoked = self.revoked.entry(worker.clone()).or_default();
        revoked.retain(|r| r.lease != lease);
        revoked.push(Revoked { lease, told: None });
        let held = self.waiting.iter().filter(|(_, w)| w.ask.worker.as_ref() == Some(worker));
        self.woken.extend(held.map(|(place, _)| *place));
    }

    /// The worker knows how it stands with this lease: it was answered by a heartbeat or gave
    /// the lease up.
    pub(super) fn settled(&mut self, worker: &WorkerId, lease: &LeaseRef) {
        if let Some(revoked) = self.revoked.get_mut(worker) {
            revoked.retain(|r| r.lease != *lease);
        }
    }

    /// A claim succeeded. True where the queue was too long to be read whole, and what is known
    /// of it comes to an end.
    pub(super) fn claimed(&mut self, worker: &WorkerId, task: &TaskId, now: Timestamp) -> bool {
        let place = self.queued.iter().position(|q| q.need.task == *task);
        let taken = place.map(|place| class(&self.queued.remove(place).need));
        let low = taken.filter(|of| self.cut.contains(of)).is_some_and(|of| {
            let left = self.queued.iter().filter(|q| class(&q.need) == of).count();
            left < NEEDS / 2
        });
        if let Some(claimed) = &mut self.claimed_meanwhile {
            claimed.insert(task.clone());
        }
        // It works as it should: what else was offered to it may go to anyone, itself included.
        for queued in &mut self.queued {
            queued.take_back(worker);
        }
        self.offer(now);
        low
    }

    /// A heartbeat renewed a lease that had run out: its task is not queued after all.
    pub(super) fn renewed(&mut self, worker: &WorkerId, lease: &LeaseRef) {
        self.settled(worker, lease);
        self.queued.retain(|q| q.need.task != lease.task);
        if let Some(claimed) = &mut self.claimed_meanwhile {
            claimed.insert(lease.task.clone());
        }
    }

    /// A claim that began after `began` came back empty. True where the board thought otherwise:
    /// then it is worth reading the needs again.
    pub(super) fn declined(
        &mut self,
        worker: &WorkerId,
        lanes: Option<&[LaneName]>,
        began: Reading,
        now: Timestamp,
    ) -> bool {
        let mut surprised = false;
        for queued in &mut self.queued {
            queued.take_back(worker);
            // What entered later may have been committed after the claim had looked.
            let there = queued.entered <= began;
            let fits = self.known.get(worker).is_some_and(|k| k.fits(&queued.need))
                && lanes.is_none_or(|lanes| lanes.contains(&queued.need.lane));
            if there && fits {
                surprised |= queued.declined.insert(worker.clone());
            }
        }
        self.offer(now);
        surprised
    }

    /// Takes a place. The interest stands before anything is looked at, so nothing is missed.
    pub(super) fn enter(&mut self, ask: Ask, now: Timestamp) -> Place {
        // Somebody remembers a version of an earlier owner that is ahead of ours: the clock went
        // back between the two. No version is given twice.
        if ask.since < (now + STEP_MOST).0 {
            self.version = self.version.max(ask.since);
        }
        if let Some(worker) = &ask.worker {
            for waiter in self.waiting.values_mut() {
                waiter.superseded |= waiter.ask.worker.as_ref() == Some(worker);
            }
            if let Some(revoked) = self.revoked.get_mut(worker) {
                revoked.retain(|r| r.told.is_none_or(|version| version > ask.since));
            }
            for queued in &mut self.queued {
                queued.forget_unreceived(worker, ask.since);
            }
        }
        self.places += 1;
        let place = Place(self.places);
        self.waiting.insert(place, Waiter { ask, superseded: false, replaced: None });
        self.offer(now);
        place
    }

    /// The answer for this place, where there is one already. It is then no longer waiting.
    pub(super) fn take(&mut self, place: Place, now: Timestamp) -> Option<Told> {
        let waiter = self.waiting.get(&place)?;
        let ready = match &waiter.ask.worker {
            None => self.version > waiter.ask.since,
            Some(worker) => {
                let news = |o: &Offer| o.worker == *worker && !o.told;
                let offered = |q: &Queued| q.offer.as_ref().is_some_and(news);
                waiter.replaced.is_some()
                    || self.revoked.get(worker).is_some_and(|r| !r.is_empty())
                    || (!waiter.superseded && self.queued.iter().any(offered))
            }
        };
        if ready || self.closed { self.answer(place, now) } else { None }
    }

    /// The answer for this place as things stand.
    pub(super) fn answer(&mut self, place: Place, now: Timestamp) -> Option<Told> {
        let waiter = self.waiting.remove(&place)?;
        let (version, queued) = (self.version, self.count(&waiter.ask, now));
        let Some(worker) = waiter.ask.worker else {
            return Some(Told { version, queued, revoked: Vec::new() });
        };
        if let Some(revoked) = waiter.replaced {
            return Some(Told { version, queued: 0, revoked });
        }
        if !waiter.superseded {
            for queued in &mut self.queued {
                if let Some(offer) = queued.offer.as_mut().filter(|o| o.worker == worker) {
                    offer.told = true;
                    queued.told.insert(worker.clone(), (version, now + TELL_AGAIN));
                }
            }
        }
        let mut leases = Vec::new();
        for revoked in self.revoked.entry(worker).or_default() {
            revoked.told = Some(version);
            leases.push(revoked.lease.clone());
        }
        Some(Told { version, queued, revoked: leases })
    }

    /// The place's line is gone before it had an answer.
    pub(super) fn leave(&mut self, place: Place, now: Timestamp) {
        let Some(waiter) = self.waiting.remove(&place) else { return };
        if let Some(worker) = waiter.ask.worker.filter(|_| !waiter.superseded) {
            for queued in &mut self.queued {
                if queued.offer.as_ref().is_some_and(|o| o.worker == worker && !o.told) {
                    queued.offer = None;
                }
            }
        }
        self.offer(now);
    }

    /// The clock was set back: what was to come at a time comes now.
    pub(super) fn stepped(&mut self, now: Timestamp) {
        for queued in &mut self.queued {
            queued.offer = None;
            queued.told.clear();
        }
        self.woken.extend(self.waiting.keys());
        self.offer(now);
    }

    /// Nobody is held any longer.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.woken.extend(self.waiting.keys());
    }

    /// When [`Board::offer`] has something to do by the clock alone.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = |worker: &WorkerId| {
            self.waiting.values().any(|w| w.ask.worker.as_ref() == Some(worker))
        };
        self.queued
            .iter()
            .flat_map(|q| {
                let again = q.told.iter().filter(|(w, _)| waits(w)).map(|(_, (_, at))| *at);
                q.offer.iter().map(|o| o.until).chain(again)
            })
            .filter(|at| *at > now)
            .min()
    }

    /// Held doorbells to look again, since this was last asked.
    pub(super) fn woken(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.woken)
    }

    /// Offers each queued task that nobody was just told of to one waiting worker that can take it.
    pub(super) fn offer(&mut self, now: Timestamp) {
        let mut room = self.room(now);
        for i in 0..self.queued.len() {
            if room.is_empty() {
                return;
            }
            if self.queued[i].offer.as_ref().is_some_and(|o| o.until > now) {
                continue;
            }
            self.queued[i].offer = None;
            let Some(chosen) = self.whom(&self.queued[i], &room, now) else { continue };
            let taken = &mut room[chosen];
            let (place, worker) = (taken.place, taken.worker.clone());
            taken.open += 1;
            if taken.open >= taken.free {
                room.swap_remove(chosen);
            }
            if !self.queued[i].told.is_empty() {
                // Told before: a new version tells a lost answer from one that was received.
                self.moved(now);
            }
            self.queued[i].offer = Some(Offer { worker, until: now + OFFER, told: false });
            self.woken.push(place);
        }
    }

    /// The held doorbells that can be offered a task now.
    fn room(&self, now: Timestamp) -> Vec<Room> {
        let mut open: HashMap<&WorkerId, usize> = HashMap::new();
        let offers = self.queued.iter().filter_map(|q| q.offer.as_ref());
        for offer in offers.filter(|o| o.until > now) {
            *open.entry(&offer.worker).or_default() += 1;
        }
        let rooms = self.waiting.iter().filter_map(|(place, waiter)| {
            let worker = waiter.ask.worker.clone()?;
            let open = open.get(&worker).copied().unwrap_or_default();
            let free = usize::try_from(waiter.ask.free).unwrap_or(usize::MAX);
            let hears = !waiter.superseded && waiter.replaced.is_none() && open < free;
            hears.then_some(Room { place: *place, worker, open, free })
        });
        rooms.collect()
    }

    /// The worker to wake: one that was not told yet, has fewest offers, and waits longest.
    fn whom(&self, queued: &Queued, room: &[Room], now: Timestamp) -> Option<usize> {
        let mut best: Option<((bool, usize, Place), usize)> = None;
        for (index, Room { place, worker, open, .. }) in room.iter().enumerate() {
            let Some(waiter) = self.waiting.get(place) else { continue };
            let told = queued.told.get(worker);
            if queued.declined.contains(worker)
                || told.is_some_and(|(_, again)| *again > now)
                || !self.fits(&waiter.ask, worker, &queued.need)
            {
                continue;
            }
            let rank = (told.is_some(), *open, *place);
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, index));
            }
        }
        best.map(|(_, index)| index)
    }

    fn fits(&self, ask: &Ask, worker: &WorkerId, need: &Need) -> bool {
        ask.lanes.contains(&need.lane) && self.known.get(worker).is_some_and(|k| k.fits(need))
    }

    /// How many tasks the asker could take now. A task that another worker was just woken for,
    /// or that this one's claim did not get, is not counted.
    fn count(&self, ask: &Ask, now: Timestamp) -> u64 {
        let counted = self.queued.iter().filter(|q| match &ask.worker {
            None => ask.lanes.contains(&q.need.lane),
            Some(worker) => {
                let of_another = |o: &Offer| o.worker != *worker && o.until > now;
                self.fits(ask, worker, &q.need)
                    && !q.declined.contains(worker)
                    && !q.offer.as_ref().is_some_and(of_another)
            }
        });
        u64::try_from(counted.count()).unwrap_or(u64::MAX)
    }
}

impl Known {
    /// Whether the worker could do this task in one of its lanes.
    fn fits(&self, need: &Need) -> bool {
        let reachable = match need.forge {
            ForgeKind::Github => self.forges.contains(&need.host),
            ForgeKind::Local => self.host == need.host,
        };
        reachable && need.labels.iter().all(|label| self.labels.contains(label))
    }
}

impl Queued {
    /// The worker starts anew.
    fn forget(&mut self, worker: &WorkerId) {
        self.take_back(worker);
        self.declined.remove(worker);
    }

    /// The worker's answer to the offer is known.
    fn take_back(&mut self, worker: &WorkerId) {
        self.told.remove(worker);
        if self.offer.as_ref().is_some_and(|o| o.worker == *worker) {
            self.offer = None;
        }
    }

    /// The worker never saw the answer that told it.
    fn forget_unreceived(&mut self, worker: &WorkerId, since: i64) {
        if self.told.get(worker).is_some_and(|(version, _)| *version > since) {
            self.take_back(worker);
        }
    }
}

#[cfg(test)]
mod tests;
