//! The body of a response on its way to the client, as it comes. Chunks are made anew: extensions and trailer fields are
//! between us and the upstream (RFC 9112 section 7.1.1).

use std::io;

use bytes::Buf as _;
use chassis::clock::Clock;
use pingora::{Error, ErrorType};
use tokio::io::AsyncWriteExt as _;

use super::exchange::unsent;
use super::response::Framing;
use super::upstream::{READ_BYTES, UpstreamConnection};
use crate::door::Client;
use crate::facts::Facts;
use crate::forward;

/// Hands the body on to its last byte, and counts its bytes in `sent`. What is there at once travels together; before a
/// wait everything is on its way.
pub(super) async fn relay(
    upstream: &mut UpstreamConnection,
    framing: &mut Framing,
    client: &mut dyn Client,
    (facts, clock): (&Facts, &dyn Clock),
    sent: &mut u64,
) -> pingora::Result<()> {
    loop {
        while let Some(piece) = framing.take(&upstream.buffer)? {
            upstream.buffer.advance(piece.skipped);
            let data = upstream.buffer.get(..piece.data).unwrap_or_default();
            write(client, data, framing.is_chunked()).await.or_else(unsent)?;
            upstream.buffer.advance(piece.data);
            *sent += piece.data as u64;
        }
        if framing.is_done() {
            break;
        }
        let came = if let Some(came) = upstream.try_receive(READ_BYTES).await {
            came?
        } else {
            client.flush().await.or_else(unsent)?;
            upstream.receive(client, READ_BYTES).await?
        };
        forward::in_time(facts, clock.monotonic())?;
        match (came, &framing) {
            (1.., _) => {}
            (0, Framing::End) => break,
            (0, _) => return Err(Error::explain(ErrorType::ConnectionClosed, "the response broke off").into_up()),
        }
    }
    if framing.is_chunked() {
        client.write_all(b"0\r\n\r\n").await.or_else(unsent)?;
    }
    Ok(())
}

/// Writes a piece of a body, as a chunk of its own where there are chunks.
async fn write(client: &mut dyn Client, data: &[u8], chunked: bool) -> io::Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    if !chunked {
        return client.write_all(data).await;
    }
    client.write_all(format!("{:x}\r\n", data.len()).as_bytes()).await?;
    client.write_all(data).await?;
    client.write_all(b"\r\n").await
}

/// What stands at the start of a buffer.
struct Piece {
    /// Bytes of framing.
    skipped: usize,
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
                Piece { skipped: 0, data }
            }
            Self::Chunked(chunks) => {
                let (read, data) = chunks
                    .run(bytes)
                    .map_err(|_| Error::explain(ErrorType::InvalidHTTPHeader, "chunks that are none").into_up())?;
                Piece { skipped: read - data, data }
            }
            Self::End => Piece { skipped: 0, data: bytes.len() },
        }))
    }

    /// Whether all of the body was taken. One that ends with its connection never is.
    fn is_done(&self) -> bool {
        match self {
            Self::None => true,
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::End => false,
        }
    }

    /// Whether the client is sent chunks.
    fn is_chunked(&self) -> bool {
        matches!(self, Self::Chunked(_) | Self::End)
    }
}
