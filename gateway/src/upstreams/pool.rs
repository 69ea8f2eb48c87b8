//! Which connection that is kept serves which request: one rule for both versions.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A connection without a request is kept for so long: shorter than most services keep theirs, so that few requests are sent
/// into a connection that is being closed.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(55);

/// Connections of one version that are kept for an address; fewer than the concurrent requests is a cliff (half the
/// throughput).
pub(super) const KEPT_MAX: usize = 1_024;

/// Acquires a permit to keep one more connection of an address that has `kept` ones. If there is none, `close_oldest` may
/// free one. All addresses share the permits, because each connection holds a file descriptor.
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

/// Whose requests a connection carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tenant(pub u64);

/// What a connection is trusted with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// Whose requests it carries.
    pub tenant: Tenant,
    /// The certificates that it was made with; `None` without TLS.
    pub tls_config: Option<Arc<ClientConfig>>,
}

/// What a request asks of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Demands {
    /// What the connection has to be trusted with.
    pub trust: Trust,
    /// The request changes nothing, so it may be sent once more when the connection turns out to be dead.
    pub may_be_repeated: bool,
    /// Only a connection over which something has come since then, or a new one.
    pub heard_after: Option<Instant>,
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        let is_current = match (&self.tls_config, &other.tls_config) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.tenant == other.tenant && is_current
    }
}

impl Demands {
    /// Whether a connection serves the request that has this trust, and over which something came at `heard` the last time;
    /// `None` while it is being opened.
    pub(super) fn are_met(&self, trust: &Trust, heard: impl Fn() -> Option<Instant>) -> bool {
        let is_fresh = |after| heard().is_none_or(|heard| heard > after);
        *trust == self.trust && self.heard_after.is_none_or(is_fresh)
    }
}
