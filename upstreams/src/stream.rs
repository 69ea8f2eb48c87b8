//! A connection to an upstream, and why there is none.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use pingora::ErrorType;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connection, with TLS or without.
#[derive(Debug)]
pub enum Stream {
    /// Clear text.
    Plain(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// Encrypted, to an authenticated upstream.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub struct DialError {
    /// What failed.
    pub kind: DialFailure,
    /// Details for an operator.
    pub reason: Option<Cow<'static, str>>,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialFailure {
    /// The connection was refused.
    Refused,
    /// There is no route to the address.
    NoRoute,
    /// The connection timed out.
    TimedOut,
    /// Another error of the operating system.
    Failed,
    /// The TLS handshake failed.
    Tls,
    /// HTTP/2 could not be established.
    Protocol,
    /// It accepts connections, but a request waited in vain for a response.
    Silent,
}

impl DialFailure {
    /// The kind of pingora's error.
    pub fn error_type(self) -> ErrorType {
        match self {
            Self::Refused => ErrorType::ConnectRefused,
            Self::NoRoute => ErrorType::ConnectNoRoute,
            Self::TimedOut | Self::Silent => ErrorType::ConnectTimedout,
            Self::Failed => ErrorType::ConnectError,
            Self::Tls => ErrorType::TLSHandshakeFailure,
            Self::Protocol => ErrorType::H2Error,
        }
    }
}

impl DialError {
    pub(super) fn because(kind: DialFailure, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, reason: Some(reason.into()) }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionRefused => DialFailure::Refused,
            io::ErrorKind::TimedOut => DialFailure::TimedOut,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => DialFailure::NoRoute,
            _ => DialFailure::Failed,
        };
        Self { kind, reason: None }
    }
}

impl Stream {
    /// Whether HTTP/2 was negotiated.
    pub fn agreed_on_http2(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    /// Whether it is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The socket.
    pub(super) fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Plain(stream) => SockRef::from(stream),
            Self::Unix(stream) => SockRef::from(stream),
            Self::Tls(stream) => SockRef::from(stream.get_ref().0),
        }
    }

    /// Whether no decrypted bytes are unread.
    pub fn is_read(&mut self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) => true,
            Self::Tls(stream) => {
                let session = stream.get_mut().1;
                session
                    .process_new_packets()
                    .is_ok_and(|state| state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed())
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, pieces),
        }
    }
}
