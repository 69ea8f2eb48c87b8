//! The memory budget for requests that began too recently to be visible in the memory figures.
//!
//! Between two memory checks a hundred clients can begin to send and fetch large bodies, and a small process would be
//! killed before the next check. Therefore each forwarded request is assumed to need [`BYTES_OF_ONE`] until a check has
//! seen its real use, and no more may begin than the budget allows. A slow request, or a WebSocket, counts for half a
//! second at most: after that the system's figures include it.
//!
//! The budget is exhausted for the lowest plans first. The platform's own hosts have a separate budget, half as large:
//! operators and customers can act whatever projects do, and strangers at the dashboard take nothing from projects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use contract::plan::Plan;

/// What a request may hold: 64 KiB of its body collected for a write and another piece, 64 KiB of its response, and the
/// buffers of TLS and, over HTTP/2, the windows of both.
const BYTES_OF_ONE: u64 = 512 * 1024;

/// A plan's share of the budget in hundredths, and its minimum number of requests: a process that is short of memory is
/// slow, but still works.
const fn share(plan: Option<Plan>) -> (u64, u32) {
    match plan {
        Some(Plan::Free) => (70, 8),
        Some(Plan::Pro) => (80, 9),
        Some(Plan::Business) => (90, 10),
        Some(Plan::Enterprise) => (100, 12),
        None => (50, 8),
    }
}

/// Number of request counts: since the last check, since the one before, and an empty one for the next check.
const LOOKS: usize = 3;

/// How many requests may begin, and how many have.
#[derive(Debug)]
pub(crate) struct Room {
    /// The number of the last check, from one.
    look: AtomicU64,
    /// Requests of projects in progress, by the last check before they began; and those of the platform's own hosts.
    begun: [[AtomicU32; LOOKS]; 2],
    /// How many may have begun since the check before the last.
    allowed: AtomicU32,
}

/// One request's reservation, until it ends or a check includes it.
#[derive(Debug)]
pub(crate) struct Reservation {
    room: Arc<Room>,
    look: u64,
    of_platform: bool,
}

impl Default for Room {
    /// Unlimited until the first check.
    fn default() -> Self {
        Self { look: AtomicU64::new(1), begun: Default::default(), allowed: AtomicU32::new(u32::MAX) }
    }
}

impl Room {
    /// Reserves memory for another request of a project with this plan, or of the platform's own hosts; `None` if
    /// recent requests may need all that is left for it.
    pub(crate) fn enter(self: &Arc<Self>, plan: Option<Plan>) -> Option<Reservation> {
        // A thread that sees a check's number also sees its empty count.
        let look = self.look.load(Ordering::Acquire);
        let (of_platform, begun) = (plan.is_none(), |look| self.slot(plan.is_none(), look));
        // Concurrent threads may all take the last reservation; a few requests more do no harm.
        let young = begun(look).load(Ordering::Relaxed) + begun(look - 1).load(Ordering::Relaxed);
        if young >= self.allowed(plan) {
            return None;
        }
        begun(look).fetch_add(1, Ordering::Relaxed);
        Some(Reservation { room: self.clone(), look, of_platform })
    }

    fn allowed(&self, plan: Option<Plan>) -> u32 {
        let (hundredths, always) = share(plan);
        let all = u64::from(self.allowed.load(Ordering::Relaxed));
        u32::try_from(all * hundredths / 100).unwrap_or(u32::MAX).max(always)
    }

    /// Records a memory check with `left` bytes left. Requests that began before the previous check are included in the
    /// figures. Do not call it without a figure, so that no request is dropped that no figure includes.
    pub(super) fn looked(&self, left: u64) {
        let allowed = u32::try_from(left / BYTES_OF_ONE).unwrap_or(u32::MAX);
        self.allowed.store(allowed, Ordering::Relaxed);
        let next = self.look.load(Ordering::Relaxed) + 1;
        for of_platform in [false, true] {
            self.slot(of_platform, next).store(0, Ordering::Relaxed);
        }
        self.look.store(next, Ordering::Release);
    }

    fn slot(&self, of_platform: bool, look: u64) -> &AtomicU32 {
        let [projects, platform] = &self.begun;
        let [a, b, c] = if of_platform { platform } else { projects };
        match look % LOOKS as u64 {
            0 => a,
            1 => b,
            _ => c,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Older reservations have expired, and their count is reused.
        if self.room.look.load(Ordering::Acquire) <= self.look + 1 {
            let one_less = |begun: u32| begun.checked_sub(1);
            // Nothing to subtract: a check has dropped this request meanwhile.
            let _ = self.room.slot(self.of_platform, self.look).fetch_update(
                Ordering::Relaxed,
                Ordering::Relaxed,
                one_less,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGHEST: Option<Plan> = Some(Plan::Enterprise);

    fn entered(room: &Arc<Room>, plan: Option<Plan>) -> Vec<Reservation> {
        (0..1_000).filter_map(|_| room.enter(plan)).collect()
    }

    fn with_room_for(requests: u64) -> Arc<Room> {
        let room = Room::default();
        room.looked(requests * BYTES_OF_ONE);
        Arc::new(room)
    }

    // promise: faults.21
    #[test]
    fn no_more_begin_than_there_is_memory_for() {
        assert_eq!(entered(&Arc::default(), HIGHEST).len(), 1_000, "no check yet");
        let room = with_room_for(20);
        let mut begun = entered(&room, HIGHEST);
        assert_eq!(begun.len(), 20);
        begun.truncate(15);
        assert_eq!(entered(&room, HIGHEST).len(), 5, "a finished request frees its reservation");
    }

    #[test]
    fn a_request_counts_until_the_second_look_after_it_began() {
        let room = with_room_for(20);
        let old = entered(&room, HIGHEST);
        room.looked(20 * BYTES_OF_ONE);
        assert!(room.enter(HIGHEST).is_none(), "the figures may not show it yet");
        room.looked(15 * BYTES_OF_ONE);
        let young = entered(&room, HIGHEST);
        assert_eq!(young.len(), 15);
        drop(old);
        assert!(room.enter(HIGHEST).is_none(), "what no longer counts makes no room when it ends");
    }

    #[test]
    fn the_lowest_plans_find_it_full_first_and_the_platform_has_one_of_its_own() {
        for (all, expected) in [(100, [70, 10, 10, 10]), (0, [8, 1, 1, 2])] {
            let room = with_room_for(all);
            let begun = Plan::ALL.iter().map(|plan| entered(&room, Some(*plan))).collect::<Vec<_>>();
            assert_eq!(begun.iter().map(Vec::len).collect::<Vec<_>>(), expected);
            let of_platform = entered(&room, None);
            assert_eq!(of_platform.len() as u64, (all / 2).max(8));
            drop(begun);
            assert!(room.enter(None).is_none(), "what projects leave is not the platform's");
            assert_eq!(entered(&room, HIGHEST).len() as u64, all.max(12), "nor the other way round");
        }
    }
}
