//! The framing of a response body: which bytes are data, and where it ends.

use pingora::{Error, ErrorType};

use super::chunks::ChunkedBody;

/// How the end of a body is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    None,
    /// After so many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked(ChunkedBody),
    /// With the connection.
    End,
}

/// The start of a buffer.
pub(super) struct Piece {
    /// Bytes of framing.
    pub(super) skipped: usize,
    /// The framing bytes are trailers.
    pub(super) is_trailer: bool,
    /// Bytes of the body after them.
    pub(super) data: usize,
}

impl Framing {
    /// The piece at the start of `bytes`; `None` if they are empty or the body has ended.
    ///
    /// # Errors
    /// If chunks are malformed.
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

    /// Whether the whole body was taken; never for a body that ends with its connection.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::None => true,
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::End => false,
        }
    }

    /// The connection has ended: after the last chunk the body is complete without its trailers. Returns whether it is.
    pub(super) fn ends_without_trailers(&mut self) -> bool {
        let Self::Chunked(chunks) = self else { return false };
        let is_complete = chunks.is_in_trailers();
        if is_complete {
            chunks.end();
        }
        is_complete
    }

    /// Whether the framing leaves the connection for another request.
    pub(super) fn is_usual(&self) -> bool {
        !matches!(self, Self::Chunked(chunks) if chunks.is_unusual())
    }

    /// Whether the length of the body is unknown, so that the client gets chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self, Self::Chunked(_) | Self::End)
    }
}
