//! Chunk extensions: `;name`, `;name=token`, `;name="quoted"` (RFC 9112 section 7.1.1), without the white space that
//! the RFC tolerates and without backslashes. They are parsed only to find their end.

use crate::head::bytes::is_token;
use contract::rejection::Rejection;

/// Bytes of extensions in one body, semicolons included. Larger extensions are suspicious.
pub(super) const BYTES_MAX: u16 = 256;

/// Position of the next byte in an extension, after the semicolon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Extension {
    /// The first byte of a name is due.
    #[default]
    Start,
    Name,
    /// The first byte of a value is due.
    Equals,
    Token,
    Quoted,
    /// After the closing quote.
    Closed,
}

impl Extension {
    /// Reads a byte; true if it was the carriage return that ends the line.
    pub(super) fn push(&mut self, byte: u8) -> Result<bool, Rejection> {
        *self = match (*self, byte) {
            (Self::Name | Self::Token | Self::Closed, b'\r') => return Ok(true),
            (Self::Name | Self::Token | Self::Closed, b';') => Self::Start,
            (Self::Name, b'=') => Self::Equals,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::Closed,
            (Self::Start | Self::Name, byte) if is_token(byte) => Self::Name,
            (Self::Equals | Self::Token, byte) if is_token(byte) => Self::Token,
            (Self::Quoted, b' '..=b'~') if byte != b'\\' => Self::Quoted,
            _ => return Err(Rejection::BadFraming),
        };
        Ok(false)
    }
}
