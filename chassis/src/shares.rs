//! A limited number of permits. One holder can have at most its share of them, so that one client cannot use up what
//! others need.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits, and how many of them each holder has.
pub struct Shares {
    permits: Arc<Semaphore>,
    share: usize,
    holders: Mutex<HashMap<String, Holder>>,
}

struct Holder {
    share: Arc<Semaphore>,
    /// Permits that it has, and waits for.
    wanted: usize,
}

/// One permit, until dropped.
pub struct SharePermit {
    _permits: [OwnedSemaphorePermit; 2],
    _wanted: Wanted,
}

/// A permit that a holder has, or waits for.
struct Wanted {
    shares: Arc<Shares>,
    holder: String,
}

impl Shares {
    /// With `permits` in all; one holder has at most `share` of them.
    pub fn new(permits: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { permits: Arc::new(Semaphore::new(permits)), share, holders: Mutex::default() })
    }

    /// A permit for this holder, if one is free and the holder's share is not used up.
    pub fn take(self: &Arc<Self>, holder: &str) -> Option<SharePermit> {
        let (wanted, share) = self.want(holder);
        let of_share = share.try_acquire_owned().ok()?;
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        Some(SharePermit { _permits: [permit, of_share], _wanted: wanted })
    }

    /// Waits for a permit. A holder whose share is used up first waits for one of its own, and so does not delay
    /// others. `None` only at the end of the process.
    pub async fn wait(self: &Arc<Self>, holder: &str) -> Option<SharePermit> {
        let (wanted, share) = self.want(holder);
        let of_share = share.acquire_owned().await.ok()?;
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        Some(SharePermit { _permits: [permit, of_share], _wanted: wanted })
    }

    fn want(self: &Arc<Self>, holder: &str) -> (Wanted, Arc<Semaphore>) {
        let mut holders = self.holders.lock();
        let share = || Holder { share: Arc::new(Semaphore::new(self.share)), wanted: 0 };
        let known = holders.entry(holder.to_owned()).or_insert_with(share);
        known.wanted += 1;
        (Wanted { shares: self.clone(), holder: holder.to_owned() }, known.share.clone())
    }

    /// How many holders have a permit, or wait for one.
    pub fn holders(&self) -> usize {
        self.holders.lock().len()
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let mut holders = self.shares.holders.lock();
        match holders.get_mut(&self.holder) {
            Some(known) if known.wanted > 1 => known.wanted -= 1,
            _ => drop(holders.remove(&self.holder)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn one_holder_leaves_permits_for_others_and_can_acquire_its_own_again() {
        let shares = Shares::new(3, 2);
        let (first, second) = (shares.take("a").unwrap(), shares.take("a").unwrap());
        assert!(shares.take("a").is_none(), "a has its share");
        let other = shares.take("b").unwrap();
        assert!(shares.take("c").is_none(), "all permits are taken");
        drop(first);
        let again = shares.take("a").unwrap();
        drop((second, other, again));
        assert_eq!(shares.holders(), 0, "no holder stays in memory");
        assert_eq!(shares.permits.available_permits(), 3);
    }

    #[tokio::test]
    async fn a_holder_waits_for_its_own_share_and_keeps_no_other_waiting() {
        let shares = Shares::new(3, 2);
        let (first, second) = (shares.wait("a").await.unwrap(), shares.wait("a").await.unwrap());
        let mut third = Box::pin(shares.wait("a"));
        assert!(third.as_mut().now_or_never().is_none(), "a has its share");
        assert!(shares.take("a").is_none());
        let other = shares.wait("b").now_or_never().expect("a permit is left to others").unwrap();
        let mut late = Box::pin(shares.wait("c"));
        assert!(late.as_mut().now_or_never().is_none(), "all permits are taken");
        drop(first);
        let late = late.as_mut().now_or_never().expect("a waited for its share, not for a permit").unwrap();
        assert!(third.as_mut().now_or_never().is_none(), "all permits are taken");
        drop(other);
        let third = third.as_mut().now_or_never().expect("a permit is free, and a has one").unwrap();
        // One that waits no longer leaves nothing.
        let mut gone = Box::pin(shares.wait("d"));
        assert!(gone.as_mut().now_or_never().is_none());
        drop((gone, second, third, late));
        assert_eq!((shares.holders(), shares.permits.available_permits()), (0, 3));
    }
}
