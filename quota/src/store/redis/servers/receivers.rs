//! Servers that receive their first slot. They are in no topology yet, and known from redirections alone: the first one
//! connects to the server. It is dropped when a topology contains it, or a minute after the last redirection. If it
//! cannot be reached, only the slot's buckets fail.
//!
//! Such a server has no slot for the key that remembers its data, so its run id identifies the data. Each heartbeat
//! checks the connection, and connects again after a loss.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{Link, PAUSE_MIN, SERVERS_MAX, connect};
use crate::store::redis::settings::{RedisAddress, RedisSettings};

/// How long a server is kept after the last redirection to it.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// An attempt to connect; `None` if it failed.
type Dial = Shared<BoxFuture<'static, Option<Arc<Link>>>>;

struct Receiver {
    /// The latest attempt to connect; `None` before the first, and after the connection was lost.
    dial: Option<Dial>,
    /// When that began; `None` before the first.
    began: Option<Instant>,
    /// The run id of the last connection; empty before the first.
    run_id: String,
    /// When the last call was redirected to this server.
    redirected: Instant,
    /// The last check by a heartbeat.
    check: Option<JoinHandle<()>>,
}

/// At most [`SERVERS_MAX`] servers.
#[derive(Default)]
pub(super) struct Receivers(Mutex<BTreeMap<RedisAddress, Receiver>>);

impl Receivers {
    /// Keeps this server for [`KEPT_FOR`]: a call was redirected to it.
    pub(super) fn note_redirection(&self, address: &RedisAddress) {
        let (mut receivers, redirected) = (self.0.lock(), Instant::now());
        if let Some(receiver) = receivers.get_mut(address) {
            receiver.redirected = redirected;
        } else if receivers.len() < SERVERS_MAX {
            let new = Receiver { dial: None, began: None, run_id: String::new(), redirected, check: None };
            receivers.insert(address.clone(), new);
        }
    }

    /// Connects, unless an earlier call has. A task does it, which completes even if the call's budget ends before.
    pub(super) fn dial(&self, settings: &RedisSettings, address: &RedisAddress) -> Option<Dial> {
        let mut receivers = self.0.lock();
        let receiver = receivers.get_mut(address)?;
        let has_failed = receiver.dial.as_ref().is_none_or(|dial| matches!(dial.peek(), Some(None)));
        if has_failed && receiver.began.is_none_or(|began| began.elapsed() >= PAUSE_MIN) {
            let is_first = receiver.began.replace(Instant::now()).is_none();
            let (settings, to) = (settings.clone(), address.clone());
            let task = tokio::spawn(async move {
                let connected = connect::link(&settings, &to, String::new(), None).await;
                // Later failures follow a loss, which is logged.
                if let Err(outage) = &connected
                    && is_first
                {
                    connect::warn_unusable(&to, outage);
                }
                connected.ok()
            });
            receiver.dial = Some(task.map(|ended| ended.ok().flatten()).boxed().shared());
        }
        receiver.dial.clone()
    }

    /// Starts a check of each server whose last one has ended. Drops servers without a redirection for [`KEPT_FOR`].
    pub(super) fn start_checks(&self, start: impl Fn(RedisAddress) -> JoinHandle<()>) {
        let mut receivers = self.0.lock();
        receivers.retain(|_, receiver| receiver.redirected.elapsed() < KEPT_FOR);
        for (address, receiver) in receivers.iter_mut() {
            if receiver.check.as_ref().is_none_or(JoinHandle::is_finished) {
                receiver.check = Some(start(address.clone()));
            }
        }
    }

    /// Drops the servers that have become members of the topology.
    pub(super) fn drop_members(&self, links: &[Option<Arc<Link>>]) {
        let mut receivers = self.0.lock();
        for link in links.iter().flatten() {
            receivers.remove(&link.address);
        }
    }

    /// Whether the server was started again since its last connection; true once.
    pub(super) fn has_restarted(&self, link: &Link) -> bool {
        let mut receivers = self.0.lock();
        let Some(receiver) = receivers.get_mut(&link.address).filter(|known| known.run_id != link.run_id) else {
            return false;
        };
        !std::mem::replace(&mut receiver.run_id, link.run_id.clone()).is_empty()
    }

    /// Forgets this connection after a problem with it.
    pub(super) fn doubt(&self, link: &Link) {
        let mut receivers = self.0.lock();
        let Some(receiver) = receivers.get_mut(&link.address) else { return };
        let known = receiver.dial.as_ref().and_then(|dial| dial.peek()?.as_deref());
        if known.is_some_and(|known| std::ptr::eq(known, link)) {
            receiver.dial = None;
            tracing::warn!(
                host = link.address.host,
                port = link.address.port,
                "lost a server of the quota Cluster that receives its first slot; reconnecting"
            );
        }
    }
}
