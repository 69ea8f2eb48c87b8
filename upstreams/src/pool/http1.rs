//! Idle HTTP/1.1 connections to one address of an upstream.
//!
//! Bytes that an upstream sends late, or twice, would be read as the response to the next request on the connection.
//! Therefore a connection is kept only if its last response is certainly complete, and it carries requests of one
//! tenant only, unless the settings allow sharing.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{IDLE_MAX, Lifetime, PoolKey, Requirements, keep_one_more};
use crate::Stream;

/// A connection used within this time is probably not being closed: services keep theirs for at least two seconds. Only
/// these serve requests that may not be repeated.
const JUST_USED: Duration = Duration::from_secs(1);

/// Whether a response without a body (to HEAD, 204, 304) announces one. A faulty upstream may send the body anyway,
/// perhaps late, so the end of such a response is uncertain.
pub fn announces_body(length: Option<u64>, coded: bool) -> bool {
    coded || length.is_some_and(|length| length > 0)
}

/// An idle connection.
#[derive(Debug)]
struct IdleConnection {
    stream: Stream,
    pool_key: PoolKey,
    lifetime: Lifetime,
    since: Instant,
    good_for: Duration,
    _permit: OwnedSemaphorePermit,
}

impl IdleConnection {
    fn is_good(&self) -> bool {
        self.since.elapsed() < self.good_for && is_quiet(&self.stream)
    }

    /// Makes the close a reset. A normal close keeps the local port in use for a minute, and with many tenants the
    /// ports would run out.
    fn close_with_reset(&self) {
        let _ = self.stream.socket().set_linger(Some(Duration::ZERO));
    }
}

/// The most recently used connection is used first, so that surplus ones expire.
#[derive(Debug)]
pub struct Http1Pool {
    /// One permit for each idle connection, of all addresses together: each holds a file descriptor.
    permits: Arc<Semaphore>,
    /// The longest idle first.
    waiting: Mutex<VecDeque<IdleConnection>>,
}

impl Http1Pool {
    /// An empty pool. All pools that share these permits together keep at most as many connections.
    pub fn new(permits: Arc<Semaphore>) -> Self {
        Self { permits, waiting: Mutex::default() }
    }

    /// Takes a connection that meets these requirements and seems open. If there is none, closes the oldest connections
    /// until `others_max` are left, so that a new one can be opened.
    pub fn take(&self, requirements: &Requirements, others_max: usize) -> Option<(Stream, Lifetime)> {
        loop {
            let mut all = self.waiting.lock();
            let fits = |one: &IdleConnection| {
                let just_used = || one.since.elapsed() <= JUST_USED;
                requirements.are_met(&one.pool_key, || Some(one.since)) && (requirements.may_be_repeated || just_used())
            };
            let Some(waiting) = all.iter().rposition(fits).and_then(|at| all.remove(at)) else {
                let too_many = all.len().saturating_sub(others_max);
                let oldest: Vec<IdleConnection> = all.drain(..too_many).collect();
                drop(all);
                oldest.iter().for_each(IdleConnection::close_with_reset);
                return None;
            };
            drop(all);
            if waiting.is_good() {
                return Some((waiting.stream, waiting.lifetime));
            }
        }
    }

    /// Keeps a connection whose last response is complete, or closes it if there is no permit or its lifetime is over.
    /// May close the oldest one instead. `good_for`: how long the upstream keeps it.
    pub fn keep(&self, stream: Stream, pool_key: PoolKey, mut lifetime: Lifetime, good_for: Duration) {
        let since = Instant::now();
        let left = lifetime.until.saturating_duration_since(since);
        lifetime.requests = lifetime.requests.saturating_sub(1);
        if lifetime.requests == 0 || left.is_zero() {
            return;
        }
        let mut all = self.waiting.lock();
        let permit = keep_one_more(&self.permits, all.len(), || {
            if let Some(oldest) = all.pop_front() {
                oldest.close_with_reset();
            }
        });
        if let Some(permit) = permit {
            all.push_back(IdleConnection {
                stream,
                pool_key,
                lifetime,
                since,
                good_for: good_for.min(IDLE_MAX).min(left),
                _permit: permit,
            });
        }
    }

    /// Drops connections that are old or closed by the upstream.
    pub fn tidy(&self) {
        self.waiting.lock().retain(IdleConnection::is_good);
    }
}

/// Whether the connection has received nothing, not even its end. Unexpected bytes belong to no request. Asks the
/// kernel, because the runtime's knowledge of the socket is older.
fn is_quiet(stream: &Stream) -> bool {
    let peeked = stream.socket().peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::super::{ConnectionLimits, Tenant};
    use super::*;

    const TENANT: Tenant = Tenant(1);
    const OTHER: Tenant = Tenant(2);

    /// The requirements of safe requests of this tenant.
    fn of(tenant: Tenant) -> Requirements {
        Requirements { pool_key: pool_key(tenant), may_be_repeated: true, received_after: None }
    }

    fn pool_key(tenant: Tenant) -> PoolKey {
        PoolKey { tenant, tls_config: None }
    }

    /// The local address of the connection that this tenant gets, if any.
    fn take(idle: &Http1Pool, tenant: Tenant) -> Option<std::net::SocketAddr> {
        idle.take(&of(tenant), usize::MAX).map(|(stream, _)| local(&stream))
    }

    fn local(stream: &Stream) -> std::net::SocketAddr {
        stream.socket().local_addr().unwrap().as_socket().unwrap()
    }

    /// Of a connection that was just opened.
    fn lifetime() -> Lifetime {
        Lifetime { until: Instant::now() + Duration::from_hours(1), requests: 1_000 }
    }

    /// An address, and connections to it.
    async fn connected<const N: usize>() -> (TcpListener, [Stream; N]) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let streams = futures_util::future::join_all((0..N).map(|_| TcpStream::connect(address))).await;
        let streams: Vec<_> = streams.into_iter().map(|stream| Stream::Plain(stream.unwrap())).collect();
        (listener, streams.try_into().unwrap())
    }

    // promise: edge.28
    #[tokio::test]
    async fn all_addresses_together_keep_no_more_connections_than_permits() {
        let permits = Arc::new(Semaphore::new(2));
        let (one, other, last) =
            (Http1Pool::new(permits.clone()), Http1Pool::new(permits.clone()), Http1Pool::new(permits));
        let (_listener, [first, second, third, fourth]) = connected().await;
        let kept = local(&third);
        one.keep(first, pool_key(TENANT), lifetime(), IDLE_MAX);
        other.keep(second, pool_key(TENANT), lifetime(), IDLE_MAX);
        other.keep(third, pool_key(TENANT), lifetime(), IDLE_MAX);
        last.keep(fourth, pool_key(TENANT), lifetime(), IDLE_MAX);
        assert!(
            last.take(&of(TENANT), 0).is_none(),
            "it has no older connection to close, and closes none of other addresses"
        );
        assert_eq!(take(&other, TENANT), Some(kept), "the third has the permit of the second");
        assert_eq!(take(&other, TENANT), None);
        let (_listener, [fifth]) = connected().await;
        one.keep(fifth, pool_key(TENANT), lifetime(), IDLE_MAX);
        assert!(
            take(&one, TENANT).is_some() && take(&one, TENANT).is_some(),
            "a permit is free again when its connection is used"
        );
    }

    #[tokio::test]
    async fn a_tenant_gets_its_own_connections_and_new_ones_replace_the_oldest() {
        let idle = Http1Pool::new(Arc::new(Semaphore::new(10)));
        let (_listener, streams) = connected::<5>().await;
        let [first, second, third, fourth, fifth] = streams.each_ref().map(local);
        for (stream, tenant) in streams.into_iter().zip([TENANT, OTHER, TENANT, OTHER, OTHER]) {
            idle.keep(stream, pool_key(tenant), lifetime(), IDLE_MAX);
        }
        assert_eq!(take(&idle, TENANT), Some(third), "the one used last");
        assert!(idle.take(&of(Tenant(3)), 3).is_none());
        assert_eq!(local(&idle.waiting.lock().front().unwrap().stream), second, "the first was closed");
        assert_eq!(take(&idle, OTHER), Some(fifth));
        assert_eq!([take(&idle, TENANT), take(&idle, OTHER), take(&idle, OTHER)], [None, Some(fourth), Some(second)]);
        assert_ne!(first, second);
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_is_not_used_again() {
        let idle = Http1Pool::new(Arc::new(Semaphore::new(1)));
        let (listener, [stream]) = connected().await;
        let (there, _) = listener.accept().await.unwrap();
        drop(there);
        let Stream::Plain(socket) = &stream else { panic!("{stream:?}") };
        socket.readable().await.unwrap();
        idle.keep(stream, pool_key(TENANT), lifetime(), IDLE_MAX);
        assert!(take(&idle, TENANT).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_kept_for_55_seconds_after_its_last_response() {
        let idle = Http1Pool::new(Arc::new(Semaphore::new(2)));
        let (_listener, [stream, other]) = connected().await;
        idle.keep(stream, pool_key(TENANT), lifetime(), IDLE_MAX);
        tokio::time::advance(Duration::from_millis(54_999)).await;
        let (stream, _) = idle.take(&of(TENANT), usize::MAX).expect("services close theirs later");
        idle.keep(other, pool_key(TENANT), lifetime(), IDLE_MAX);
        idle.keep(stream, pool_key(TENANT), lifetime(), IDLE_MAX);
        tokio::time::advance(Duration::from_millis(54_999)).await;
        idle.tidy();
        assert_eq!(idle.waiting.lock().len(), 2);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(idle.take(&of(TENANT), usize::MAX).is_none(), "55 seconds are over");
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alive_timeouts_apply_and_unsafe_requests_get_a_recently_used_connection() {
        let idle = Http1Pool::new(Arc::new(Semaphore::new(2)));
        let (_listener, [stream, other]) = connected().await;
        idle.keep(stream, pool_key(TENANT), lifetime(), Duration::from_secs(4));
        idle.keep(other, pool_key(TENANT), lifetime(), IDLE_MAX);
        tokio::time::advance(Duration::from_secs(2)).await;
        let once = Requirements { may_be_repeated: false, ..of(TENANT) };
        assert!(idle.take(&once, usize::MAX).is_none(), "both were idle for two seconds");
        let (other, _) = idle.take(&of(TENANT), usize::MAX).expect("the one used last");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(take(&idle, TENANT).is_none(), "four seconds are over");
        idle.keep(other, pool_key(TENANT), lifetime(), IDLE_MAX);
        assert!(idle.take(&once, usize::MAX).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_age_and_its_number_of_requests() {
        let idle = Http1Pool::new(Arc::new(Semaphore::new(2)));
        let (_listener, [stream, other]) = connected().await;
        let limits = ConnectionLimits { age: Duration::from_secs(10), requests: 2 };
        idle.keep(stream, pool_key(TENANT), limits.begin(), IDLE_MAX);
        let (stream, lifetime) = idle.take(&of(TENANT), usize::MAX).expect("one more request");
        idle.keep(stream, pool_key(TENANT), lifetime, IDLE_MAX);
        assert!(take(&idle, TENANT).is_none(), "it has served two");
        let lifetime = limits.begin();
        tokio::time::advance(Duration::from_millis(8_999)).await;
        idle.keep(other, pool_key(TENANT), lifetime, IDLE_MAX);
        let (other, lifetime) = idle.take(&of(TENANT), usize::MAX).expect("its age is nine to eleven seconds");
        tokio::time::advance(Duration::from_millis(2_001)).await;
        idle.keep(other, pool_key(TENANT), lifetime, IDLE_MAX);
        assert!(take(&idle, TENANT).is_none(), "it is too old");
    }
}
