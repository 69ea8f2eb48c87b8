//! The credentials that are good, in memory: no request waits for the disk to be recognised.
//!
//! They are read as a whole every second, at once when this process revokes one, and soon when a request comes with one that
//! is unknown. So a revocation is effective at once here, and within a second or two at other replicas. While the database is
//! away, those that were read last stay, and streams end because nothing can be read for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chassis::shutdown::Shutdown;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::error::Elapsed;

use super::credentials::Credential;
use super::{Store, StoreError};

/// After the pause, until the next look when no request wants one: there is one every second.
const LOOK_EVERY: Duration = Duration::from_millis(900);

/// Between two looks for credentials that are unknown: however many come, this is what they cost the database.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(100);

/// How long a request with an unknown credential waits for a look.
const UNKNOWN_WAIT_MAX: Duration = Duration::from_secs(2);

/// Those that are good, by their digests.
type Good = HashMap<String, Credential>;

/// The credentials that are good, as they were read last.
#[derive(Default)]
pub(crate) struct Admitted {
    good: watch::Sender<Arc<HashMap<String, Credential>>>,
    /// How many looks have begun.
    begun: AtomicU64,
    /// The number of the last look that found them.
    looked: watch::Sender<u64>,
    /// Held while looking: what an earlier look has read never takes the place of what a later one has.
    looking: Mutex<()>,
    /// A request waits for the next look.
    wanted: Notify,
}

impl Admitted {
    fn find(&self, digest: &str) -> Option<Credential> {
        self.good.borrow().get(digest).cloned()
    }

    /// Takes what was found in the place of what was known. Those who follow are woken if it is something else.
    fn replace(&self, found: Good) {
        self.good.send_if_modified(|known| {
            let is_news = **known != found;
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
        let _ = good.wait_for(|good| !good.contains_key(digest)).await;
    }
}

impl Store {
    /// Follows whether the credential with this digest is good.
    pub(crate) fn watch_credential(&self, digest: &str) -> Watch {
        Watch { good: self.admitted.good.subscribe(), digest: digest.to_owned() }
    }

    /// Whether the credential with this digest is good, as far as this process knows.
    pub(crate) fn is_good(&self, digest: &str) -> bool {
        self.admitted.good.borrow().contains_key(digest)
    }

    /// The credential with this digest, if it is good or has expired. One that is unknown may have been made a moment ago:
    /// the next look decides, for [`UNKNOWN_WAIT_MAX`] at most.
    pub(crate) async fn credential(&self, digest: &str) -> Result<Option<Credential>, Elapsed> {
        let admitted = &self.admitted;
        if let Some(known) = admitted.find(digest) {
            return Ok(Some(known));
        }
        let (mut looked, begun) = (admitted.looked.subscribe(), admitted.begun.load(Ordering::SeqCst));
        admitted.wanted.notify_one();
        let _ = tokio::time::timeout(UNKNOWN_WAIT_MAX, looked.wait_for(|look| *look > begun)).await?;
        Ok(admitted.find(digest))
    }

    /// Reads which credentials are good.
    pub(crate) async fn look_at_credentials(&self) -> Result<(), StoreError> {
        let _looking = self.admitted.looking.lock().await;
        let look = self.admitted.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let found = self.good_credentials(None).await?;
        self.admitted.replace(found.into_iter().map(|credential| (credential.digest.clone(), credential)).collect());
        self.admitted.looked.send_replace(look);
        Ok(())
    }

    /// This process has revoked the credentials with these digests: once this returns they open nothing, and streams are cut.
    pub(crate) async fn credentials_revoked(&self, digests: &[&str]) {
        if let Err(error) = self.look_at_credentials().await {
            tracing::debug!(%error, "the credentials that are good could not be read after a revocation");
            let _looking = self.admitted.looking.lock().await;
            let mut good = Good::clone(&self.admitted.good.borrow());
            good.retain(|digest, _| !digests.contains(&digest.as_str()));
            self.admitted.replace(good);
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
            tokio::time::sleep(UNKNOWN_PAUSE).await;
            tokio::select! {
                () = shutdown.begun() => return,
                () = self.admitted.wanted.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use chassis::clock::ManualClock;
    use chassis::shutdown::Shutdown;
    use contract::time::UnixMillis;
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;

    use super::super::credentials::{Enrolment, Kind, Origin};
    use super::*;

    #[tokio::test]
    async fn what_is_revoked_here_opens_nothing_although_the_database_is_away() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        let mut write = store.write().await.unwrap();
        for name in ["edge-1", "edge-2"] {
            let (kind, from) = (Kind::Gateway, Origin::File("file"));
            let new = Enrolment { kind, name, digest: name, expires_at: None, from };
            assert_eq!(write.enrol(&new).await.unwrap(), Ok(true));
        }
        write.commit().await.unwrap();
        store.look_at_credentials().await.unwrap();
        assert!(store.is_good("edge-1") && store.is_good("edge-2"));
        let away = sqlx::raw_sql("ALTER TABLE credentials RENAME TO away");
        away.execute(store.writer().sqlite().unwrap()).await.unwrap();
        store.credentials_revoked(&["edge-1"]).await;
        assert!(!store.is_good("edge-1") && store.is_good("edge-2"));
        assert_eq!(store.watch_credential("edge-1").revoked().now_or_never(), Some(()), "streams are cut");
    }

    #[tokio::test]
    async fn unknown_credentials_cost_ten_looks_a_second_however_many_come() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        let (begun, shutdown) = (Instant::now(), Shutdown::new());
        let keeper = tokio::spawn(store.clone().keep_credentials(shutdown.clone()));
        for round in 0..5 {
            let digests: Vec<_> = (0..500).map(|number| format!("{round} {number}")).collect();
            for found in join_all(digests.iter().map(|digest| store.credential(digest))).await {
                assert_eq!(found.unwrap(), None, "each is decided by a look");
            }
        }
        let looks = u128::from(store.admitted.begun.load(Ordering::SeqCst));
        assert!(looks <= begun.elapsed().as_millis() / UNKNOWN_PAUSE.as_millis() + 1, "{looks}");
        shutdown.begin();
        keeper.await.unwrap();
    }
}
