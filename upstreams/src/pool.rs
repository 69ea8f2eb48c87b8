//! Pools of connections to one address, `http1` and `http2`, and what they share: which kept connection may serve which
//! request.

pub(super) mod http1;
pub(super) mod http2;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long an idle connection is kept: shorter than most services keep theirs, so that few requests are sent while one
/// is being closed.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(55);

/// The most kept connections of one version per address. With fewer than the concurrent requests, throughput halves.
pub(super) const KEPT_MAX: usize = 1_024;

/// Acquires a permit to keep one more connection of an address that has `kept` ones. If there is none, `close_oldest`
/// may free one. All addresses share the permits, because each connection holds a file descriptor.
pub(super) fn keep_one_more(
    permits: &Arc<Semaphore>,
    kept: usize,
    close_oldest: impl FnOnce(),
) -> Option<OwnedSemaphorePermit> {
    let acquire = || permits.clone().try_acquire_owned().ok();
    let permit = if kept < KEPT_MAX { acquire() } else { None };
    permit.or_else(|| {
        close_oldest();
        acquire()
    })
}

/// How long the connections of an upstream are used. They end so that requests spread over all servers behind one
/// address, also over one that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Its age, plus or minus a tenth, so that connections end one after the other.
    pub age: Duration,
    /// Its requests.
    pub requests: u32,
}

/// The use that is left to a connection.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// When it ends.
    pub(super) until: Instant,
    /// Its further requests.
    pub(super) requests: u32,
}

impl ConnectionLimits {
    /// Of a connection that is opened now.
    pub fn begin(&self) -> Lifetime {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let age = listener::with_jitter(self.age, OPENED.fetch_add(1, Ordering::Relaxed));
        Lifetime { until: Instant::now() + age, requests: self.requests }
    }
}

/// The tenant whose requests a connection carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenant(pub u64);

/// What keeps connections apart: one serves only requests with the same key.
#[derive(Clone, Debug, Default)]
pub struct PoolKey {
    /// The tenant whose requests it carries.
    pub tenant: Tenant,
    /// The TLS configuration of its handshake; `None` without TLS.
    pub tls_config: Option<Arc<ClientConfig>>,
}

/// The requirements of a request on its connection.
#[derive(Clone, Debug)]
pub struct Requirements {
    /// The key that the connection must have.
    pub pool_key: PoolKey,
    /// The method is safe, so the request may be repeated if the connection turns out to be dead.
    pub may_be_repeated: bool,
    /// Only a connection that has received bytes since then, or a new one.
    pub received_after: Option<Instant>,
}

impl PartialEq for PoolKey {
    fn eq(&self, other: &Self) -> bool {
        let is_current = match (&self.tls_config, &other.tls_config) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.tenant == other.tenant && is_current
    }
}

impl Requirements {
    /// Whether a connection with this key may serve the request; `last_received` is when it last received bytes, `None`
    /// while it is being opened.
    pub(super) fn are_met(&self, pool_key: &PoolKey, last_received: impl Fn() -> Option<Instant>) -> bool {
        let is_fresh = |after| last_received().is_none_or(|last| last > after);
        *pool_key == self.pool_key && self.received_after.is_none_or(is_fresh)
    }
}
