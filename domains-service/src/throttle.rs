//! Rate limits of the control plane's own API. DNS checks: one in ten seconds per domain, thirty a minute per project.
//! Sign-ins: ten in five minutes per address, thirty per key. Changes through the API or the dashboard: see the
//! constants.
//!
//! In memory and bounded. A count that is dropped early only lets a caller continue a little sooner.

use std::collections::VecDeque;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::project::ProjectRef;
use chassis::clock::Clock;
use contract::time::UnixMillis;
use moka::sync::Cache;
use parking_lot::Mutex;

use crate::limits::{Limit, admit};

/// Minimum interval of checks of one domain.
pub(crate) const DOMAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Checks per project in [`PROJECT_WINDOW`].
const PROJECT_CHECKS_MAX: usize = 30;
const PROJECT_WINDOW: Duration = Duration::from_mins(1);

/// Attempts to sign in count this long. A key has 178 bits of randomness, so this protects the database more than the
/// keys.
const SIGN_IN_WINDOW: Duration = Duration::from_mins(5);

/// Attempts of one address (one /64 of IPv6) in [`SIGN_IN_WINDOW`].
const SIGN_INS_PER_ADDRESS_MAX: usize = 10;

/// Attempts with one key in [`SIGN_IN_WINDOW`], from wherever.
const SIGN_INS_PER_KEY_MAX: usize = 30;

/// Domains and projects remembered, and addresses and keys.
const REMEMBERED_MAX: u64 = 100_000;

/// Limits events per key in any span of time. In memory and bounded: a key that is dropped early may continue a little
/// sooner.
struct Throttle<K> {
    clock: Arc<dyn Clock>,
    span: Duration,
    taken: Cache<K, Arc<Mutex<VecDeque<Duration>>>>,
}

impl<K: Hash + Eq + Send + Sync + 'static> Throttle<K> {
    /// A throttle over `span` that remembers up to `remembered` keys.
    fn new(clock: Arc<dyn Clock>, span: Duration, remembered: u64) -> Self {
        Self { clock, span, taken: Cache::builder().max_capacity(remembered).time_to_idle(span).build() }
    }

    /// Counts an event of `key`, or returns the time to wait if there were `most` within the span.
    fn take(&self, key: K, most: usize) -> Result<(), Duration> {
        self.take_with(key, most, || Ok(()))
    }

    /// The same if `other` agrees. `other` is called only when there is room, so a refusal counts nowhere.
    fn take_with(&self, key: K, most: usize, other: impl FnOnce() -> Result<(), Duration>) -> Result<(), Duration> {
        let now = self.clock.monotonic();
        let taken = self.taken.get_with(key, Arc::default);
        // The lock orders simultaneous requests.
        let mut taken = taken.lock();
        while taken.front().is_some_and(|at| now.saturating_sub(*at) >= self.span) {
            taken.pop_front();
        }
        if taken.len() >= most {
            let oldest = taken.front().copied().unwrap_or(now);
            return Err(self.span.saturating_sub(now.saturating_sub(oldest)));
        }
        other()?;
        taken.push_back(now);
        Ok(())
    }
}

/// The purpose of a DNS check. Each has its own limit: after a trial check an owner can still attach and verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asking {
    /// A check before attaching.
    Check,
    /// Is it right now?
    Verify,
}

/// Checks of domains, by domain and by project; attempts to sign in, by address and by key.
pub(crate) struct Throttles {
    domains: Throttle<(Asking, String)>,
    projects: Throttle<(Asking, ProjectRef)>,
    sign_ins: Throttle<String>,
    /// How often sessions and projects may change anything.
    pub(crate) changes: ChangeRate,
}

impl Throttles {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            domains: Throttle::new(clock.clone(), DOMAIN_INTERVAL, REMEMBERED_MAX),
            projects: Throttle::new(clock.clone(), PROJECT_WINDOW, REMEMBERED_MAX),
            sign_ins: Throttle::new(clock.clone(), SIGN_IN_WINDOW, REMEMBERED_MAX),
            changes: ChangeRate::new(clock),
        }
    }

    /// Counts a check of `domain`, or returns the time to wait.
    pub(crate) fn admit(&self, asking: Asking, project: &ProjectRef, domain: &str) -> Result<(), Duration> {
        let domain = (asking, format!("{} {domain}", project.uid));
        self.projects.take_with((asking, project.clone()), PROJECT_CHECKS_MAX, || self.domains.take(domain, 1))
    }

    /// Counts a sign-in from an address, or returns the seconds to wait.
    pub(crate) fn sign_in_from(&self, client: IpAddr) -> Result<(), u64> {
        let who = match client.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("{:x}", u128::from(address) >> 64),
        };
        self.sign_in(who, SIGN_INS_PER_ADDRESS_MAX)
    }

    /// Counts a sign-in with a key, by its digest, or returns the seconds to wait.
    pub(crate) fn sign_in_with(&self, digest: String) -> Result<(), u64> {
        self.sign_in(digest, SIGN_INS_PER_KEY_MAX)
    }

    fn sign_in(&self, who: String, most: usize) -> Result<(), u64> {
        self.sign_ins.take(who, most).map_err(|wait| wait.as_secs().max(1))
    }
}

/// Changes of one key or session: the burst, and the number per minute.
const SESSION_CHANGES: Limit = per_minute(300);

/// Changes in one project, by all callers together.
const PROJECT_CHANGES: Limit = per_minute(600);

const fn per_minute(count: i64) -> Limit {
    Limit { burst: count, refill: 60_000 / count }
}

/// Limits the rate of changes. In memory of one replica, and bounded.
pub(crate) struct ChangeRate {
    clock: Arc<dyn Clock>,
    /// From when on all of a limit is free again.
    free_at: Cache<String, UnixMillis>,
    /// Simultaneous changes are counted one after the other.
    counting: Mutex<()>,
}

impl ChangeRate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, free_at: Cache::builder().max_capacity(REMEMBERED_MAX).build(), counting: Mutex::new(()) }
    }

    /// Counts a change by `session`, in `project` if it is a tenant's, or returns the time to wait. A refused change
    /// counts nowhere.
    pub(crate) fn admit(&self, session: &str, project: Option<&ProjectRef>) -> Result<(), Duration> {
        // Since the start.
        let now = UnixMillis(i64::try_from(self.clock.monotonic().as_millis()).unwrap_or(i64::MAX));
        let mut limits = vec![(format!("session {session}"), SESSION_CHANGES)];
        limits.extend(project.map(|project| (format!("project {}", project.uid), PROJECT_CHANGES)));
        let _counting = self.counting.lock();
        let mut taken = Vec::new();
        for (name, limit) in limits {
            let free_at = self.free_at.get(&name).unwrap_or(UnixMillis(0));
            let until = |until: UnixMillis| Duration::from_millis(until.since(now).unsigned_abs());
            taken.push((name, admit(free_at, now, limit).map_err(until)?));
        }
        for (name, free_at) in taken {
            self.free_at.insert(name, free_at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chassis::clock::ManualClock;
    use contract::time::UnixMillis;

    use super::*;

    #[test]
    fn changes_are_limited_by_session_and_project_and_refusals_cost_nothing() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let rate = ChangeRate::new(clock.clone());
        let (demo, other): (ProjectRef, ProjectRef) = ("demo".parse().unwrap(), "other".parse().unwrap());
        let changes = |session: &str, project: &ProjectRef| {
            std::iter::from_fn(|| rate.admit(session, Some(project)).ok()).take(10_000).count()
        };
        assert_eq!(changes("one", &demo), 300);
        assert_eq!(rate.admit("one", Some(&demo)), Err(Duration::from_millis(200)));
        assert_eq!(changes("two", &demo), 300);
        assert_eq!(changes("three", &demo), 0, "the project's share is used up for every caller");
        assert_eq!(changes("three", &other), 300, "and the session was not charged for it");
        clock.advance(Duration::from_millis(200));
        assert_eq!((changes("one", &demo), changes("two", &demo)), (1, 1));
        assert!(rate.admit("operator", None).is_ok());
    }

    #[test]
    fn a_domain_is_checked_once_in_ten_seconds_and_a_project_thirty_times_a_minute() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let throttles = Throttles::new(clock.clone());
        let project: ProjectRef = "demo".parse().unwrap();
        assert_eq!(throttles.admit(Asking::Check, &project, "a.example"), Ok(()));
        clock.advance(Duration::from_secs(4));
        assert_eq!(throttles.admit(Asking::Check, &project, "a.example"), Err(Duration::from_secs(6)));
        assert_eq!(throttles.admit(Asking::Check, &project, "b.example"), Ok(()));
        for index in 0..28 {
            assert_eq!(throttles.admit(Asking::Check, &project, &format!("{index}.example")), Ok(()));
        }
        assert_eq!(throttles.admit(Asking::Check, &project, "c.example"), Err(Duration::from_secs(56)));
        assert_eq!(throttles.admit(Asking::Verify, &project, "a.example"), Ok(()), "checking costs no verification");
        assert_eq!(throttles.admit(Asking::Check, &"other".parse().unwrap(), "c.example"), Ok(()));
        clock.advance(Duration::from_secs(56));
        assert_eq!(throttles.admit(Asking::Check, &project, "c.example"), Ok(()));
    }

    #[test]
    fn an_address_tries_ten_times_in_five_minutes_and_its_neighbours_in_a_network_share() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let throttles = Throttles::new(clock.clone());
        for host in 1..=SIGN_INS_PER_ADDRESS_MAX {
            assert_eq!(throttles.sign_in_from(format!("2001:db8::{host:x}").parse().unwrap()), Ok(()));
        }
        clock.advance(Duration::from_secs(100));
        assert_eq!(throttles.sign_in_from("2001:db8::ffff".parse().unwrap()), Err(200));
        assert_eq!(throttles.sign_in_from("2001:db8:0:1::1".parse().unwrap()), Ok(()));
        assert_eq!(throttles.sign_in_from("192.0.2.1".parse().unwrap()), Ok(()));
        for _ in 0..SIGN_INS_PER_ADDRESS_MAX {
            assert_eq!(throttles.sign_in_from("::ffff:192.0.2.2".parse().unwrap()), Ok(()));
        }
        assert_eq!(throttles.sign_in_from("192.0.2.2".parse().unwrap()), Err(300), "two spellings of one address");
        assert_eq!(
            throttles.sign_in_from("::ffff:192.0.2.3".parse().unwrap()),
            Ok(()),
            "others of IPv4 have their own"
        );
        clock.advance(Duration::from_secs(200));
        assert_eq!(throttles.sign_in_from("2001:db8::ffff".parse().unwrap()), Ok(()));
    }
}
