//! The open connections of all listeners: limits in total and per client, and ways to close some of them.
//!
//! A connection takes a slot before its first byte is read and frees it when its socket is closed, lingering included.
//! Nothing here waits, except [`Connections::wait_until_closed`], which the drain awaits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use contract::hostname::Hostname;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::connection::{Connection, Shared};
use super::settings::ListenerSettings;
use super::{ConnectionEvent, Hooks};
use chassis::network::network_of;

/// Number of locks for the table, so that accepting on all cores does not queue on one lock.
const SHARDS: usize = 16;

/// Connections of one client address.
#[derive(Default)]
struct OfAddress {
    open: u32,
    /// How many of these linger long after their end.
    lingering: u32,
}

/// The open connections of the listeners that share this registry.
pub struct Connections {
    most: usize,
    most_per_address: u32,
    live: AtomicUsize,
    last_id: AtomicU64,
    /// Bounded by `most`: every entry belongs to a slot.
    shards: [Mutex<HashMap<u64, Arc<Connection>>>; SHARDS],
    addresses: Mutex<HashMap<IpAddr, OfAddress>>,
    /// True while listeners accept no connections.
    paused: watch::Sender<bool>,
    shared: Arc<Shared>,
    emptied: Notify,
    draining: watch::Sender<bool>,
}

impl Connections {
    /// An empty registry with the limits of `settings`.
    pub fn new(settings: &ListenerSettings) -> Arc<Self> {
        Arc::new(Self {
            most: settings.connections,
            most_per_address: settings.connections_per_address,
            live: AtomicUsize::new(0),
            last_id: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            addresses: Mutex::default(),
            paused: watch::Sender::new(false),
            shared: Arc::default(),
            emptied: Notify::new(),
            draining: watch::Sender::new(false),
        })
    }

    /// Open connections, including those in a handshake or lingering.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// Requests in progress on all connections.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }

    /// Whether more than four fifths of the connections are open, or memory is scarce: idle ones close sooner.
    pub fn under_pressure(&self) -> bool {
        self.shared.pressed.load(Ordering::Relaxed) || self.live().saturating_mul(5) > self.most.saturating_mul(4)
    }

    /// Sets whether memory is scarce. If so, idle connections close sooner, including those that are idle already.
    pub fn set_pressure(&self, pressed: bool) {
        if self.shared.pressed.swap(pressed, Ordering::Relaxed) || !pressed {
            return;
        }
        for shard in &self.shards {
            let all: Vec<_> = shard.lock().values().cloned().collect();
            for open in all {
                open.shorten_idle();
            }
        }
    }

    /// Sets whether listeners leave new connections in the kernel's queue.
    pub fn pause_accepting(&self, paused: bool) {
        self.paused.send_if_modified(|before| std::mem::replace(before, paused) != paused);
    }

    /// Reports whether new connections stay in the kernel's queue.
    pub(crate) fn accepting_paused(&self) -> watch::Receiver<bool> {
        self.paused.subscribe()
    }

    /// Closes every connection whose handshake or requests named a host that `gone` accepts; returns how many. Requests
    /// in progress on them are cut off.
    pub fn close_where(&self, gone: impl Fn(&Hostname) -> bool) -> usize {
        let mut closed = 0;
        for shard in &self.shards {
            // A task woken inside the lock would wait for that lock: collect first.
            let affected: Vec<_> = shard.lock().values().filter(|open| open.serves(&gone)).cloned().collect();
            closed += affected.len();
            for open in affected {
                open.close();
            }
        }
        closed
    }

    /// Closes every connection; returns how many.
    pub fn close_all(&self) -> usize {
        let mut closed = 0;
        for shard in &self.shards {
            let all: Vec<_> = shard.lock().values().cloned().collect();
            closed += all.len();
            for open in all {
                open.close();
            }
        }
        closed
    }

    /// Makes every HTTP/1 response ask its client to reconnect. Listeners keep accepting, and idle connections stay
    /// open: a client that is about to send finds its connection open, and reconnects after the response. HTTP/2 needs
    /// no such period, because GOAWAY loses no request.
    pub fn announce_drain(&self) {
        self.shared.draining.store(true, Ordering::Release);
    }

    /// Reverts [`Self::announce_drain`].
    pub fn revoke_drain(&self) {
        self.shared.draining.store(false, Ordering::Release);
    }

    /// Stops accepting, closes idle connections, and makes every response ask its client to reconnect.
    pub fn drain(&self) {
        self.announce_drain();
        self.draining.send_replace(true);
    }

    /// Tells the exchanges of all WebSockets to end them.
    pub fn end_websockets(&self) {
        self.shared.websockets_must_end.store(true, Ordering::Release);
        self.shared.websockets_end.cancel();
    }

    /// Becomes true when [`Self::drain`] was called. Listeners and pingora wait for it.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Waits until no connection is open. It has no deadline; the drain sets one.
    pub async fn wait_until_closed(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.live() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Takes a slot; `None` if all are taken.
    pub(crate) fn admit(self: &Arc<Self>, hooks: &Arc<dyn Hooks>) -> Option<Slot> {
        let taken =
            self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, |live| (live < self.most).then_some(live + 1));
        if taken.is_err() {
            hooks.connection(ConnectionEvent::TooMany);
            return None;
        }
        hooks.connection(ConnectionEvent::Opened);
        Some(Slot {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            connections: Arc::clone(self),
            address: None,
            lingers: false,
            hooks: Arc::clone(hooks),
        })
    }

    fn shard(&self, id: u64) -> Option<&Mutex<HashMap<u64, Arc<Connection>>>> {
        self.shards.get(usize::try_from(id % SHARDS as u64).unwrap_or_default())
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("live", &self.live()).field("in_flight", &self.in_flight()).finish()
    }
}

/// One connection's slot in the registry.
pub(crate) struct Slot {
    id: u64,
    connections: Arc<Connections>,
    address: Option<IpAddr>,
    /// Counted among those that linger long.
    lingers: bool,
    hooks: Arc<dyn Hooks>,
}

impl Slot {
    /// The connection's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The state that all connections share.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.connections.shared)
    }

    /// The registry.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Counts the connection for its client; false if the client has too many.
    pub(crate) fn admit_address(&mut self, client: IpAddr) -> bool {
        let key = network_of(client);
        let mut addresses = self.connections.addresses.lock();
        let of_address = addresses.entry(key).or_default();
        if of_address.open >= self.connections.most_per_address {
            drop(addresses);
            self.hooks.connection(ConnectionEvent::TooManyFromAddress);
            return false;
        }
        of_address.open += 1;
        self.address = Some(key);
        true
    }

    /// Whether the connection may linger long: at most `most` connections of a client may.
    pub(crate) fn linger_long(&mut self, most: u32) -> bool {
        let mut addresses = self.connections.addresses.lock();
        let of_address = self.address.and_then(|address| addresses.get_mut(&address));
        if let Some(of_address) = of_address.filter(|of_address| !self.lingers && of_address.lingering < most) {
            of_address.lingering += 1;
            self.lingers = true;
        }
        self.lingers
    }

    /// Adds the connection to the table, so that [`Connections::close_where`] finds it.
    pub(crate) fn register(&self, connection: &Arc<Connection>) {
        if let Some(shard) = self.connections.shard(self.id) {
            shard.lock().insert(self.id, Arc::clone(connection));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let gone = self.connections.shard(self.id).and_then(|shard| shard.lock().remove(&self.id));
        drop(gone);
        if let Some(address) = self.address
            && let Entry::Occupied(mut entry) = self.connections.addresses.lock().entry(address)
        {
            let of_address = entry.get_mut();
            of_address.open -= 1;
            of_address.lingering -= u32::from(self.lingers);
            if of_address.open == 0 {
                entry.remove();
            }
        }
        self.hooks.connection(ConnectionEvent::Closed);
        if self.connections.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.connections.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::FakeHooks;

    fn registry(connections: usize, connections_per_address: u32) -> (Arc<Connections>, Arc<FakeHooks>) {
        let settings = ListenerSettings { connections, connections_per_address, ..ListenerSettings::default() };
        (Connections::new(&settings), Arc::new(FakeHooks::default()))
    }

    #[test]
    fn a_slot_is_free_again_when_its_connection_is_gone() {
        let (connections, hooks) = registry(2, 256);
        let hooks: Arc<dyn Hooks> = hooks;
        let first = connections.admit(&hooks).unwrap();
        let second = connections.admit(&hooks).unwrap();
        assert_ne!(first.id(), second.id());
        assert!(connections.admit(&hooks).is_none());
        drop(first);
        assert!(connections.admit(&hooks).is_some());
        assert_eq!(connections.live(), 1);
    }

    #[test]
    fn one_address_is_limited_and_a_slash_64_is_one_address() {
        let (connections, hooks) = registry(100, 2);
        let hooks: Arc<dyn Hooks> = hooks;
        let mut open = Vec::new();
        let mut admit = |address: &str| {
            let mut slot = connections.admit(&hooks).unwrap();
            let admitted = slot.admit_address(address.parse().unwrap());
            open.push(slot);
            admitted
        };
        assert!(admit("192.0.2.1") && admit("192.0.2.1"));
        assert!(!admit("192.0.2.1"));
        assert!(!admit("::ffff:192.0.2.1"), "the mapped form is the same client");
        assert!(admit("192.0.2.2"));
        assert!(admit("2001:db8::1") && admit("2001:db8::ffff:2"));
        assert!(!admit("2001:db8:0:0:abcd::"));
        assert!(admit("2001:db8:0:1::1"));
        drop(open);
        assert!(connections.addresses.lock().is_empty(), "no entry of a closed connection is kept");
    }

    #[test]
    fn four_fifths_are_pressure() {
        let (connections, hooks) = registry(10, 256);
        let hooks: Arc<dyn Hooks> = hooks;
        let mut open: Vec<_> = (0..8).filter_map(|_| connections.admit(&hooks)).collect();
        assert!(!connections.under_pressure());
        open.extend(connections.admit(&hooks));
        assert!(connections.under_pressure());
    }

    #[tokio::test]
    async fn the_registry_is_idle_after_the_last_connection() {
        let (connections, hooks) = registry(10, 256);
        let hooks: Arc<dyn Hooks> = hooks;
        connections.wait_until_closed().await;
        let slots: Vec<_> = (0..2).filter_map(|_| connections.admit(&hooks)).collect();
        let waiting = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move { connections.wait_until_closed().await }
        });
        drop(slots);
        waiting.await.unwrap();
    }
}
