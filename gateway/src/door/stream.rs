//! One client connection as the proxy sees it: a stream whose reads have passed the gate and whose peers have deadlines.
//!
//! The proxy reads only what [`super::gate`] released. What is refused before the proxy has seen the request is answered
//! here, with the Error body of the catalogue; the proxy then sees the end of the connection. What is refused in the
//! body of a request that the proxy has in hand fails its read, and the proxy answers with
//! [`Connection::refusal`](super::Connection::refusal), decorated like any other response. Responses that the proxy
//! library would write for a request our code never saw are replaced by ours.
//!
//! Most requests without a body never reach the proxy ([`super::http1`], `stream/request.rs`).
//!
//! Deadlines: the head as a whole, the pause between requests, the pace of bodies and of responses. When the client does
//! not keep them the connection ends; nobody else waits for it.

mod answer;
mod buffer;
mod linger;
mod proxy;
mod read;
mod request;
mod timer;
mod write;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::l4::socket::SocketAddr as PingoraAddress;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{SocketDigest, TimingDigest, UniqueIDType};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

use self::buffer::WriteBuffer;
pub(crate) use self::timer::Timer;
use super::connection::Connection;
use super::frames::Frames;
use super::gate::Gate;
use super::pace::Pace;
use super::registry::Slot;
use super::settings::DoorSettings;
use super::{ConnectionEvent, Doorman};

/// What a socket or a TLS session over one can do.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sync + std::fmt::Debug + 'static {
    /// The client will be cut off: what it has not taken must not stay in the kernel, which would offer it for minutes.
    fn give_up(&self) {}
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
}

#[cfg(test)]
impl Transport for tokio::io::DuplexStream {}

/// What an established connection is served with.
pub(crate) struct Served {
    pub(crate) connection: Arc<Connection>,
    pub(crate) doorman: Arc<dyn Doorman>,
    pub(crate) settings: Arc<DoorSettings>,
    pub(crate) slot: Slot,
    /// Time from accept to the end of the handshake.
    pub(crate) established_in: Duration,
    /// The descriptor of the socket: an identity for the proxy, never used to read or write.
    pub(crate) descriptor: UniqueIDType,
}

/// Whether the connection may still be used, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Good,
    /// The door has answered: reads end, what the proxy still writes is dropped.
    Answered,
    /// The body was refused: reads fail, the proxy answers.
    Refused,
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
    gate: Option<Gate>,
    /// `None` for HTTP/1.
    frames: Option<Frames>,
    standing: Standing,
    waiting: Waiting,
    /// The client has said that it will send nothing more.
    ended: bool,
    body_pace: Pace,
    /// The head the body pace belongs to.
    body_of: u32,
    read_timer: Timer,
    write_pace: Pace,
    write_timer: Timer,
    out: WriteBuffer,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    descriptor: UniqueIDType,
    ssl: Option<Arc<SslDigest>>,
    proxy: Arc<ProxyDigest>,
    socket: Arc<SocketDigest>,
    timing: TimingDigest,
}

impl<S: Transport> EdgeStream<S> {
    /// Puts the gate in front of `io`. Fails only if the proxy library refuses to build an empty response header.
    pub(crate) fn new(io: S, served: Served) -> std::io::Result<Self> {
        let Served { connection, doorman, settings, slot, established_in, descriptor } = served;
        // The digest travels with every request of the connection; its user data is how the proxy finds our facts.
        let header = pingora::http::ResponseHeader::build(200, Some(0)).map_err(std::io::Error::other)?;
        let proxy = ProxyDigest::new(Box::new(header), Some(Box::new(Arc::clone(&connection))));
        let socket = SocketDigest::from_raw_fd(descriptor);
        // Set before anybody asks, so that the descriptor is never used and the PROXY header's address is the client's.
        let _ = socket.peer_addr.set(Some(PingoraAddress::from(connection.client())));
        let _ = socket.local_addr.set(Some(PingoraAddress::from(connection.local())));
        let ssl = connection.tls().map(|tls| Arc::new(SslDigest::new(tls.cipher, tls.version, None, None, Vec::new())));
        let h2 = connection.is_h2();
        Ok(Self {
            gate: (!h2).then(|| Gate::new(settings.head)),
            frames: h2.then(|| Frames::new(settings.idle_frames, Instant::now())),
            standing: Standing::Good,
            waiting: Waiting::FirstHead(Instant::now() + settings.head_timeout),
            ended: false,
            body_pace: Pace::new(settings.body_pace),
            body_of: 0,
            read_timer: Timer::default(),
            write_pace: Pace::new(settings.write_pace),
            write_timer: Timer::default(),
            out: WriteBuffer::default(),
            cancelled: Box::pin(connection.cancelled().clone().cancelled_owned()),
            descriptor,
            ssl,
            proxy: Arc::new(proxy),
            socket: Arc::new(socket),
            timing: TimingDigest { establishment_duration: Some(established_in), ..TimingDigest::default() },
            io: Some(io),
            slot: Some(slot),
            connection,
            doorman,
            settings,
        })
    }

    /// Reads and writes end here when the connection was ended from outside. Registers the task to be woken.
    fn poll_cancelled(&mut self, cx: &mut std::task::Context<'_>) -> bool {
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
        // Bytes of the client that nobody read would turn our close into a reset, and the reset would erase what we
        // wrote from the client's buffers: read on for a moment.
        let unread = self.standing != Standing::Good || self.gate.as_ref().is_some_and(Gate::leaves_bytes);
        let unsent = self.out.take();
        if unread || !unsent.is_empty() {
            linger::spawn(io, unsent, Arc::clone(&self.settings), slot);
        }
    }
}

impl<S: Transport> std::fmt::Debug for EdgeStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgeStream")
            .field("connection", &self.connection.id())
            .field("client", &self.connection.client())
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}
