//! HTTP/2 connections to one address of an upstream: each carries many concurrent requests of one tenant.
//!
//! A connection carries as many requests as the upstream allows, at most 100; further requests open another. Requests
//! that arrive while a connection is being opened wait for it together, as many as the last connection allowed. If it
//! allows fewer, the others look again; nothing was sent yet. An upstream that allows none (a server that sheds load)
//! gets no further connections: its requests wait for it within the connect timeout. If its connection cannot be kept,
//! each request opens others, with growing pauses. After GOAWAY, responses in progress still arrive, and no new
//! requests are sent. A connection is closed after an idle time, and gets no more requests after its age and its number
//! of requests.
//!
//! The connection that last received bytes gets the next request. A silent connection is checked with a PING when a
//! request is sent (`read_monitor`), and gets no further requests until it has answered.

mod connection;
mod read_monitor;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chassis::random::jitter;
use h2::client::SendRequest;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

pub(crate) use self::connection::answer_to_ping;
use self::connection::{Acquired, Http2Connection, Opening, STREAMS_MAX};
use super::{ConnectionLimits, IDLE_MAX, PoolKey, Requirements, keep_one_more};
use crate::{DialError, DialFailure, Stream};

/// The most new connections of one request that the upstream closes at once.
const TRIES_MAX: usize = 4;

/// How often a request looks whether an upstream that allows no requests allows one: the library does not report it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The longest pause of a request between two new connections that allow no requests.
const REDIAL_AFTER_MAX: Duration = Duration::from_millis(500);

/// The connections of an address.
#[derive(Debug)]
pub struct Http2Pool {
    /// One permit for each connection that is kept, of all addresses together: each holds a file descriptor.
    permits: Arc<Semaphore>,
    all: Mutex<VecDeque<Arc<Http2Connection>>>,
    limits: ConnectionLimits,
    /// Concurrent requests that the connection opened last allowed.
    streams_max: Arc<AtomicUsize>,
    /// HTTP/2 was negotiated the last time.
    agreed: AtomicBool,
}

/// One request's use of a connection, until dropped.
#[derive(Debug)]
pub struct StreamPermit {
    connection: Arc<Http2Connection>,
    /// Sends the request.
    pub sender: SendRequest<Bytes>,
    /// The connection has served others.
    pub reused: bool,
}

impl Http2Pool {
    pub(crate) fn new(limits: ConnectionLimits, permits: Arc<Semaphore>) -> Self {
        let streams_max = Arc::new(AtomicUsize::new(STREAMS_MAX));
        Self { permits, all: Mutex::default(), limits, streams_max, agreed: AtomicBool::new(false) }
    }

    /// Whether the last TLS handshake negotiated HTTP/2.
    pub fn http2_agreed(&self) -> bool {
        self.agreed.load(Ordering::Relaxed)
    }

    /// Records whether HTTP/2 was negotiated.
    pub fn set_http2_agreed(&self, agreed: bool) {
        if self.http2_agreed() != agreed {
            self.agreed.store(agreed, Ordering::Relaxed);
        }
    }

    /// Acquires a stream of a connection that meets these requirements; `connect` opens another one, which speaks
    /// HTTP/2. Waits for at most `connect_timeout` while connections allow fewer requests than wait for them.
    pub async fn acquire<S, F>(
        &self,
        requirements: &Requirements,
        connect_timeout: Duration,
        connect: impl Fn() -> F,
    ) -> Result<StreamPermit, DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Result<S, DialError>> + Send + 'static,
    {
        let (mut closed, mut deadline, mut full) = (0, None, 0);
        while closed < TRIES_MAX {
            let acquired = self.try_acquire(requirements);
            let is_new = acquired.is_none();
            let is_paused = is_new && self.is_paused(requirements);
            if !is_paused {
                let open = || self.add(requirements.pool_key.clone(), connect_timeout, connect());
                match acquired.unwrap_or_else(open).ready().await? {
                    Acquired::Permit(permit) => return Ok(permit),
                    // It accepts no more requests, so each is tried once.
                    Acquired::Gone if !is_new => continue,
                    Acquired::Gone => {
                        closed += 1;
                        continue;
                    }
                    Acquired::Full => {}
                }
            }
            let now = Instant::now();
            let deadline = *deadline.get_or_insert(now + connect_timeout);
            if now >= deadline {
                return Err(DialError::because(DialFailure::TimedOut, "its HTTP/2 connections allow no requests"));
            }
            if is_paused {
                sleep_until(deadline.min(now + LOOK_EVERY)).await;
            } else if self.streams_max.load(Ordering::Relaxed) == 0 {
                sleep_until(deadline.min(now + redial_after(full))).await;
                full += 1;
            }
        }
        Err(DialError::because(DialFailure::Protocol, "the upstream closes its HTTP/2 connections at once"))
    }

    /// Adds a connection that has just negotiated HTTP/2.
    pub fn add_connected(&self, requirements: &Requirements, connect_timeout: Duration, stream: Stream) {
        self.set_http2_agreed(true);
        // The request that opened it acquires a permit as all others do, so this one is not used.
        drop(self.add(requirements.pool_key.clone(), connect_timeout, negotiated(std::future::ready(Ok(stream)))));
    }

    /// Acquires a permit of the connection that was last to receive bytes, of those that accept one more request.
    fn try_acquire(&self, requirements: &Requirements) -> Option<connection::PendingPermit> {
        let all = self.all.lock();
        let taking = all.iter().filter(|connection| connection.takes(requirements));
        taking.max_by_key(|connection| connection.last_received()).and_then(Http2Connection::try_acquire)
    }

    /// Whether there are connections that meet these requirements, and all of them allow no requests.
    fn is_paused(&self, requirements: &Requirements) -> bool {
        let all = self.all.lock();
        let mut fitting = all.iter().filter_map(|connection| connection.is_paused(requirements)).peekable();
        fitting.peek().is_some() && fitting.all(|is_paused| is_paused)
    }

    /// Adds the connection that `connecting` opens, and acquires a permit of it.
    fn add<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        pool_key: PoolKey,
        connect_timeout: Duration,
        connecting: impl Future<Output = Result<S, DialError>> + Send + 'static,
    ) -> connection::PendingPermit {
        let mut all = self.all.lock();
        all.retain(|connection| connection.is_alive());
        let kept = self.keep(&mut all);
        let is_kept = kept.is_some();
        let opening =
            Opening { pool_key, connect_timeout, lifetime: self.limits.begin(), streams_max: self.streams_max.clone() };
        let (connection, permit) = Http2Connection::open(opening, connecting, kept);
        // One that is not kept serves this one request and is closed.
        if is_kept {
            all.push_back(connection);
        }
        permit
    }

    /// Acquires a permit to keep one more connection; if there is none, closes the connection that is idle for longest.
    fn keep(&self, all: &mut VecDeque<Arc<Http2Connection>>) -> Option<OwnedSemaphorePermit> {
        keep_one_more(&self.permits, all.len(), || {
            let idle = all.iter().enumerate().filter_map(|(at, connection)| Some((connection.idle()?, at)));
            if let Some(oldest) = idle.max().and_then(|(_, at)| all.remove(at)) {
                oldest.drain();
            }
        })
    }

    /// Closes connections that were idle for too long, or are too old.
    pub(crate) fn tidy(&self) {
        let now = Instant::now();
        self.all.lock().retain(|connection| {
            let is_in_use = connection.idle().is_none_or(|idle| idle < IDLE_MAX);
            let stays = connection.is_alive() && is_in_use && !connection.is_old(now);
            if !stays {
                connection.drain();
            }
            stays
        });
    }
}

/// Refuses a TLS stream whose handshake did not negotiate HTTP/2.
pub(crate) async fn negotiated(
    connecting: impl Future<Output = Result<Stream, DialError>>,
) -> Result<Stream, DialError> {
    let stream = connecting.await?;
    if stream.is_tls() && !stream.agreed_on_http2() {
        return Err(DialError::because(DialFailure::Protocol, "the upstream did not negotiate HTTP/2"));
    }
    Ok(stream)
}

/// The pause after a new connection that allows no requests, when `earlier` ones of this request did not either: it
/// doubles, and half of it is random, so that requests do not return together.
fn redial_after(earlier: u32) -> Duration {
    let longest = LOOK_EVERY.saturating_mul(1 << earlier.min(5)).min(REDIAL_AFTER_MAX);
    longest.mul_f64(0.5 + jitter() / 2.0)
}

impl StreamPermit {
    /// The connection gets no more requests.
    pub fn drain(&self) {
        self.connection.drain();
    }

    /// Records that the request was sent. If the connection was silent for a while, a PING checks it.
    pub fn request_sent(&self) {
        self.connection.monitor.request_sent();
    }

    /// Records that bytes of a response arrived.
    pub fn response_received(&self) {
        self.connection.monitor.response_received();
    }

    /// Whether the connection has received nothing since then.
    pub fn is_silent_since(&self, then: Instant) -> bool {
        self.connection.last_received().is_none_or(|last| last <= then)
    }

    /// Whether the connection has received nothing since its last PING.
    pub fn is_silent(&self) -> bool {
        self.connection.monitor.is_silent()
    }

    /// Why the connection broke off, if known.
    pub fn reason(&self) -> Option<String> {
        self.connection.monitor.reason()
    }
}

#[cfg(test)]
mod tests;
