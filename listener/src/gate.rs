//! The gate of one HTTP/1 connection: decides which received bytes the request handler may read.
//!
//! It releases a head when the whole head is valid, and a body byte when the framing says that it is body data; framing
//! bytes are removed. Bytes after the end of a message are buffered until the response to that message is complete, and
//! then read as the next head. So a handler never sees two messages at once, pipelined requests are answered in order,
//! and bytes sent early after an `Upgrade` belong to the WebSocket only if the upstream agreed.
//!
//! Pure: no I/O, no time. The stream around it reads sockets and keeps deadlines. The gate buffers at most one head and
//! the bytes of one read (`BUFFERED_BYTES_MAX` beside the head's own limits).

use super::chunks::Chunks;
use super::head::{Framing, Head, HeadLimits, HeadReader};
use contract::rejection::Rejection;

/// Bytes per call of [`Gate::feed`], and so the most that can be buffered after a complete message.
pub(crate) const PIECE_BYTES_MAX: usize = 8 * 1024;

/// The most bytes per read into the handler's buffer while chunks are read: bytes after the body are buffered.
pub(crate) const BUFFERED_BYTES_MAX: usize = 64 * 1024;

/// The state of the connection.
#[derive(Debug)]
enum Phase {
    /// Before a head: one empty line is skipped (RFC 9112 section 2.2). Old clients send one after a body.
    Idle,
    /// Waiting for a head, or inside one.
    Head(HeadReader),
    /// In a body; this many bytes are left.
    Length(u64),
    Chunked(Chunks),
    /// The message is complete, its response is not.
    Response,
    /// The upstream has switched protocols.
    Open,
    /// A message was refused; nothing more is released.
    Shut,
}

/// The next step of the stream when nothing can be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRead {
    /// Feed bytes of a head. `begun`: some bytes of it have arrived.
    Head { begun: bool },
    /// Read body bytes: at most `most` straight into the handler's buffer, then pass them.
    Body { most: usize },
    /// Wait until the response is complete.
    Response,
    /// Read anything, unchecked.
    Anything,
    /// Stop reading.
    Nothing,
}

/// The framing state and the buffered bytes.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: HeadLimits,
    phase: Phase,
    /// Received bytes. Those before `clean` may be read; those before `read` were read.
    buffer: Vec<u8>,
    clean: usize,
    read: usize,
    /// The last released head.
    head: Option<Head>,
    /// Length of that head, until it is read.
    head_bytes: usize,
}

impl Gate {
    pub(crate) fn new(limits: HeadLimits) -> Self {
        Self { limits, phase: Phase::Idle, buffer: Vec::new(), clean: 0, read: 0, head: None, head_bytes: 0 }
    }

    /// The head that is ready, and its meaning.
    pub(crate) fn head(&self) -> Option<(&[u8], Head)> {
        let bytes = self.buffer.get(self.read..self.read + self.head_bytes).filter(|bytes| !bytes.is_empty())?;
        Some((bytes, self.head?))
    }

    /// Marks the head as read.
    pub(crate) fn take_head(&mut self) {
        let bytes = std::mem::take(&mut self.head_bytes);
        self.consume(bytes);
    }

    /// Body bytes that may be read now, after the head.
    pub(crate) fn ready(&self) -> &[u8] {
        self.buffer.get(self.read + self.head_bytes..self.clean).unwrap_or_default()
    }

    /// Marks `bytes` of the ready bytes as read.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.read = self.read.saturating_add(bytes).min(self.clean);
        if self.read == self.buffer.len() {
            // An idle connection keeps no buffer, because there are many of them.
            self.buffer = Vec::new();
            self.read = 0;
            self.clean = 0;
        }
    }

    /// Whether the last byte of the message has arrived, read or not.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Response)
    }

    pub(crate) fn want(&self) -> NextRead {
        match &self.phase {
            Phase::Idle | Phase::Head(_) => NextRead::Head { begun: self.has_later_bytes() },
            Phase::Length(left) => NextRead::Body { most: usize::try_from(*left).unwrap_or(usize::MAX) },
            Phase::Chunked(_) => NextRead::Body { most: BUFFERED_BYTES_MAX },
            Phase::Response => NextRead::Response,
            Phase::Open => NextRead::Anything,
            Phase::Shut => NextRead::Nothing,
        }
    }

    /// Whether more of a body is expected.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.phase, Phase::Length(_) | Phase::Chunked(_))
    }

    /// Whether received bytes would stay unread if the connection ended now.
    pub(crate) fn leaves_bytes(&self) -> bool {
        self.read < self.buffer.len() || self.is_in_body() || matches!(self.phase, Phase::Shut)
    }

    /// Whether bytes of a later message are buffered.
    pub(crate) fn has_later_bytes(&self) -> bool {
        self.buffered_bytes() > 0
    }

    /// Number of buffered bytes that may not be read yet.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffer.len() - self.clean
    }

    /// The first line of the unread bytes, without its end: the request line of a refused message.
    pub(crate) fn first_line(&self) -> &[u8] {
        let unread = self.buffer.get(self.read..).unwrap_or_default();
        unread.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default()
    }

    /// Takes bytes from the client.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), Rejection> {
        if self.buffer.is_empty() {
            self.buffer.reserve_exact(piece.len().max(512));
        }
        self.buffer.extend_from_slice(piece);
        self.advance()
    }

    /// Takes body bytes that were read into the handler's buffer, as [`NextRead::Body`] says while nothing is buffered
    /// here. Moves the body data to the start of the piece and returns its length; bytes after the body are buffered.
    pub(crate) fn pass(&mut self, piece: &mut [u8]) -> Result<usize, Rejection> {
        let (data, used) = self.unframe(piece).inspect_err(|_| self.phase = Phase::Shut)?;
        self.buffer.extend_from_slice(piece.get(used..).unwrap_or_default());
        Ok(data)
    }

    /// The response to the released message is complete: the buffered bytes are the next message.
    pub(crate) fn response_complete(&mut self) -> Result<(), Rejection> {
        if self.is_whole() {
            // Released bytes are dropped, read or not, so that a client that always pipelines does not make the buffer
            // grow.
            self.buffer.drain(..self.clean.min(self.buffer.len()));
            (self.clean, self.read, self.head_bytes) = (0, 0, 0);
            self.consume(0);
            self.phase = Phase::Idle;
            self.advance()?;
        }
        Ok(())
    }

    /// The upstream switched protocols: all later bytes belong to it.
    pub(crate) fn open(&mut self) {
        if self.is_whole() && self.head.is_some_and(|head| head.websocket) {
            self.phase = Phase::Open;
            self.clean = self.buffer.len();
        }
    }

    fn advance(&mut self) -> Result<(), Rejection> {
        self.advance_to_end_of_message().inspect_err(|_| self.phase = Phase::Shut)
    }

    fn advance_to_end_of_message(&mut self) -> Result<(), Rejection> {
        loop {
            let fresh = self.buffer.get(self.clean..).unwrap_or_default();
            match &mut self.phase {
                Phase::Idle => match fresh {
                    [] | [b'\r'] => return Ok(()),
                    [b'\r', b'\n', ..] => {
                        // The empty line is removed, so no handler sees it.
                        self.buffer.drain(self.clean..self.clean + 2);
                        self.consume(0);
                        self.phase = Phase::Head(HeadReader::default());
                    }
                    _ => self.phase = Phase::Head(HeadReader::default()),
                },
                Phase::Head(reader) => {
                    // Nothing is read or moved here: the reader counts from the start of the unreleased bytes.
                    let Some((bytes, head)) = reader.advance(fresh, &self.limits)? else {
                        return Ok(());
                    };
                    self.clean += bytes;
                    (self.head, self.head_bytes) = (Some(head), bytes);
                    self.phase = match head.framing {
                        Framing::None | Framing::Length(0) => Phase::Response,
                        Framing::Length(bytes) => Phase::Length(bytes),
                        Framing::Chunked => Phase::Chunked(Chunks::default()),
                    };
                }
                Phase::Length(_) | Phase::Chunked(_) => {
                    if fresh.is_empty() {
                        return Ok(());
                    }
                    let mut buffer = std::mem::take(&mut self.buffer);
                    let unframed = self.unframe(buffer.get_mut(self.clean..).unwrap_or_default());
                    self.buffer = buffer;
                    let (data, used) = unframed?;
                    self.buffer.drain(self.clean + data..self.clean + used);
                    self.clean += data;
                    // A piece that contained only framing leaves no buffer either.
                    self.consume(0);
                }
                Phase::Open => {
                    self.clean = self.buffer.len();
                    return Ok(());
                }
                Phase::Response | Phase::Shut => return Ok(()),
            }
        }
    }

    /// Moves the body data to the start of the piece. Returns the length of the data, and how many bytes of the piece
    /// belong to the body including its framing: all of them, unless the body ends here.
    fn unframe(&mut self, piece: &mut [u8]) -> Result<(usize, usize), Rejection> {
        let (data, used, done) = match &mut self.phase {
            Phase::Length(left) => {
                let used = usize::try_from(*left).unwrap_or(usize::MAX).min(piece.len());
                *left -= used as u64;
                (used, used, *left == 0)
            }
            Phase::Chunked(chunks) => {
                let (mut data, mut used) = (0, 0);
                while used < piece.len() && !chunks.is_done() {
                    let (read, fresh) = chunks.run(piece.get(used..).unwrap_or_default())?;
                    used += read;
                    piece.copy_within(used - fresh..used, data);
                    data += fresh;
                }
                (data, used, chunks.is_done())
            }
            _ => (0, 0, false),
        };
        if done {
            self.phase = Phase::Response;
        }
        Ok((data, used))
    }
}

#[cfg(test)]
mod tests;
