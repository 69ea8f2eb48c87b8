//! What is known about one client connection, shared by the stream that reads it, whoever serves its requests and the
//! registry that may have to end it.

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

use super::pace::PaceLimits;
use super::settings::DoorSettings;
use super::streams::Streams;
use crate::forwarded::Forwarders;

/// Hostnames remembered per connection. A client that uses more of them on one connection is asked to open a new one,
/// and is treated as a user of any name that goes away.
const HOSTS_MAX: usize = 16;

/// What the TLS handshake agreed on.
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

/// Where a connection comes from and arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client; behind a trusted load balancer, the one that its PROXY header names.
    pub client: SocketAddr,
    /// Whoever opened the TCP connection.
    pub peer: SocketAddr,
    /// Our end of the TCP connection.
    pub local: SocketAddr,
}

/// Counters that all connections of a registry share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Requests seen and not done.
    pub(crate) in_flight: AtomicUsize,
    /// New requests are welcome elsewhere.
    pub(crate) draining: AtomicBool,
    /// Memory is short, or connections are: idle ones go sooner, and nothing grows.
    pub(crate) pressed: AtomicBool,
    /// Bytes by which windows of HTTP/2 have grown.
    pub(crate) windows_bytes: AtomicU64,
}

/// One client connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    ends: Ends,
    /// The client's address as headers and log lines say it, written once per connection.
    client_text: HeaderValue,
    tls: Option<TlsFacts>,
    /// The peer speaks for clients that its requests name.
    forwarders: Option<Arc<Forwarders>>,
    opened: Instant,
    requests_max: u32,
    age_max: Duration,
    body_pace: PaceLimits,
    write_pace: PaceLimits,
    windows_bytes_max: u64,
    seen: AtomicU32,
    done: AtomicU32,
    closed: AtomicBool,
    crowded: AtomicBool,
    /// For HTTP/2: flushes wait for [`Self::gather`]`(false)`.
    gathers: AtomicBool,
    /// A flush waits.
    holds: AtomicBool,
    hosts: Mutex<Vec<Hostname>>,
    cancelled: CancellationToken,
    /// For HTTP/2: what its streams share.
    streams: Streams,
    /// Whoever waits for the next request.
    resting: AtomicWaker,
    /// For HTTP/2: true asks the engine to say GOAWAY and to finish what is in progress.
    retired: watch::Sender<bool>,
    shared: Arc<Shared>,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        ends: Ends,
        tls: Option<TlsFacts>,
        settings: &DoorSettings,
        shared: Arc<Shared>,
        opened: Instant,
    ) -> Self {
        Self {
            id,
            ends,
            client_text: address_text(ends.client),
            tls,
            forwarders: settings.forwarders.include(ends.client.ip()).then(|| Arc::clone(&settings.forwarders)),
            opened,
            requests_max: settings.requests_per_connection,
            age_max: spread(settings.connection_age, id),
            body_pace: settings.body_pace,
            write_pace: settings.write_pace,
            windows_bytes_max: settings.windows_bytes,
            seen: AtomicU32::new(0),
            done: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            gathers: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            hosts: Mutex::new(Vec::new()),
            cancelled: CancellationToken::new(),
            streams: Streams::default(),
            resting: AtomicWaker::new(),
            retired: watch::Sender::new(false),
            shared,
        }
    }

    /// A connection that no door knows, in the clear: for measuring what is done with one.
    pub fn unattached(ends: Ends) -> Self {
        Self::new(0, ends, None, &DoorSettings::default(), Arc::default(), Instant::now())
    }

    /// A number that no other connection of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The client's address; behind a trusted load balancer, the one that it named.
    pub fn client(&self) -> SocketAddr {
        self.ends.client
    }

    /// The client's address without its port, as text.
    pub fn client_text(&self) -> &HeaderValue {
        &self.client_text
    }

    /// How its requests name their clients, where it is a balancer that speaks for them.
    pub fn forwarders(&self) -> Option<&Forwarders> {
        self.forwarders.as_deref()
    }

    /// The address that opened the TCP connection.
    pub fn peer(&self) -> SocketAddr {
        self.ends.peer
    }

    /// Our address and port.
    pub fn local(&self) -> SocketAddr {
        self.ends.local
    }

    /// What the handshake agreed on; `None` on plain HTTP.
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

    /// The name of the handshake.
    pub fn sni(&self) -> Option<&Hostname> {
        self.tls.as_ref().map(|tls| &tls.sni)
    }

    /// A request is in hand. Call it once per request, first thing.
    pub fn request_seen(&self) {
        let seen = self.seen.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        if seen >= self.requests_max {
            self.retire();
        }
        self.shared.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// The request is for this host: [`super::Connections::close_where`] finds the connection by it.
    pub fn note_host(&self, host: &Hostname) {
        let mut hosts = self.hosts.lock();
        if hosts.contains(host) {
            return;
        }
        if hosts.len() < HOSTS_MAX {
            hosts.push(host.clone());
        } else {
            self.crowded.store(true, Ordering::Release);
            self.retire();
        }
    }

    /// The request is over, its response handed on to the last byte or given up. Call it once per request, last thing.
    pub fn request_done(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// How slow the body of a request may be.
    pub fn body_pace(&self) -> PaceLimits {
        self.body_pace
    }

    /// How slowly a response may be taken.
    pub fn write_pace(&self) -> PaceLimits {
        self.write_pace
    }

    /// Whether the response should say `Connection: close`: requests or age are used up, or we drain. HTTP/2 needs no
    /// such word: its connections are told to go away by the door.
    pub fn should_close(&self) -> bool {
        self.shared.draining.load(Ordering::Acquire)
            || self.seen() >= self.requests_max
            || self.crowded.load(Ordering::Acquire)
            || self.opened.elapsed() >= self.age_max
    }

    /// Ends the connection at once: no byte is read or written any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.cancelled.cancel();
    }

    /// Cancelled when the connection is ended by [`Self::close`].
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Time is short: who rests between requests looks at its clock again, and an idle HTTP/2 connection is told to go.
    pub(crate) fn hurry(&self) {
        if self.is_h2() {
            if self.seen() > 0 && self.in_progress() == 0 {
                self.retire();
            }
        } else {
            self.resting.wake();
        }
    }

    /// This task waits for the next request.
    pub(crate) fn rests(&self, waker: &std::task::Waker) {
        self.resting.register(waker);
    }

    /// HTTP/2: no new streams; what is in progress is finished.
    pub(crate) fn retire(&self) {
        self.retired.send_if_modified(|retired| !std::mem::replace(retired, true));
    }

    /// What HTTP/2 takes for the shutdown signal.
    pub(crate) fn retirement(&self) -> watch::Receiver<bool> {
        self.retired.subscribe()
    }

    /// When the connection is old enough to be retired.
    pub(crate) fn retires_at(&self) -> Instant {
        self.opened + self.age_max
    }

    pub(crate) fn seen(&self) -> u32 {
        self.seen.load(Ordering::Acquire)
    }

    pub(crate) fn done(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }

    /// Requests that were seen and are not done.
    pub(crate) fn in_progress(&self) -> u32 {
        self.seen().wrapping_sub(self.done())
    }

    /// While `gathers`, what is written is kept for one write; only what is too much for that leaves by itself.
    pub fn gather(&self, gathers: bool) {
        self.gathers.store(gathers, Ordering::Relaxed);
    }

    /// Whether a flush must wait now.
    pub(crate) fn hold(&self) -> bool {
        let holds = self.gathers.load(Ordering::Relaxed);
        self.holds.store(holds, Ordering::Relaxed);
        holds
    }

    /// Whether a flush has waited and none has come since.
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// What streams of HTTP/2 share.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Whether memory is short.
    pub(crate) fn is_pressed(&self) -> bool {
        self.shared.pressed.load(Ordering::Relaxed)
    }

    /// A window of HTTP/2 becomes smaller, or larger where there is room for it; whether it does.
    pub(crate) fn grow_window(&self, before: u32, after: u32) -> bool {
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

    /// Whether requests of this connection may be for a host that `gone` names.
    pub(crate) fn serves(&self, gone: &dyn Fn(&Hostname) -> bool) -> bool {
        self.crowded.load(Ordering::Acquire) || self.sni().is_some_and(gone) || self.hosts.lock().iter().any(gone)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A request whose task was dropped before it could say that it is done is done now.
        let left = self.seen.get_mut().wrapping_sub(*self.done.get_mut());
        self.shared.in_flight.fetch_sub(left as usize, Ordering::AcqRel);
    }
}

fn address_text(address: SocketAddr) -> HeaderValue {
    // Digits, dots and colons: always a header value.
    HeaderValue::from_str(&address.ip().to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// `age` give or take a tenth, by the number of the connection, so that clients which came together do not all leave
/// together.
fn spread(age: Duration, id: u64) -> Duration {
    // Fibonacci hashing: neighbouring numbers land far apart. The top ten bits are the place within the spread.
    let place = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as u32;
    age / 10 * 9 + age / 5 * place / 1_024
}

#[cfg(test)]
mod tests;
