//! Servers that receive their first slot. They are in no topology yet, and known from redirections alone: the first one
//! connects to the server, and the next topology forgets it. If it cannot be reached, only the slot's buckets fail.
//!
//! Such a server has no slot for the key that remembers its data, so its run id identifies the data. Each heartbeat
//! checks the connection, and connects again after a loss.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::{Link, PAUSE_MIN, SERVERS_MAX, connect};
use crate::store::redis::settings::{RedisAddress, RedisSettings};

/// An attempt to connect; `None` if it failed.
type Dial = Shared<BoxFuture<'static, Option<Arc<Link>>>>;

struct Receiver {
    /// The latest attempt to connect; `None` after the connection was lost.
    dial: Option<Dial>,
    began: Instant,
    /// The run id of the last connection; empty before the first.
    run_id: String,
}

/// At most [`SERVERS_MAX`] servers.
#[derive(Default)]
pub(super) struct Receivers(Mutex<BTreeMap<RedisAddress, Receiver>>);

impl Receivers {
    /// Connects, unless an earlier call has. A task does it, which completes even if the call's budget ends before.
    pub(super) fn dial(&self, settings: &RedisSettings, address: &RedisAddress, round: u64) -> Option<Dial> {
        let mut receivers = self.0.lock();
        let is_due = receivers.get(address).map_or(receivers.len() < SERVERS_MAX, |receiver| {
            let has_failed = receiver.dial.as_ref().is_none_or(|dial| matches!(dial.peek(), Some(None)));
            has_failed && receiver.began.elapsed() >= PAUSE_MIN
        });
        if is_due {
            let before = receivers.remove(address);
            let (settings, to, is_first) = (settings.clone(), address.clone(), before.is_none());
            let task = tokio::spawn(async move {
                let connected = connect::receiver(&settings, &to, round).await;
                // Later failures follow a loss, which is logged.
                if let Err(outage) = &connected
                    && is_first
                {
                    connect::warn_unusable(&to, outage);
                }
                connected.ok()
            });
            let dial = Some(task.map(|ended| ended.ok().flatten()).boxed().shared());
            let run_id = before.map(|before| before.run_id).unwrap_or_default();
            receivers.insert(address.clone(), Receiver { dial, began: Instant::now(), run_id });
        }
        receivers.get(address).and_then(|receiver| receiver.dial.clone())
    }

    /// The addresses of all.
    pub(super) fn addresses(&self) -> Vec<RedisAddress> {
        self.0.lock().keys().cloned().collect()
    }

    /// Whether the server was started again since its last connection; true once.
    pub(super) fn has_restarted(&self, link: &Link) -> bool {
        let mut receivers = self.0.lock();
        let Some(receiver) = receivers.get_mut(&link.address).filter(|known| known.run_id != link.run_id) else {
            return false;
        };
        !std::mem::replace(&mut receiver.run_id, link.run_id.clone()).is_empty()
    }

    /// Forgets this connection after a problem with it. Returns whether its server is one of these.
    pub(super) fn doubt(&self, link: &Link) -> bool {
        let mut receivers = self.0.lock();
        let Some(receiver) = receivers.get_mut(&link.address) else { return false };
        let known = receiver.dial.as_ref().and_then(|dial| dial.peek()?.as_deref());
        if known.is_some_and(|known| std::ptr::eq(known, link)) {
            receiver.dial = None;
            tracing::warn!(
                host = link.address.host,
                port = link.address.port,
                "lost a server of the quota Cluster that receives its first slot; reconnecting"
            );
        }
        true
    }
}
