//! What nodes say to each other: bans and their ends, refusals that count against a key, and that they would refuse for
//! want of what another node holds.
//!
//! A ban or its end is repeated until the store has taken it, and once more when the store's memory is a new one. What
//! a node missed while it did not listen it reads when it listens again. Without the store each node bans for itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::key::KeyId;
use contract::time::UnixMillis;
use tokio::sync::mpsc;

use super::ban::News;
use super::ban::{Ban, OFFENDERS_MAX};
use super::store::{Heard, StoreOutage};
use super::{Inner, Quota};

/// How often the list of bans is read and cleared of those that are over, besides each time the store is found again.
const READ_EVERY: Duration = Duration::from_mins(10);

/// How long after its end a ban is still kept for nodes whose clock is wrong, in seconds.
const KEPT_SECONDS: i64 = 3_600;

/// A lifted ban of a version that did not say when it would have ended is kept for this long.
const LIFT_KEPT_SECONDS: i64 = 86_400;

impl Quota {
    /// Listens to the other nodes; returns only when there are none to listen to.
    pub(super) async fn listen(&self) {
        let Some(mut news) = self.0.store.news() else { return };
        self.hear(&mut news).await;
    }

    async fn hear(&self, news: &mut mpsc::Receiver<Heard>) {
        loop {
            match tokio::time::timeout(READ_EVERY, news.recv()).await {
                Ok(Some(Heard::News(news))) => self.take(&news),
                Ok(Some(Heard::Connected)) | Err(_) => self.read_past().await,
                Ok(None) => return,
            }
        }
    }

    fn take(&self, news: &News) {
        let now = self.0.shared_now();
        match news {
            News::Recall(project) => self.recall(project),
            News::Banned(ban) => match self.0.bans.lift_of(ban) {
                Some(lift) => self.0.tell(lift),
                None => self.0.bans.adopt(ban, now),
            },
            News::Lifted { key, began, until } => self.0.bans.lift_begun_by(key, *began, *until, now),
            News::Struck(strikes) => {
                for ban in strikes.iter().filter_map(|strikes| self.0.bans.count(strikes)) {
                    self.0.begin_ban(ban);
                }
            }
        }
    }

    /// Takes over bans that were imposed or lifted while this node did not listen, and removes what is over.
    async fn read_past(&self) {
        let past = match self.0.store.past().await {
            Ok(past) => past,
            Err(outage) => {
                tracing::warn!(reason = %outage, "could not read the bans of other gateways; trying again later");
                return;
            }
        };
        let now = self.0.shared_now().to_seconds();
        let mut over: Vec<KeyId> = Vec::new();
        for news in &past {
            self.take(news);
            let (key, until) = match news {
                News::Banned(ban) => (&ban.key, ban.until),
                News::Lifted { key, began, until } => (key, (*until).max(began.plus(LIFT_KEPT_SECONDS))),
                News::Recall(_) | News::Struck(_) => continue,
            };
            if until.plus(KEPT_SECONDS) <= now {
                over.push(key.clone());
            }
        }
        if let Err(outage) = self.0.store.forget(&over).await {
            tracing::debug!(reason = %outage, "could not remove bans that are over; trying again later");
        }
    }
}

impl Inner {
    /// The store's clock, once it was heard.
    pub(super) fn store_now(&self) -> Option<UnixMillis> {
        self.store_clock.now(self.clock.monotonic())
    }

    /// The clock by which bans begin and end: the store's, or this machine's before the store was heard.
    pub(super) fn shared_now(&self) -> UnixMillis {
        self.store_now().unwrap_or_else(|| self.clock.now())
    }

    /// A rule has banned a key.
    pub(super) fn begin_ban(self: &Arc<Self>, ban: Ban) {
        tracing::warn!(api_key.id = %ban.key, until = ban.until.0, level = ban.level, shadow = ban.shadow,
            "banned a key that kept sending after 429");
        self.tell(News::Banned(ban));
    }

    /// Tells the other nodes in the background. A ban and its end are repeated until they are told. Anything else is not:
    /// it is late by then.
    pub(super) fn tell(self: &Arc<Self>, news: News) {
        let key = match &news {
            News::Banned(ban) => &ban.key,
            News::Lifted { key, .. } => key,
            News::Recall(_) | News::Struck(_) => {
                let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
                let inner = Arc::clone(self);
                runtime.spawn(async move { inner.say(&news).await });
                return;
            }
        };
        let mut untold = self.untold.lock();
        if untold.len() < OFFENDERS_MAX || untold.contains_key(key) {
            untold.insert(key.clone(), news);
        }
        drop(untold);
        self.tell_rest();
    }

    /// Tells what has not been told yet; one task at a time.
    pub(super) fn tell_rest(self: &Arc<Self>) {
        if self.untold.lock().is_empty() || self.telling.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.telling.store(false, Ordering::Release);
            return;
        };
        let inner = Arc::clone(self);
        runtime.spawn(async move {
            while let Some((key, news)) = inner.next_untold() {
                if let Err(outage) = inner.say(&news).await {
                    tracing::debug!(api_key.id = %key, reason = %outage, "could not tell the other gateways of a ban; repeating it");
                    break;
                }
                // A later word about the same key is still to be told.
                let mut untold = inner.untold.lock();
                if untold.get(&key) == Some(&news) {
                    untold.remove(&key);
                }
            }
            inner.telling.store(false, Ordering::Release);
        });
    }

    fn next_untold(&self) -> Option<(KeyId, News)> {
        self.untold.lock().iter().next().map(|(key, news)| (key.clone(), news.clone()))
    }

    /// Tells the others how often keys were refused here since they were last told. A key's refusals count together.
    pub(super) fn tell_strikes(self: &Arc<Self>) {
        let strikes = self.bans.take_untold_strikes();
        if !strikes.is_empty() && self.fleet().nodes.get() > 1 {
            self.tell(News::Struck(strikes));
        }
    }

    /// Tells of every ban that holds and every one that was lifted, because the store may have forgotten them.
    pub(super) fn repeat_bans(self: &Arc<Self>) {
        let known: HashMap<KeyId, News> = self.bans.known(self.shared_now());
        let mut untold = self.untold.lock();
        for (key, news) in known {
            untold.entry(key).or_insert(news);
        }
        drop(untold);
        self.tell_rest();
    }

    async fn say(&self, news: &News) -> Result<(), StoreOutage> {
        let saying = tokio::time::timeout(self.settings.call_budget, self.store.tell(news));
        saying.await.unwrap_or(Err(StoreOutage::TimedOut))
    }
}
