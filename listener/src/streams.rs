//! What the streams of one HTTP/2 connection share: how many wait for their client to read and what they have earned, how much
//! the client has sent, the pieces of bodies that it may answer, and how much is still read of bodies without a receiver.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes of bodies that nobody wants which are read of one connection in its life.
const UNWANTED_MAX: usize = 256 * 1024 * 1024;

/// What the streams of one connection share: see the module.
#[derive(Debug)]
pub struct Streams {
    /// Streams whose client has to read before they can go on.
    pub(crate) waiting: AtomicU32,
    /// The time that bytes have earned for each of them, in microseconds.
    pub(crate) earned: AtomicU64,
    /// Bytes of bodies that were taken, to be sent on.
    taken: AtomicU64,
    /// Pieces of bodies that were passed on, in either direction, since [`Self::take_passed_on`].
    passed_on: AtomicU64,
    /// Bytes that are still read of bodies that nobody wants.
    unwanted: AtomicUsize,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            waiting: AtomicU32::new(0),
            earned: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            passed_on: AtomicU64::new(0),
            unwanted: AtomicUsize::new(UNWANTED_MAX),
        }
    }
}

impl Streams {
    /// So many bytes of a body were taken.
    pub fn took(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of bodies that were taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// A piece of a body goes to the upstream, or to the client: all of what was there, not what the client's window left of
    /// it. A client that opens its window byte by byte is not paid for each byte.
    pub fn passes_on(&self) {
        self.passed_on.fetch_add(1, Ordering::Relaxed);
    }

    /// How many pieces were passed on since the last call.
    pub(crate) fn take_passed_on(&self) -> u64 {
        // Most reads come without one.
        if self.passed_on.load(Ordering::Relaxed) == 0 { 0 } else { self.passed_on.swap(0, Ordering::Relaxed) }
    }

    /// Whether so many more bytes may be read that nobody wants.
    pub fn may_waste(&self, bytes: usize) -> bool {
        let spend = |left: usize| left.checked_sub(bytes);
        self.unwanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_wants_is_read_within_bounds() {
        let streams = Streams::default();
        assert!(streams.may_waste(UNWANTED_MAX - 1));
        assert!(!streams.may_waste(2));
        assert!(streams.may_waste(1) && !streams.may_waste(1));
    }
}
