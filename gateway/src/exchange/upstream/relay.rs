//! The body of a response on its way to the client, as it comes. Chunks are made anew: their extensions are between us and
//! the upstream (RFC 9112 section 7.1.1).

use bytes::Buf as _;
use pingora::{Error, ErrorType};

use super::connection::{READ_BYTES, UpstreamConnection};
use super::response::Framing;
use crate::exchange::downstream::Downstream;

/// Hands the body on to its last byte, and counts its bytes in `sent`; its trailers as they came, blank line included, if there
/// are any. What is there at once travels together; before a
/// wait everything is on its way, and so it is at the end. `in_time` says whether it may go on.
pub(crate) async fn relay<D: Downstream>(
    upstream: &mut UpstreamConnection,
    framing: &mut Framing,
    client: &mut D,
    in_time: impl Fn() -> pingora::Result<()> + Send + Sync,
    sent: &mut u64,
) -> pingora::Result<Vec<u8>> {
    let mut trailers = Vec::new();
    loop {
        while let Some(piece) = framing.take(&upstream.buffer)? {
            if piece.is_trailer {
                keep(&mut trailers, upstream.buffer.get(..piece.skipped).unwrap_or_default());
            }
            upstream.buffer.advance(piece.skipped);
            if piece.data > 0 {
                *sent += piece.data as u64;
                let (mut left, last) = (piece.data, framing.is_done());
                upstream.hand_on(client, |client, buffer, cx| client.poll_data(buffer, &mut left, last, cx)).await?;
            }
        }
        if framing.is_done() {
            break;
        }
        let came = if let Some(came) = upstream.try_receive(READ_BYTES).await {
            came?
        } else {
            upstream.hand_on(client, |client, _, cx| client.poll_flush(cx)).await?;
            upstream.receive(client, READ_BYTES).await?
        };
        in_time()?;
        match (came, &framing) {
            (1.., _) => {}
            (0, Framing::End) => break,
            (0, _) => return Err(Error::explain(ErrorType::ConnectionClosed, "the response broke off").into_up()),
        }
    }
    Ok(trailers)
}

/// Keeps a piece of the trailers, whose size the lint of chunks bounds. Nearly always there are none: a blank line alone.
fn keep(trailers: &mut Vec<u8>, piece: &[u8]) {
    if !trailers.is_empty() || piece != b"\r\n" {
        trailers.extend_from_slice(piece);
    }
}

/// What stands at the start of a buffer.
struct Piece {
    /// Bytes of framing.
    skipped: usize,
    /// They are trailers.
    is_trailer: bool,
    /// Bytes of the body behind them.
    data: usize,
}

impl Framing {
    /// What of the bytes is to be handed on next; `None` when nothing is, or none are there.
    ///
    /// # Errors
    /// When they are no chunks where chunks are due.
    fn take(&mut self, bytes: &[u8]) -> pingora::Result<Option<Piece>> {
        if bytes.is_empty() || self.is_done() {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::None => return Ok(None),
            Self::Length(left) => {
                let data = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= data as u64;
                Piece { skipped: 0, is_trailer: false, data }
            }
            Self::Chunked(chunks) => {
                let is_trailer = chunks.is_in_trailers();
                let (read, data) = chunks
                    .run(bytes)
                    .map_err(|_| Error::explain(ErrorType::InvalidHTTPHeader, "chunks that are none").into_up())?;
                Piece { skipped: read - data, is_trailer, data }
            }
            Self::End => Piece { skipped: 0, is_trailer: false, data: bytes.len() },
        }))
    }

    /// Whether all of the body was taken. One that ends with its connection never is.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::None => true,
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::End => false,
        }
    }

    /// Whether the client is sent chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self, Self::Chunked(_) | Self::End)
    }
}
