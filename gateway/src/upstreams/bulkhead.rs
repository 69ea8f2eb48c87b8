//! How many requests an upstream has in progress, and how many of them may be one project's and one visitor's.
//!
//! Most upstreams serve many projects. If whoever comes first could take every place, one project with slow clients would
//! shut out all the others, and one slow visitor all others of a public site. So a project gets another place while it
//! has fewer than seven times as many as are free: alone it comes to seven eighths, two that want everything to seven
//! fifteenths each, and who comes later finds some left. Of what is left to its project a visitor without a key takes
//! part by the same rule, with three for seven: alone three quarters. It is the rule of dynamic thresholds (Choudhury and
//! Hahne, 1998), by which the ports of a switch share a buffer. Callers with a key have a quota instead of the second.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use contract::project::ProjectUid;

use super::Tenant;
use chassis::network::network_of;

/// A project has no more places than this many times those that are free.
const PROJECT_TIMES: u32 = 7;

/// A visitor has no more places than this many times those that are left to the project.
const VISITOR_TIMES: u32 = 3;

/// Counts of projects and visitors. Two that meet in one, by a secret that each process chooses anew, share what one of
/// them may have.
const COUNTS: usize = 4_096;

/// The places of one upstream.
#[derive(Debug)]
pub(super) struct Bulkhead {
    all: u32,
    taken: AtomicU32,
    counts: Box<[AtomicU32]>,
    secret: RandomState,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// All are taken.
    Upstream,
    /// The project has what one project may have.
    Project,
    /// The visitor has what one visitor may have.
    Visitor,
}

/// A place among the requests in progress, until dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    bulkhead: Arc<Bulkhead>,
    /// In which counts it is: of its project, and of its visitor.
    counted: [Option<usize>; 2],
    tenant: Tenant,
}

impl Bulkhead {
    /// With so many places.
    pub(super) fn new(all: u32) -> Self {
        let counts = (0..COUNTS).map(|_| AtomicU32::new(0)).collect();
        Self { all, taken: AtomicU32::new(0), counts, secret: RandomState::new() }
    }

    /// A place for a request that this project pays for, sent by this visitor. Visitors of the platform's own hosts have no
    /// project, and a caller with a key is no visitor.
    pub(super) fn enter(
        self: &Arc<Self>,
        project: Option<&ProjectUid>,
        visitor: Option<IpAddr>,
    ) -> Result<Permit, Busy> {
        let taken = one_more(&self.taken, self.all).ok_or(Busy::Upstream)?;
        let tenant = project.map(|project| Tenant(self.secret.hash_one(project))).unwrap_or_default();
        let mut permit = Permit { bulkhead: self.clone(), counted: [None; 2], tenant };
        let [of_project, of_visitor] = &mut permit.counted;
        // The place that is asked for is one of those that are free.
        let free = self.all - taken;
        let mut left = free;
        if let Some(project) = project {
            let limit = free.saturating_mul(PROJECT_TIMES);
            let has = self.count(project, limit, of_project).ok_or(Busy::Project)?;
            // Each that the project takes is one more that it has, and one less that is free.
            left = (limit - has).div_ceil(PROJECT_TIMES + 1);
        }
        if let Some(visitor) = visitor {
            let limit = left.saturating_mul(VISITOR_TIMES);
            self.count(&network_of(visitor), limit, of_visitor).ok_or(Busy::Visitor)?;
        }
        Ok(permit)
    }

    /// Places that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Counts one more for `whom`, if it has fewer than `limit`; how many it had before.
    fn count(&self, whom: &impl std::hash::Hash, limit: u32, counted: &mut Option<usize>) -> Option<u32> {
        let index = usize::try_from(self.secret.hash_one(whom) % COUNTS as u64).ok()?;
        let has = one_more(self.counts.get(index)?, limit)?;
        *counted = Some(index);
        Some(has)
    }
}

impl Permit {
    /// The project whose place it is. Two that agree in all 64 bits of a hash, whose secret nobody knows, are not expected.
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

/// Counts one more, if there are fewer than `limit`; how many there were before.
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

    /// As many as one may have.
    fn taken_by(bulkhead: &Arc<Bulkhead>, project: Option<&ProjectUid>, visitor: Option<IpAddr>) -> Vec<Permit> {
        (0..10_000).map_while(|_| bulkhead.enter(project, visitor).ok()).collect()
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
    fn one_project_leaves_an_eighth_to_those_who_come_later() {
        let bulkhead = bulkhead(256);
        let [noisy, other] = &projects(&bulkhead, 2)[..] else { panic!("two") };
        let mut held = taken_by(&bulkhead, Some(noisy), None);
        assert_eq!(held.len(), 224);
        assert_eq!(bulkhead.enter(Some(noisy), None).err(), Some(Busy::Project));
        let of_other = bulkhead.enter(Some(other), None).expect("a place");
        held.truncate(200);
        assert_eq!(taken_by(&bulkhead, Some(noisy), None).len(), 24, "what ends makes room");
        drop((of_other, held));
        assert_eq!(bulkhead.taken(), 0);
        assert_eq!(taken_by(&bulkhead, Some(noisy), None).len(), 224, "all of it was given back");
    }

    #[test]
    fn several_that_want_everything_come_to_as_much_each_and_leave_some() {
        let bulkhead = bulkhead(256);
        let greedy = projects(&bulkhead, 5);
        let (last, greedy) = greedy.split_last().unwrap();
        let mut held: Vec<Vec<Permit>> = greedy.iter().map(|_| Vec::new()).collect();
        for _ in 0..256 {
            for (one, held) in greedy.iter().zip(&mut held) {
                held.extend(bulkhead.enter(Some(one), None));
            }
        }
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| (60..=63).contains(count)), "{counts:?}");
        assert!(bulkhead.enter(Some(last), None).is_ok());
    }

    #[test]
    fn visitors_who_take_what_they_get_leave_places_to_others_of_the_same_site() {
        for how_many in [1, 8, 20, 70] {
            let bulkhead = bulkhead(256);
            let site = projects(&bulkhead, 1).remove(0);
            let visitors = visitors(&bulkhead, how_many + 1);
            let (other, greedy) = visitors.split_last().unwrap();
            let mut held = Vec::new();
            for _ in 0..256 {
                for visitor in greedy {
                    held.extend(bulkhead.enter(Some(&site), Some(*visitor)));
                }
            }
            assert!(bulkhead.enter(Some(&site), Some(*other)).is_ok(), "beside {how_many}: {}", bulkhead.taken());
            assert!(held.len() >= 168, "{how_many} had {}", held.len());
            assert_eq!(bulkhead.enter(Some(&site), greedy.first().copied()).err(), Some(Busy::Visitor));
        }
    }

    #[test]
    fn what_was_taken_in_turn_evens_out_as_it_ends() {
        let bulkhead = bulkhead(256);
        let [first, second, late] = &projects(&bulkhead, 3)[..] else { panic!("three") };
        let mut of_first = taken_by(&bulkhead, Some(first), None);
        let mut of_second = taken_by(&bulkhead, Some(second), None);
        assert_eq!((of_first.len(), of_second.len()), (224, 28), "nothing is taken back");
        // Each goes on asking, and of each a request ends now and then.
        for _ in 0..1_000 {
            of_first.truncate(of_first.len() - 1);
            of_second.truncate(of_second.len() - 1);
            of_second.extend(taken_by(&bulkhead, Some(second), None));
            of_first.extend(taken_by(&bulkhead, Some(first), None));
        }
        assert!((110..=128).contains(&of_first.len()) && (110..=128).contains(&of_second.len()));
        assert!(bulkhead.enter(Some(late), None).is_ok());
    }

    #[test]
    fn a_visitor_has_one_count_for_all_addresses_of_its_network() {
        let bulkhead = bulkhead(256);
        let held = taken_by(&bulkhead, None, Some("2001:db8::1".parse().unwrap()));
        assert_eq!(held.len(), 192);
        assert_eq!(bulkhead.enter(None, Some("2001:db8::2:1".parse().unwrap())).err(), Some(Busy::Visitor));
    }

    #[test]
    fn the_platform_may_take_all_and_nobody_more() {
        let bulkhead = bulkhead(9);
        let held = taken_by(&bulkhead, None, None);
        assert_eq!((held.len(), bulkhead.taken()), (9, 9));
        assert_eq!(bulkhead.enter(None, None).err(), Some(Busy::Upstream));
        let demo = "demo".parse().unwrap();
        assert_eq!(bulkhead.enter(Some(&demo), None).err(), Some(Busy::Upstream));
        assert_eq!(bulkhead.taken(), 9, "a refusal takes nothing");
    }

    #[test]
    fn of_less_than_eight_one_project_may_have_all_and_of_less_than_four_one_visitor() {
        let (demo, visitor) = ("demo".parse().unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        for all in 1..=7 {
            let few = bulkhead(all);
            let held = taken_by(&few, Some(&demo), None);
            assert_eq!(held.len(), usize::try_from(all).unwrap());
            assert_eq!(few.enter(None, None).err(), Some(Busy::Upstream));
        }
        for all in 1..=3 {
            let few = bulkhead(all);
            assert_eq!(taken_by(&few, Some(&demo), Some(visitor)).len(), usize::try_from(all).unwrap());
        }
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
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
