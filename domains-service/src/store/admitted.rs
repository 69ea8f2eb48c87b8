//! Valid credentials, in memory: no request waits for the disk to be authenticated.
//!
//! The list is read as a whole every second, at once when this process revokes a credential, and soon after a request
//! with an unknown one. So a revocation is effective at once here, and within two seconds at other replicas. While the
//! database is away the last list stays, and streams end because their changes cannot be read.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chassis::shutdown::Shutdown;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::error::Elapsed;

use super::credentials::Credential;
use super::{Result, Store};

/// After the pause, time until the next read without a waiting request; together one second.
const READ_INTERVAL: Duration = Duration::from_millis(900);

/// Pause between two reads for unknown credentials. It bounds the database load of any number of them.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(100);

/// Longest wait of a request with an unknown credential for a read.
const UNKNOWN_WAIT_MAX: Duration = Duration::from_secs(2);

/// Valid credentials by digest.
type Good = HashMap<String, Credential>;

/// The valid credentials, as last read.
#[derive(Default)]
pub(crate) struct Admitted {
    good: watch::Sender<Arc<HashMap<String, Credential>>>,
    /// Number of reads that have begun.
    begun: AtomicU64,
    /// Number of the last read that succeeded.
    finished: watch::Sender<u64>,
    /// Held during a read, so that an earlier read never replaces the result of a later one.
    reading: Mutex<()>,
    /// Notified when a request waits for the next read.
    wanted: Notify,
}

impl Admitted {
    fn find(&self, digest: &str) -> Option<Credential> {
        self.good.borrow().get(digest).cloned()
    }

    /// Replaces the list, and wakes watchers if it changed.
    fn replace(&self, found: Good) {
        self.good.send_if_modified(|known| {
            let is_changed = **known != found;
            *known = Arc::new(found);
            is_changed
        });
    }
}

/// Follows whether one credential is valid.
pub(crate) struct Watch {
    good: watch::Receiver<Arc<Good>>,
    digest: String,
}

impl Watch {
    /// Waits until the credential is invalid.
    pub(crate) async fn revoked(&mut self) {
        let Self { good, digest } = self;
        // Without a sender the service has ended, and no credential is valid.
        let _ = good.wait_for(|good| !good.contains_key(digest)).await;
    }
}

impl Store {
    /// Follows whether the credential with this digest is valid.
    pub(crate) fn watch_credential(&self, digest: &str) -> Watch {
        Watch { good: self.admitted.good.subscribe(), digest: digest.to_owned() }
    }

    /// Whether the credential with this digest is valid, by the last read.
    pub(crate) fn is_good(&self, digest: &str) -> bool {
        self.admitted.good.borrow().contains_key(digest)
    }

    /// The credential with this digest, if it is valid or has expired. An unknown one may be new: the next read
    /// decides, within [`UNKNOWN_WAIT_MAX`].
    pub(crate) async fn credential(&self, digest: &str) -> Result<Option<Credential>, Elapsed> {
        let admitted = &self.admitted;
        if let Some(known) = admitted.find(digest) {
            return Ok(Some(known));
        }
        let (mut finished, begun) = (admitted.finished.subscribe(), admitted.begun.load(Ordering::SeqCst));
        admitted.wanted.notify_one();
        let _ = tokio::time::timeout(UNKNOWN_WAIT_MAX, finished.wait_for(|read| *read > begun)).await?;
        Ok(admitted.find(digest))
    }

    /// Reads the valid credentials.
    pub(crate) async fn reload_credentials(&self) -> Result<()> {
        let _reading = self.admitted.reading.lock().await;
        let read = self.admitted.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let found = self.good_credentials(None).await?;
        self.admitted.replace(found.into_iter().map(|credential| (credential.digest.clone(), credential)).collect());
        self.admitted.finished.send_replace(read);
        Ok(())
    }

    /// Called after this process has revoked the credentials with these digests. When it returns they are refused, and
    /// their streams are cut.
    pub(crate) async fn credentials_revoked(&self, digests: &[&str]) {
        if let Err(error) = self.reload_credentials().await {
            tracing::debug!(%error, "cannot read valid credentials after a revocation");
            let _reading = self.admitted.reading.lock().await;
            let mut good = Good::clone(&self.admitted.good.borrow());
            good.retain(|digest, _| !digests.contains(&digest.as_str()));
            self.admitted.replace(good);
        }
    }

    /// Reads the valid credentials each second, until `shutdown`.
    pub(crate) async fn keep_credentials(self, shutdown: Shutdown) {
        let mut failing = false;
        while !shutdown.has_begun() {
            let reloaded = self.reload_credentials().await;
            if let (Err(error), false) = (&reloaded, failing) {
                tracing::warn!(%error, "cannot read valid credentials; keeping the last list");
            }
            failing = reloaded.is_err();
            tokio::time::sleep(UNKNOWN_PAUSE).await;
            tokio::select! {
                () = shutdown.begun() => return,
                () = self.admitted.wanted.notified() => {}
                () = tokio::time::sleep(READ_INTERVAL) => {}
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
    async fn a_credential_revoked_here_is_refused_while_the_database_is_unavailable() {
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
        store.reload_credentials().await.unwrap();
        assert!(store.is_good("edge-1") && store.is_good("edge-2"));
        let away = sqlx::raw_sql("ALTER TABLE credentials RENAME TO away");
        away.execute(store.writer().sqlite().unwrap()).await.unwrap();
        store.credentials_revoked(&["edge-1"]).await;
        assert!(!store.is_good("edge-1") && store.is_good("edge-2"));
        assert_eq!(store.watch_credential("edge-1").revoked().now_or_never(), Some(()), "streams are cut");
    }

    #[tokio::test]
    async fn unknown_credentials_cost_ten_reads_a_second_however_many_arrive() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        let (begun, shutdown) = (Instant::now(), Shutdown::new());
        let keeper = tokio::spawn(store.clone().keep_credentials(shutdown.clone()));
        for round in 0..5 {
            let digests: Vec<_> = (0..500).map(|number| format!("{round} {number}")).collect();
            for found in join_all(digests.iter().map(|digest| store.credential(digest))).await {
                assert_eq!(found.unwrap(), None, "a read decides each");
            }
        }
        let reads = u128::from(store.admitted.begun.load(Ordering::SeqCst));
        assert!(reads <= begun.elapsed().as_millis() / UNKNOWN_PAUSE.as_millis() + 1, "{reads}");
        shutdown.begin();
        keeper.await.unwrap();
    }
}
