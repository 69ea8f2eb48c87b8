//! The memory budget for requests that began too recently to be visible in the memory figures.
//!
//! Between two memory checks a hundred clients can begin to send and fetch large bodies, and a small process would be
//! killed before the next check. Therefore each forwarded request is assumed to need [`BYTES_OF_ONE`] until a check has
//! seen its real use, and no more may begin than the budget allows. A slow request, or a WebSocket, counts for half a
//! second at most: after that the system's figures include it.
//!
//! The budget is exhausted for the lowest plans first. A project may begin another request while it has fewer than
//! seven times as many as may still begin, so a burst of one project leaves some of the budget to the others: the rule
//! that [`upstreams`] uses for requests in progress. The platform's own hosts have a separate budget, half as
//! large: operators and customers can act whatever projects do, and visitors of the dashboard use up no memory of
//! projects.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use contract::plan::Plan;
use contract::project::ProjectUid;

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

/// A project may have at most this many times the requests that may still begin.
const PROJECT_TIMES: u32 = 7;

/// Number of counters for projects. Projects with the same counter, by a hash that each process keys anew, share its
/// limit.
const PROJECTS: usize = 1_024;

/// Number of request counts: since the last check, since the one before, and an empty one for the next check.
const CHECKS: usize = 3;

/// How many requests may begin, and how many have.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// The number of the last check, from one.
    check: AtomicU64,
    /// Requests of projects in progress, by the last check before they began; and those of the platform's own hosts.
    begun: [[AtomicU32; CHECKS]; 2],
    /// The same by the project that pays.
    of_projects: [Box<[AtomicU32]>; CHECKS],
    secret: RandomState,
    /// How many may have begun since the check before the last.
    allowed: AtomicU32,
}

/// One request's reservation, until it ends or a check includes it.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    check: u64,
    of_platform: bool,
    /// The counter of the project that pays.
    project: Option<usize>,
}

impl Default for MemoryBudget {
    /// Unlimited until the first check.
    fn default() -> Self {
        let counts = || (0..PROJECTS).map(|_| AtomicU32::new(0)).collect();
        Self {
            check: AtomicU64::new(1),
            begun: Default::default(),
            of_projects: [counts(), counts(), counts()],
            secret: RandomState::new(),
            allowed: AtomicU32::new(u32::MAX),
        }
    }
}

impl MemoryBudget {
    /// Reserves memory for another request to a project with this plan, or to the platform's own hosts, that `payer`
    /// pays for; `None` if recent requests may need all that is left for it, or the payer already has its share.
    pub(crate) fn reserve(self: &Arc<Self>, plan: Option<Plan>, payer: Option<&ProjectUid>) -> Option<Reservation> {
        // A thread that sees a check's number also sees its empty count.
        let check = self.check.load(Ordering::Acquire);
        let (of_platform, begun) = (plan.is_none(), |check| self.slot(plan.is_none(), check));
        // Concurrent threads may all take the last reservation; a few requests more do no harm.
        let young = begun(check).load(Ordering::Relaxed) + begun(check - 1).load(Ordering::Relaxed);
        let free = self.allowed(plan).checked_sub(young).filter(|free| *free > 0)?;
        let project = payer.and_then(|payer| usize::try_from(self.secret.hash_one(payer) % PROJECTS as u64).ok());
        if let Some(project) = project {
            let count = |check| self.of_project(project, check).map_or(0, |count| count.load(Ordering::Relaxed));
            if count(check) + count(check - 1) >= free.saturating_mul(PROJECT_TIMES) {
                return None;
            }
        }
        let reservation = Reservation { budget: self.clone(), check, of_platform, project };
        for count in reservation.counts() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Some(reservation)
    }

    fn allowed(&self, plan: Option<Plan>) -> u32 {
        let (hundredths, always) = share(plan);
        let all = u64::from(self.allowed.load(Ordering::Relaxed));
        u32::try_from(all * hundredths / 100).unwrap_or(u32::MAX).max(always)
    }

    /// Records a memory check with `left` bytes left. Requests that began before the previous check are included in the
    /// figures. Do not call it without a figure, so that no request is dropped that no figure includes.
    pub(super) fn record_check(&self, left: u64) {
        let allowed = u32::try_from(left / BYTES_OF_ONE).unwrap_or(u32::MAX);
        self.allowed.store(allowed, Ordering::Relaxed);
        let next = self.check.load(Ordering::Relaxed) + 1;
        for of_platform in [false, true] {
            self.slot(of_platform, next).store(0, Ordering::Relaxed);
        }
        for count in of_check(&self.of_projects, next) {
            count.store(0, Ordering::Relaxed);
        }
        self.check.store(next, Ordering::Release);
    }

    fn slot(&self, of_platform: bool, check: u64) -> &AtomicU32 {
        let [projects, platform] = &self.begun;
        of_check(if of_platform { platform } else { projects }, check)
    }

    fn of_project(&self, project: usize, check: u64) -> Option<&AtomicU32> {
        of_check(&self.of_projects, check).get(project)
    }
}

/// The entry of a check.
fn of_check<T>([a, b, c]: &[T; CHECKS], check: u64) -> &T {
    match check % CHECKS as u64 {
        0 => a,
        1 => b,
        _ => c,
    }
}

impl Reservation {
    /// The counters that include this reservation.
    fn counts(&self) -> impl Iterator<Item = &AtomicU32> {
        let of_project = self.project.and_then(|project| self.budget.of_project(project, self.check));
        std::iter::once(self.budget.slot(self.of_platform, self.check)).chain(of_project)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Older reservations have expired, and their count is reused.
        if self.budget.check.load(Ordering::Acquire) <= self.check + 1 {
            let one_less = |begun: u32| begun.checked_sub(1);
            for count in self.counts() {
                // Nothing to subtract: a check has dropped this request meanwhile.
                let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGHEST: Option<Plan> = Some(Plan::Enterprise);

    fn reserved(budget: &Arc<MemoryBudget>, plan: Option<Plan>) -> Vec<Reservation> {
        (0..1_000).filter_map(|_| budget.reserve(plan, None)).collect()
    }

    fn budget_for(requests: u64) -> Arc<MemoryBudget> {
        let budget = MemoryBudget::default();
        budget.record_check(requests * BYTES_OF_ONE);
        Arc::new(budget)
    }

    // promise: faults.21
    #[test]
    fn no_more_begin_than_there_is_memory_for() {
        assert_eq!(reserved(&Arc::default(), HIGHEST).len(), 1_000, "no check yet");
        let budget = budget_for(20);
        let mut begun = reserved(&budget, HIGHEST);
        assert_eq!(begun.len(), 20);
        begun.truncate(15);
        assert_eq!(reserved(&budget, HIGHEST).len(), 5, "a finished request frees its reservation");
    }

    #[test]
    fn a_request_counts_until_the_second_check_after_it_began() {
        let budget = budget_for(20);
        let old = reserved(&budget, HIGHEST);
        budget.record_check(20 * BYTES_OF_ONE);
        assert!(budget.reserve(HIGHEST, None).is_none(), "the figures may not show it yet");
        budget.record_check(15 * BYTES_OF_ONE);
        let young = reserved(&budget, HIGHEST);
        assert_eq!(young.len(), 15);
        drop(old);
        assert!(budget.reserve(HIGHEST, None).is_none(), "a request that no longer counts frees nothing when it ends");
    }

    #[test]
    fn a_burst_of_one_project_leaves_memory_to_others_until_two_checks_have_measured_it() {
        let budget = budget_for(80);
        let project = |number: usize| format!("p{number}").parse::<ProjectUid>().unwrap();
        let count = |project: &ProjectUid| budget.secret.hash_one(project) % PROJECTS as u64;
        let loud = project(0);
        let other = (1..100).map(project).find(|other| count(other) != count(&loud)).unwrap();
        let begin = |payer| (0..1_000).filter_map(|_| budget.reserve(HIGHEST, Some(payer))).collect::<Vec<_>>();
        let burst = begin(&loud);
        assert_eq!(burst.len(), 70, "seven eighths of 80");
        let rest = begin(&other);
        assert_eq!(rest.len(), 9, "another project finds seven eighths of the 10 that are left");
        drop(burst);
        assert_eq!(begin(&loud).len(), 63, "a request that ends frees memory for its project");
        budget.record_check(80 * BYTES_OF_ONE);
        budget.record_check(80 * BYTES_OF_ONE);
        assert_eq!(begin(&loud).len(), 70, "the system's figures include older requests only");
    }

    #[test]
    fn the_budget_is_full_for_the_lowest_plans_first_and_the_platform_has_its_own() {
        for (all, expected) in [(100, [70, 10, 10, 10]), (0, [8, 1, 1, 2])] {
            let budget = budget_for(all);
            let begun = Plan::ALL.iter().map(|plan| reserved(&budget, Some(*plan))).collect::<Vec<_>>();
            assert_eq!(begun.iter().map(Vec::len).collect::<Vec<_>>(), expected);
            let of_platform = reserved(&budget, None);
            assert_eq!(of_platform.len() as u64, (all / 2).max(8));
            drop(begun);
            assert!(budget.reserve(None, None).is_none(), "what projects leave is not the platform's");
            assert_eq!(reserved(&budget, HIGHEST).len() as u64, all.max(12), "nor the other way round");
        }
    }
}
