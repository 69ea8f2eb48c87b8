//! Reads the chunked body of a response.
//!
//! Requests have a strict reader (`listener::chunks`), because servers disagree about unusual syntax and a client could
//! use that. A response is framed anew for the client, so this reader accepts what servers send: extensions, white
//! space after a size, bare line feeds, and trailers of any form. After unusual syntax the connection is not reused.
//!
//! A body is complete with its last chunk (RFC 9112 section 8): malformed or missing trailers do not damage it.
//! Everything is bounded: a size line, and the trailers. Each size line brings at least one byte of data.

/// Bytes of a size line with its extensions.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of all trailers.
const TRAILERS_BYTES_MAX: usize = 64 * 1024;

/// Position of the next byte in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a chunk size; `digits` if it has begun.
    Size { digits: bool },
    /// In the white space after a size.
    Padding,
    /// In an extension.
    Extension,
    /// The line feed of a size line is due.
    SizeLineFeed,
    /// Inside the data.
    Data,
    /// After the data: a line end is due.
    DataEnd,
    /// After the data: the line feed is due.
    DataLineFeed,
    /// After the last chunk, at the start of a line.
    TrailerStart,
    /// In a line of the trailers.
    Trailer,
    /// In a line of the trailers, after a carriage return.
    TrailerLineFeed,
    /// In the blank line after the trailers, after its carriage return.
    LastLineFeed,
    /// Nothing more belongs to this body.
    Done,
}

/// The chunked body of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkedBody {
    state: State,
    /// The size being read, then the data still to come.
    left: u64,
    /// Bytes of the current size line, or of the trailers.
    bytes: usize,
    /// The syntax was unusual: the connection is not reused.
    unusual: bool,
}

/// The body is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Default for ChunkedBody {
    fn default() -> Self {
        Self { state: State::Size { digits: false }, left: 0, bytes: 0, unusual: false }
    }
}

impl ChunkedBody {
    /// Reads to the end of the next run of data, or to the start of the trailers, if the piece contains one. Returns
    /// the number of bytes read, and how many of them, at the end, are data.
    ///
    /// # Errors
    /// If the body is malformed before its last chunk.
    pub(super) fn run(&mut self, piece: &[u8]) -> Result<(usize, usize), Malformed> {
        let began_in_trailers = self.is_in_trailers();
        for (read, byte) in piece.iter().enumerate() {
            match self.state {
                State::Data => {
                    let here = self.pass_data(piece.len() - read);
                    return Ok((read + here, here));
                }
                State::Done => return Ok((read, 0)),
                _ if self.is_in_trailers() && !began_in_trailers => return Ok((read, 0)),
                _ => self.step(*byte)?,
            }
        }
        Ok((piece.len(), 0))
    }

    /// Whether the last chunk was read, and the trailers, or the blank line in their place, come next.
    pub(super) fn is_in_trailers(&self) -> bool {
        matches!(self.state, State::TrailerStart | State::Trailer | State::TrailerLineFeed | State::LastLineFeed)
    }

    /// Whether the body is complete.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the connection must not be reused.
    pub(super) fn is_unusual(&self) -> bool {
        self.unusual
    }

    /// The body is complete without the rest of the trailers.
    pub(super) fn end(&mut self) {
        (self.state, self.unusual) = (State::Done, true);
    }

    /// Skips the data in a piece of `most` bytes; returns how many bytes it skipped.
    fn pass_data(&mut self, most: usize) -> usize {
        // `left` beyond the piece means the whole piece.
        let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(most);
        self.left -= here as u64;
        if self.left == 0 {
            self.state = State::DataEnd;
        }
        here
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.bytes += 1;
        if self.is_in_trailers() {
            self.step_in_trailers(byte);
            return Ok(());
        }
        if self.bytes > LINE_BYTES_MAX {
            return Err(Malformed);
        }
        self.state = match (self.state, byte) {
            (State::Size { .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.left = self.left.checked_mul(16).ok_or(Malformed)?
                    | u64::from(char::from(byte).to_digit(16).ok_or(Malformed)?);
                State::Size { digits: true }
            }
            (State::Size { digits: true } | State::Padding, b' ' | b'\t') => {
                self.unusual = true;
                State::Padding
            }
            (State::Size { digits: true } | State::Padding | State::Extension, b'\r') => State::SizeLineFeed,
            (State::Size { digits: true } | State::Padding | State::Extension, b'\n') => {
                self.unusual = true;
                self.line_ended()
            }
            (State::SizeLineFeed, b'\n') => self.line_ended(),
            (State::Size { digits: true } | State::Padding, b';')
            | (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => State::Extension,
            (State::DataEnd, b'\r') => State::DataLineFeed,
            (State::DataEnd, b'\n') => {
                self.unusual = true;
                self.chunk_ended()
            }
            (State::DataLineFeed, b'\n') => self.chunk_ended(),
            _ => return Err(Malformed),
        };
        Ok(())
    }

    /// A size line has ended.
    fn line_ended(&mut self) -> State {
        self.bytes = 0;
        if self.left == 0 { State::TrailerStart } else { State::Data }
    }

    /// The data of a chunk and its line end were read.
    fn chunk_ended(&mut self) -> State {
        self.bytes = 0;
        State::Size { digits: false }
    }

    fn step_in_trailers(&mut self, byte: u8) {
        if self.bytes > TRAILERS_BYTES_MAX {
            return self.end();
        }
        self.state = match (self.state, byte) {
            (State::TrailerStart, b'\r') => State::LastLineFeed,
            (State::LastLineFeed, b'\n') => State::Done,
            (State::TrailerStart, b'\n') => return self.end(),
            (State::Trailer, b'\r') => State::TrailerLineFeed,
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::Trailer, b'\n') => {
                self.unusual = true;
                State::TrailerStart
            }
            (State::TrailerStart | State::Trailer, _) => State::Trailer,
            // A carriage return inside a line.
            _ => return self.end(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body in two pieces. Returns its data, the bytes after it, and whether the syntax was unusual; `None` if
    /// it is incomplete.
    fn read(body: &[u8], cut: usize) -> Result<Option<(Vec<u8>, usize, bool)>, Malformed> {
        let (mut chunks, mut data, mut at) = (ChunkedBody::default(), Vec::new(), 0);
        for end in [cut, body.len()] {
            while at < end && !chunks.is_done() {
                let (read, passed) = chunks.run(&body[at..end])?;
                at += read;
                data.extend_from_slice(&body[at - passed..at]);
            }
        }
        Ok(chunks.is_done().then(|| (data, body.len() - at, chunks.is_unusual())))
    }

    fn check(body: &str, expected: Result<Option<(&str, usize, bool)>, Malformed>) {
        let expected = expected.map(|whole| whole.map(|(data, rest, odd)| (data.as_bytes().to_vec(), rest, odd)));
        for cut in 0..=body.len() {
            assert_eq!(read(body.as_bytes(), cut), expected, "{body:?} cut at {cut}");
        }
    }

    #[test]
    fn usual_bodies_leave_the_connection_for_another_request() {
        for body in [
            "5\r\nhello\r\n0\r\n\r\n",
            "3\r\nhel\r\n02\r\nlo\r\n000\r\n\r\n",
            "5;a=b\r\nhello\r\n0;c=\"d e\"\r\n\r\n",
            "00000000000000000005\r\nhello\r\n0\r\n\r\n",
            "5\r\nhello\r\n0\r\nX_Any: a\r\nContent-Type: b\r\n\r\n",
        ] {
            check(body, Ok(Some(("hello", 0, false))));
            check(&format!("{body}HTTP"), Ok(Some(("hello", 4, false))));
        }
    }

    #[test]
    fn unusual_bodies_are_read_and_marked() {
        for body in [
            "5  \r\nhello\r\n0\r\n\r\n",
            "5\t\r\nhello\r\n0\r\n\r\n",
            "5 ; a=b\r\nhello\r\n0\r\n\r\n",
            "5\nhello\n0\n\n",
            "5\r\nhello\n0\r\n\r\n",
            "5;a=b\nhello\r\n0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\n",
            "5\r\nhello\r\n0\r\nX: a\n\r\n",
        ] {
            check(body, Ok(Some(("hello", 0, true))));
        }
        // A carriage return inside a trailer: the rest is not read.
        check("5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n", Ok(Some(("hello", 4, true))));
    }

    #[test]
    fn malformed_bodies_are_refused_and_short_ones_are_incomplete() {
        for body in [
            " 5\r\nhello\r\n0\r\n\r\n",
            "\r\n",
            ";a\r\n",
            "0x5\r\nhello",
            "+5\r\nhello",
            "5\r\nhello0\r\n",
            "5\r\nhello!\r\n",
            "5\rhello",
            "5 5\r\nhello",
            "5;a\rb\r\n",
            "5;a\0\r\n",
            "g\r\n",
            "10000000000000000\r\n",
        ] {
            check(body, Err(Malformed));
        }
        for body in ["", "5", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nX: a\r\n"] {
            check(body, Ok(None));
        }
    }

    #[test]
    fn size_lines_and_trailers_are_bounded() {
        let line = |bytes: usize| format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(bytes));
        assert!(read(line(LINE_BYTES_MAX - 4).as_bytes(), 0).is_ok_and(|whole| whole.is_some()));
        assert_eq!(read(line(LINE_BYTES_MAX).as_bytes(), 0), Err(Malformed));
        let endless = format!("5\r\nhello\r\n0\r\nX: {}", "a".repeat(TRAILERS_BYTES_MAX));
        let (data, _, unusual) = read(endless.as_bytes(), 0).unwrap().expect("the body is complete");
        assert_eq!((data.as_slice(), unusual), (&b"hello"[..], true));
    }
}
