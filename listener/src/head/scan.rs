//! Finding the end of a head without reading a byte twice, and refusing what no head may contain at the first byte of
//! it: bare line ends, control bytes, folded lines, and anything over a limit. What the lines say is judged elsewhere.

use super::HeadLimits;
use super::bytes::{is_blank, text_bytes};
use contract::rejection::Rejection;

/// Room in the request line beside the target: the method and its space, the space and the version.
const LINE_BYTES_BESIDE_TARGET: usize = super::line::METHOD_BYTES_MAX + 1 + 1 + "HTTP/1.1".len();

/// What a piece of the head brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// Everything was read, the head goes on.
    More,
    /// The request line ended after this many bytes of the piece. Push the rest.
    RequestLine(usize),
    /// The head ended after this many bytes of the piece.
    End(usize),
}

/// Where in the head the next byte stands.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The request line is behind us.
    in_fields: bool,
    /// A carriage return was read and its line feed is due.
    line_feed_due: bool,
    line_bytes: usize,
    fields_bytes: usize,
    fields: usize,
}

impl Scan {
    /// Reads on. After `End` or an error the scan is used up.
    pub(super) fn push(&mut self, piece: &[u8], limits: &HeadLimits) -> Result<Scanned, Rejection> {
        let mut rest = piece;
        while let [first, tail @ ..] = rest {
            if self.line_feed_due {
                if *first != b'\n' {
                    return Err(Rejection::BadRequest);
                }
                self.line_feed_due = false;
                rest = tail;
                if let Some(ended) = self.line_ended(limits)? {
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
                self.line_goes_on(*first, text, limits)?;
                rest = rest.get(text..).unwrap_or_default();
            }
        }
        Ok(Scanned::More)
    }

    /// A line is complete: `Some(true)` when it was the blank one, `Some(false)` when it was the request line.
    fn line_ended(&mut self, limits: &HeadLimits) -> Result<Option<bool>, Rejection> {
        let blank = std::mem::take(&mut self.line_bytes) == 0;
        if self.in_fields {
            if blank {
                return Ok(Some(true));
            }
            self.count(2, limits)?;
            return Ok(None);
        }
        // The gate has skipped the one that may be there.
        if blank {
            return Err(Rejection::BadRequest);
        }
        self.in_fields = true;
        Ok(Some(false))
    }

    /// So many bytes of text follow, the first of which is given. A limit that they pass lies before whatever comes
    /// behind them, so counting them at once decides as counting them one by one.
    fn line_goes_on(&mut self, first: u8, bytes: usize, limits: &HeadLimits) -> Result<(), Rejection> {
        let line_begins = self.line_bytes == 0;
        self.line_bytes += bytes;
        if !self.in_fields {
            let most = limits.target_bytes.saturating_add(LINE_BYTES_BESIDE_TARGET);
            return if self.line_bytes > most { Err(Rejection::UriTooLong) } else { Ok(()) };
        }
        if line_begins {
            // White space first: a folded line, or a field in front of the first one that some parsers skip.
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
