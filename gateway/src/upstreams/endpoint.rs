//! Choosing an address: round robin over those that are up.
//!
//! Health is passive, and active where the settings say so ([`HealthCheck`]): an address that refuses connections is left alone for a second, then tried again by one of the
//! requests. It is also connected to once a second, so that what is said of it ends with its cause. When all are down the least recently failed is tried anyway: refusing without trying helps nobody.
//!
//! An endpoint given as a name is all the addresses that the system's resolver knows for it, looked up in the background
//! and never while a request waits. When the resolver does not answer, the addresses of before stay.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::dial::{DialFailure, dial};
use super::idle::Idle;
use super::sessions::Sessions;
use super::{DialError, HealthCheck, HostPort, UpstreamSettings};
use chassis::names;

/// How long an address that failed is left alone.
const DOWN_FOR: Duration = Duration::from_secs(1);

/// Addresses that one name may stand for; more are left out.
const ADDRESSES_PER_NAME_MAX: usize = 64;

/// One address of an upstream.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The address.
    pub address: SocketAddr,
    /// The name that was looked up, where its certificate has to be for it.
    pub name: Option<Arc<str>>,
    /// Why the last connection did not come about.
    failure: Mutex<Option<DialError>>,
    /// The address as it is logged.
    text: String,
    /// Monotonic milliseconds until which it is left alone; 0: it is up.
    down_until: AtomicU64,
    /// Monotonic milliseconds, and one, of the first failure since it last worked; 0: the last attempt worked.
    failing_since: AtomicU64,
    /// Health checks have taken it out of the turn.
    is_out: AtomicBool,
    /// Answers to health checks in a row: good ones above zero, bad ones below.
    streak: AtomicI64,
    /// Connections to it that wait for a request.
    pub idle: Idle,
    /// Those that carry many requests at once.
    pub sessions: Sessions,
}

impl Endpoint {
    pub(super) fn new(address: SocketAddr, name: Option<Arc<str>>, idle: Arc<Semaphore>) -> Self {
        Self {
            address,
            name,
            failure: Mutex::default(),
            text: address.to_string(),
            down_until: AtomicU64::new(0),
            failing_since: AtomicU64::new(0),
            is_out: AtomicBool::new(false),
            streak: AtomicI64::new(0),
            sessions: Sessions::new(idle.clone()),
            idle: Idle::new(idle),
        }
    }

    /// Remembers the answer to a health check; whether that changed what is thought of the address. One task asks, so
    /// that nobody else writes here.
    pub(super) fn checked(&self, well: bool, check: &HealthCheck) -> bool {
        let before = self.streak.load(Ordering::Relaxed);
        let streak = if well { before.max(0).saturating_add(1) } else { before.min(0).saturating_sub(1) };
        self.streak.store(streak, Ordering::Relaxed);
        let was_out = self.is_out.load(Ordering::Relaxed);
        let is_out = if was_out { streak < i64::from(check.rises) } else { streak <= -i64::from(check.falls) };
        self.is_out.store(is_out, Ordering::Relaxed);
        is_out != was_out
    }

    fn found(&self) -> Found {
        (self.address, self.name.clone())
    }

    /// The address as text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Remembers why a connection did not come about.
    pub(crate) fn record_failure(&self, error: &DialError) {
        *self.failure.lock() = Some(error.clone());
    }

    /// Remembers a failed connection.
    pub(crate) fn failed(&self, now: Duration) {
        self.down_until.store(millis(now + DOWN_FOR), Ordering::Relaxed);
        let _ = self.failing_since.compare_exchange(0, millis(now) + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Remembers a connection that worked.
    pub(crate) fn worked(&self) {
        if self.down_until.load(Ordering::Relaxed) != 0 {
            self.down_until.store(0, Ordering::Relaxed);
        }
        if self.failing_since.load(Ordering::Relaxed) != 0 {
            self.failing_since.store(0, Ordering::Relaxed);
        }
    }

    /// For how long no connection has come about, when the last attempt failed: for operators. Requests go by
    /// [`Endpoint::is_up`], which lets one of them try again every second.
    pub(crate) fn failing_for(&self, now: Duration) -> Option<Duration> {
        let since = self.failing_since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_sub(Duration::from_millis(since)))
    }

    /// Why, where that is known.
    pub(crate) fn failing_because(&self) -> Option<Cow<'static, str>> {
        if !self.is_failing() {
            return None;
        }
        self.failure.lock().as_ref()?.reason.clone()
    }

    fn is_failing(&self) -> bool {
        self.failing_since.load(Ordering::Relaxed) != 0
    }

    /// Whether a connection alone shows that the address works again. A server that breaks HTTP/2 takes connections.
    fn is_probed(&self) -> bool {
        let takes_connections = |failure: &DialError| failure.kind == DialFailure::Protocol;
        self.is_failing() && !self.failure.lock().as_ref().is_some_and(takes_connections)
    }

    /// Whether requests are sent here.
    pub(crate) fn is_up(&self, now: Duration) -> bool {
        !self.is_out.load(Ordering::Relaxed) && self.down_until.load(Ordering::Relaxed) <= millis(now)
    }
}

/// The addresses of an upstream.
#[derive(Debug)]
pub(crate) struct Endpoints {
    configured: Vec<HostPort>,
    all: ArcSwap<Vec<Arc<Endpoint>>>,
    next: AtomicUsize,
    /// Permits for connections that wait for a request, shared by all upstreams.
    idle: Arc<Semaphore>,
    /// Two names with one address are two endpoints: certificates are for names.
    by_name: bool,
}

/// An address, and the name it was found under where that matters.
type Found = (SocketAddr, Option<Arc<str>>);

impl Endpoints {
    pub(super) fn new(configured: &[HostPort], idle: Arc<Semaphore>, by_name: bool) -> Self {
        let addresses = configured.iter().filter_map(|one| match one {
            HostPort::Address(address) => Some(Arc::new(Endpoint::new(*address, None, idle.clone()))),
            HostPort::Name(..) => None,
        });
        let all = ArcSwap::from_pointee(addresses.collect());
        Self { configured: configured.to_vec(), all, next: AtomicUsize::new(0), idle, by_name }
    }

    /// Whether some of the addresses have to be looked up.
    pub(crate) fn have_names(&self) -> bool {
        self.configured.iter().any(|one| matches!(one, HostPort::Name(..)))
    }

    /// Looks up the names. A name that cannot be looked up keeps the addresses it had.
    pub(crate) async fn look_up(&self) {
        let before = self.all.load_full();
        let looking = self.configured.iter().map(async |one| match one {
            HostPort::Address(address) => vec![(*address, None)],
            HostPort::Name(name, port) => match names::look_up(name, *port).await {
                Ok(found) => {
                    let known: Option<Arc<str>> = self.by_name.then(|| name.as_str().into());
                    found.take(ADDRESSES_PER_NAME_MAX).map(|address| (address, known.clone())).collect()
                }
                Err(error) => {
                    let reason = error.to_string();
                    tracing::warn!(name, reason, "an upstream's name cannot be looked up; its addresses stay");
                    // Whose address is whose is not remembered: with one name missing nothing is taken away.
                    before.iter().map(|endpoint| endpoint.found()).collect()
                }
            },
        });
        let addresses = join_all(looking).await.concat();
        self.replace(addresses);
    }

    /// Takes these addresses from now on. What is known of an address that stays is kept.
    fn replace(&self, mut addresses: Vec<Found>) {
        addresses.sort_unstable();
        addresses.dedup();
        let before = self.all.load_full();
        if before.iter().map(|endpoint| endpoint.found()).eq(addresses.iter().cloned()) {
            return;
        }
        let known = |found: &Found| before.iter().find(|endpoint| endpoint.found() == *found).cloned();
        let new = |(address, name): Found| Arc::new(Endpoint::new(address, name, self.idle.clone()));
        let all = addresses.into_iter().map(|found| known(&found).unwrap_or_else(|| new(found)));
        self.all.store(Arc::new(all.collect()));
    }

    /// Closes connections that nobody needs any more.
    pub(super) fn tidy(&self) {
        self.all.load().iter().for_each(|endpoint| {
            endpoint.idle.tidy();
            endpoint.sessions.tidy();
        });
    }

    /// Asks every address how it is.
    pub(super) async fn check(&self, check: &HealthCheck, settings: &UpstreamSettings) {
        let all = self.all.load_full();
        join_all(all.iter().map(|endpoint| check.look_at(endpoint, settings))).await;
    }

    /// Connects to the addresses whose last connection failed. One that takes a connection works again.
    pub(super) async fn probe(&self, settings: &UpstreamSettings) {
        let all = self.all.load_full();
        let failing = all.iter().filter(|endpoint| endpoint.is_probed());
        let probing = failing.map(async |endpoint| {
            match dial(&settings.transport, endpoint, true, settings.connect_timeout).await {
                Ok(_) => endpoint.worked(),
                Err(error) => endpoint.record_failure(&error),
            }
        });
        join_all(probing).await;
    }

    /// The address for the next attempt, not one of `tried` if there is a choice. `None` only when there is no address.
    pub(crate) fn choose(&self, tried: Option<SocketAddr>, now: Duration) -> Option<Arc<Endpoint>> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let all = self.all.load();
        let turn = || (0..all.len()).filter_map(|step| all.get((start.wrapping_add(step)) % all.len()));
        turn()
            .find(|endpoint| endpoint.is_up(now) && Some(endpoint.address) != tried)
            .or_else(|| turn().min_by_key(|endpoint| endpoint.down_until.load(Ordering::Relaxed)))
            .cloned()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.load().len()
    }

    /// Whether there is none: a name that could not be looked up yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.load().is_empty()
    }

    /// How many answered the last time they were asked.
    pub(crate) fn up(&self, now: Duration) -> usize {
        self.all.load().iter().filter(|endpoint| endpoint.failing_for(now).is_none()).count()
    }

    /// How many requests are sent to: those that health checks or failures have not taken out of the turn.
    pub(crate) fn in_turn(&self, now: Duration) -> usize {
        self.all.load().iter().filter(|endpoint| endpoint.is_up(now)).count()
    }

    /// Why one that does not answer does not, where that is known.
    pub(crate) fn failing_because(&self) -> Option<Cow<'static, str>> {
        self.all.load().iter().find_map(|endpoint| endpoint.failing_because())
    }

    /// For how long the first of those that do not answer has not.
    pub(crate) fn failing_for(&self, now: Duration) -> Option<Duration> {
        self.all.load().iter().filter_map(|endpoint| endpoint.failing_for(now)).max()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(configured: &[HostPort]) -> Endpoints {
        Endpoints::new(configured, Arc::new(Semaphore::new(1)), false)
    }

    #[tokio::test]
    async fn a_name_is_all_its_addresses_and_keeps_them_while_it_cannot_be_looked_up() {
        let endpoints = of(&["localhost:7001".parse().unwrap(), "127.0.0.9:1".parse().unwrap()]);
        assert!(endpoints.have_names());
        assert_eq!(endpoints.len(), 1, "nothing is looked up before it is asked for");
        endpoints.look_up().await;
        let known = endpoints.len();
        assert!(known >= 2, "localhost and the address");
        let now = Duration::from_secs(10);
        let down = endpoints.choose(None, now).unwrap();
        down.failed(now);
        endpoints.replace(
            endpoints
                .all
                .load()
                .iter()
                .map(|endpoint| endpoint.found())
                .chain([("127.0.0.8:1".parse().unwrap(), None)])
                .collect(),
        );
        assert_eq!((endpoints.len(), endpoints.up(now)), (known + 1, known), "what is known of an address stays");

        // A label is empty: the resolver refuses it without asking anybody.
        let lost = of(&["no..such..name:7001".parse().unwrap()]);
        lost.look_up().await;
        assert!(lost.is_empty() && lost.choose(None, now).is_none());
        lost.replace(vec![("127.0.0.1:7001".parse().unwrap(), None)]);
        lost.look_up().await;
        assert_eq!(lost.len(), 1);
    }

    #[test]
    fn failed_addresses_are_left_alone_and_come_back() {
        let endpoints = of(&["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()]);
        let now = Duration::from_secs(10);
        let first = endpoints.choose(None, now).unwrap();
        first.failed(now);
        for before in [now, now + Duration::from_millis(999)] {
            for _ in 0..4 {
                assert_ne!(endpoints.choose(None, before).unwrap().address, first.address);
            }
        }
        let later = now + Duration::from_secs(1);
        let chosen: std::collections::HashSet<_> =
            (0..4).map(|_| endpoints.choose(None, later).unwrap().address).collect();
        assert_eq!(chosen.len(), 2);
    }

    #[test]
    fn when_all_are_down_one_is_tried_anyway() {
        let endpoints = of(&["127.0.0.1:1".parse().unwrap()]);
        let now = Duration::from_secs(10);
        let only = endpoints.choose(None, now).unwrap();
        only.failed(now);
        assert!(endpoints.choose(Some(only.address), now).is_some());
    }
}
