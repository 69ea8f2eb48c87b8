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
use tokio::time::Instant;

use super::ban::Notification;
use super::ban::{Ban, OFFENDERS_MAX};
use super::store::{Received, StoreOutage, StoredNotification};
use super::{Inner, Quota};

/// How often the stored bans are read and expired ones removed, in addition to each reconnection.
const READ_EVERY: Duration = Duration::from_mins(10);

/// Pause after they could not be read; it doubles up to the longest.
const READ_AGAIN_MIN: Duration = Duration::from_millis(100);
const READ_AGAIN_MAX: Duration = Duration::from_secs(5);

/// How long an expired ban is kept for nodes with a wrong clock, in seconds.
const KEPT_SECONDS: i64 = 3_600;

/// How long a lift without an end, sent by an earlier version, is kept, in seconds.
const LIFT_KEPT_SECONDS: i64 = 86_400;

/// Pause before the notifications are subscribed to again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_secs(1);

impl Quota {
    /// Receives notifications of the other nodes. Run it as a task; it returns only for a store without other nodes.
    pub async fn listen(&self) {
        while let Some(mut notifications) = self.0.store.notifications() {
            self.receive(&mut notifications).await;
            // The store's task has ended: it panicked.
            tokio::time::sleep(SUBSCRIBE_PAUSE).await;
        }
    }

    async fn receive(&self, notifications: &mut mpsc::Receiver<Received>) {
        // However many notifications arrive: the stored ones have a time of their own.
        let (mut read_at, mut pause) = (Instant::now() + READ_EVERY, READ_AGAIN_MIN);
        loop {
            tokio::select! {
                received = notifications.recv() => match received {
                    Some(Received::Notification(notification)) => self.take(&notification),
                    Some(Received::Connected) => read_at = Instant::now(),
                    None => return,
                },
                () = tokio::time::sleep_until(read_at) => match self.read_stored().await {
                    Ok(()) => (read_at, pause) = (Instant::now() + READ_EVERY, READ_AGAIN_MIN),
                    Err(outage) => {
                        if pause == READ_AGAIN_MIN {
                            tracing::warn!(
                                reason = %outage,
                                "cannot read the bans of other gateways; retrying. Until then, keys that they banned \
                                 are admitted here"
                            );
                        }
                        read_at = Instant::now() + pause;
                        pause = (pause * 2).min(READ_AGAIN_MAX);
                    }
                },
            }
        }
    }

    fn take(&self, notification: &Notification) {
        let now = self.0.shared_now();
        match notification {
            Notification::Recall(project) => self.recall(project),
            Notification::Banned(ban) => match self.0.bans.lift_of(ban) {
                Some(lift) => self.0.notify(lift),
                None => self.0.bans.merge(ban, now),
            },
            Notification::Lifted { key, began, until } => self.0.bans.lift_begun_by(key, *began, *until, now),
            Notification::Struck(strikes) => {
                for ban in strikes.iter().filter_map(|strikes| self.0.bans.count(strikes)) {
                    self.0.begin_ban(ban);
                }
            }
        }
    }

    /// Adds bans and lifts that this node missed, and removes expired ones.
    async fn read_stored(&self) -> Result<(), StoreOutage> {
        let mut after = None;
        loop {
            let (part, next) = self.0.store.stored_notifications(after).await?;
            let now = self.0.shared_now().to_seconds();
            let is_over = |stored: &StoredNotification| {
                let until = match &stored.notification {
                    Notification::Banned(ban) => ban.until,
                    Notification::Lifted { began, until, .. } => (*until).max(began.plus(LIFT_KEPT_SECONDS)),
                    Notification::Recall(_) | Notification::Struck(_) => return false,
                };
                until.plus(KEPT_SECONDS) <= now
            };
            for stored in &part {
                self.take(&stored.notification);
            }
            let over: Vec<StoredNotification> = part.into_iter().filter(is_over).collect();
            if let Err(outage) = self.0.store.forget_notifications(&over).await {
                tracing::debug!(reason = %outage, "cannot remove expired bans; retrying");
            }
            if next.is_none() {
                return Ok(());
            }
            after = next;
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
        self.notify(Notification::Banned(ban));
    }

    /// Sends a notification in the background. Bans and lifts are repeated until delivered; other notifications are
    /// not, because they would be late.
    pub(super) fn notify(self: &Arc<Self>, notification: Notification) {
        let key = match &notification {
            Notification::Banned(ban) => &ban.key,
            Notification::Lifted { key, .. } => key,
            Notification::Recall(_) | Notification::Struck(_) => {
                let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
                let inner = Arc::clone(self);
                runtime.spawn(async move { inner.send_notification(&notification).await });
                return;
            }
        };
        let mut undelivered = self.undelivered.lock();
        if undelivered.len() < OFFENDERS_MAX || undelivered.contains_key(key) {
            undelivered.insert(key.clone(), notification);
        }
        drop(undelivered);
        self.deliver_pending();
    }

    /// Sends undelivered notifications; one task at a time.
    pub(super) fn deliver_pending(self: &Arc<Self>) {
        if self.undelivered.lock().is_empty() || self.delivering.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.delivering.store(false, Ordering::Release);
            return;
        };
        let inner = Arc::clone(self);
        runtime.spawn(async move {
            while let Some((key, notification)) = inner.next_undelivered() {
                let sent = inner.send_notification(&notification).await;
                let failed_before = inner.delivery_failed.swap(sent.is_err(), Ordering::AcqRel);
                if let Err(outage) = sent {
                    inner.record_outage(&outage);
                    if !failed_before {
                        tracing::warn!(
                            api_key.id = %key,
                            reason = %outage,
                            what_to_do = outage.remedy(),
                            "cannot announce a ban to the other gateways; retrying, and until then they admit the key"
                        );
                    }
                    break;
                }
                // A newer notification about the same key is still undelivered.
                let mut undelivered = inner.undelivered.lock();
                if undelivered.get(&key) == Some(&notification) {
                    undelivered.remove(&key);
                }
            }
            inner.delivering.store(false, Ordering::Release);
        });
    }

    fn next_undelivered(&self) -> Option<(KeyId, Notification)> {
        self.undelivered.lock().iter().next().map(|(key, notification)| (key.clone(), notification.clone()))
    }

    /// Sends the strikes counted here since the last notification, added up per key.
    pub(super) fn send_strikes(self: &Arc<Self>) {
        let strikes = self.bans.take_undelivered_strikes();
        if !strikes.is_empty() && !self.is_only_node() {
            self.notify(Notification::Struck(strikes));
        }
    }

    /// Announces every ban that holds and every lift, because the store may have lost them.
    pub(super) fn repeat_bans(self: &Arc<Self>) {
        let known: HashMap<KeyId, Notification> = self.bans.known(self.shared_now());
        let mut undelivered = self.undelivered.lock();
        for (key, notification) in known {
            undelivered.entry(key).or_insert(notification);
        }
        drop(undelivered);
        self.deliver_pending();
    }

    async fn send_notification(&self, notification: &Notification) -> Result<(), StoreOutage> {
        let sending = tokio::time::timeout(self.settings.call_budget, self.store.notify(notification));
        sending.await.unwrap_or(Err(StoreOutage::TimedOut))
    }
}
