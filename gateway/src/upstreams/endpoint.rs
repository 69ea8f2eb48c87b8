//! Choosing an address: round robin over those that are up.
//!
//! Health is passive: an address that refuses connections is left alone for a second, then tried again by one of the
//! requests. When all are down the least recently failed is tried anyway: refusing without trying helps nobody.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long an address that failed is left alone.
const DOWN_FOR: Duration = Duration::from_secs(1);

/// One address of an upstream.
#[derive(Debug)]
pub struct Endpoint {
    /// The address.
    pub address: SocketAddr,
    /// Monotonic milliseconds until which it is left alone; 0: it is up.
    down_until: AtomicU64,
}

impl Endpoint {
    /// Remembers a failed connection.
    pub fn failed(&self, now: Duration) {
        self.down_until.store(millis(now + DOWN_FOR), Ordering::Relaxed);
    }

    /// Remembers a connection that worked.
    pub fn worked(&self) {
        if self.down_until.load(Ordering::Relaxed) != 0 {
            self.down_until.store(0, Ordering::Relaxed);
        }
    }

    /// Whether requests are sent here.
    pub fn is_up(&self, now: Duration) -> bool {
        self.down_until.load(Ordering::Relaxed) <= millis(now)
    }
}

/// The addresses of an upstream.
#[derive(Debug)]
pub struct Endpoints {
    all: Vec<Arc<Endpoint>>,
    next: AtomicUsize,
}

impl Endpoints {
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        let all = addresses
            .iter()
            .map(|address| Arc::new(Endpoint { address: *address, down_until: AtomicU64::new(0) }))
            .collect();
        Self { all, next: AtomicUsize::new(0) }
    }

    /// The address for the next attempt, not one of `tried` if there is a choice. `None` only when there is no address.
    pub fn choose(&self, tried: Option<SocketAddr>, now: Duration) -> Option<Arc<Endpoint>> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = || (0..self.all.len()).filter_map(|step| self.all.get((start.wrapping_add(step)) % self.all.len()));
        turn()
            .find(|endpoint| endpoint.is_up(now) && Some(endpoint.address) != tried)
            .or_else(|| turn().min_by_key(|endpoint| endpoint.down_until.load(Ordering::Relaxed)))
            .cloned()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none, which the configuration excludes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many are up.
    pub fn up(&self, now: Duration) -> usize {
        self.all.iter().filter(|endpoint| endpoint.is_up(now)).count()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_addresses_are_left_alone_and_come_back() {
        let endpoints = Endpoints::new(&["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()]);
        let now = Duration::from_secs(10);
        let first = endpoints.choose(None, now).unwrap();
        first.failed(now);
        for _ in 0..4 {
            assert_ne!(endpoints.choose(None, now).unwrap().address, first.address);
        }
        let later = now + DOWN_FOR;
        let chosen: std::collections::HashSet<_> =
            (0..4).map(|_| endpoints.choose(None, later).unwrap().address).collect();
        assert_eq!(chosen.len(), 2);
    }

    #[test]
    fn when_all_are_down_one_is_tried_anyway() {
        let endpoints = Endpoints::new(&["127.0.0.1:1".parse().unwrap()]);
        let now = Duration::from_secs(10);
        let only = endpoints.choose(None, now).unwrap();
        only.failed(now);
        assert!(endpoints.choose(Some(only.address), now).is_some());
    }
}
