//! One HTTP/2 connection: opened by a task of its own, which then drives it to its end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use super::StreamPermit;
use super::read_monitor::{MonitoredStream, ReadMonitor};
use crate::pool::{Lifetime, PoolKey, Requirements};
use crate::{DialError, DialFailure};

/// Requests of one connection at once, where the other side allows that many.
pub(super) const STREAMS_MAX: usize = 100;
/// Bytes of a response that may wait for a client that does not read. The connection's window has room for all streams,
/// so that no stream blocks another.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;
/// Bytes of a request that may wait for an upstream that does not read.
const SEND_BUFFER_MAX: usize = 64 * 1024;
/// Bytes of a head as RFC 9113 section 6.5.2 counts them, with 32 for each field.
const HEADER_BYTES_MAX: u32 = 72 * 1024;
/// How long the orderly close of an unused connection may take.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// How long the answer to a PING may take. Shorter than the usual `first_byte_timeout`, so that a safe request can be
/// retried in time.
const PONG_MAX: Duration = Duration::from_secs(8);

/// The state of a connection.
#[derive(Debug)]
pub(super) enum State {
    Opening,
    Ready(SendRequest<Bytes>),
    Failed(DialError),
    Over,
}

/// One HTTP/2 connection to an upstream.
#[derive(Debug)]
pub(super) struct Http2Connection {
    pool_key: PoolKey,
    /// For requests that wait for it.
    state: watch::Receiver<State>,
    /// Requests that use it or wait for it.
    streams: AtomicUsize,
    /// Requests that may wait for it while it is being opened.
    waiting_max: usize,
    lifetime: Lifetime,
    /// It gets no more requests.
    draining: AtomicBool,
    served: AtomicU32,
    idle_since: Mutex<Instant>,
    pub(super) monitor: Arc<ReadMonitor>,
}

/// The purpose of a connection to be opened.
pub(super) struct Opening {
    pub(super) pool_key: PoolKey,
    pub(super) connect_timeout: Duration,
    pub(super) lifetime: Lifetime,
    /// Concurrent requests that the connection opened last allowed; it is set to those of this one.
    pub(super) streams_max: Arc<AtomicUsize>,
}

/// The right to one request on a connection that may still be opening, until dropped.
pub(super) struct PendingPermit(Option<Arc<Http2Connection>>);

/// The result of waiting for the connection of a [`PendingPermit`].
pub(super) enum Acquired {
    /// A request can be sent.
    Permit(StreamPermit),
    /// More requests waited for the connection than it accepts.
    Full,
    /// The connection is over, or the other side takes no more requests on it (GOAWAY).
    Gone,
}

impl Http2Connection {
    /// Opens one, and acquires a permit for its first request.
    pub(super) fn open<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        opening: Opening,
        connecting: impl Future<Output = Result<S, DialError>> + Send + 'static,
        kept: Option<OwnedSemaphorePermit>,
    ) -> (Arc<Self>, PendingPermit) {
        let Opening { pool_key, connect_timeout, lifetime, streams_max } = opening;
        let (states, state) = watch::channel(State::Opening);
        let monitor = Arc::new(ReadMonitor::new());
        let connection = Arc::new(Self {
            pool_key,
            state,
            streams: AtomicUsize::new(1),
            waiting_max: streams_max.load(Ordering::Relaxed).max(1),
            lifetime,
            draining: AtomicBool::new(false),
            served: AtomicU32::new(0),
            idle_since: Mutex::new(Instant::now()),
            monitor: monitor.clone(),
        });
        let shared = monitor.clone();
        let opening = async move {
            let opened = timeout(connect_timeout, async { handshake(connecting.await?, monitor.clone()).await });
            let late = Err(DialError { kind: DialFailure::TimedOut, reason: None });
            let opened = opened.await.unwrap_or(late);
            if let Ok((sender, ..)) = &opened {
                streams_max.store(sender.current_max_send_streams().min(STREAMS_MAX), Ordering::Relaxed);
            }
            opened
        };
        tokio::spawn(run(opening, shared, states, kept));
        (connection.clone(), PendingPermit(Some(connection)))
    }

    /// Whether it accepts a request with these requirements now.
    pub(super) fn takes(&self, requirements: &Requirements) -> bool {
        requirements.are_met(&self.pool_key, || self.last_received())
            && !self.draining.load(Ordering::Relaxed)
            && self.limit().is_some_and(|limit| self.streams.load(Ordering::Relaxed) < limit)
            && self.monitor.takes_requests(requirements.may_be_repeated)
    }

    /// When it last received bytes; `None` while it is being opened.
    pub(super) fn last_received(&self) -> Option<Instant> {
        (!matches!(&*self.state.borrow(), State::Opening)).then(|| self.monitor.last())
    }

    /// Acquires a permit for one more request, if the connection accepts it.
    pub(super) fn try_acquire(this: &Arc<Self>) -> Option<PendingPermit> {
        let limit = this.limit()?;
        let more = |streams: usize| (streams < limit).then_some(streams + 1);
        this.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(PendingPermit(Some(this.clone())))
    }

    /// The number of requests that it may carry now; `None` if it is over.
    fn limit(&self) -> Option<usize> {
        match &*self.state.borrow() {
            State::Opening => Some(self.waiting_max),
            State::Ready(sender) => Some(sender.current_max_send_streams().min(STREAMS_MAX)),
            State::Failed(_) | State::Over => None,
        }
    }

    /// Whether the other side allows no request now; `None` if it cannot serve these requirements.
    pub(super) fn is_paused(&self, requirements: &Requirements) -> Option<bool> {
        let serves = self.is_alive() && requirements.are_met(&self.pool_key, || self.last_received());
        serves.then(|| self.limit() == Some(0))
    }

    /// Whether its lifetime is over.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        now >= self.lifetime.until
    }

    /// Whether it may accept requests, now or soon.
    pub(super) fn is_alive(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.limit().is_some() && self.state.has_changed().is_ok()
    }

    /// For how long it has been idle; `None` while it has requests.
    pub(super) fn idle(&self) -> Option<Duration> {
        (self.streams.load(Ordering::Relaxed) == 0).then(|| self.idle_since.lock().elapsed())
    }

    /// It gets no more requests, and ends after those in progress.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

impl PendingPermit {
    /// Waits until the connection is open. A connection with a GOAWAY gets no more requests from here on.
    pub(super) async fn ready(mut self) -> Result<Acquired, DialError> {
        let Some(connection) = &self.0 else { return Ok(Acquired::Gone) };
        let mut state = connection.state.clone();
        let mut sender = match state.wait_for(|state| !matches!(state, State::Opening)).await.as_deref() {
            Ok(State::Ready(sender)) => sender.clone(),
            Ok(State::Failed(error)) => return Err(error.clone()),
            Ok(State::Opening | State::Over) | Err(_) => {
                connection.drain();
                return Ok(Acquired::Gone);
            }
        };
        // The h2 library knows of a GOAWAY while responses in progress still arrive.
        if poll_fn(|cx| sender.poll_ready(cx)).now_or_never().is_some_and(|ready| ready.is_err()) {
            connection.drain();
            return Ok(Acquired::Gone);
        }
        // More requests may have waited than it accepts.
        let limit = sender.current_max_send_streams().min(STREAMS_MAX);
        if connection.streams.load(Ordering::Relaxed) > limit {
            return Ok(Acquired::Full);
        }
        let earlier = connection.served.fetch_add(1, Ordering::Relaxed);
        if earlier.saturating_add(1) >= connection.lifetime.requests {
            connection.drain();
        }
        let reused = earlier > 0;
        Ok(match self.0.take() {
            Some(connection) => Acquired::Permit(StreamPermit { connection, sender, reused }),
            None => Acquired::Gone,
        })
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.release();
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.release();
    }
}

impl Http2Connection {
    fn release(&self) {
        *self.idle_since.lock() = Instant::now();
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open connection: its handle, its engine and its PINGs.
type OpenConnection<S> = (SendRequest<Bytes>, Connection<MonitoredStream<S>, Bytes>, PingPong);

/// Opens a connection, publishes its state, and drives it to its end.
async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    opening: impl Future<Output = Result<OpenConnection<S>, DialError>> + Send,
    monitor: Arc<ReadMonitor>,
    states: watch::Sender<State>,
    _kept: Option<OwnedSemaphorePermit>,
) {
    match opening.await {
        Ok((sender, connection, pings)) => {
            states.send_replace(State::Ready(sender));
            drive(connection, pings, &monitor, &states).await;
            states.send_replace(State::Over);
        }
        Err(error) => drop(states.send_replace(State::Failed(error))),
    }
}

/// The HTTP/2 handshake. Waits for the answer to a PING: the settings of the upstream are known then.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    monitor: Arc<ReadMonitor>,
) -> Result<OpenConnection<S>, DialError> {
    let failed = |_| match monitor.reason() {
        Some(reason) => DialError::because(DialFailure::Tls, reason),
        None => DialError::because(DialFailure::Protocol, "it does not speak HTTP/2 on this port"),
    };
    let monitored = MonitoredStream { stream, monitor: monitor.clone() };
    let (sender, mut connection) = options().handshake::<_, Bytes>(monitored).await.map_err(failed)?;
    let mut pings = connection.ping_pong().ok_or_else(|| {
        DialError::because(DialFailure::Protocol, "the upstream's connection cannot be checked with PING")
    })?;
    tokio::select! {
        biased;
        ended = &mut connection => {
            ended.map_err(failed)?;
            return Err(DialError::because(DialFailure::Protocol, "the upstream closed the connection during the handshake"));
        }
        pong = pings.ping(Ping::opaque()) => {
            pong.map_err(failed)?;
        }
    }
    monitor.begins();
    Ok((sender, connection, pings))
}

/// Opens an HTTP/2 connection, exchanges a PING and closes it.
pub(crate) async fn answer_to_ping(stream: crate::Stream) -> Result<(), DialError> {
    handshake(stream, Arc::new(ReadMonitor::new())).await.map(drop)
}

fn options() -> h2::client::Builder {
    let mut options = h2::client::Builder::new();
    options
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_send_buffer_size(SEND_BUFFER_MAX);
    options
}

/// Drives the connection until it is over, the upstream is gone, or it is unused.
async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<MonitoredStream<S>, Bytes>,
    pings: PingPong,
    monitor: &ReadMonitor,
    states: &watch::Sender<State>,
) {
    let mut watching = pin!(watch_over(pings, monitor));
    tokio::select! {
        _ = &mut connection => return,
        // Requests in progress fail as if the connection had been closed.
        () = &mut watching => return,
        () = states.closed() => {}
    }
    // The h2 library sends GOAWAY when the last sender is dropped.
    states.send_replace(State::Over);
    let _ = timeout(GOODBYE_MAX, connection).await;
}

/// Sends a PING whenever one is due; returns if it is not answered.
async fn watch_over(mut pings: PingPong, monitor: &ReadMonitor) {
    loop {
        monitor.ping_is_due().await;
        monitor.ping_sent();
        match timeout(PONG_MAX, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => monitor.pong_received(),
            // The connection is already ending.
            Ok(Err(_)) => return sleep(PONG_MAX).await,
            Err(_) => return monitor.set_reason(format!("it did not answer a PING within {} s", PONG_MAX.as_secs())),
        }
    }
}

#[cfg(test)]
mod tests;
