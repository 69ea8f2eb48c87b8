//! A client that speaks HTTP/1.1.

use std::borrow::Cow;
use std::io;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::StatusCode;
use pingora::{Error, ErrorType};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use super::downstream::Downstream;
use crate::decorate::ResponseSink;
use crate::door::Client;

/// Bytes of a usual head, with the body of a refusal.
const HEAD_BYTES_USUAL: usize = 1_280;

/// See the module.
pub(super) struct Http1<'a> {
    client: &'a mut dyn Client,
    keep_alive: bool,
    /// The response says that the connection ends with it.
    pub(super) closes: bool,
}

impl<'a> Http1<'a> {
    /// `keep_alive`: the client wants to use the connection again.
    pub(super) fn new(client: &'a mut dyn Client, keep_alive: bool) -> Self {
        Self { client, keep_alive, closes: false }
    }

    /// Decides what the response says of the connection, and says it.
    fn connection(&mut self) -> &'static str {
        self.closes = !self.keep_alive || self.client.connection().should_close();
        if self.closes { "close" } else { "keep-alive" }
    }

    /// Ends a head: the fields of every final response, and the blank line.
    fn finish(&mut self, head: &mut Wire) -> pingora::Result<()> {
        head.field("Connection", self.connection().as_bytes())?;
        head.0.put_slice(b"\r\n");
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> pingora::Result<()> {
        self.client.write_all(bytes).await.or_else(unsent)
    }
}

/// A head as it travels.
pub(super) struct Wire(Vec<u8>);

impl Wire {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl ResponseSink for Wire {
    fn status(&mut self, status: StatusCode, reason: &str) -> pingora::Result<()> {
        self.0.put_slice(b"HTTP/1.1 ");
        self.0.put_slice(status.as_str().as_bytes());
        self.0.put_u8(b' ');
        self.0.put_slice(reason.as_bytes());
        self.0.put_slice(b"\r\n");
        Ok(())
    }

    fn field(&mut self, name: &str, value: &[u8]) -> pingora::Result<()> {
        self.0.put_slice(name.as_bytes());
        self.0.put_slice(b": ");
        self.0.put_slice(value);
        self.0.put_slice(b"\r\n");
        Ok(())
    }
}

impl Downstream for Http1<'_> {
    type Head = Wire;

    fn head() -> Wire {
        Wire(Vec::with_capacity(HEAD_BYTES_USUAL))
    }

    async fn interim(&mut self, mut head: Wire) -> pingora::Result<()> {
        head.0.put_slice(b"\r\n");
        self.write(&head.0).await?;
        self.flush().await
    }

    async fn begin(&mut self, mut head: Wire, _ends: bool) -> pingora::Result<()> {
        self.finish(&mut head)?;
        self.write(&head.0).await
    }

    async fn data(&mut self, from: &mut BytesMut, bytes: usize, chunked: bool, _last: bool) -> pingora::Result<()> {
        if chunked {
            self.write(format!("{bytes:x}\r\n").as_bytes()).await?;
        }
        self.write(from.get(..bytes).unwrap_or_default()).await?;
        from.advance(bytes);
        if chunked { self.write(b"\r\n").await } else { Ok(()) }
    }

    async fn flush(&mut self) -> pingora::Result<()> {
        self.client.flush().await.or_else(unsent)
    }

    async fn end(&mut self, chunked: bool) -> pingora::Result<()> {
        if chunked {
            self.write(b"0\r\n\r\n").await?;
        }
        self.flush().await
    }

    async fn answer(&mut self, mut head: Wire, body: Cow<'static, str>) -> pingora::Result<()> {
        self.finish(&mut head)?;
        head.0.put_slice(body.as_bytes());
        self.write(&head.0).await?;
        self.flush().await
    }

    /// Requests with a body are the proxy's.
    fn poll_body(&mut self, _cx: &mut Context<'_>) -> Poll<pingora::Result<Option<Bytes>>> {
        Poll::Ready(Ok(None))
    }

    fn body_bytes(&self) -> u64 {
        0
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_deadline(deadline, cx)
    }
}

/// The client did not take what it was sent.
fn unsent<T>(error: io::Error) -> pingora::Result<T> {
    let kind = if error.kind() == io::ErrorKind::TimedOut { ErrorType::WriteTimedout } else { ErrorType::WriteError };
    Err(Error::because(kind, "to the client", error).into_down())
}
