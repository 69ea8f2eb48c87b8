//! One client connection: its reads pass the gate, its peers have deadlines, and it ends in one way, for every version
//! of HTTP.
//!
//! HTTP/1: heads and bodies are read through [`super::gate`]. A message that is refused before a handler has the
//! request is answered here, with the catalogue's error body. If the body of a request is refused later, the handler's
//! read fails and the handler answers. HTTP/2: bytes pass unchanged; frames that do no work are counted.
//!
//! Deadlines: the head as a whole, the pause between requests, the minimum rates of bodies and responses. A client that
//! misses one loses its connection and delays no other.
//!
//! The end: pending output is sent, then the end of our side, and then incoming data is read and discarded for a while
//! (`stream/linger.rs`). Unread data would turn the close into a reset, which erases our last bytes from the client's
//! buffers. A client that stalls or floods, or a connection that is closed from outside, is cut off without this.

mod answer;
mod http1;
mod linger;
mod timer;
mod write_buffer;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

use self::linger::Linger;
pub use self::timer::Timer;
use self::write_buffer::WriteBuffer;
use super::connection::Connection;
use super::flood_guard::FloodGuard;
use super::gate::Gate;
use super::minimum_rate::MinimumRateTimer;
use super::registry::Slot;
use super::settings::ListenerSettings;
use super::{ConnectionEvent, Hooks};

/// A socket, or a TLS session over one.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    /// Prepares for cutting off the client: unsent data must not stay in the kernel, which would offer it for minutes.
    fn abort_on_close(&self) {}

    /// Reads data that will be discarded, without decrypting it.
    fn poll_discard(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_read(cx, buf)
    }
}

impl ByteStream for TcpStream {
    fn abort_on_close(&self) {
        // With a linger time of zero, the close is a reset, and the reset empties the send buffer.
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

impl<S: ByteStream> ByteStream for TlsStream<S> {
    fn abort_on_close(&self) {
        self.get_ref().0.abort_on_close();
    }

    /// Discarded data is not decrypted.
    fn poll_discard(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().0.poll_discard(cx, buf)
    }
}

#[cfg(test)]
impl ByteStream for tokio::io::DuplexStream {}

/// Whether the connection may still be used, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Open,
    /// A message was refused: nothing more of it is read.
    Refused,
    /// The client is cut off without lingering.
    Cut,
}

/// The event for which a read waits, and since or until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Nothing,
    /// The first head, or the HTTP/2 preface, until this deadline.
    FirstHead(Instant),
    /// The first byte of the next head, since this time.
    Idle(Instant),
    /// The rest of a head, until this deadline.
    Head(Instant),
}

/// The stream of one client connection.
pub(crate) struct ClientStream<S: ByteStream> {
    /// `None` only while the stream is dropped.
    io: Option<S>,
    /// `None` only while the stream is dropped.
    slot: Option<Slot>,
    connection: Arc<Connection>,
    hooks: Arc<dyn Hooks>,
    settings: Arc<ListenerSettings>,
    /// `None` for HTTP/2: the engine does the framing.
    pub(super) gate: Option<Gate>,
    /// `None` for HTTP/1.
    flood_guard: Option<FloodGuard>,
    state: StreamState,
    waiting: Waiting,
    /// The client has closed its sending side.
    ended: bool,
    /// When a client that has closed its sending side counts as gone.
    gone_at: Option<Instant>,
    body_rate: MinimumRateTimer,
    read_timer: Timer,
    write_rate: MinimumRateTimer,
    write_timer: Timer,
    out: WriteBuffer,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: ByteStream> ClientStream<S> {
    /// Puts the gate in front of `io`.
    pub(crate) fn new(
        io: S,
        slot: Slot,
        connection: Arc<Connection>,
        hooks: Arc<dyn Hooks>,
        settings: Arc<ListenerSettings>,
    ) -> Self {
        let h2 = connection.is_h2();
        Self {
            gate: (!h2).then(|| Gate::new(settings.head)),
            flood_guard: h2.then(|| FloodGuard::new(settings.idle_frames, Instant::now())),
            state: StreamState::Open,
            waiting: Waiting::FirstHead(Instant::now() + settings.head_timeout),
            ended: false,
            gone_at: None,
            body_rate: MinimumRateTimer::new(settings.body_minimum_rate),
            read_timer: Timer::default(),
            write_rate: MinimumRateTimer::new(settings.write_minimum_rate),
            write_timer: Timer::default(),
            out: WriteBuffer::default(),
            cancelled: Box::pin(connection.cancelled().clone().cancelled_owned()),
            io: Some(io),
            slot: Some(slot),
            connection,
            hooks,
            settings,
        }
    }

    /// Whether the connection was closed from outside; reads and writes then fail. Registers the task to be woken.
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> bool {
        self.cancelled.as_mut().poll(cx).is_ready()
    }
}

/// For the HTTP/2 engine; HTTP/1 is read as a [`crate::Client`] (`stream/http1.rs`).
impl<S: ByteStream> AsyncRead for ClientStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.connection.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let polled = me.poll_h2(cx, buf);
        if polled.is_pending() && me.poll_cancelled(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        polled
    }
}

impl<S: ByteStream> ClientStream<S> {
    /// HTTP/2: bytes pass unchanged. The preface has a deadline, and frames that do no work are counted. The accept
    /// loop times later silence.
    fn poll_h2(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = self.poll_io(cx, buf);
        let Some(flood_guard) = &mut self.flood_guard else { return polled };
        flood_guard.count_forwarded(self.connection.streams().take_forwarded());
        if flood_guard.received(buf.filled().get(before..).unwrap_or_default(), Instant::now()).is_err() {
            self.state = StreamState::Cut;
            self.hooks.connection(ConnectionEvent::Flooded);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too many frames that do no work")));
        }
        if let (true, Waiting::FirstHead(deadline)) =
            (polled.is_pending() && flood_guard.awaits_preface(), self.waiting)
        {
            ready!(self.read_timer.poll(deadline, cx));
            self.hooks.connection(ConnectionEvent::Idle);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }

    fn poll_io(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(io) = self.io.as_mut().filter(|_| !self.ended) else {
            return Poll::Ready(Ok(()));
        };
        let before = buf.filled().len();
        let read = match ready!(Pin::new(io).poll_read(cx, buf)) {
            // A TLS client closed the connection without a close alert. Every message states its length, so a
            // truncation is detected anyway; this is an ordinary end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            other => other,
        };
        self.ended = read.is_ok() && buf.filled().len() == before && buf.remaining() > 0;
        if self.ended {
            self.gone_at = Some(Instant::now() + self.settings.half_closed_timeout);
        }
        Poll::Ready(read)
    }
}

/// Bytes are buffered until a flush, so that a head and a small body leave in one TLS record and one system call.
impl<S: ByteStream> AsyncWrite for ClientStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        me.check_open()?;
        let mut collected = me.out.collect(bytes);
        if collected == 0 {
            ready!(me.poll_send_all(cx))?;
            collected = me.out.collect(bytes);
        }
        if collected > 0 {
            return Poll::Ready(Ok(collected));
        }
        me.poll_timed(cx, |io, cx| Pin::new(io).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.check_open()?;
        if me.connection.defer_flush() {
            return Poll::Ready(Ok(()));
        }
        ready!(me.poll_send_all(cx))?;
        me.poll_timed(cx, |io, cx| Pin::new(io).poll_flush(cx).map_ok(|()| 0)).map_ok(|_| ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.check_open()?;
        ready!(me.poll_send_all(cx))?;
        me.poll_timed(cx, |io, cx| Pin::new(io).poll_shutdown(cx).map_ok(|()| 0)).map_ok(|_| ())
    }
}

impl<S: ByteStream> ClientStream<S> {
    fn check_open(&self) -> io::Result<()> {
        if self.connection.is_closed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn poll_send_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut out = std::mem::take(&mut self.out);
            let sent = self.poll_timed(cx, |io, cx| out.poll_send(io, cx));
            self.out = out;
            if ready!(sent)? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Writes while the client keeps the minimum rate of reading. A slower client is cut off: unread bytes occupy
    /// memory and often a connection to an upstream.
    fn poll_timed(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut S, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Some(io) = self.io.as_mut() else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        match write(io, cx) {
            Poll::Ready(result) => {
                if let Ok(bytes) = &result {
                    self.write_rate.moved(*bytes, Instant::now());
                    if let Some(flood_guard) = &mut self.flood_guard {
                        flood_guard.sent(*bytes);
                    }
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                if self.poll_cancelled(cx) {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                let until = self.write_rate.wait(Instant::now());
                ready!(self.write_timer.poll(until, cx));
                self.hooks.connection(ConnectionEvent::Stalled);
                self.state = StreamState::Cut;
                if let Some(io) = &self.io {
                    io.abort_on_close();
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: ByteStream> Drop for ClientStream<S> {
    fn drop(&mut self) {
        let (Some(io), Some(slot)) = (self.io.take(), self.slot.take()) else {
            return;
        };
        if self.connection.is_closed() {
            self.hooks.connection(ConnectionEvent::Ended);
            return;
        }
        let unsent = self.out.take();
        if self.state == StreamState::Cut || self.ended && unsent.is_empty() {
            return;
        }
        let linger = match &self.gate {
            // A client with all its responses may not have read them to the end, and still sends acknowledgements.
            None => Linger::Long,
            Some(gate) if gate.is_in_body() => Linger::Long,
            Some(gate) if self.state != StreamState::Open || gate.leaves_bytes() || !unsent.is_empty() => Linger::Short,
            Some(_) => return,
        };
        linger::spawn(io, unsent, linger, &self.settings, slot);
    }
}
