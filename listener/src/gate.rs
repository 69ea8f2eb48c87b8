//! The gate of one HTTP/1 connection: what of the bytes that came may be read by whoever serves its requests.
//!
//! A head is released when all of it has passed the lint, a body byte when the framing says that it is data of the body;
//! the framing itself stays here. Bytes behind the end of a message are held until the response to that message is
//! complete; only then are they read as the next head. So nobody ever sees two messages at once, pipelined requests are
//! answered in order, and bytes sent early behind an `Upgrade` are a WebSocket's only when the upstream has agreed.
//!
//! Pure: no I/O, no time. The stream around it reads sockets and keeps deadlines. It holds at most one head and one
//! read's worth of bytes (`HELD_BYTES_MAX` beside the head's own limits).

use super::chunks::Chunks;
use super::head::{Framing, Head, HeadLimits, HeadReader};
use contract::rejection::Rejection;

/// Bytes the stream hands to [`Gate::feed`] at once, which is the most that can lie here behind a complete message.
pub(crate) const PIECE_BYTES_MAX: usize = 8 * 1024;

/// The most one read into the reader's own buffer may bring while chunks are read: what lies behind the body is held.
pub(crate) const HELD_BYTES_MAX: usize = 64 * 1024;

/// What the connection is in the middle of.
#[derive(Debug)]
enum Phase {
    /// Before a head: one empty line is skipped (RFC 9112 section 2.2). Old clients end a body with one.
    Rest,
    /// Waiting for a head, or in one.
    Head(HeadReader),
    /// In a body of which so many bytes are left.
    Length(u64),
    Chunked(Chunks),
    /// The message is complete, its response is not.
    Response,
    /// The upstream has switched protocols.
    Open,
    /// Something was refused; nothing is released any more.
    Shut,
}

/// What the stream should do next when nothing is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Feed bytes of a head. `begun` when some came already.
    Head { begun: bool },
    /// Bytes of a body: at most so many may be read straight into the reader's buffer and then passed.
    Body { most: usize },
    /// Nothing until the response is complete.
    Response,
    /// Anything, unread.
    Anything,
    /// Nothing any more.
    Nothing,
}

/// The framer and its held bytes.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: HeadLimits,
    phase: Phase,
    /// Bytes that came; those before `clean` may be read, those before `read` were.
    held: Vec<u8>,
    clean: usize,
    read: usize,
    /// The last head released.
    head: Option<Head>,
    /// Its bytes, while nobody has read it.
    head_bytes: usize,
}

impl Gate {
    pub(crate) fn new(limits: HeadLimits) -> Self {
        Self { limits, phase: Phase::Rest, held: Vec::new(), clean: 0, read: 0, head: None, head_bytes: 0 }
    }

    /// The head that waits to be read, and what it says.
    pub(crate) fn head(&self) -> Option<(&[u8], Head)> {
        let bytes = self.held.get(self.read..self.read + self.head_bytes).filter(|bytes| !bytes.is_empty())?;
        Some((bytes, self.head?))
    }

    /// The head was read.
    pub(crate) fn take_head(&mut self) {
        let bytes = std::mem::take(&mut self.head_bytes);
        self.consume(bytes);
    }

    /// Bytes of the body that may be read now, once the head was.
    pub(crate) fn ready(&self) -> &[u8] {
        self.held.get(self.read + self.head_bytes..self.clean).unwrap_or_default()
    }

    /// So many of the ready bytes were read.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.read = self.read.saturating_add(bytes).min(self.clean);
        if self.read == self.held.len() {
            // An idle connection keeps no buffer: there are many of them.
            self.held = Vec::new();
            self.read = 0;
            self.clean = 0;
        }
    }

    /// Whether the message is here to its last byte, read or not.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Response)
    }

    pub(crate) fn want(&self) -> Want {
        match &self.phase {
            Phase::Rest | Phase::Head(_) => Want::Head { begun: self.holds() },
            Phase::Length(left) => Want::Body { most: usize::try_from(*left).unwrap_or(usize::MAX) },
            Phase::Chunked(_) => Want::Body { most: HELD_BYTES_MAX },
            Phase::Response => Want::Response,
            Phase::Open => Want::Anything,
            Phase::Shut => Want::Nothing,
        }
    }

    /// Whether more of a body is to come.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.phase, Phase::Length(_) | Phase::Chunked(_))
    }

    /// Whether bytes lie here that nobody has read and nobody will, should the connection end now.
    pub(crate) fn leaves_bytes(&self) -> bool {
        self.read < self.held.len() || self.is_in_body() || matches!(self.phase, Phase::Shut)
    }

    /// Whether bytes of a later message lie here.
    pub(crate) fn holds(&self) -> bool {
        self.held_bytes() > 0
    }

    /// How many bytes lie here that nobody may read yet.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.len() - self.clean
    }

    /// The first line of what nobody has read, without its end: the request line of a refused message.
    pub(crate) fn first_line(&self) -> &[u8] {
        let unread = self.held.get(self.read..).unwrap_or_default();
        unread.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default()
    }

    /// Takes bytes from the client.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), Rejection> {
        if self.held.is_empty() {
            self.held.reserve_exact(piece.len().max(512));
        }
        self.held.extend_from_slice(piece);
        self.advance()
    }

    /// Takes bytes of a body that were read into the reader's buffer, when nothing was held and [`Want::Body`] asked for
    /// them. Says how many the reader has now, at the start of the piece; bytes behind the body are held here.
    pub(crate) fn pass(&mut self, piece: &mut [u8]) -> Result<usize, Rejection> {
        let (data, used) = self.unframe(piece).inspect_err(|_| self.phase = Phase::Shut)?;
        self.held.extend_from_slice(piece.get(used..).unwrap_or_default());
        Ok(data)
    }

    /// The response to the released message is complete: what lies here is the next message.
    pub(crate) fn response_complete(&mut self) -> Result<(), Rejection> {
        if self.is_whole() {
            // What was released is forgotten, read or not, so that a client that always pipelines does not make this grow.
            self.held.drain(..self.clean.min(self.held.len()));
            (self.clean, self.read, self.head_bytes) = (0, 0, 0);
            self.consume(0);
            self.phase = Phase::Rest;
            self.advance()?;
        }
        Ok(())
    }

    /// The upstream switched protocols: everything from here on belongs to it.
    pub(crate) fn open(&mut self) {
        if self.is_whole() && self.head.is_some_and(|head| head.websocket) {
            self.phase = Phase::Open;
            self.clean = self.held.len();
        }
    }

    fn advance(&mut self) -> Result<(), Rejection> {
        self.advance_to_end_of_message().inspect_err(|_| self.phase = Phase::Shut)
    }

    fn advance_to_end_of_message(&mut self) -> Result<(), Rejection> {
        loop {
            let fresh = self.held.get(self.clean..).unwrap_or_default();
            match &mut self.phase {
                Phase::Rest => match fresh {
                    [] | [b'\r'] => return Ok(()),
                    [b'\r', b'\n', ..] => {
                        // Nobody behind the gate sees it.
                        self.held.drain(self.clean..self.clean + 2);
                        self.consume(0);
                        self.phase = Phase::Head(HeadReader::default());
                    }
                    _ => self.phase = Phase::Head(HeadReader::default()),
                },
                Phase::Head(reader) => {
                    // Nothing read, nothing moved: the reader counts from the start of what is not released.
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
                    let mut held = std::mem::take(&mut self.held);
                    let unframed = self.unframe(held.get_mut(self.clean..).unwrap_or_default());
                    self.held = held;
                    let (data, used) = unframed?;
                    self.held.drain(self.clean + data..self.clean + used);
                    self.clean += data;
                    // A piece that was framing alone leaves no buffer behind either.
                    self.consume(0);
                }
                Phase::Open => {
                    self.clean = self.held.len();
                    return Ok(());
                }
                Phase::Response | Phase::Shut => return Ok(()),
            }
        }
    }

    /// Moves the data of the body to the start of the piece: how many bytes it has, and how many of the piece belong to the
    /// body with its framing; all of them unless it ends here.
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
