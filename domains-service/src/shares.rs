//! Limited places, of which each holder gets a share, so that one client cannot use up what others need.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of places, and how many of them each holder has.
pub(crate) struct Shares {
    places: Arc<Semaphore>,
    share: usize,
    taken: Mutex<HashMap<String, usize>>,
}

/// One place, until dropped.
pub(crate) struct Place {
    shares: Arc<Shares>,
    holder: String,
    _permit: OwnedSemaphorePermit,
}

impl Shares {
    /// So many places, of which one holder has at most `share`.
    pub(crate) fn new(places: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(places)), share, taken: Mutex::default() })
    }

    /// A place for this holder, if one is free and the holder's share is not used up.
    pub(crate) fn take(self: &Arc<Self>, holder: &str) -> Option<Place> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        let mut taken = self.taken.lock();
        let count = taken.get(holder).copied().unwrap_or_default();
        if count >= self.share {
            return None;
        }
        taken.insert(holder.to_owned(), count + 1);
        Some(Place { shares: self.clone(), holder: holder.to_owned(), _permit: permit })
    }
}

#[cfg(test)]
impl Shares {
    /// How many holders have a place.
    pub(crate) fn holders(&self) -> usize {
        self.taken.lock().len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        match taken.get_mut(&self.holder) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.holder)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_leaves_places_for_the_others_and_gets_its_own_back() {
        let shares = Shares::new(3, 2);
        let (first, second) = (shares.take("a").unwrap(), shares.take("a").unwrap());
        assert!(shares.take("a").is_none(), "a has its share");
        let other = shares.take("b").unwrap();
        assert!(shares.take("c").is_none(), "all places are taken");
        drop(first);
        let again = shares.take("a").unwrap();
        drop((second, other, again));
        assert_eq!(shares.holders(), 0, "no holder stays in memory");
        assert_eq!(shares.places.available_permits(), 3);
    }
}
