//! State of one client connection, shared by its stream, its request handler and the registry, which may have to close
//! it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use contract::hostname::Hostname;
use futures_util::task::AtomicWaker;
use http::HeaderValue;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::minimum_rate::MinimumRate;
use super::settings::ListenerSettings;
use super::streams::Streams;
use crate::forwarded::Forwarders;

/// Hostnames remembered per connection. After more than that, the client is asked to open a new connection, and this
/// one is closed when any hostname is withdrawn.
const HOSTS_MAX: usize = 16;

/// The result of the TLS handshake.
#[derive(Clone, Debug)]
pub struct TlsFacts {
    /// The name the client asked for.
    pub sni: Hostname,
    /// `TLSv1_2` or `TLSv1_3`.
    pub version: &'static str,
    /// The cipher suite by its registered name.
    pub cipher: &'static str,
    /// Whether a ticket replaced the full handshake.
    pub resumed: bool,
    /// HTTP/2 was chosen.
    pub h2: bool,
    /// The certificate that was presented: requests for other names it covers may use this connection.
    pub certificate: Arc<CertifiedKey>,
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client; behind a trusted load balancer, the client named by its PROXY header.
    pub client: SocketAddr,
    /// The peer of the TCP connection.
    pub peer: SocketAddr,
    /// Our end of the TCP connection.
    pub local: SocketAddr,
}

/// Counters that all connections of a registry share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Requests that were counted and are not finished.
    pub(crate) in_flight: AtomicUsize,
    /// Responses ask clients to reconnect, because another process will serve them.
    pub(crate) draining: AtomicBool,
    /// Memory or connections are scarce: idle connections close sooner, and windows do not grow.
    pub(crate) pressed: AtomicBool,
    /// Bytes by which HTTP/2 windows have grown.
    pub(crate) windows_bytes: AtomicU64,
    /// Cancelled when WebSockets must end.
    pub(crate) websockets_end: CancellationToken,
    /// Set just before that, for a look without a lock.
    pub(crate) websockets_must_end: AtomicBool,
}

/// One client connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    addresses: Addresses,
    /// The client's address as in headers and log lines, formatted once per connection.
    client_text: HeaderValue,
    tls: Option<TlsFacts>,
    /// Set if the peer is a balancer that names clients in its requests.
    forwarders: Option<Arc<Forwarders>>,
    opened: Instant,
    requests_max: u32,
    age_max: Duration,
    body_minimum_rate: MinimumRate,
    write_minimum_rate: MinimumRate,
    windows_bytes_max: u64,
    seen: AtomicU32,
    done: AtomicU32,
    closed: AtomicBool,
    has_many_hosts: AtomicBool,
    /// HTTP/2: flushes are deferred until write coalescing ends.
    coalescing: AtomicBool,
    /// A flush was deferred.
    flush_deferred: AtomicBool,
    hosts: Mutex<Vec<Hostname>>,
    cancelled: CancellationToken,
    /// HTTP/2: state that the streams share.
    streams: Streams,
    /// The task that waits for the next request.
    idle_task: AtomicWaker,
    /// HTTP/2: true asks the engine to send GOAWAY and to finish the requests in progress.
    drain_requested: watch::Sender<bool>,
    shared: Arc<Shared>,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        addresses: Addresses,
        tls: Option<TlsFacts>,
        settings: &ListenerSettings,
        shared: Arc<Shared>,
        opened: Instant,
    ) -> Self {
        Self {
            id,
            addresses,
            client_text: address_text(addresses.client),
            tls,
            forwarders: settings.forwarders.include(addresses.client.ip()).then(|| Arc::clone(&settings.forwarders)),
            opened,
            requests_max: settings.requests_per_connection,
            age_max: with_jitter(settings.connection_age, id),
            body_minimum_rate: settings.body_minimum_rate,
            write_minimum_rate: settings.write_minimum_rate,
            windows_bytes_max: settings.windows_bytes,
            seen: AtomicU32::new(0),
            done: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            has_many_hosts: AtomicBool::new(false),
            coalescing: AtomicBool::new(false),
            flush_deferred: AtomicBool::new(false),
            hosts: Mutex::new(Vec::new()),
            cancelled: CancellationToken::new(),
            streams: Streams::default(),
            idle_task: AtomicWaker::new(),
            drain_requested: watch::Sender::new(false),
            shared,
        }
    }

    /// A plain connection outside of any registry, for benchmarks and tests.
    pub fn unattached(addresses: Addresses) -> Self {
        Self::new(0, addresses, None, &ListenerSettings::default(), Arc::default(), Instant::now())
    }

    /// The connection's number, unique in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The client's address; behind a trusted load balancer, the address that the balancer named.
    pub fn client(&self) -> SocketAddr {
        self.addresses.client
    }

    /// The client's address without its port, as text.
    pub fn client_text(&self) -> &HeaderValue {
        &self.client_text
    }

    /// How requests name their clients, if the peer is a balancer that does so.
    pub fn forwarders(&self) -> Option<&Forwarders> {
        self.forwarders.as_deref()
    }

    /// The address that opened the TCP connection.
    pub fn peer(&self) -> SocketAddr {
        self.addresses.peer
    }

    /// Our address and port.
    pub fn local(&self) -> SocketAddr {
        self.addresses.local
    }

    /// The result of the handshake; `None` on plain HTTP.
    pub fn tls(&self) -> Option<&TlsFacts> {
        self.tls.as_ref()
    }

    /// Whether the bytes travel encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether HTTP/2 is spoken.
    pub fn is_h2(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.h2)
    }

    /// The hostname of the TLS handshake.
    pub fn sni(&self) -> Option<&Hostname> {
        self.tls.as_ref().map(|tls| &tls.sni)
    }

    /// Counts a request as started. Call it once per request, first.
    pub fn request_seen(&self) {
        let seen = self.seen.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        if seen >= self.requests_max {
            self.drain();
        }
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// Records the request's host, so that [`super::Connections::close_where`] finds this connection by it.
    pub fn record_host(&self, host: &Hostname) {
        let mut hosts = self.hosts.lock();
        if hosts.contains(host) {
            return;
        }
        if hosts.len() < HOSTS_MAX {
            hosts.push(host.clone());
        } else {
            self.has_many_hosts.store(true, Ordering::Release);
            self.drain();
        }
    }

    /// Counts a request as finished: its response was sent or abandoned. Call it once per request, last.
    pub fn request_done(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// The minimum rate of request bodies.
    pub fn body_minimum_rate(&self) -> MinimumRate {
        self.body_minimum_rate
    }

    /// The minimum rate at which responses must be read.
    pub fn write_minimum_rate(&self) -> MinimumRate {
        self.write_minimum_rate
    }

    /// Whether the response should say `Connection: close`: the limit of requests or of age is reached, or the process
    /// drains. HTTP/2 uses GOAWAY instead.
    pub fn should_close(&self) -> bool {
        self.shared.draining.load(Ordering::Acquire)
            || self.seen() >= self.requests_max
            || self.has_many_hosts.load(Ordering::Acquire)
            || self.opened.elapsed() >= self.age_max
    }

    /// Closes the connection at once: no further byte is read or written.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.cancelled.cancel();
    }

    /// Cancelled when the connection is ended by [`Self::close`].
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Cancelled when WebSockets must end, because the process stops.
    pub fn websockets_end(&self) -> &CancellationToken {
        &self.shared.websockets_end
    }

    /// Whether [`Self::websockets_end`] is, or is about to be, cancelled.
    pub fn websockets_must_end(&self) -> bool {
        self.shared.websockets_must_end.load(Ordering::Acquire)
    }

    /// Shortens the idle timeout: the task that waits for the next request checks its deadline again, and an idle
    /// HTTP/2 connection is drained.
    pub(crate) fn shorten_idle(&self) {
        if self.is_h2() {
            if self.seen() > 0 && self.in_progress() == 0 {
                self.drain();
            }
        } else {
            self.idle_task.wake();
        }
    }

    /// Registers the task that waits for the next request.
    pub(crate) fn register_idle(&self, waker: &std::task::Waker) {
        self.idle_task.register(waker);
    }

    /// HTTP/2: accepts no new streams and finishes the requests in progress.
    pub(crate) fn drain(&self) {
        self.drain_requested.send_if_modified(|drain_requested| !std::mem::replace(drain_requested, true));
    }

    /// The shutdown signal of the HTTP/2 connection.
    pub(crate) fn drain_signal(&self) -> watch::Receiver<bool> {
        self.drain_requested.subscribe()
    }

    /// When the connection reaches its maximum age and is drained.
    pub(crate) fn max_age_at(&self) -> Instant {
        self.opened + self.age_max
    }

    pub(crate) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Acquire)
    }

    pub(crate) fn done(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }

    /// Requests that were counted and are not finished.
    pub(crate) fn in_progress(&self) -> u32 {
        self.seen().wrapping_sub(self.done())
    }

    /// Turns write coalescing on or off. While it is on, flushes are deferred; only data beyond the write buffer is
    /// sent.
    pub fn coalesce_writes(&self, coalescing: bool) {
        self.coalescing.store(coalescing, Ordering::Relaxed);
    }

    /// Whether a flush must be deferred now. Remembers that one was.
    pub(crate) fn defer_flush(&self) -> bool {
        let deferred = self.coalescing.load(Ordering::Relaxed);
        self.flush_deferred.store(deferred, Ordering::Relaxed);
        deferred
    }

    /// Whether a flush was deferred and none has happened since.
    pub(crate) fn has_deferred_flush(&self) -> bool {
        self.flush_deferred.load(Ordering::Relaxed)
    }

    /// State that the streams of an HTTP/2 connection share.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Whether memory is scarce.
    pub(crate) fn is_pressed(&self) -> bool {
        self.shared.pressed.load(Ordering::Relaxed)
    }

    /// Changes the size of an HTTP/2 window. Shrinking always succeeds; growing fails if the shared budget is used up.
    pub(crate) fn resize_window(&self, before: u32, after: u32) -> bool {
        let used = &self.shared.windows_bytes;
        let more = u64::from(after.saturating_sub(before));
        let fits = |used: u64| used.checked_add(more).filter(|used| more == 0 || *used <= self.windows_bytes_max);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return false;
        }
        used.fetch_sub(u64::from(before.saturating_sub(after)), Ordering::Relaxed);
        true
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether requests of this connection may be for a host that `gone` accepts.
    pub(crate) fn serves(&self, gone: &dyn Fn(&Hostname) -> bool) -> bool {
        self.has_many_hosts.load(Ordering::Acquire)
            || self.sni().is_some_and(gone)
            || self.hosts.lock().iter().any(gone)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A request whose task was dropped before it called `request_done` is finished now.
        let left = self.seen.get_mut().wrapping_sub(*self.done.get_mut());
        self.shared.in_flight.fetch_sub(left as usize, Ordering::AcqRel);
    }
}

fn address_text(address: SocketAddr) -> HeaderValue {
    // Digits, dots and colons: always a header value.
    HeaderValue::from_str(&address.ip().to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// `age` plus or minus a tenth, derived from the connection's number, so that clients that connected together do not
/// all reconnect together.
pub fn with_jitter(age: Duration, id: u64) -> Duration {
    // Fibonacci hashing spreads neighbouring numbers. The top ten bits select the position in the range.
    let position = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as u32;
    age / 10 * 9 + age / 5 * position / 1_024
}

#[cfg(test)]
mod tests;
