//! Limits the requests that an upstream has in progress, and the shares of one project and of one visitor.
//!
//! Most upstreams serve many projects. Without shares, one project with slow clients could take every permit and shut
//! out all others, and one slow visitor could shut out all others of a public site. Therefore a project gets another
//! permit while it has fewer than seven times as many as are free. Alone it gets seven eighths; two greedy projects get
//! seven fifteenths each, and later projects still find free permits. A visitor without a key gets a part of its
//! project's share by the same rule with three in place of seven: alone three quarters. The rule is known as dynamic
//! thresholds (Choudhury and Hahne, 1998); the ports of a switch share a buffer by it. Callers with a key have a quota
//! instead.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use contract::project::ProjectUid;

use super::Tenant;
use chassis::network::network_of;

/// A project has at most this many times the permits that are free.
const PROJECT_TIMES: u32 = 7;

/// A visitor has at most this many times the permits that are left to its project.
const VISITOR_TIMES: u32 = 3;

/// Number of counters for projects and visitors. A hash with a random key per process selects the counter; two projects
/// with the same counter share the limit of one.
const COUNTS: usize = 4_096;

/// The permits of one upstream.
#[derive(Debug)]
pub struct Bulkhead {
    all: u32,
    taken: AtomicU32,
    counts: Box<[AtomicU32]>,
    secret: RandomState,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// All permits are taken.
    Upstream,
    /// The project has reached its share.
    Project,
    /// The visitor has reached its share.
    Visitor,
}

/// The right to one request in progress, until dropped.
#[derive(Debug)]
pub struct Permit {
    bulkhead: Arc<Bulkhead>,
    /// The counters that include it: of its project, and of its visitor.
    counted: [Option<usize>; 2],
    tenant: Tenant,
}

impl Bulkhead {
    /// A bulkhead with this many permits.
    pub(super) fn new(all: u32) -> Self {
        let counts = (0..COUNTS).map(|_| AtomicU32::new(0)).collect();
        Self { all, taken: AtomicU32::new(0), counts, secret: RandomState::new() }
    }

    /// Permits beside these, with the same tenants.
    pub(super) fn beside(&self, all: u32) -> Self {
        Self { secret: self.secret.clone(), ..Self::new(all) }
    }

    /// Acquires a permit for a request that this project pays for, sent by this visitor; `None` for a request without a
    /// project (on the platform's own hosts), or with a key.
    pub fn acquire(self: &Arc<Self>, project: Option<&ProjectUid>, visitor: Option<IpAddr>) -> Result<Permit, Busy> {
        let taken = one_more(&self.taken, self.all).ok_or(Busy::Upstream)?;
        let tenant = project.map(|project| Tenant(self.secret.hash_one(project))).unwrap_or_default();
        let mut permit = Permit { bulkhead: self.clone(), counted: [None; 2], tenant };
        let [of_project, of_visitor] = &mut permit.counted;
        // This permit is no longer free.
        let free = self.all - taken;
        let mut left = free;
        if let Some(project) = project {
            let limit = free.saturating_mul(PROJECT_TIMES);
            let has = self.count(project, limit, of_project).ok_or(Busy::Project)?;
            // Each further permit of the project is one more that it has, and one less that is free.
            left = (limit - has).div_ceil(PROJECT_TIMES + 1);
        }
        if let Some(visitor) = visitor {
            let limit = left.saturating_mul(VISITOR_TIMES);
            self.count(&network_of(visitor), limit, of_visitor).ok_or(Busy::Visitor)?;
        }
        Ok(permit)
    }

    /// Permits that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Counts one more for `whom` if it has fewer than `limit`; returns how many it had before.
    fn count(&self, whom: &impl std::hash::Hash, limit: u32, counted: &mut Option<usize>) -> Option<u32> {
        let index = usize::try_from(self.secret.hash_one(whom) % COUNTS as u64).ok()?;
        let has = one_more(self.counts.get(index)?, limit)?;
        *counted = Some(index);
        Some(has)
    }
}

impl Permit {
    /// The project that pays. The chance that two projects have the same 64-bit keyed hash is negligible.
    pub(super) fn tenant(&self) -> Tenant {
        self.tenant
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for count in self.counted.iter().flatten().filter_map(|index| self.bulkhead.counts.get(*index)) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        self.bulkhead.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts one more if there are fewer than `limit`; returns how many there were before.
fn one_more(count: &AtomicU32, limit: u32) -> Option<u32> {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |has| (has < limit).then(|| has + 1)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hash;
    use std::net::Ipv4Addr;

    use super::*;

    fn bulkhead(all: u32) -> Arc<Bulkhead> {
        Arc::new(Bulkhead::new(all))
    }

    /// As many permits as they get.
    fn taken_by(bulkhead: &Arc<Bulkhead>, project: Option<&ProjectUid>, visitor: Option<IpAddr>) -> Vec<Permit> {
        (0..10_000).map_while(|_| bulkhead.acquire(project, visitor).ok()).collect()
    }

    /// Those of `all` that do not share a count.
    fn strangers<T: Hash>(bulkhead: &Bulkhead, how_many: usize, all: impl Iterator<Item = T>) -> Vec<T> {
        let mut seen = HashSet::new();
        all.filter(|one| seen.insert(bulkhead.secret.hash_one(one) % COUNTS as u64)).take(how_many).collect()
    }

    fn projects(bulkhead: &Bulkhead, how_many: usize) -> Vec<ProjectUid> {
        strangers(bulkhead, how_many, (0..).map(|number| format!("project-{number}").parse().unwrap()))
    }

    fn visitors(bulkhead: &Bulkhead, how_many: usize) -> Vec<IpAddr> {
        strangers(bulkhead, how_many, (0x0a00_0001..).map(|bits| Ipv4Addr::from_bits(bits).into()))
    }

    #[test]
    fn one_project_leaves_an_eighth_to_later_projects() {
        let bulkhead = bulkhead(256);
        let [noisy, other] = &projects(&bulkhead, 2)[..] else { panic!("two") };
        let mut held = taken_by(&bulkhead, Some(noisy), None);
        assert_eq!(held.len(), 224);
        assert_eq!(bulkhead.acquire(Some(noisy), None).err(), Some(Busy::Project));
        let of_other = bulkhead.acquire(Some(other), None).expect("a permit");
        held.truncate(200);
        assert_eq!(taken_by(&bulkhead, Some(noisy), None).len(), 24, "ended requests free their permits");
        drop((of_other, held));
        assert_eq!(bulkhead.taken(), 0);
        assert_eq!(taken_by(&bulkhead, Some(noisy), None).len(), 224, "all permits were returned");
    }

    #[test]
    fn greedy_projects_get_equal_shares_and_leave_some_permits() {
        let bulkhead = bulkhead(256);
        let greedy = projects(&bulkhead, 5);
        let (last, greedy) = greedy.split_last().unwrap();
        let mut held: Vec<Vec<Permit>> = greedy.iter().map(|_| Vec::new()).collect();
        for _ in 0..256 {
            for (one, held) in greedy.iter().zip(&mut held) {
                held.extend(bulkhead.acquire(Some(one), None));
            }
        }
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| (60..=63).contains(count)), "{counts:?}");
        assert!(bulkhead.acquire(Some(last), None).is_ok());
    }

    #[test]
    fn greedy_visitors_leave_permits_to_others_of_the_same_site() {
        for how_many in [1, 8, 20, 70] {
            let bulkhead = bulkhead(256);
            let site = projects(&bulkhead, 1).remove(0);
            let visitors = visitors(&bulkhead, how_many + 1);
            let (other, greedy) = visitors.split_last().unwrap();
            let mut held = Vec::new();
            for _ in 0..256 {
                for visitor in greedy {
                    held.extend(bulkhead.acquire(Some(&site), Some(*visitor)));
                }
            }
            assert!(bulkhead.acquire(Some(&site), Some(*other)).is_ok(), "beside {how_many}: {}", bulkhead.taken());
            assert!(held.len() >= 168, "{how_many} had {}", held.len());
            assert_eq!(bulkhead.acquire(Some(&site), greedy.first().copied()).err(), Some(Busy::Visitor));
        }
    }

    #[test]
    fn unequal_shares_even_out_as_requests_end() {
        let bulkhead = bulkhead(256);
        let [first, second, late] = &projects(&bulkhead, 3)[..] else { panic!("three") };
        let mut of_first = taken_by(&bulkhead, Some(first), None);
        let mut of_second = taken_by(&bulkhead, Some(second), None);
        assert_eq!((of_first.len(), of_second.len()), (224, 28), "permits in use are not revoked");
        // Both keep asking, and both end a request in each round.
        for _ in 0..1_000 {
            of_first.truncate(of_first.len() - 1);
            of_second.truncate(of_second.len() - 1);
            of_second.extend(taken_by(&bulkhead, Some(second), None));
            of_first.extend(taken_by(&bulkhead, Some(first), None));
        }
        assert!((110..=128).contains(&of_first.len()) && (110..=128).contains(&of_second.len()));
        assert!(bulkhead.acquire(Some(late), None).is_ok());
    }

    #[test]
    fn a_visitor_has_one_count_for_all_addresses_of_its_network() {
        let bulkhead = bulkhead(256);
        let held = taken_by(&bulkhead, None, Some("2001:db8::1".parse().unwrap()));
        assert_eq!(held.len(), 192);
        assert_eq!(bulkhead.acquire(None, Some("2001:db8::2:1".parse().unwrap())).err(), Some(Busy::Visitor));
    }

    #[test]
    fn the_platform_may_take_all_permits_and_then_every_request_is_refused() {
        let bulkhead = bulkhead(9);
        let held = taken_by(&bulkhead, None, None);
        assert_eq!((held.len(), bulkhead.taken()), (9, 9));
        assert_eq!(bulkhead.acquire(None, None).err(), Some(Busy::Upstream));
        let demo = "demo".parse().unwrap();
        assert_eq!(bulkhead.acquire(Some(&demo), None).err(), Some(Busy::Upstream));
        assert_eq!(bulkhead.taken(), 9, "a refusal takes nothing");
    }

    #[test]
    fn one_project_may_have_all_of_seven_permits_and_one_visitor_all_of_three() {
        let (demo, visitor) = ("demo".parse().unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        for all in 1..=7 {
            let few = bulkhead(all);
            let held = taken_by(&few, Some(&demo), None);
            assert_eq!(held.len(), usize::try_from(all).unwrap());
            assert_eq!(few.acquire(None, None).err(), Some(Busy::Upstream));
        }
        for all in 1..=3 {
            let few = bulkhead(all);
            assert_eq!(taken_by(&few, Some(&demo), Some(visitor)).len(), usize::try_from(all).unwrap());
        }
    }

    #[test]
    fn threads_never_take_more_permits_than_exist() {
        let bulkhead = bulkhead(20);
        let (demo, visitor) = ("demo".parse().unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..2_000 {
                        let project = (round % 2 == 0).then_some(&demo);
                        let held = taken_by(&bulkhead, project, (round % 3 == 0).then_some(visitor));
                        assert!(held.len() <= 20 && bulkhead.taken() <= 20);
                    }
                });
            }
        });
        assert_eq!(bulkhead.taken(), 0);
        assert!(bulkhead.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0));
    }
}
