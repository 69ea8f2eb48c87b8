//! Finds the end of a head without reading a byte twice, and refuses at the first byte what no head may contain: bare
//! line ends, control bytes, folded lines, and anything over a limit. Other modules check the content of the lines.

use super::HeadLimits;
use super::bytes::{is_blank, text_bytes};
use contract::rejection::Rejection;

/// Bytes of the request line beside the target: the method and its space, the space and the version.
const LINE_BYTES_BESIDE_TARGET: usize = super::line::METHOD_BYTES_MAX + 1 + 1 + "HTTP/1.1".len();

/// Result of scanning a piece of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// The whole piece was read; the head continues.
    More,
    /// The request line ended after this many bytes of the piece. Push the rest.
    RequestLine(usize),
    /// The head ended after this many bytes of the piece.
    End(usize),
}

/// Position of the next byte in the head.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The request line is complete.
    in_fields: bool,
    /// A carriage return was read; its line feed must follow.
    line_feed_due: bool,
    line_bytes: usize,
    fields_bytes: usize,
    fields: usize,
}

impl Scan {
    /// Scans the next piece. Do not use the scan after `End` or an error.
    pub(super) fn push(&mut self, piece: &[u8], limits: &HeadLimits) -> Result<Scanned, Rejection> {
        let mut rest = piece;
        while let [first, tail @ ..] = rest {
            if self.line_feed_due {
                if *first != b'\n' {
                    return Err(Rejection::BadRequest);
                }
                self.line_feed_due = false;
                rest = tail;
                if let Some(ended) = self.end_line(limits)? {
                    let consumed = piece.len() - rest.len();
                    return Ok(if ended { Scanned::End(consumed) } else { Scanned::RequestLine(consumed) });
                }
            } else if *first == b'\r' {
                self.line_feed_due = true;
                rest = tail;
            } else {
                let text = text_bytes(rest);
                if text == 0 {
                    return Err(Rejection::BadRequest);
                }
                self.continue_line(*first, text, limits)?;
                rest = rest.get(text..).unwrap_or_default();
            }
        }
        Ok(Scanned::More)
    }

    /// Ends a line: `Some(true)` for the blank line, `Some(false)` for the request line.
    fn end_line(&mut self, limits: &HeadLimits) -> Result<Option<bool>, Rejection> {
        let blank = std::mem::take(&mut self.line_bytes) == 0;
        if self.in_fields {
            if blank {
                return Ok(Some(true));
            }
            self.count(2, limits)?;
            return Ok(None);
        }
        // The gate has already skipped the one empty line that is allowed.
        if blank {
            return Err(Rejection::BadRequest);
        }
        self.in_fields = true;
        Ok(Some(false))
    }

    /// Counts `bytes` bytes of text beginning with `first`. One call for all gives the same result as one per byte: a
    /// limit, once exceeded, stays exceeded.
    fn continue_line(&mut self, first: u8, bytes: usize, limits: &HeadLimits) -> Result<(), Rejection> {
        let line_begins = self.line_bytes == 0;
        self.line_bytes += bytes;
        if !self.in_fields {
            let most = limits.target_bytes.saturating_add(LINE_BYTES_BESIDE_TARGET);
            return if self.line_bytes > most { Err(Rejection::UriTooLong) } else { Ok(()) };
        }
        if line_begins {
            // A line that begins with white space is folded, or precedes the first field; some parsers skip it.
            if is_blank(first) {
                return Err(Rejection::BadRequest);
            }
            self.fields += 1;
        }
        if self.line_bytes > limits.field_bytes || self.fields > limits.fields {
            return Err(Rejection::HeadersTooLarge);
        }
        self.count(bytes, limits)
    }

    fn count(&mut self, bytes: usize, limits: &HeadLimits) -> Result<(), Rejection> {
        self.fields_bytes += bytes;
        if self.fields_bytes > limits.fields_bytes { Err(Rejection::HeadersTooLarge) } else { Ok(()) }
    }
}
