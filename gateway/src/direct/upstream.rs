//! One connection to an upstream that serves one request.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use pingora::{Error, ErrorType};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::io::poll_read_buf;

use super::downstream::Downstream;
use crate::upstreams::{Endpoint, Upstream};

/// Room for what one read brings at first: a small response as a whole.
const FIRST_READ_BYTES: usize = 8 * 1024;

/// Room for what one read brings of a body that goes on.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// See the module.
pub(super) struct UpstreamConnection {
    stream: TcpStream,
    /// What came and was not taken yet.
    pub(super) buffer: BytesMut,
    /// It has served other requests.
    pub(super) reused: bool,
    /// The longest wait for one read or write.
    patience: Duration,
}

impl UpstreamConnection {
    /// An idle connection, or a new one; `fresh` where an idle one has just died.
    pub(super) async fn open(upstream: &Upstream, endpoint: &Endpoint, fresh: bool) -> pingora::Result<Self> {
        let patience = upstream.settings.first_byte_timeout;
        let of = |stream, reused| Self { stream, buffer: BytesMut::new(), reused, patience };
        if let Some(stream) = (!fresh).then(|| endpoint.idle.take()).flatten() {
            return Ok(of(stream, true));
        }
        match timeout(upstream.settings.connect_timeout, TcpStream::connect(endpoint.address)).await {
            Ok(Ok(stream)) => {
                // Heads and bodies are written whole; waiting for more to fill a packet gains nothing.
                let _ = stream.set_nodelay(true);
                Ok(of(stream, false))
            }
            Ok(Err(error)) => {
                let kind = match error.kind() {
                    io::ErrorKind::ConnectionRefused => ErrorType::ConnectRefused,
                    io::ErrorKind::TimedOut => ErrorType::ConnectTimedout,
                    io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => ErrorType::ConnectNoRoute,
                    _ => ErrorType::ConnectError,
                };
                Err(Error::because(kind, "connecting to an upstream", error).into_up())
            }
            Err(_) => Err(Error::explain(ErrorType::ConnectTimedout, "connecting to an upstream").into_up()),
        }
    }

    /// Sends all of it.
    pub(super) async fn send(&mut self, mut bytes: &[u8], client: &mut impl Downstream) -> pingora::Result<()> {
        let (stream, patience, mut deadline) = (&mut self.stream, self.patience, None);
        poll_fn(|cx| {
            while !bytes.is_empty() {
                match Pin::new(&mut *stream).poll_write(cx, bytes) {
                    Poll::Ready(Ok(sent)) => bytes = bytes.get(sent..).unwrap_or_default(),
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(
                            Error::because(ErrorType::WriteError, "to an upstream", error).into_up()
                        ));
                    }
                    Poll::Pending => {
                        let until = *deadline.get_or_insert_with(|| Instant::now() + patience);
                        return match client.poll_deadline(until, cx) {
                            Poll::Ready(()) => {
                                Poll::Ready(Err(Error::explain(ErrorType::WriteTimedout, "to an upstream").into_up()))
                            }
                            Poll::Pending => Poll::Pending,
                        };
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Reads some more into the buffer if it is there.
    pub(super) async fn try_receive(&mut self, room: usize) -> Option<pingora::Result<usize>> {
        self.buffer.reserve(room);
        let polled = poll_fn(|cx| Poll::Ready(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.buffer))).await;
        match polled {
            Poll::Ready(read) => Some(read.or_else(broken)),
            Poll::Pending => None,
        }
    }

    /// Waits for more, for as long as the upstream is granted and the client is there. Zero is the end.
    pub(super) async fn receive(&mut self, client: &mut impl Downstream, room: usize) -> pingora::Result<usize> {
        self.buffer.reserve(room);
        let (stream, buffer, patience, mut deadline) = (&mut self.stream, &mut self.buffer, self.patience, None);
        poll_fn(|cx| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *stream), cx, buffer) {
                return Poll::Ready(read.or_else(broken));
            }
            if client.poll_gone(cx).is_ready() {
                return Poll::Ready(
                    Err(Error::explain(ErrorType::ConnectionClosed, "the client has left").into_down()),
                );
            }
            let until = *deadline.get_or_insert_with(|| Instant::now() + patience);
            match client.poll_deadline(until, cx) {
                Poll::Ready(()) => {
                    Poll::Ready(Err(Error::explain(ErrorType::ReadTimedout, "from an upstream").into_up()))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Waits for the first bytes of a response.
    pub(super) async fn receive_first(&mut self, client: &mut impl Downstream) -> pingora::Result<usize> {
        self.receive(client, FIRST_READ_BYTES).await
    }

    /// The response is complete and nothing came after it: the connection can serve another request.
    pub(super) fn rest(self, endpoint: &Endpoint) {
        if self.buffer.is_empty() {
            endpoint.idle.keep(self.stream);
        }
    }
}

fn broken<T>(error: io::Error) -> pingora::Result<T> {
    Err(Error::because(ErrorType::ReadError, "from an upstream", error).into_up())
}
