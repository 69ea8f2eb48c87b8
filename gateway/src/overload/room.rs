//! Memory for requests that have begun so lately that what they take is not to be seen yet.
//!
//! Between two looks at the memory a hundred clients can begin to send and to fetch large bodies at once, and a small
//! process would be gone before the next look. So each forwarded request is taken to need [`BYTES_OF_ONE`] until a look
//! has seen what it really takes, and no more begin than there is room for. A request that waits long, or a WebSocket,
//! counts for half a second at most: after that the figures of the system speak for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a request may come to hold: four pieces of 64 KiB of its body, and as much of its response, are on their way
/// inside the proxy library at the most.
const BYTES_OF_ONE: u64 = 512 * 1024;

/// As many may always be in progress, of whatever plan: a process that is short of memory is slow, and not dead.
const ALWAYS: u32 = 8;

/// Counts of requests that are kept: of those since the last look, of those since the one before, and a clean one for the
/// look to come.
const LOOKS: usize = 3;

/// How many may begin, and how many have.
#[derive(Debug)]
pub struct Room {
    /// The number of the last look, from one.
    look: AtomicU64,
    /// Requests in progress by the last look before they began.
    begun: [AtomicU32; LOOKS],
    /// As many may have begun since the look before the last.
    allowed: AtomicU32,
}

/// What one request may take, until it ends or is seen.
#[derive(Debug)]
pub struct Reservation {
    room: Arc<Room>,
    look: u64,
}

impl Default for Room {
    /// For everybody, until somebody looks.
    fn default() -> Self {
        Self { look: AtomicU64::new(1), begun: Default::default(), allowed: AtomicU32::new(u32::MAX) }
    }
}

impl Room {
    /// Room for one more request; `None` when those that have just begun may need all there is.
    pub fn enter(self: &Arc<Self>) -> Option<Reservation> {
        let look = self.look.load(Ordering::Relaxed);
        // Threads that are here at once may all take the last place: as many requests more are no harm.
        let young = self.slot(look).load(Ordering::Relaxed) + self.slot(look - 1).load(Ordering::Relaxed);
        if young >= self.allowed.load(Ordering::Relaxed) {
            return None;
        }
        self.slot(look).fetch_add(1, Ordering::Relaxed);
        Some(Reservation { room: self.clone(), look })
    }

    /// Somebody has looked: so many bytes are left. What began before the look before this one is among what is taken.
    pub(super) fn looked(&self, left: u64) {
        let allowed = u32::try_from(left / BYTES_OF_ONE).unwrap_or(u32::MAX);
        self.allowed.store(allowed.max(ALWAYS), Ordering::Relaxed);
        let next = self.look.load(Ordering::Relaxed) + 1;
        self.slot(next).store(0, Ordering::Relaxed);
        self.look.store(next, Ordering::Relaxed);
    }

    fn slot(&self, look: u64) -> &AtomicU32 {
        let [a, b, c] = &self.begun;
        match look % LOOKS as u64 {
            0 => a,
            1 => b,
            _ => c,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Older ones are forgotten, and their count is another's.
        if self.room.look.load(Ordering::Relaxed) <= self.look + 1 {
            let one_less = |begun: u32| begun.checked_sub(1);
            // Nothing to take from: a look came in between and has forgotten this request.
            let _ = self.room.slot(self.look).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(room: &Arc<Room>, tries: usize) -> Vec<Reservation> {
        (0..tries).filter_map(|_| room.enter()).collect()
    }

    #[test]
    fn no_more_begin_than_there_is_memory_for() {
        let room = Arc::new(Room::default());
        assert_eq!(entered(&room, 1_000).len(), 1_000, "nobody has looked");
        let room = Arc::new(Room::default());
        room.looked(20 * BYTES_OF_ONE);
        let mut begun = entered(&room, 100);
        assert_eq!(begun.len(), 20);
        begun.truncate(15);
        assert_eq!(entered(&room, 100).len(), 5, "whoever ends makes room");
    }

    #[test]
    fn a_request_counts_until_the_second_look_after_it_began() {
        let room = Arc::new(Room::default());
        room.looked(20 * BYTES_OF_ONE);
        let old = entered(&room, 100);
        room.looked(20 * BYTES_OF_ONE);
        assert!(room.enter().is_none(), "the figures may not show it yet");
        room.looked(15 * BYTES_OF_ONE);
        let young = entered(&room, 100);
        assert_eq!(young.len(), 15);
        drop(old);
        assert!(room.enter().is_none(), "what no longer counts makes no room when it ends");
    }

    #[test]
    fn some_may_always_begin() {
        let room = Arc::new(Room::default());
        room.looked(0);
        assert_eq!(entered(&room, 100).len(), ALWAYS as usize);
    }
}
