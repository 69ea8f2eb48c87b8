//! Listening to a connection: when something came, when the other side is asked whether it is there, and why the connection
//! broke off.
//!
//! A request that is sent into silence has the other side asked at once (PING), and one after which nothing comes soon has it asked
//! then. Where that brings nothing either, the connection takes no requests that may not be sent once more. Without requests it is asked seldom: servers of gRPC close connections on which too many PINGs come while nothing else
//! goes back. Where it may not be asked for that reason, a silent connection takes no requests, and neither does one that owes
//! an answer.

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

/// After so long without a byte the other side is asked as soon as a request has been sent.
const QUIET: Duration = Duration::from_secs(1);

/// A request after which nothing has come for so long has the other side asked. Half of [`UNHEARD_AFTER`], so that the answer
/// of a side that is there, and whose responses take longer, comes before the connection is in doubt.
const ASK_AFTER: Duration = Duration::from_millis(125);

/// A request after which nothing at all has come for so long keeps others from the connection that may not be sent once more:
/// they would be lost if it were dead. Longer than a round trip between continents, and short enough that few are sent into
/// a dead connection; what is in doubt for no reason costs another connection.
const UNHEARD_AFTER: Duration = Duration::from_millis(250);

/// A PING that is not answered for so long keeps all further requests from the connection.
const DOUBT_AFTER: Duration = Duration::from_secs(1);

/// When a silent other side is asked without a new request, by how often it was asked since its last response: after the last
/// byte the first time, then after the last PING.
const ASKED_AFTER: [Duration; 3] = [Duration::from_secs(20), Duration::from_mins(1), Duration::from_secs(310)];

/// PINGs without a response in between that may come close together. Servers of gRPC count those that come within five
/// minutes of the one before, and close the connection at the third of them, so the fourth PING.
const CLOSE_TOGETHER_MAX: usize = 3;

/// How far apart the PINGs after these are.
const APART: Duration = Duration::from_secs(310);

/// What was heard of the other side.
#[derive(Debug)]
pub(super) struct Ear {
    state: Mutex<State>,
    /// A request was sent, the first since something was heard.
    sent: Notify,
    reason: Mutex<Option<String>>,
}

/// What is known of both directions.
#[derive(Debug)]
struct State {
    /// When something came the last time.
    last: Instant,
    /// When the first request was sent since something came.
    sent: Option<Instant>,
    /// When the last PING was sent.
    asked_at: Instant,
    /// PINGs since something of a response came.
    asked: usize,
    /// The last PING is not answered.
    owes: bool,
}

impl State {
    /// When the other side is to be asked.
    fn due(&self) -> Instant {
        let wait = ASKED_AFTER.get(self.asked).copied().unwrap_or(APART);
        let seldom = if self.asked == 0 { self.last } else { self.asked_at } + wait;
        let soon = |sent: Instant| sent.max(self.last + QUIET).min(sent + ASK_AFTER);
        let due = self.sent.map_or(seldom, |sent| soon(sent).min(seldom));
        if self.asked < CLOSE_TOGETHER_MAX { due } else { due.max(self.asked_at + APART) }
    }

    /// Something was sent and nothing at all has come for [`UNHEARD_AFTER`], although the other side was asked, where it may be.
    fn may_be_dead(&self, now: Instant, may_ask: bool) -> bool {
        let is_silent = self.sent.is_some_and(|sent| now >= sent + UNHEARD_AFTER);
        // On a busy machine the PING is late, and so is its answer.
        is_silent && (self.owes || !may_ask) && now >= self.asked_at + ASK_AFTER
    }

    /// Nothing has come since the last PING, which is not answered.
    fn is_unheard(&self) -> bool {
        self.owes && self.last <= self.asked_at
    }
}

impl Ear {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let state = State { last: now, sent: None, asked_at: now, asked: 0, owes: false };
        Self { state: Mutex::new(state), sent: Notify::new(), reason: Mutex::default() }
    }

    /// When something came the last time.
    pub(super) fn last(&self) -> Instant {
        self.state.lock().last
    }

    /// Whether a request may be sent: not into a connection that owes the answer to a PING, and not into a silent one that
    /// may not be asked now. One that may not be sent once more needs a connection that nobody has reason to doubt.
    pub(super) fn takes_requests(&self, may_be_repeated: bool) -> bool {
        let (state, now) = (self.state.lock(), Instant::now());
        let is_in_doubt = state.is_unheard() && now >= state.asked_at + DOUBT_AFTER;
        let is_quiet = now >= state.last + QUIET;
        let may_ask = state.asked < CLOSE_TOGETHER_MAX || now >= state.asked_at + APART;
        !is_in_doubt && (!is_quiet || may_ask) && (may_be_repeated || !state.may_be_dead(now, may_ask))
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

    /// The connection is there. That was found out by a PING, which the other side counts.
    pub(super) fn begins(&self) {
        let mut state = self.state.lock();
        (state.asked, state.asked_at) = (1, Instant::now());
    }

    /// Waits until the other side is to be asked.
    pub(super) async fn is_due(&self) {
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
    pub(super) fn asks(&self) {
        let mut state = self.state.lock();
        state.asked += 1;
        state.asked_at = Instant::now();
        state.owes = true;
    }

    /// It was answered.
    pub(super) fn is_answered(&self) {
        self.state.lock().owes = false;
    }

    /// Something of a response came, with which servers forget the PINGs before it.
    pub(super) fn responds(&self) {
        let mut state = self.state.lock();
        // A PING that is on its way may arrive behind it.
        state.asked = usize::from(state.owes);
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

    pub(super) fn note(&self, reason: String) {
        *self.reason.lock() = Some(reason);
    }
}

/// A stream that takes note of when something came, and why TLS broke off.
pub(super) struct Heard<S> {
    pub(super) stream: S,
    pub(super) ear: Arc<Ear>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        match &read {
            // Its end is no word of the other side: one that was sent into it has not been heard.
            Ok(()) if into.filled().len() == before => {}
            Ok(()) => self.ear.hears(),
            Err(error) => {
                if let Some(reason) = tls::reason(error) {
                    self.ear.note(reason);
                }
            }
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
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
