//! What the bell remembers, as values: who waits, what is queued, what was offered to whom and
//! which leases were called off. No clock, no waiting, no database.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use super::backlog::{Alarm, Backlog, Kind, Offer, Slot};
pub(super) use super::crowd::Place;
use super::crowd::{Crowd, Known, Revoked, Waiter};
use crate::model::{
    InstanceId, LaneName, LeaseRef, Orders, RepoName, TaskId, Timestamp, Worker, WorkerId,
};
use crate::queue::Need;

/// How long a woken worker has to claim before the next one is woken (DESIGN §3).
pub(super) const OFFER: Duration = Duration::from_secs(1);

/// A worker that was told of a task and did not claim is told again after this, which is the
/// seed's first tick. It keeps a failed claim from losing the task and a deaf worker from spinning.
const TELL_AGAIN: Duration = Duration::from_secs(15);

/// A version that is further ahead than this is nobody's memory of an earlier owner.
const STEP_MOST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Which claims were running when: see [`Board::declined`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reading(u64);

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
    /// Repositories of which it would take nothing.
    pub except: Vec<RepoName>,
    /// What people told it, as far as it knows, in the word of [`Orders::digest`].
    pub told: Option<String>,
}

impl Ask {
    /// Whether it would take this, as far as the repository goes.
    pub(super) fn takes(&self, need: &Need) -> bool {
        self.except.is_empty() || !self.except.contains(&need.task.repo)
    }
}

/// The parts of a doorbell's answer that come from the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub version: i64,
    pub queued: u64,
    pub revoked: Vec<LeaseRef>,
    pub orders: Option<Orders>,
}

/// See the module.
///
/// After each call nobody who can be woken stands beside a task that nobody was just told of and
/// that it could do. So a change has to look only at what it touched, not at every worker or task.
#[derive(Debug, Default)]
pub(super) struct Board {
    version: i64,
    readings: u64,
    backlog: Backlog,
    crowd: Crowd,
    /// Tasks claimed while the needs are being read: what is read may be older than the claim.
    claimed_meanwhile: Option<HashSet<TaskId>>,
    closed: bool,
    /// Held doorbells that have something to hear now.
    woken: Vec<Place>,
    /// Tasks and workers that [`Board::settle`] has to look at.
    loose: BTreeSet<Slot>,
    stirred: BTreeSet<WorkerId>,
}

impl Board {
    /// A board whose versions are above those of every earlier owner of the same home.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { version: now.0, ..Self::default() }
    }

    /// A write that can change what a claim would return.
    pub(super) fn moved(&mut self, now: Timestamp) {
        self.version = now.0.max(self.version + 1);
        self.woken.extend(self.crowd.readers());
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
        self.backlog.measure(&needs);
        let mut left: HashSet<Slot> = self.backlog.all().map(|(slot, _)| slot).collect();
        for need in needs {
            if claimed.contains(&need.task) {
                continue;
            }
            let same = self.backlog.find(&need.task);
            let same = same.filter(|slot| self.backlog.get(*slot).is_some_and(|q| q.need == need));
            if let Some(same) = same {
                left.remove(&same);
                continue;
            }
            if let Some(changed) = self.backlog.find(&need.task) {
                left.remove(&changed);
                self.remove(changed);
            }
            self.loose.insert(self.backlog.add(need, Reading(self.readings)));
        }
        for gone in left {
            self.remove(gone);
        }
        self.tick(now);
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
        let id = &worker.id;
        self.woken.extend(self.crowd.replace(id, instance.as_ref(), ended));
        self.take_back(id);
        let attendant = self.crowd.attend(id);
        for slot in std::mem::take(&mut attendant.declined) {
            self.backlog.undecline(slot, id);
        }
        if attendant.known.as_ref().is_some_and(|known| known.instance != instance) {
            attendant.revoked.clear();
        }
        let told = attendant.known.as_ref().map(|known| &known.orders) != Some(&worker.orders);
        attendant.known = Some(Known::new(worker, instance));
        if told {
            self.woken.extend(attendant.places());
        }
        self.stir(id);
        self.tick(now);
    }

    /// People told the worker something, and this is all that it was told. It hears of it at once,
    /// and what was offered to it goes to others.
    pub(super) fn ordered(&mut self, worker: &WorkerId, orders: Orders, now: Timestamp) {
        if self.crowd.worker(worker).is_none() {
            return;
        }
        let attendant = self.crowd.attend(worker);
        if !attendant.known.as_mut().is_some_and(|known| known.tell(orders)) {
            return;
        }
        // What it refused may have been refused for this.
        for slot in std::mem::take(&mut attendant.declined) {
            self.backlog.undecline(slot, worker);
        }
        self.moved(now);
        self.woken.extend(self.crowd.ordered(worker));
        self.take_back(worker);
        self.stir(worker);
        self.tick(now);
    }

    /// What people told the worker; `None` where memory does not tell.
    pub(super) fn orders(&self, worker: &WorkerId) -> Option<Orders> {
        Some(self.crowd.worker(worker)?.known.as_ref()?.orders.clone())
    }

    /// Whether `worker` registered here as `instance`; `None` where it is not known in memory.
    pub(super) fn knows(&self, worker: &WorkerId, instance: Option<&InstanceId>) -> Option<bool> {
        let known = self.crowd.worker(worker)?.known.as_ref()?;
        match (instance, &known.instance) {
            (Some(asked), Some(known)) => Some(asked == known),
            // Somebody has to ask the database which instance it is.
            (Some(_), None) => None,
            (None, _) => Some(true),
        }
    }

    /// The worker said that it goes.
    pub(super) fn left(&mut self, worker: &WorkerId) {
        let attendant = self.crowd.attend(worker);
        attendant.known = None;
        attendant.revoked.clear();
        self.crowd.stand(worker);
    }

    /// How many tasks are queued, as far as they were read.
    pub(super) fn queued(&self) -> usize {
        self.backlog.all().count()
    }

    /// The workers that hold the bell now.
    pub(super) fn present(&self) -> Vec<WorkerId> {
        self.crowd.all().filter_map(|(_, waiter)| waiter.ask.worker.clone()).collect()
    }

    /// A lease was called off or has run out.
    pub(super) fn revoke(&mut self, worker: &WorkerId, lease: LeaseRef, now: Timestamp) {
        self.moved(now);
        let attendant = self.crowd.attend(worker);
        attendant.revoked.retain(|r| r.lease != lease);
        attendant.revoked.push(Revoked { lease, told: None });
        self.woken.extend(attendant.places());
    }

    /// The worker knows how it stands with this lease: it was answered by a heartbeat or gave
    /// the lease up.
    pub(super) fn settled(&mut self, worker: &WorkerId, lease: &LeaseRef) {
        if self.crowd.worker(worker).is_some_and(|attendant| !attendant.revoked.is_empty()) {
            self.crowd.attend(worker).revoked.retain(|r| r.lease != *lease);
            self.crowd.stand(worker);
        }
    }

    /// A claim succeeded. True where the queue was too long to be read whole, and what is known
    /// of it comes to an end.
    pub(super) fn claimed(&mut self, worker: &WorkerId, task: &TaskId, now: Timestamp) -> bool {
        let need = self.gone(task);
        let low = need.is_some_and(|need| self.backlog.is_low(&need));
        // It works as it should: what else was offered to it may go to anyone, itself included.
        self.take_back(worker);
        self.tick(now);
        low
    }

    /// A claim at another site got this task; the rest is as with [`Board::claimed`].
    pub(super) fn taken(&mut self, task: &TaskId, now: Timestamp) -> bool {
        let need = self.gone(task);
        self.tick(now);
        need.is_some_and(|need| self.backlog.is_low(&need))
    }

    /// A heartbeat renewed a lease that had run out: its task is not queued after all.
    pub(super) fn renewed(&mut self, worker: &WorkerId, lease: &LeaseRef, now: Timestamp) {
        self.settled(worker, lease);
        self.gone(&lease.task);
        self.tick(now);
    }

    /// A claim that began after `began` came back empty. True where the board thought otherwise:
    /// then it is worth reading the needs again.
    pub(super) fn declined(
        &mut self,
        worker: &WorkerId,
        lanes: Option<&[LaneName]>,
        except: &[RepoName],
        began: Reading,
        now: Timestamp,
    ) -> bool {
        self.take_back(worker);
        let knows = |need: &Need| {
            lanes.is_none_or(|lanes| lanes.contains(&need.lane))
                && !except.contains(&need.task.repo)
                && self.crowd.worker(worker).is_some_and(|attendant| {
                    attendant.can(std::slice::from_ref(&need.lane), &Kind::of(need))
                })
        };
        // What entered later may have been committed after the claim had looked.
        let there = self.backlog.all().filter(|(_, q)| q.entered <= began && knows(&q.need));
        let there: Vec<Slot> = there.map(|(slot, _)| slot).collect();
        let mut surprised = false;
        for slot in there {
            surprised |= self.backlog.decline(slot, worker);
            self.crowd.attend(worker).declined.insert(slot);
        }
        self.tick(now);
        surprised
    }

    /// Takes a place. The interest stands before anything is looked at, so nothing is missed.
    pub(super) fn enter(&mut self, mut ask: Ask, now: Timestamp) -> Place {
        // Somebody remembers a version of an earlier owner that is ahead of ours: the clock went
        // back between the two. No version is given twice.
        if ask.since < (now + STEP_MOST).0 {
            self.version = self.version.max(ask.since);
        }
        let (worker, since) = (ask.worker.clone(), ask.since);
        let known = worker.as_ref().and_then(|worker| self.crowd.worker(worker)?.known.as_ref());
        if let Some(known) = known {
            known.narrow(&mut ask);
        }
        let place = self.crowd.enter(ask);
        if let Some(worker) = &worker {
            let attendant = self.crowd.attend(worker);
            attendant.revoked.retain(|r| r.told.is_none_or(|version| version > since));
            // The worker never saw the answer that told it of these.
            let unseen = |slot: &Slot| {
                let told = self.backlog.get(*slot).and_then(|q| q.told.get(worker));
                told.is_some_and(|(version, _)| *version > since)
            };
            let unseen: Vec<Slot> = attendant.told.iter().copied().filter(unseen).collect();
            for slot in unseen {
                self.take_back_one(worker, slot);
            }
            self.stir(worker);
        }
        self.tick(now);
        place
    }

    /// The answer for this place, where there is one already. It is then no longer waiting.
    pub(super) fn take(&mut self, place: Place, now: Timestamp) -> Option<Told> {
        let waiter = self.crowd.get(place)?;
        let ready = match &waiter.ask.worker {
            None => self.version > waiter.ask.since,
            Some(worker) => {
                waiter.replaced.is_some()
                    || waiter.ordered
                    || self.crowd.worker(worker).is_some_and(|attendant| {
                        let news = !waiter.superseded && attendant.has_news();
                        let known = attendant.known.as_ref();
                        let told = known.is_none_or(|known| known.is_known_by(&waiter.ask));
                        news || !told || !attendant.revoked.is_empty()
                    })
            }
        };
        if ready || self.closed { self.answer(place, now) } else { None }
    }

    /// The answer for this place as things stand.
    pub(super) fn answer(&mut self, place: Place, now: Timestamp) -> Option<Told> {
        let Waiter { ask, superseded, replaced, ordered: _ } = self.crowd.leave(place)?;
        let (version, queued) = (self.version, self.count(&ask));
        let Some(worker) = ask.worker else {
            return Some(Told { version, queued, revoked: Vec::new(), orders: None });
        };
        if let Some(revoked) = replaced {
            return Some(Told { version, queued: 0, revoked, orders: None });
        }
        let attendant = self.crowd.attend(&worker);
        if !superseded {
            for (slot, told) in &mut attendant.offers {
                *told = true;
                attendant.told.insert(*slot);
                self.backlog.tell(*slot, &worker, version, now + TELL_AGAIN);
            }
        }
        let mut revoked = Vec::new();
        for lost in &mut attendant.revoked {
            lost.told = Some(version);
            revoked.push(lost.lease.clone());
        }
        let orders = attendant.known.as_ref().map(|known| known.orders.clone());
        self.crowd.stand(&worker);
        Some(Told { version, queued, revoked, orders })
    }

    /// The place's line is gone before it had an answer.
    pub(super) fn leave(&mut self, place: Place, now: Timestamp) {
        let Some(waiter) = self.crowd.leave(place) else { return };
        if let Some(worker) = waiter.ask.worker.filter(|_| !waiter.superseded) {
            let offers = self.crowd.worker(&worker).map(|attendant| &attendant.offers);
            let unheard = offers.into_iter().flatten().filter(|(_, told)| !**told);
            for slot in unheard.map(|(slot, _)| *slot).collect::<Vec<_>>() {
                self.free(slot);
            }
        }
        self.tick(now);
    }

    /// The clock was set back: what was to come at a time comes now.
    pub(super) fn stepped(&mut self, now: Timestamp) {
        let told = |(slot, queued): (Slot, &super::backlog::Queued)| {
            queued.told.keys().map(|worker| (slot, worker.clone())).collect::<Vec<_>>()
        };
        for (slot, worker) in self.backlog.all().flat_map(told).collect::<Vec<_>>() {
            self.untell(slot, &worker);
        }
        for slot in self.backlog.all().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.free(slot);
        }
        let waiting: Vec<_> =
            self.crowd.all().map(|(place, w)| (place, w.ask.worker.clone())).collect();
        for (place, worker) in waiting {
            self.woken.push(place);
            self.stirred.extend(worker);
        }
        self.tick(now);
    }

    /// Nobody is held any longer.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.woken.extend(self.crowd.all().map(|(place, _)| place));
    }

    /// When [`Board::tick`] has something to do by the clock alone.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.backlog.next()
    }

    /// Held doorbells to look again, since this was last asked.
    pub(super) fn woken(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.woken)
    }

    /// Ends offers whose second is over, and offers each task that nobody was just told of to one
    /// waiting worker that can take it.
    pub(super) fn tick(&mut self, now: Timestamp) {
        while let Some(alarm) = self.backlog.due(now) {
            match alarm {
                Alarm::Offered(slot) => self.free(slot),
                Alarm::Told(_, worker) => self.stir(&worker),
            }
        }
        self.settle(now);
    }

    /// Brings together what was touched.
    fn settle(&mut self, now: Timestamp) {
        loop {
            let mut tasks = std::mem::take(&mut self.loose);
            for worker in &self.stirred {
                tasks.extend(self.crowd.wants(worker, &self.backlog, now));
            }
            let mut offered = false;
            for slot in tasks {
                let free = self.backlog.get(slot).filter(|queued| queued.offer.is_none());
                let Some(queued) = free else { continue };
                if let Some(place) = self.crowd.whom(queued, now) {
                    offered = true;
                    let again = !queued.told.is_empty();
                    self.offer(slot, place, again, now);
                }
            }
            // Several that were stirred may have wanted the same task: they want another then.
            if !offered {
                break;
            }
        }
        self.stirred.clear();
    }

    fn offer(&mut self, slot: Slot, place: Place, again: bool, now: Timestamp) {
        let Some(worker) = self.crowd.get(place).and_then(|w| w.ask.worker.clone()) else { return };
        if again {
            // Told before: a new version tells a lost answer from one that was received.
            self.moved(now);
        }
        self.crowd.attend(&worker).offers.insert(slot, false);
        self.crowd.stand(&worker);
        self.backlog.offer(slot, Offer { worker, until: now + OFFER });
        self.woken.push(place);
    }

    /// Nobody is woken for this task any longer.
    fn free(&mut self, slot: Slot) {
        if let Some(worker) = self.backlog.take_offer(slot) {
            self.crowd.attend(&worker).offers.remove(&slot);
            self.loose.insert(slot);
            self.stir(&worker);
        }
    }

    /// The worker's place may have changed, and what it would be woken for.
    fn stir(&mut self, worker: &WorkerId) {
        self.crowd.stand(worker);
        self.stirred.insert(worker.clone());
    }

    /// The worker's answer to what was offered to it is known.
    fn take_back(&mut self, worker: &WorkerId) {
        let Some(attendant) = self.crowd.worker(worker) else { return };
        let slots: BTreeSet<Slot> =
            attendant.told.iter().chain(attendant.offers.keys()).copied().collect();
        for slot in slots {
            self.take_back_one(worker, slot);
        }
    }

    fn take_back_one(&mut self, worker: &WorkerId, slot: Slot) {
        self.untell(slot, worker);
        if self.crowd.worker(worker).is_some_and(|a| a.offers.contains_key(&slot)) {
            self.free(slot);
        }
    }

    fn untell(&mut self, slot: Slot, worker: &WorkerId) {
        self.backlog.untell(slot, worker);
        self.crowd.attend(worker).told.remove(&slot);
        self.stir(worker);
    }

    /// The task is no longer queued, also where a reading that is under way says so.
    fn gone(&mut self, task: &TaskId) -> Option<Need> {
        if let Some(claimed) = &mut self.claimed_meanwhile {
            claimed.insert(task.clone());
        }
        self.backlog.find(task).and_then(|slot| self.remove(slot))
    }

    fn remove(&mut self, slot: Slot) -> Option<Need> {
        let queued = self.backlog.remove(slot)?;
        if let Some(Offer { worker, .. }) = &queued.offer {
            self.crowd.attend(worker).offers.remove(&slot);
            self.stir(worker);
        }
        for worker in queued.told.keys() {
            self.crowd.attend(worker).told.remove(&slot);
            self.crowd.tidy(worker);
        }
        for worker in &queued.declined {
            self.crowd.attend(worker).declined.remove(&slot);
            self.crowd.tidy(worker);
        }
        Some(queued.need)
    }

    /// How many tasks the asker could take now. A task that another worker was just woken for,
    /// or that this one's claim did not get, is not counted.
    fn count(&self, ask: &Ask) -> u64 {
        let count = match &ask.worker {
            None => self.backlog.count(&ask.lanes),
            Some(worker) => self.crowd.worker(worker).map_or(0, |attendant| {
                let can = |kind: &Kind| attendant.can(&ask.lanes, kind);
                let could = |slot: &&Slot| {
                    let queued = self.backlog.get(**slot);
                    queued.is_some_and(|q| can(&Kind::of(&q.need)) && ask.takes(&q.need))
                };
                let free = self.backlog.free().filter(|(kind, _)| can(kind));
                let free: usize = if ask.except.is_empty() {
                    free.map(|(_, free)| free.len()).sum()
                } else {
                    free.map(|(_, free)| free.iter().filter(could).count()).sum()
                };
                let refused = attendant.declined.iter().filter(could);
                let refused = refused.filter(|slot| {
                    self.backlog.get(**slot).is_some_and(|queued| queued.offer.is_none())
                });
                let offers = attendant.offers.keys().filter(could);
                (free + offers.count()).saturating_sub(refused.count())
            }),
        };
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
