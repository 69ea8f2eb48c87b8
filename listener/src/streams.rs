//! State that the streams of one HTTP/2 connection share: the number that wait for the client to read and the time they
//! have earned, the bytes received from the client, the forwarded pieces of bodies, and the remaining budget for
//! discarded body bytes.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Discarded body bytes that one connection may send in its life.
const DISCARDED_MAX: usize = 256 * 1024 * 1024;

/// State that the streams of one HTTP/2 connection share.
#[derive(Debug)]
pub struct Streams {
    /// Streams that wait for the client to read.
    pub(crate) waiting: AtomicU32,
    /// The time that bytes have earned for each waiting stream, in microseconds.
    pub(crate) earned: AtomicU64,
    /// Bytes of bodies that were read, to be forwarded.
    received: AtomicU64,
    /// Pieces of bodies that were forwarded, in either direction, since [`Self::take_forwarded`].
    forwarded: AtomicU64,
    /// Remaining body bytes that may be read and discarded.
    discardable: AtomicUsize,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            waiting: AtomicU32::new(0),
            earned: AtomicU64::new(0),
            received: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            discardable: AtomicUsize::new(DISCARDED_MAX),
        }
    }
}

impl Streams {
    /// Counts body bytes that were read.
    pub fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Body bytes read so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Counts a piece of a body that goes to the upstream or to the client: a whole piece, not the part that fits the
    /// client's window. A client that opens its window byte by byte earns nothing per byte.
    pub fn count_forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of pieces forwarded since the last call.
    pub(crate) fn take_forwarded(&self) -> u64 {
        // Usually zero: avoid the write.
        if self.forwarded.load(Ordering::Relaxed) == 0 { 0 } else { self.forwarded.swap(0, Ordering::Relaxed) }
    }

    /// Whether `bytes` more may be read and discarded; spends them from the budget.
    pub fn may_discard(&self, bytes: usize) -> bool {
        let spend = |left: usize| left.checked_sub(bytes);
        self.discardable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_bytes_have_a_budget() {
        let streams = Streams::default();
        assert!(streams.may_discard(DISCARDED_MAX - 1));
        assert!(!streams.may_discard(2));
        assert!(streams.may_discard(1) && !streams.may_discard(1));
    }
}
