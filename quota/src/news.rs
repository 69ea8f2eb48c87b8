//! Notifications between nodes: bans and lifts, strikes, and recalls of held units.
//!
//! A ban or lift is repeated until the store has accepted it, and again after the store has lost its data. A node that
//! was disconnected reads the stored notifications when it reconnects. Without the store each node bans for itself.

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

/// How often the stored bans are read and expired ones removed, in addition to each reconnection.
const READ_EVERY: Duration = Duration::from_mins(10);

/// How long an expired ban is kept for nodes with a wrong clock, in seconds.
const KEPT_SECONDS: i64 = 3_600;

/// How long a lift without an end, sent by an earlier version, is kept, in seconds.
const LIFT_KEPT_SECONDS: i64 = 86_400;

impl Quota {
    /// Receives notifications of the other nodes. Returns only for a store without other nodes.
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

    /// Adds bans and lifts that this node missed, and removes expired ones.
    async fn read_past(&self) {
        let past = match self.0.store.past().await {
            Ok(past) => past,
            Err(outage) => {
                tracing::warn!(reason = %outage, "could not read the bans of other gateways; trying again");
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
            tracing::debug!(reason = %outage, "could not remove expired bans; trying again");
        }
    }
}

impl Inner {
    /// The store's clock, once known.
    pub(super) fn store_now(&self) -> Option<UnixMillis> {
        self.store_clock.now(self.clock.monotonic())
    }

    /// The clock of bans: the store's, or this machine's while the store's is unknown.
    pub(super) fn shared_now(&self) -> UnixMillis {
        self.store_now().unwrap_or_else(|| self.clock.now())
    }

    /// Announces a ban that a rule imposed.
    pub(super) fn begin_ban(self: &Arc<Self>, ban: Ban) {
        tracing::warn!(api_key.id = %ban.key, until = ban.until.0, level = ban.level, shadow = ban.shadow,
            "banned a key that kept sending after 429");
        self.tell(News::Banned(ban));
    }

    /// Sends a notification in the background. Bans and lifts are repeated until delivered; other notifications are
    /// not, because they would be late.
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

    /// Sends undelivered notifications; one task at a time.
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
                    tracing::debug!(api_key.id = %key, reason = %outage, "could not announce a ban; retrying");
                    break;
                }
                // A newer notification about the same key is still undelivered.
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

    /// Sends the strikes counted here since the last notification, added up per key.
    pub(super) fn tell_strikes(self: &Arc<Self>) {
        let strikes = self.bans.take_untold_strikes();
        if !strikes.is_empty() && self.fleet().nodes.get() > 1 {
            self.tell(News::Struck(strikes));
        }
    }

    /// Announces every ban that holds and every lift, because the store may have lost them.
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
