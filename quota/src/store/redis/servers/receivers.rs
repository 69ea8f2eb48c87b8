//! Servers that receive their first slot. They are in no topology yet, and known from redirections alone: the first one
//! connects to the server, and the next topology forgets it. If it cannot be reached, only the slot's buckets fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, ready};
use parking_lot::Mutex;

use super::{Link, RETRY_EVERY, SERVERS_MAX, connect};
use crate::store::redis::settings::{RedisAddress, RedisSettings};

/// An attempt to connect; `None` if it failed.
type Dial = Shared<BoxFuture<'static, Option<Arc<Link>>>>;

/// At most [`SERVERS_MAX`] servers, each with the latest attempt to connect and its beginning.
#[derive(Default)]
pub(super) struct Receivers(Mutex<BTreeMap<RedisAddress, (Instant, Dial)>>);

impl Receivers {
    /// Connects, unless an earlier call has. A task does it, which completes even if the call's budget ends before.
    pub(super) fn dial(&self, settings: &RedisSettings, address: &RedisAddress, round: u64) -> Option<Dial> {
        let mut receivers = self.0.lock();
        let is_due = receivers.get(address).map_or(receivers.len() < SERVERS_MAX, |(began, dial)| {
            matches!(dial.peek(), Some(None)) && began.elapsed() >= RETRY_EVERY
        });
        if is_due {
            let (settings, to) = (settings.clone(), address.clone());
            let task = tokio::spawn(async move { connect::member(&settings, &to, String::new(), round).await });
            let dial = task.map(|ended| ended.ok().flatten()).boxed().shared();
            receivers.insert(address.clone(), (Instant::now(), dial));
        }
        receivers.get(address).map(|(_, dial)| dial.clone())
    }

    /// Forgets this connection after a problem with it. Returns whether its server is one of these.
    pub(super) fn doubt(&self, link: &Link) -> bool {
        let mut receivers = self.0.lock();
        let Some((_, dial)) = receivers.get_mut(&link.address) else { return false };
        if dial.peek().and_then(Option::as_deref).is_some_and(|known| std::ptr::eq(known, link)) {
            *dial = ready(None).boxed().shared();
        }
        true
    }
}
