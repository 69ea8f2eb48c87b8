//! Where the body of a response ends, and what of its bytes is data.

use pingora::{Error, ErrorType};

use listener::chunks::Chunks;

/// Where a body ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked(Chunks),
    /// With the connection.
    End,
}

/// What stands at the start of a buffer.
pub(super) struct Piece {
    /// Bytes of framing.
    pub(super) skipped: usize,
    /// They are trailers.
    pub(super) is_trailer: bool,
    /// Bytes of the body behind them.
    pub(super) data: usize,
}

impl Framing {
    /// What of the bytes is to be handed on next; `None` when nothing is, or none are there.
    ///
    /// # Errors
    /// When they are no chunks where chunks are due.
    pub(super) fn take(&mut self, bytes: &[u8]) -> pingora::Result<Option<Piece>> {
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
                    .map_err(|_| Error::explain(ErrorType::InvalidHTTPHeader, "the chunks are malformed").into_up())?;
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
