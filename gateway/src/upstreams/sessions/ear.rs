//! Listening to a connection: when something came, and what TLS said.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::upstreams::tls;

/// What was heard of the other side.
#[derive(Debug)]
pub(super) struct Ear {
    last: Mutex<Instant>,
    reason: Mutex<Option<String>>,
}

impl Ear {
    pub(super) fn new() -> Self {
        Self { last: Mutex::new(Instant::now()), reason: Mutex::default() }
    }

    /// When something came the last time.
    pub(super) fn last(&self) -> Instant {
        *self.last.lock()
    }

    /// Why TLS broke off, where it did.
    pub(super) fn tls_reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }
}

/// A stream that takes note of when something came, and why TLS broke off.
pub(super) struct Heard<S> {
    pub(super) stream: S,
    pub(super) ear: Arc<Ear>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        match &read {
            Ok(()) => *self.ear.last.lock() = Instant::now(),
            Err(error) => {
                if let Some(reason) = tls::reason(error) {
                    *self.ear.reason.lock() = Some(reason);
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
