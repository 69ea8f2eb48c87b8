//! Watches when bytes come over a connection: when to send a PING, whether the connection takes requests, and why it broke off.
//!
//! A request that is sent after a second of silence takes a PING with it; otherwise a PING follows when nothing has come soon
//! after a request. Where it brings nothing either, requests that may not be repeated use another connection. Without requests
//! PINGs are rare: gRPC servers close connections on which too many come while nothing else goes back. A silent connection that
//! may not be pinged for that reason takes no requests, and neither does one whose PONG is overdue.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::upstreams::tls;

/// After so long without a byte a request takes a PING with it.
const QUIET: Duration = Duration::from_secs(1);

/// A PING follows a request after which nothing has come for so long. Half of [`SILENT_AFTER`], so that the PONG of a peer that
/// is there, and whose responses take longer, comes before the connection is in doubt.
const PING_AFTER: Duration = Duration::from_millis(125);

/// Requests that may not be repeated do not use a connection on which nothing at all has come for so long after a request: they
/// would be lost if it were dead. Longer than a round trip between continents, and short enough that few are sent into a dead
/// connection; a doubt without cause costs another connection.
const SILENT_AFTER: Duration = Duration::from_millis(250);

/// No requests use a connection whose PING has not been answered for so long.
const OVERDUE_AFTER: Duration = Duration::from_secs(1);

/// When a silent peer gets a PING without a new request, by the PINGs since its last response: after the last byte the first
/// time, then after the last PING.
const IDLE_PINGS_AFTER: [Duration; 3] = [Duration::from_secs(20), Duration::from_mins(1), Duration::from_secs(310)];

/// PINGs without a response in between that may come close together. Servers of gRPC count those that come within five
/// minutes of the one before, and close the connection at the third of them, so the fourth PING.
const CLOSE_PINGS_MAX: usize = 3;

/// How far apart the PINGs after these are.
const APART: Duration = Duration::from_secs(310);

/// The bytes read over one connection, and what follows from their absence.
#[derive(Debug)]
pub(super) struct ReadMonitor {
    state: Mutex<State>,
    /// Notified of the first request since the last byte.
    sent: Notify,
    reason: Mutex<Option<String>>,
}

/// What happened in both directions.
#[derive(Debug)]
struct State {
    /// When a byte came last.
    last: Instant,
    /// When the first request since then was sent.
    sent: Option<Instant>,
    /// When the last PING was sent.
    ping_at: Instant,
    /// PINGs since the last bytes of a response.
    pings: usize,
    /// The last PING is not answered.
    awaits_pong: bool,
}

impl State {
    /// When the next PING is due.
    fn due(&self) -> Instant {
        let wait = IDLE_PINGS_AFTER.get(self.pings).copied().unwrap_or(APART);
        let seldom = if self.pings == 0 { self.last } else { self.ping_at } + wait;
        let soon = |sent: Instant| sent.max(self.last + QUIET).min(sent + PING_AFTER);
        let due = self.sent.map_or(seldom, |sent| soon(sent).min(seldom));
        if self.pings < CLOSE_PINGS_MAX { due } else { due.max(self.ping_at + APART) }
    }

    /// Nothing at all has come for [`SILENT_AFTER`] since a request, although a PING was sent, where one may be.
    fn is_in_doubt(&self, now: Instant, may_ping: bool) -> bool {
        let is_silent = self.sent.is_some_and(|sent| now >= sent + SILENT_AFTER);
        // On a busy machine the PING is late, and so is the PONG.
        is_silent && (self.awaits_pong || !may_ping) && now >= self.ping_at + PING_AFTER
    }

    /// Nothing has come since the last PING, which is not answered.
    fn is_unheard(&self) -> bool {
        self.awaits_pong && self.last <= self.ping_at
    }
}

impl ReadMonitor {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let state = State { last: now, sent: None, ping_at: now, pings: 0, awaits_pong: false };
        Self { state: Mutex::new(state), sent: Notify::new(), reason: Mutex::default() }
    }

    /// When a byte came last.
    pub(super) fn last(&self) -> Instant {
        self.state.lock().last
    }

    /// Whether a request may use the connection: not if its PONG is overdue, and not if it is silent and may not be pinged
    /// now. A request that may not be repeated needs one that is not in doubt.
    pub(super) fn takes_requests(&self, may_be_repeated: bool) -> bool {
        let (state, now) = (self.state.lock(), Instant::now());
        let is_overdue = state.is_unheard() && now >= state.ping_at + OVERDUE_AFTER;
        let is_quiet = now >= state.last + QUIET;
        let may_ping = state.pings < CLOSE_PINGS_MAX || now >= state.ping_at + APART;
        !is_overdue && (!is_quiet || may_ping) && (may_be_repeated || !state.is_in_doubt(now, may_ping))
    }

    /// Whether nothing has come since the last PING, which is not answered.
    pub(super) fn is_unheard(&self) -> bool {
        self.state.lock().is_unheard()
    }

    /// A request was sent.
    pub(super) fn sends(&self) {
        let mut state = self.state.lock();
        if state.sent.is_none() {
            state.sent = Some(Instant::now());
            self.sent.notify_one();
        }
    }

    /// The connection is open. Its first PING was answered; the peer counts it.
    pub(super) fn begins(&self) {
        let mut state = self.state.lock();
        (state.pings, state.ping_at) = (1, Instant::now());
    }

    /// Waits until a PING is due.
    pub(super) async fn ping_is_due(&self) {
        loop {
            let due = self.state.lock().due();
            if due <= Instant::now() {
                return;
            }
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.sent.notified() => {}
            }
        }
    }

    /// A PING is sent.
    pub(super) fn sends_ping(&self) {
        let mut state = self.state.lock();
        state.pings += 1;
        state.ping_at = Instant::now();
        state.awaits_pong = true;
    }

    /// It was answered.
    pub(super) fn has_pong(&self) {
        self.state.lock().awaits_pong = false;
    }

    /// Bytes of a response came: servers count PINGs anew.
    pub(super) fn responds(&self) {
        let mut state = self.state.lock();
        // A PING on its way may arrive after it.
        state.pings = usize::from(state.awaits_pong);
    }

    /// Bytes came.
    fn hears(&self) {
        let mut state = self.state.lock();
        (state.last, state.sent) = (Instant::now(), None);
    }

    /// Why the connection broke off, where that is known.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }

    pub(super) fn set_reason(&self, reason: String) {
        *self.reason.lock() = Some(reason);
    }
}

/// A stream that notes when bytes come, and why TLS broke off.
pub(super) struct MonitoredStream<S> {
    pub(super) stream: S,
    pub(super) monitor: Arc<ReadMonitor>,
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        match &read {
            // The end of the stream is no sign of the peer.
            Ok(()) if into.filled().len() == before => {}
            Ok(()) => self.monitor.hears(),
            Err(error) => {
                if let Some(reason) = tls::reason(error) {
                    self.monitor.set_reason(reason);
                }
            }
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }
}
