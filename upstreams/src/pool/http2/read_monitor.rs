//! Monitors the reads of a connection: when to send a PING, whether the connection accepts requests, and why it ended.
//!
//! A request after a second of silence is sent with a PING; otherwise a PING follows if nothing arrives soon after a
//! request. If the PING is not answered either, requests that may not be repeated use another connection. Without
//! requests PINGs are rare, because gRPC servers close connections with too many of them. A silent connection that may
//! not be pinged for that reason gets no requests, and neither does one with an overdue PONG.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::tls;

/// A request after this time without a byte is sent with a PING.
const QUIET: Duration = Duration::from_secs(1);

/// A PING follows a request if nothing has arrived for this time. Half of [`SILENT_AFTER`], so that the PONG of a slow
/// but living peer arrives before the connection is in doubt.
const PING_AFTER: Duration = Duration::from_millis(125);

/// Requests that may not be repeated do not use a connection that was silent for this time after a request, because
/// they would be lost if it is dead. Longer than a round trip between continents, and short enough that few are lost; a
/// wrong suspicion costs one more connection.
const SILENT_AFTER: Duration = Duration::from_millis(250);

/// A connection with a PING unanswered for this time gets no requests.
const OVERDUE_AFTER: Duration = Duration::from_secs(1);

/// When a silent peer gets a PING without a new request, by the number of PINGs since its last response: the first
/// counts from the last byte, the others from the last PING.
const IDLE_PINGS_AFTER: [Duration; 3] = [Duration::from_secs(20), Duration::from_mins(1), Duration::from_secs(310)];

/// The most PINGs close together without a response in between. gRPC servers count PINGs within five minutes of the
/// previous one, and close the connection at the third of these, which is the fourth PING.
const CLOSE_PINGS_MAX: usize = 3;

/// The interval of further PINGs.
const APART: Duration = Duration::from_secs(310);

/// The bytes read over one connection, and what follows from their absence.
#[derive(Debug)]
pub(super) struct ReadMonitor {
    state: Mutex<State>,
    /// Notified of the first request since the last byte.
    sent: Notify,
    reason: Mutex<Option<String>>,
}

/// The events in both directions.
#[derive(Debug)]
struct State {
    /// When the last byte arrived.
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

    /// Whether it was silent for [`SILENT_AFTER`] since a request, although a PING was sent if allowed.
    fn is_in_doubt(&self, now: Instant, may_ping: bool) -> bool {
        let is_silent = self.sent.is_some_and(|sent| now >= sent + SILENT_AFTER);
        // On a busy machine the PING is late, and so is the PONG.
        is_silent && (self.awaits_pong || !may_ping) && now >= self.ping_at + PING_AFTER
    }

    /// Whether nothing has arrived since the last PING, which is not answered.
    fn is_silent(&self) -> bool {
        self.awaits_pong && self.last <= self.ping_at
    }
}

impl ReadMonitor {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let state = State { last: now, sent: None, ping_at: now, pings: 0, awaits_pong: false };
        Self { state: Mutex::new(state), sent: Notify::new(), reason: Mutex::default() }
    }

    /// When the last byte arrived.
    pub(super) fn last(&self) -> Instant {
        self.state.lock().last
    }

    /// Whether a request may use the connection: not if its PONG is overdue, and not if it is silent and may not be
    /// pinged now. A request that may not be repeated needs one that is not in doubt.
    pub(super) fn takes_requests(&self, may_be_repeated: bool) -> bool {
        let (state, now) = (self.state.lock(), Instant::now());
        let is_overdue = state.is_silent() && now >= state.ping_at + OVERDUE_AFTER;
        let is_quiet = now >= state.last + QUIET;
        let may_ping = state.pings < CLOSE_PINGS_MAX || now >= state.ping_at + APART;
        !is_overdue && (!is_quiet || may_ping) && (may_be_repeated || !state.is_in_doubt(now, may_ping))
    }

    /// Whether nothing has arrived since the last PING, which is not answered.
    pub(super) fn is_silent(&self) -> bool {
        self.state.lock().is_silent()
    }

    /// A request was sent.
    pub(super) fn request_sent(&self) {
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

    /// A PING was sent.
    pub(super) fn ping_sent(&self) {
        let mut state = self.state.lock();
        state.pings += 1;
        state.ping_at = Instant::now();
        state.awaits_pong = true;
    }

    /// The PING was answered.
    pub(super) fn pong_received(&self) {
        self.state.lock().awaits_pong = false;
    }

    /// Bytes of a response arrived: servers restart their count of PINGs.
    pub(super) fn response_received(&self) {
        let mut state = self.state.lock();
        // An unanswered PING may arrive after the response.
        state.pings = usize::from(state.awaits_pong);
    }

    /// Bytes arrived.
    fn bytes_received(&self) {
        let mut state = self.state.lock();
        (state.last, state.sent) = (Instant::now(), None);
    }

    /// Why the connection broke off, if known.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }

    pub(super) fn set_reason(&self, reason: String) {
        *self.reason.lock() = Some(reason);
    }
}

/// A stream that reports reads and TLS errors to a monitor.
pub(super) struct MonitoredStream<S> {
    pub(super) stream: S,
    pub(super) monitor: Arc<ReadMonitor>,
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        match &read {
            // The end of the stream does not show that the peer works.
            Ok(()) if into.filled().len() == before => {}
            Ok(()) => self.monitor.bytes_received(),
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
