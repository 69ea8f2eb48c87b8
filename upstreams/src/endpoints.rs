//! Chooses the address of a request: round robin over those that are up.
//!
//! Health is passive, and active if health checks are configured. An address that refuses connections gets no requests
//! until a probe, once a second, has connected to it. One that accepts connections but lets requests wait in vain is
//! silent: every ten seconds one request tries it, and a response ends the silence. If no address works, the one that
//! failed least recently is tried anyway.
//! An endpoint given as a name means all addresses that the system's resolver returns. Names are looked up in the
//! background, never while a request waits. If the resolver fails, the known addresses stay.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use chassis::names;
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::endpoint::{Endpoint, Found};
use super::{ConnectionLimits, EndpointAddress, HostPort};

/// The most addresses of one name; further ones are ignored.
const ADDRESSES_PER_NAME_MAX: usize = 64;

/// The addresses of an upstream.
#[derive(Debug)]
pub struct Endpoints {
    configured: Vec<HostPort>,
    connections: ConnectionLimits,
    all: ArcSwap<Vec<Arc<Endpoint>>>,
    next: AtomicUsize,
    /// Permits for connections that wait for a request, shared by all upstreams.
    idle: Arc<Semaphore>,
    /// Two names with one address are two endpoints, because certificates are for names.
    by_name: bool,
}

impl Endpoints {
    pub(super) fn new(
        configured: &[HostPort],
        connections: ConnectionLimits,
        idle: Arc<Semaphore>,
        by_name: bool,
    ) -> Self {
        let addresses = configured.iter().filter_map(|one| match one {
            HostPort::Address(address) => {
                Some(Arc::new(Endpoint::new(address.clone(), None, connections, idle.clone())))
            }
            HostPort::Name(..) => None,
        });
        let all = ArcSwap::from_pointee(addresses.collect());
        Self { configured: configured.to_vec(), connections, all, next: AtomicUsize::new(0), idle, by_name }
    }

    /// Whether some endpoints are names.
    pub fn have_names(&self) -> bool {
        self.configured.iter().any(|one| matches!(one, HostPort::Name(..)))
    }

    /// Looks up the names. A name that cannot be looked up keeps its addresses.
    pub async fn look_up(&self) {
        let before = self.all.load_full();
        let looking = self.configured.iter().map(async |one| match one {
            HostPort::Address(address) => vec![(address.clone(), None)],
            HostPort::Name(name, port) => match names::look_up(name, *port).await {
                Ok(found) => {
                    let known: Option<Arc<str>> = self.by_name.then(|| name.as_str().into());
                    found.take(ADDRESSES_PER_NAME_MAX).map(|address| (address.into(), known.clone())).collect()
                }
                Err(error) => {
                    let reason = error.to_string();
                    tracing::warn!(name, reason, "cannot resolve the name of an upstream; keeping its addresses");
                    // Addresses are not stored by name, so all of them stay.
                    before.iter().map(|endpoint| endpoint.found()).collect()
                }
            },
        });
        let addresses = join_all(looking).await.concat();
        self.replace(addresses);
    }

    /// Replaces the addresses. Addresses that stay keep their state.
    fn replace(&self, mut addresses: Vec<Found>) {
        addresses.sort_unstable();
        addresses.dedup();
        let before = self.all.load_full();
        if before.iter().map(|endpoint| endpoint.found()).eq(addresses.iter().cloned()) {
            return;
        }
        let known = |found: &Found| before.iter().find(|endpoint| endpoint.found() == *found).cloned();
        let new = |(address, name): Found| Arc::new(Endpoint::new(address, name, self.connections, self.idle.clone()));
        let all = addresses.into_iter().map(|found| known(&found).unwrap_or_else(|| new(found)));
        self.all.store(Arc::new(all.collect()));
    }

    /// The addresses at present.
    pub(super) fn all(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.all.load_full()
    }

    /// Closes connections that were idle for too long.
    pub(super) fn tidy(&self) {
        self.all.load().iter().for_each(|endpoint| {
            endpoint.http1.tidy();
            endpoint.http2.tidy();
        });
    }

    /// The address for the next attempt, not `tried` if there is another: one that works, else one whose pause after a
    /// failure has passed, else the one that failed least recently. `None` only if there is no address. First attempts
    /// try silent addresses, those of safe requests (`is_safe`) sooner.
    pub fn choose(&self, tried: Option<&EndpointAddress>, is_safe: bool, now: Duration) -> Option<Arc<Endpoint>> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let all = self.all.load();
        let rotation = || (0..all.len()).filter_map(|step| all.get((start.wrapping_add(step)) % all.len()));
        let untried = |endpoint: &&Arc<Endpoint>| Some(&endpoint.address) != tried;
        rotation()
            .filter(untried)
            .find(|endpoint| endpoint.is_good(now) || tried.is_none() && endpoint.takes_trial(is_safe, now))
            .or_else(|| rotation().filter(untried).find(|endpoint| endpoint.is_up(now)))
            .or_else(|| rotation().min_by_key(|endpoint| endpoint.down_until.load(Ordering::Relaxed)))
            .cloned()
    }

    /// Another address that gets requests, if possible one that works; of the other family (IPv4 or IPv6) if there is
    /// one, because families often fail as a whole.
    pub(super) fn another(&self, than: &Endpoint, now: Duration) -> Option<Arc<Endpoint>> {
        let start = self.next.load(Ordering::Relaxed);
        let all = self.all.load();
        let rotation = (0..all.len()).filter_map(|step| all.get((start.wrapping_add(step)) % all.len()));
        let is_usable = |endpoint: &Endpoint| endpoint.is_up(now) && endpoint.silent_at().is_none();
        let others = rotation.filter(|endpoint| is_usable(endpoint) && endpoint.address != than.address);
        let is_v4 = |endpoint: &Endpoint| endpoint.address.ip().map(|ip| ip.is_ipv4());
        others.max_by_key(|endpoint| (endpoint.is_good(now), is_v4(endpoint) != is_v4(than))).cloned()
    }

    /// Whether another address than this one can be expected to respond.
    pub fn has_reliable(&self, than: &Endpoint, now: Duration) -> bool {
        self.all.load().iter().any(|endpoint| endpoint.address != than.address && endpoint.is_reliable(now))
    }

    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.all.load().len()
    }

    /// Whether there is no address: a name could not be looked up yet.
    pub fn is_empty(&self) -> bool {
        self.all.load().is_empty()
    }

    /// Number of addresses whose last connection worked.
    pub fn up(&self, now: Duration) -> usize {
        self.all.load().iter().filter(|endpoint| endpoint.failing_for(now).is_none()).count()
    }

    /// Number of addresses that get requests: neither failures nor health checks have taken them out of the rotation.
    pub fn in_rotation(&self, now: Duration) -> usize {
        self.all.load().iter().filter(|endpoint| endpoint.is_good(now)).count()
    }

    /// Why one of the failing addresses fails, if known.
    pub fn failing_because(&self) -> Option<Cow<'static, str>> {
        self.all.load().iter().find_map(|endpoint| endpoint.failing_because())
    }

    /// How long ago a failing address was last tried.
    pub fn tried(&self) -> Option<Duration> {
        self.all.load().iter().filter_map(|endpoint| endpoint.tried()).min()
    }

    /// For how long the first of the failing addresses has failed.
    pub fn failing_for(&self, now: Duration) -> Option<Duration> {
        self.all.load().iter().filter_map(|endpoint| endpoint.failing_for(now)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::SILENT_FOR;
    use super::*;

    fn of(configured: &[HostPort]) -> Endpoints {
        let connections = ConnectionLimits { age: Duration::from_secs(1), requests: 1 };
        Endpoints::new(configured, connections, Arc::new(Semaphore::new(1)), false)
    }

    fn address(text: &str) -> EndpointAddress {
        EndpointAddress::Tcp(text.parse().unwrap())
    }

    #[tokio::test]
    async fn a_name_has_all_its_addresses_and_keeps_them_while_lookups_fail() {
        let endpoints = of(&["localhost:7001".parse().unwrap(), "127.0.0.9:1".parse().unwrap()]);
        assert!(endpoints.have_names());
        assert_eq!(endpoints.len(), 1, "nothing is looked up on construction");
        endpoints.look_up().await;
        let known = endpoints.len();
        assert!(known >= 2, "localhost and the address");
        let now = Duration::from_secs(10);
        let down = endpoints.choose(None, true, now).unwrap();
        down.failed(now);
        endpoints.replace(
            endpoints
                .all
                .load()
                .iter()
                .map(|endpoint| endpoint.found())
                .chain([(address("127.0.0.8:1"), None)])
                .collect(),
        );
        assert_eq!((endpoints.len(), endpoints.up(now)), (known + 1, known), "an address that stays keeps its state");

        // A label is empty: the resolver refuses it without a query.
        let lost = of(&["no..such..name:7001".parse().unwrap()]);
        lost.look_up().await;
        assert!(lost.is_empty() && lost.choose(None, true, now).is_none());
        lost.replace(vec![(address("127.0.0.1:7001"), None)]);
        lost.look_up().await;
        assert_eq!(lost.len(), 1);
    }

    #[test]
    fn failed_addresses_get_no_requests_while_others_work() {
        let all: Vec<HostPort> = (1..=3).map(|port| format!("127.0.0.1:{port}").parse().unwrap()).collect();
        let endpoints = of(&all);
        let now = Duration::from_secs(10);
        let chosen =
            |now| (0..9).map(|_| endpoints.choose(None, true, now).unwrap().text().to_owned()).collect::<Vec<_>>();
        let dead = [endpoints.choose(None, true, now).unwrap(), endpoints.choose(None, true, now).unwrap()];
        for endpoint in &dead {
            endpoint.failed(now);
        }
        for later in [now, now + Duration::from_mins(1)] {
            assert!(chosen(later).iter().all(|one| dead.iter().all(|dead| dead.text() != one)));
        }
        dead[0].worked();
        assert!(chosen(now).iter().any(|one| dead[0].text() == one));
    }

    #[test]
    fn an_address_is_silent_only_if_no_request_got_a_response_meanwhile() {
        let endpoints = of(&["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()]);
        let (began, now) = (Duration::from_secs(10), Duration::from_secs(20));
        let one = endpoints.choose(None, true, began).unwrap();
        one.responded(Duration::from_secs(15));
        assert!(!one.lost(true, began, now), "it is slow for one request");
        assert_eq!(endpoints.up(now), 2);
        assert!(one.lost(true, Duration::from_secs(16), now));
        assert_eq!((endpoints.up(now), endpoints.in_rotation(now)), (1, 1));
        let tries = |now| (0..9).filter(|_| endpoints.choose(None, true, now).unwrap().address == one.address).count();
        let unsafe_one = |now| endpoints.choose(None, false, now).unwrap().address == one.address;
        let later = now + SILENT_FOR;
        assert!(!unsafe_one(later) && !unsafe_one(later), "a safe request goes first");
        assert_eq!((tries(now), tries(later), tries(later)), (0, 1, 0));
        one.responded(now + SILENT_FOR);
        assert!(tries(now + SILENT_FOR) > 1);
    }

    #[test]
    fn when_all_endpoints_are_down_one_is_still_tried() {
        let endpoints = of(&["127.0.0.1:1".parse().unwrap()]);
        let now = Duration::from_secs(10);
        let only = endpoints.choose(None, true, now).unwrap();
        only.failed(now);
        assert!(endpoints.choose(Some(&only.address), true, now).is_some());
    }
}
