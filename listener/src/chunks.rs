//! Validates a chunked body: takes bytes, and reports how many belong to this body and whether it is complete, or
//! refuses.
//!
//! Lenient parsers disagree most about chunk syntax. Therefore only one spelling is accepted: 1 to 16 hexadecimal
//! digits, extensions as in RFC 9112 section 7.1.1 (no white space, at most 256 bytes in the whole body), CRLF, the
//! data, CRLF. Trailer fields are bounded and must not be fields that frame, route or authenticate a request.
//!
//! The data itself is skipped, not read. This module does not allocate or wait.

mod extension;
mod trailers;

use self::extension::Extension;
use self::trailers::Trailers;
use contract::rejection::Rejection;

/// Digits of a chunk size; 16 hexadecimal digits are all that 64 bits hold.
const SIZE_DIGITS_MAX: u8 = 16;

/// Result of reading one piece of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The whole piece belongs to the body, and more must follow.
    More,
    /// The body ends after this many bytes of the piece; the rest is the next message.
    Done(usize),
}

/// The part of a chunked body to which the next byte belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ChunkState {
    /// In a chunk size; `digits` were read so far.
    Size { digits: u8 },
    /// After a size, in an extension.
    Extension(Extension),
    /// The line feed of a size line is due.
    SizeLineFeed,
    /// Inside the data; `left` bytes are still to come.
    Data,
    /// After the data: the carriage return is due.
    DataReturn,
    /// After the data: the line feed is due.
    DataLineFeed,
    /// After the last chunk.
    Trailers(Trailers),
    /// Nothing more belongs to this body.
    Done,
}

/// One chunked body as it passes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    state: ChunkState,
    /// The size being read, then the data still to come.
    left: u64,
    /// Bytes of extensions in the whole body.
    extension_bytes: u16,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { state: ChunkState::Size { digits: 0 }, left: 0, extension_bytes: 0 }
    }
}

impl Chunks {
    /// Reads on. Do not push after `Done` or an error: it returns `Done(0)`.
    pub fn push(&mut self, piece: &[u8]) -> Result<Progress, Rejection> {
        let mut read = 0;
        while read < piece.len() && !self.is_done() {
            read += self.run(piece.get(read..).unwrap_or_default())?.0;
        }
        Ok(if self.is_done() { Progress::Done(read) } else { Progress::More })
    }

    /// Reads to the end of the next run of data, if the piece contains one. Returns the number of bytes read, and how
    /// many of them, at the end, are data. For callers that frame the data again.
    pub fn run(&mut self, piece: &[u8]) -> Result<(usize, usize), Rejection> {
        for (read, byte) in piece.iter().enumerate() {
            match &mut self.state {
                ChunkState::Data => {
                    let here = self.pass_data(piece.len() - read);
                    return Ok((read + here, here));
                }
                ChunkState::Done => return Ok((read, 0)),
                _ => self.step(*byte)?,
            }
        }
        Ok((piece.len(), 0))
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Skips the data in a piece of `most` bytes; returns how many bytes it skipped.
    fn pass_data(&mut self, most: usize) -> usize {
        // Lossless in the direction that matters: `left` beyond the piece means the whole piece.
        let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(most);
        self.left -= here as u64;
        if self.left == 0 {
            self.state = ChunkState::DataReturn;
        }
        here
    }

    fn step(&mut self, byte: u8) -> Result<(), Rejection> {
        match &mut self.state {
            ChunkState::Size { digits } => match (char::from(byte).to_digit(16), byte) {
                (Some(value), _) if *digits < SIZE_DIGITS_MAX => {
                    *digits += 1;
                    self.left = self.left << 4 | u64::from(value);
                }
                // Every size line has at least one digit, and no size overflows a signed 64-bit integer.
                (None, b'\r' | b';') if *digits > 0 && self.left <= i64::MAX.unsigned_abs() => {
                    if byte == b'\r' {
                        self.state = ChunkState::SizeLineFeed;
                    } else {
                        self.state = ChunkState::Extension(Extension::default());
                        self.count_extension()?;
                    }
                }
                _ => return Err(Rejection::BadFraming),
            },
            ChunkState::Extension(extension) => {
                if extension.push(byte)? {
                    self.state = ChunkState::SizeLineFeed;
                } else {
                    self.count_extension()?;
                }
            }
            ChunkState::SizeLineFeed => {
                expect(byte, b'\n')?;
                self.state = if self.left == 0 { ChunkState::Trailers(Trailers::default()) } else { ChunkState::Data };
            }
            ChunkState::DataReturn => {
                expect(byte, b'\r')?;
                self.state = ChunkState::DataLineFeed;
            }
            ChunkState::DataLineFeed => {
                expect(byte, b'\n')?;
                self.state = ChunkState::Size { digits: 0 };
            }
            ChunkState::Trailers(trailers) => {
                if trailers.push(byte)? {
                    self.state = ChunkState::Done;
                }
            }
            ChunkState::Data | ChunkState::Done => {}
        }
        Ok(())
    }

    fn count_extension(&mut self) -> Result<(), Rejection> {
        self.extension_bytes += 1;
        if self.extension_bytes > extension::BYTES_MAX { Err(Rejection::BadFraming) } else { Ok(()) }
    }
}

fn expect(byte: u8, due: u8) -> Result<(), Rejection> {
    if byte == due { Ok(()) } else { Err(Rejection::BadFraming) }
}

#[cfg(test)]
mod tests;
