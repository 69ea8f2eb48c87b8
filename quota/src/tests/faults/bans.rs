//! Stored bans are read however many notifications arrive, and until they were read.

use std::sync::atomic::AtomicU32;

use tokio::sync::mpsc;

use super::*;
use crate::ban::{Ban, BanReason, Notification};
use crate::store::{Received, ScanCursor, StoredNotification};

/// A store that stores one ban in the second of two parts, fails at first, and sends notifications without end.
struct Chatty {
    store: Arc<FaultyStore>,
    failures: AtomicU32,
}

#[async_trait]
impl Store for Chatty {
    async fn execute(&self, bucket: &ProjectUid, statement: Statement) -> Result<Reply, StoreOutage> {
        self.store.execute(bucket, statement).await
    }

    async fn heartbeat(&self, count: bool) -> Result<HeartbeatReply, StoreOutage> {
        self.store.heartbeat(count).await
    }

    async fn view(&self, bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
        self.store.view(bucket).await
    }

    async fn stored_notifications(
        &self,
        after: Option<ScanCursor>,
    ) -> Result<(Vec<StoredNotification>, Option<ScanCursor>), StoreOutage> {
        if after.is_none() {
            return Ok((Vec::new(), Some(ScanCursor { server: String::new(), position: 7 })));
        }
        let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |failures| failures.checked_sub(1));
        if left.is_ok() {
            return Err(StoreOutage::TimedOut);
        }
        let (since, until) = (UnixSeconds(1), UnixSeconds(4_000_000_000));
        let ban = Ban { key: key(1), since, until, reason: BanReason::Operator, level: 1, shadow: false };
        Ok((vec![StoredNotification { notification: Notification::Banned(ban), text: String::new() }], None))
    }

    fn notifications(&self) -> Option<mpsc::Receiver<Received>> {
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            let mut next = Received::Connected;
            while sender.send(next).await.is_ok() {
                next = Received::Notification(Notification::Struck(Vec::new()));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Some(receiver)
    }
}

#[tokio::test]
async fn stored_bans_are_read_successfully_despite_continuous_notifications() {
    let store = FaultyStore::new(2);
    let chatty = Arc::new(Chatty { store: store.clone(), failures: AtomicU32::new(3) });
    let quota = Quota::new(chatty, QuotaSettings::new(1), store.clock.clone());
    let listening = tokio::spawn({
        let quota = quota.clone();
        async move { quota.listen().await }
    });
    comes(|| (!quota.bans().is_empty()).then_some(())).await;
    let banned = quota.charge(&project(), limits(60, 1_000), &key(1)).await;
    assert!(matches!(banned, Err(ChargeError::Banned { .. })), "{banned:?}");
    listening.abort();
}
