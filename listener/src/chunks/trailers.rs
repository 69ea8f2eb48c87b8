//! Trailer fields after a chunked body: parsed to find the end of the body, bounded, and refused if a server might
//! merge them into the head. Accepted ones are not forwarded.

use crate::fields::{is_reserved, may_stand_in_trailers};
use crate::head::bytes::{is_control, is_token};
use contract::rejection::Rejection;

/// Bytes of all trailer lines with their line ends.
const BYTES_MAX: u16 = 4 * 1024;
/// Trailer lines.
const FIELDS_MAX: u8 = 16;
/// Bytes of a trailer name: enough for every registered one.
const NAME_BYTES_MAX: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The first byte of a line.
    Start,
    /// In the name; its first bytes are kept.
    Name,
    Value,
    /// After the carriage return of a field.
    LineFeed,
    /// After the carriage return of the blank line.
    LastLineFeed,
}

/// The part of a chunked body after its last chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trailers {
    at: At,
    bytes: u16,
    fields: u8,
    name: [u8; NAME_BYTES_MAX],
    name_bytes: usize,
}

impl Default for Trailers {
    fn default() -> Self {
        Self { at: At::Start, bytes: 0, fields: 0, name: [0; NAME_BYTES_MAX], name_bytes: 0 }
    }
}

impl Trailers {
    /// Reads a byte; true if it was the last one of the body.
    pub(super) fn push(&mut self, byte: u8) -> Result<bool, Rejection> {
        self.bytes += 1;
        if self.bytes > BYTES_MAX {
            return Err(Rejection::HeadersTooLarge);
        }
        self.at = match (self.at, byte) {
            (At::Start, b'\r') => At::LastLineFeed,
            (At::LastLineFeed, b'\n') => return Ok(true),
            (At::Start, byte) => {
                self.fields += 1;
                if self.fields > FIELDS_MAX {
                    return Err(Rejection::HeadersTooLarge);
                }
                self.name_bytes = 0;
                self.keep(byte)?
            }
            (At::Name, b':') => self.name_complete()?,
            (At::Name, byte) => self.keep(byte)?,
            (At::Value, b'\r') => At::LineFeed,
            (At::Value, byte) if !is_control(byte) => At::Value,
            (At::LineFeed, b'\n') => At::Start,
            _ => return Err(Rejection::BadFraming),
        };
        Ok(false)
    }

    fn keep(&mut self, byte: u8) -> Result<At, Rejection> {
        if byte == b'_' {
            return Err(Rejection::UnderscoreHeader);
        }
        let slot = self.name.get_mut(self.name_bytes).filter(|_| is_token(byte)).ok_or(Rejection::BadFraming)?;
        *slot = byte.to_ascii_lowercase();
        self.name_bytes += 1;
        Ok(At::Name)
    }

    fn name_complete(&self) -> Result<At, Rejection> {
        let name = self.name.get(..self.name_bytes).unwrap_or_default();
        let is_refused = |name: &str| !may_stand_in_trailers(name) || is_reserved(name);
        if std::str::from_utf8(name).is_ok_and(is_refused) { Err(Rejection::BadFraming) } else { Ok(At::Value) }
    }
}
