//! One client connection: an owned value whose reads have passed the gate and whose peers have deadlines, and which ends in
//! one way, whatever version it speaks.
//!
//! HTTP/1: heads and bodies are read through [`super::gate`]. What is refused before anybody has the request in hand is
//! answered here, with the Error body of the catalogue; what is refused in the body of a request in hand fails its read, and
//! whoever serves it answers. HTTP/2: bytes pass as they came, but for frames that do no work, which are counted.
//!
//! Deadlines: the head as a whole, the pause between requests, the pace of bodies and of responses. When the client does
//! not keep them the connection ends; nobody else waits for it.
//!
//! The end: what was written is sent, then that nothing more will come, and what the client still sends is read for a while
//! (`stream/linger.rs`), since bytes that nobody read turn a close into a reset, which erases our last words from the
//! client's buffers. Only whoever stalls, floods or is ended from outside is cut off.

mod answer;
mod buffer;
mod linger;
mod read;
mod request;
mod timer;
mod write;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

use self::buffer::WriteBuffer;
use self::linger::Patience;
pub use self::timer::Timer;
use super::connection::Connection;
use super::frames::Frames;
use super::gate::Gate;
use super::pace::Pace;
use super::registry::Slot;
use super::settings::DoorSettings;
use super::{ConnectionEvent, Doorman};

/// What a socket or a TLS session over one can do.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    /// The client will be cut off: what it has not taken must not stay in the kernel, which would offer it for minutes.
    fn give_up(&self) {}

    /// Reads what nobody will look at, as it comes from the network.
    fn poll_discard(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_read(cx, buf)
    }
}

impl Transport for TcpStream {
    fn give_up(&self) {
        // Without a time to linger the close is a reset, and the reset empties the send buffer.
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

impl<S: Transport> Transport for TlsStream<S> {
    fn give_up(&self) {
        self.get_ref().0.give_up();
    }

    /// Nothing is deciphered to be thrown away.
    fn poll_discard(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().0.poll_discard(cx, buf)
    }
}

#[cfg(test)]
impl Transport for tokio::io::DuplexStream {}

/// Whether the connection may still be used, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Good,
    /// Something was refused: nothing more is read of it.
    Refused,
    /// The client is cut off: it gets no last words.
    Cut,
}

/// What a read is waiting for, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Nothing,
    /// The first head, or the HTTP/2 preface: the time runs from the start of the connection.
    FirstHead(Instant),
    /// The first byte of another head, since then.
    Idle(Instant),
    /// The rest of a head.
    Head(Instant),
}

/// See the module.
pub(crate) struct EdgeStream<S: Transport> {
    /// `None` only while the stream is dropped.
    io: Option<S>,
    /// `None` only while the stream is dropped.
    slot: Option<Slot>,
    connection: Arc<Connection>,
    doorman: Arc<dyn Doorman>,
    settings: Arc<DoorSettings>,
    /// `None` for HTTP/2, whose framing is the engine's.
    pub(super) gate: Option<Gate>,
    /// `None` for HTTP/1.
    frames: Option<Frames>,
    standing: Standing,
    waiting: Waiting,
    /// The client has said that it will send nothing more.
    ended: bool,
    /// From then on a client that has ended its side counts as gone.
    gone_at: Option<Instant>,
    body_pace: Pace,
    read_timer: Timer,
    write_pace: Pace,
    write_timer: Timer,
    out: WriteBuffer,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: Transport> EdgeStream<S> {
    /// Puts the gate in front of `io`.
    pub(crate) fn new(
        io: S,
        slot: Slot,
        connection: Arc<Connection>,
        doorman: Arc<dyn Doorman>,
        settings: Arc<DoorSettings>,
    ) -> Self {
        let h2 = connection.is_h2();
        Self {
            gate: (!h2).then(|| Gate::new(settings.head)),
            frames: h2.then(|| Frames::new(settings.idle_frames, Instant::now())),
            standing: Standing::Good,
            waiting: Waiting::FirstHead(Instant::now() + settings.head_timeout),
            ended: false,
            gone_at: None,
            body_pace: Pace::new(settings.body_pace),
            read_timer: Timer::default(),
            write_pace: Pace::new(settings.write_pace),
            write_timer: Timer::default(),
            out: WriteBuffer::default(),
            cancelled: Box::pin(connection.cancelled().clone().cancelled_owned()),
            io: Some(io),
            slot: Some(slot),
            connection,
            doorman,
            settings,
        }
    }

    /// Reads and writes end here when the connection was ended from outside. Registers the task to be woken.
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> bool {
        self.cancelled.as_mut().poll(cx).is_ready()
    }
}

impl<S: Transport> Drop for EdgeStream<S> {
    fn drop(&mut self) {
        let (Some(io), Some(slot)) = (self.io.take(), self.slot.take()) else {
            return;
        };
        if self.connection.is_closed() {
            self.doorman.connection(ConnectionEvent::Ended);
            return;
        }
        let unsent = self.out.take();
        if self.standing == Standing::Cut || self.ended && unsent.is_empty() {
            return;
        }
        let patience = match &self.gate {
            // A client that has its responses may not have taken all of them, and still says so.
            None => Patience::Long,
            Some(gate) if gate.is_in_body() => Patience::Long,
            Some(gate) if self.standing != Standing::Good || gate.leaves_bytes() || !unsent.is_empty() => {
                Patience::Short
            }
            Some(_) => return,
        };
        linger::spawn(io, unsent, patience, &self.settings, slot);
    }
}
