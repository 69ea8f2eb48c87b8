//! Bytes for the client that wait for a flush.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// Size of the buffer: the plaintext of one TLS record.
const BYTES_MAX: usize = 16 * 1024;

/// Bytes that wait for a flush.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl WriteBuffer {
    /// Collects as much of `piece` as fits; returns how much. A piece that fills a record is not copied if the buffer
    /// is empty.
    pub(super) fn collect(&mut self, piece: &[u8]) -> usize {
        if self.bytes.is_empty() && piece.len() >= BYTES_MAX {
            return 0;
        }
        let taken = piece.len().min(BYTES_MAX.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(piece.get(..taken).unwrap_or_default());
        taken
    }

    /// Collects `piece` beyond the limit: for our own short error response.
    pub(super) fn append(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Writes some buffered bytes; zero if the buffer is empty. An idle connection keeps no buffer.
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

    /// Takes the unsent bytes.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.drain(..std::mem::take(&mut self.sent).min(bytes.len()));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_records_and_large_ones_are_not_copied() {
        let mut out = WriteBuffer::default();
        assert_eq!(out.collect(&[1; BYTES_MAX]), 0, "it is its own record");
        assert_eq!(out.collect(&[1; 9]), 9);
        assert_eq!(out.collect(&[2; BYTES_MAX]), BYTES_MAX - 9);
        assert_eq!(out.collect(&[3; 1]), 0);
        out.append(&[4; 2]);
        assert_eq!(out.collect(&[5; 1]), 0, "the buffer is full");
        let bytes = out.take();
        assert_eq!((bytes.len(), bytes[8], bytes[9], bytes[BYTES_MAX]), (BYTES_MAX + 2, 1, 2, 4));
        assert_eq!(out.collect(&[6; 1]), 1);
    }
}
