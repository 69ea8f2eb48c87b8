//! What other nodes say: bans and their ends, and that they would refuse for want of what this node holds.
//!
//! Without the store nodes do not hear each other: each bans for itself, and reads what it missed when the store is back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use contract::time::UnixMillis;
use tokio::sync::mpsc;

use super::ban::Ban;
use super::store::{Heard, News};
use super::{Inner, Quota};

/// Bans that are forgotten at once, so that a long list is no long command.
const FORGET_AT_ONCE: usize = 100;

impl Quota {
    /// Listens to the other nodes; returns only when there are none to listen to.
    pub(super) async fn listen(&self) {
        let Some(mut news) = self.0.store.news() else { return };
        self.hear(&mut news).await;
    }

    async fn hear(&self, news: &mut mpsc::Receiver<Heard>) {
        while let Some(heard) = news.recv().await {
            match heard {
                Heard::News(news) => self.take(&news),
                Heard::Connected => self.read_past().await,
            }
        }
    }

    fn take(&self, news: &News) {
        let now = self.0.store_now();
        match news {
            News::Recall(project) => self.recall(project),
            News::Banned(ban) => self.0.bans.adopt(ban, now),
            News::Lifted { key, began } => self.0.bans.lift_begun_by(key, *began, now),
        }
    }

    /// Takes over bans that were imposed or lifted while this node did not listen, and removes what is over.
    async fn read_past(&self) {
        let past = match self.0.store.past().await {
            Ok(past) => past,
            Err(outage) => {
                tracing::warn!(reason = %outage, "the bans of other nodes could not be read");
                return;
            }
        };
        let now = self.0.store_now().to_seconds();
        let mut over: Vec<Ban> = Vec::new();
        for news in &past {
            self.take(news);
            if let News::Banned(ban) = news
                && ban.until <= now
                && over.len() < FORGET_AT_ONCE
            {
                over.push(ban.clone());
            }
        }
        if let Err(outage) = self.0.store.forget(&over).await {
            tracing::debug!(reason = %outage, "bans that are over could not be forgotten");
        }
    }
}

impl Inner {
    /// The store's clock, as far as it was heard of.
    pub(super) fn store_now(&self) -> UnixMillis {
        self.clock.wall().plus(self.store_ahead.load(Ordering::Relaxed))
    }

    /// Tells the other nodes in the background. What cannot be told is not repeated: a recall is late by then, and a
    /// ban holds here in any case.
    pub(super) fn tell(self: &Arc<Self>, news: News) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let inner = Arc::clone(self);
        runtime.spawn(async move {
            let told = tokio::time::timeout(inner.settings.call_budget, inner.store.tell(&news)).await;
            if !matches!(told, Ok(Ok(()))) && !matches!(news, News::Recall(_)) {
                tracing::warn!(?news, "the other nodes could not be told");
            }
        });
    }
}
