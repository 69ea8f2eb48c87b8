//! Bytes on their way to the client: collected until a flush, so that a header and a small body travel as one TLS record
//! and one system call.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// The most that is collected: the plaintext of one TLS record.
pub(super) const BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl WriteBuffer {
    /// Collects `piece` if there is room.
    pub(super) fn collect(&mut self, piece: &[u8]) -> bool {
        let fits = self.bytes.len() + piece.len() <= BYTES_MAX;
        if fits {
            self.bytes.extend_from_slice(piece);
        }
        fits
    }

    /// Collects `piece` however much lies here: for our own few last words.
    pub(super) fn append(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Writes some of what lies here; zero when nothing does. An idle connection keeps no buffer.
    pub(super) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let left = self.bytes.get(self.sent..).unwrap_or_default();
        if left.is_empty() {
            self.bytes = Vec::new();
            self.sent = 0;
            return Poll::Ready(Ok(0));
        }
        match Pin::new(io).poll_write(cx, left) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(sent)) => {
                self.sent += sent;
                Poll::Ready(Ok(sent))
            }
            other => other,
        }
    }

    /// What lies here, unsent.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.drain(..std::mem::take(&mut self.sent).min(bytes.len()));
        bytes
    }
}
