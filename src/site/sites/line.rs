//! A site's session with its database: it keeps the lock, and where there may be other sites it
//! tells them and hears them. Alone it makes no statement after the first, notices at once where
//! the session ends, and makes another when the site next has something to ask.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::catch_up::{Heard, take_on};
use super::{Notice, Sites};
use crate::model::{Clock, Secret};
use crate::queue::{Company, NEWS_BYTES, QueueError, Session, StoreError, without_login};
use crate::site::state::Site;

/// How often one of several sites looks round: one statement, and the reading of what changed.
const BEAT: Duration = Duration::from_secs(20);

/// The wall clock may have been set while a beat is waited for.
const LOOK: Duration = Duration::from_secs(60);

/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a first word may take to come back; no longer than a site's start may.
const ECHO: Duration = Duration::from_secs(5);

/// A line of text on the channel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Letter {
    /// The site that wrote it.
    pub(super) from: String,
    pub(super) news: Vec<Notice>,
}

/// See the module.
#[derive(Debug)]
pub(in crate::site) struct Line {
    /// This site's name in its letters.
    me: String,
    url: Secret,
    company: Company,
    session: Option<Session>,
    told: UnboundedReceiver<Notice>,
    /// The machine's: a beat is no matter of the database's time.
    clock: Arc<dyn Clock>,
    /// What was found when it last looked round.
    mark: String,
}

/// How a line ended.
#[derive(Debug)]
pub(super) enum End {
    /// The site closes; the lock is held as long as this is.
    Closed(Option<Session>),
    /// Somebody took the database while the session was lost.
    Ousted(StoreError),
}

impl Line {
    /// Takes the lock. `None` for a file, which has its home's.
    pub(in crate::site) async fn open(
        database: &Secret,
        many: bool,
        me: String,
        clock: Arc<dyn Clock>,
    ) -> Result<(Sites, Option<Self>), StoreError> {
        let (sites, told) = Sites::new(many);
        let url = database.clone();
        if url.expose().starts_with("sqlite:") {
            return Ok((Sites::new(false).0, None));
        }
        let company = if many { Company::Shared } else { Company::Alone };
        let session = Some(Session::open(url.expose(), company, &me).await?);
        let line = Self { me, url, company, session, told, clock, mark: String::new() };
        Ok((sites, Some(line)))
    }

    /// One of several sees that what is told is heard, and looks round for the first time.
    /// Something between may keep what is told, as poolers do that lend a connection for one
    /// transaction; so it is told on a connection of the store.
    pub(in crate::site) async fn begin(&mut self, site: &Site) -> Result<(), QueueError> {
        let Some(session) = self.session.as_mut().filter(|_| self.company == Company::Shared)
        else {
            return Ok(());
        };
        site.queue.tell(&letter(&self.me, Vec::new())).await?;
        let heard = async {
            loop {
                let text = session.next().await?;
                if serde_json::from_str::<Letter>(&text).is_ok_and(|l| l.from == self.me) {
                    return Ok::<_, StoreError>(());
                }
            }
        };
        let deaf = || StoreError::Deaf { path: without_login(self.url.expose()) };
        tokio::time::timeout(ECHO, heard).await.unwrap_or_else(|_| Err(deaf()))?;
        let pulse = session.pulse(true).await?;
        site.sites.watch(pulse.watches);
        self.mark = pulse.mark;
        Ok(())
    }

    /// Keeps the lock, tells and hears, until the site tells nothing any more.
    pub(super) async fn run(mut self, site: Arc<Site>) -> End {
        let (heard, hearing) = unbounded_channel();
        let (_, nobody) = unbounded_channel();
        let told = std::mem::replace(&mut self.told, nobody);
        let me = self.me.clone();
        tokio::select! {
            () = tell_on(&site, &me, told) => End::Closed(self.session.take()),
            ousted = self.hear_on(&site, &heard) => End::Ousted(ousted),
            () = take_on(&site, &me, hearing) => End::Closed(None),
        }
    }

    /// Hears what is told, looks round, and takes the lock again where the session was lost. Comes
    /// back where somebody else has it.
    async fn hear_on(&mut self, site: &Site, heard: &UnboundedSender<Heard>) -> StoreError {
        let mut beat = self.clock.uptime() + BEAT;
        let many = self.company == Company::Shared;
        let mut asked = 0;
        if many {
            // What was told while it began was passed over.
            let _ = heard.send(Heard::Gap);
        }
        loop {
            let Some(session) = &mut self.session else {
                if !many {
                    until_asked(site, asked).await;
                }
                match self.take_again(site).await {
                    Ok(()) => {
                        beat = self.clock.uptime() + BEAT;
                        let _ = heard.send(Heard::Gap);
                    }
                    Err(ousted) => return ousted,
                }
                continue;
            };
            let left = beat.saturating_sub(self.clock.uptime());
            let lost = tokio::select! {
                text = session.next() => text.map(|text| {
                    let _ = heard.send(Heard::Letter(text));
                }),
                () = self.clock.sleep_until(self.clock.now() + left), if many && !left.is_zero() => Ok(()),
                () = tokio::time::sleep(LOOK), if many => Ok(()),
                () = std::future::ready(()), if many && left.is_zero() => {
                    beat = self.clock.uptime() + BEAT;
                    session.pulse(!site.sites.watches()).await.map(|pulse| {
                        if pulse.watches {
                            site.sites.watch(true);
                            site.linked.notify_one();
                        }
                        let changed = self.mark != pulse.mark;
                        self.mark = pulse.mark;
                        let _ = heard.send(Heard::Beat { changed });
                    })
                }
            };
            if let Err(error) = lost {
                tracing::warn!(%error, "the session that keeps this site's place is lost");
                asked = site.queue.statements();
                site.sites.watch(!many);
                site.sites.seat(false);
                self.session = None;
            }
        }
    }

    /// # Errors
    /// Only where somebody else has the database.
    async fn take_again(&mut self, site: &Site) -> Result<(), StoreError> {
        loop {
            let taken = async {
                let mut session = Session::open(self.url.expose(), self.company, &self.me).await?;
                if self.company == Company::Shared {
                    let pulse = session.pulse(true).await?;
                    site.sites.watch(pulse.watches);
                    site.linked.notify_one();
                    self.mark = pulse.mark;
                }
                Ok(session)
            };
            match taken.await {
                Ok(session) => {
                    self.session = Some(session);
                    site.sites.seat(true);
                    return Ok(());
                }
                Err(StoreError::InUse { path }) => return Err(StoreError::Ousted { path }),
                Err(error) => {
                    tracing::warn!(%error, "this site's place is not taken again yet; trying again in a second");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Waits until the site asks its database something more. A server that suspends cuts the session of an
/// idle site, and would be woken by the next.
async fn until_asked(site: &Site, before: u64) {
    while site.queue.statements() == before {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tells what comes, as much in a letter as has gathered.
async fn tell_on(site: &Site, me: &str, mut told: UnboundedReceiver<Notice>) {
    while let Some(first) = told.recv().await {
        let mut news = vec![first];
        while let Ok(notice) = told.try_recv() {
            if !news.contains(&notice) {
                news.push(notice);
            }
        }
        for text in letters(me, news) {
            while let Err(error) = site.queue.tell(&text).await {
                tracing::warn!(%error, "the other sites cannot be told; trying again in a second");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn letter(me: &str, news: Vec<Notice>) -> String {
    serde_json::to_string(&Letter { from: me.to_owned(), news }).unwrap_or_default()
}

/// As few letters as hold it all.
fn letters(me: &str, news: Vec<Notice>) -> Vec<String> {
    let whole = letter(me, news.clone());
    if whole.len() <= NEWS_BYTES {
        return vec![whole];
    }
    if news.len() < 2 {
        // One worker with very many leases. A letter that cannot be read makes all be read anew.
        return vec![String::from("all")];
    }
    let (one, other) = news.split_at(news.len() / 2);
    [letters(me, one.to_vec()), letters(me, other.to_vec())].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Epoch, LeaseRef};

    fn worker() -> crate::model::WorkerId {
        "00000000-0000-7000-8000-000000000001".parse().expect("an id")
    }

    fn lease(n: usize) -> LeaseRef {
        LeaseRef { task: format!("acme/shop#{n}").parse().expect("an id"), epoch: Epoch(1) }
    }

    #[test]
    fn however_much_is_told_each_letter_is_one_that_the_server_takes() {
        let news: Vec<Notice> = (1..1000).map(|n| Notice::revoked(&worker(), &lease(n))).collect();
        let letters = letters("me", news.clone());
        assert!(letters.iter().all(|text| text.len() <= NEWS_BYTES));
        let read = |text: &String| serde_json::from_str::<Letter>(text).expect("a letter").news;
        assert_eq!(letters.iter().flat_map(read).collect::<Vec<_>>(), news);
    }

    #[test]
    fn what_fits_no_letter_makes_the_others_read_everything() {
        let instance = "00000000-0000-7000-8000-000000000002".parse().expect("an id");
        let ended = (1..1000).map(lease).collect();
        let news = vec![Notice::Registered { worker: worker(), instance, ended }, Notice::Tokens];
        let letters = letters("me", news);
        assert_eq!(letters.len(), 2);
        assert!(serde_json::from_str::<Letter>(&letters[0]).is_err());
    }
}
