//! The credentials that are good, in memory.
//!
//! They are read as a whole every second, and at once when this process revokes one or a request comes with one that is
//! unknown. So a revocation is effective at once here, and within a second or two at other replicas. While the database is
//! away, those that were read last stay, and streams end because nothing can be read for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chassis::shutdown::Shutdown;
use tokio::sync::{Mutex, watch};
use tokio::time::{Interval, MissedTickBehavior};

use super::{Store, StoreError};
use crate::feed::Credential;

/// Between two looks at the database.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Between two looks for credentials that are unknown: however many come, this is what they cost the database.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(100);

/// Those that are good, by their digests.
#[derive(Default)]
pub(crate) struct Good {
    /// The number of the look that found them.
    look: u64,
    by_digest: HashMap<String, Credential>,
}

impl Good {
    /// Whether the credential with this digest is good. Its name alone says nothing: it may have another by now.
    pub(crate) fn has(&self, digest: &str) -> bool {
        self.by_digest.contains_key(digest)
    }
}

/// The credentials that are good, as they were read last.
pub(crate) struct Admitted {
    good: watch::Sender<Arc<Good>>,
    /// How many looks have begun.
    begun: AtomicU64,
    /// Held while looking: what an earlier look has read never takes the place of what a later one has.
    looking: Mutex<()>,
    /// Held by the request that looks for one that is unknown.
    unknown: Mutex<Interval>,
}

impl Default for Admitted {
    fn default() -> Self {
        let mut pause = tokio::time::interval(UNKNOWN_PAUSE);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            good: watch::channel(Arc::default()).0,
            begun: AtomicU64::default(),
            looking: Mutex::default(),
            unknown: Mutex::new(pause),
        }
    }
}

impl Admitted {
    /// Takes what was found in the place of what was known. Those who follow are woken if it is something else.
    fn replace(&self, found: Good) {
        self.good.send_if_modified(|known| {
            let is_news = known.by_digest != found.by_digest;
            *known = Arc::new(found);
            is_news
        });
    }
}

/// Whether one credential is good.
pub(crate) struct Watch {
    good: watch::Receiver<Arc<Good>>,
    digest: String,
}

impl Watch {
    /// Waits until the credential is good no more.
    pub(crate) async fn revoked(&mut self) {
        let Self { good, digest } = self;
        // Without a sender the service has ended, and nothing is good.
        let _ = good.wait_for(|good| !good.has(digest)).await;
    }
}

impl Store {
    /// Follows whether the credential with this digest is good.
    pub(crate) fn watch_credential(&self, digest: &str) -> Watch {
        Watch { good: self.admitted.good.subscribe(), digest: digest.to_owned() }
    }

    /// Whether the credential with this digest is good. One that is unknown may have been made by another replica a moment
    /// ago: the next look decides.
    pub(crate) async fn is_good(&self, digest: &str) -> Result<bool, StoreError> {
        let admitted = &self.admitted;
        if admitted.good.borrow().has(digest) {
            return Ok(true);
        }
        let begun = admitted.begun.load(Ordering::SeqCst);
        let mut pause = admitted.unknown.lock().await;
        if admitted.good.borrow().look <= begun {
            pause.tick().await;
            self.look_at_credentials().await?;
        }
        Ok(admitted.good.borrow().has(digest))
    }

    /// Reads which credentials are good.
    pub(crate) async fn look_at_credentials(&self) -> Result<(), StoreError> {
        let _looking = self.admitted.looking.lock().await;
        let look = self.admitted.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let found = self.credentials_of_gateways().await?;
        let by_digest = found.into_iter().map(|credential| (credential.digest.clone(), credential)).collect();
        self.admitted.replace(Good { look, by_digest });
        Ok(())
    }

    /// This process has revoked the credential of this name: once this returns it opens nothing, and streams are cut.
    pub(crate) async fn credential_revoked(&self, name: &str) {
        if let Err(error) = self.look_at_credentials().await {
            tracing::debug!(%error, "the credentials that are good could not be read after a revocation");
            let _looking = self.admitted.looking.lock().await;
            let known = self.admitted.good.borrow().clone();
            let mut by_digest = known.by_digest.clone();
            by_digest.retain(|_, credential| credential.gateway != name);
            self.admitted.replace(Good { look: known.look, by_digest });
        }
    }

    /// Reads again and again which credentials are good, until `shutdown`.
    pub(crate) async fn keep_credentials(self, shutdown: Shutdown) {
        let mut failing = false;
        while !shutdown.has_begun() {
            let looked = self.look_at_credentials().await;
            if let (Err(error), false) = (&looked, failing) {
                tracing::warn!(%error, "the credentials that are good could not be read: those that were read last stay");
            }
            failing = looked.is_err();
            tokio::select! {
                () = shutdown.begun() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}
