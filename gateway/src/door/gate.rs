//! The gate of one HTTP/1 connection: what of the bytes that came may be read by the proxy behind it.
//!
//! A head is released when all of it has passed the lint, a body byte when the framing says that it belongs to the body.
//! Bytes behind the end of a message are held until the response to that message is complete; only then are they read as
//! the next head. So the proxy never sees two messages at once, pipelined requests are answered in order, and bytes sent
//! early behind an `Upgrade` are a WebSocket's only when the upstream has agreed.
//!
//! Pure: no I/O, no time. The stream around it reads sockets and keeps deadlines. It holds at most one head and one
//! read's worth of bytes (`HELD_BYTES_MAX` beside the head's own limits).

use super::chunks::{Chunks, Progress};
use super::head::{Framing, Head, HeadLimits, HeadReader};
use crate::rejection::Rejection;

/// Bytes the stream hands to [`Gate::feed`] at once, which is the most that can lie here behind a complete message.
pub(crate) const PIECE_BYTES_MAX: usize = 8 * 1024;

/// The most one read into the proxy's own buffer may bring while chunks are read: what lies behind the body is held.
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
    /// Bytes of a body: at most so many may be read straight into the proxy's buffer and then passed.
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
    /// Bytes that came; those before `clean` may be read by the proxy, those before `read` were.
    held: Vec<u8>,
    clean: usize,
    read: usize,
    /// The last head released.
    head: Option<Head>,
    heads: u32,
}

impl Gate {
    pub(crate) fn new(limits: HeadLimits) -> Self {
        Self { limits, phase: Phase::Rest, held: Vec::new(), clean: 0, read: 0, head: None, heads: 0 }
    }

    /// Bytes the proxy may read now.
    pub(crate) fn ready(&self) -> &[u8] {
        self.held.get(self.read..self.clean).unwrap_or_default()
    }

    /// The proxy has read so many of the ready bytes.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.read = self.read.saturating_add(bytes).min(self.clean);
        if self.read == self.held.len() {
            // An idle connection keeps no buffer: there are many of them.
            self.held = Vec::new();
            self.read = 0;
            self.clean = 0;
        }
    }

    /// The last head released and what it says, while nobody has read of it, if no body follows.
    pub(crate) fn bare_head(&self) -> Option<(&[u8], Head)> {
        let head = self.head.filter(|head| head.framing == Framing::None)?;
        matches!(self.phase, Phase::Response).then(|| (self.ready(), head))
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

    /// Heads released so far.
    pub(crate) fn heads(&self) -> u32 {
        self.heads
    }

    /// Whether bytes lie here that nobody has read and nobody will, should the connection end now.
    pub(crate) fn leaves_bytes(&self) -> bool {
        self.read < self.held.len() || matches!(self.phase, Phase::Length(_) | Phase::Chunked(_) | Phase::Shut)
    }

    /// Whether bytes of a later message lie here.
    pub(crate) fn holds(&self) -> bool {
        self.clean < self.held.len()
    }

    /// The first line of what the proxy has not read, without its end: the request line of a refused message.
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

    /// Takes bytes of a body that were read into the proxy's buffer, when nothing was held and [`Want::Body`] asked for
    /// them. Says how many the proxy may keep; the others are held here.
    pub(crate) fn pass(&mut self, piece: &[u8]) -> Result<usize, Rejection> {
        let used = self.body_bytes(piece).inspect_err(|_| self.phase = Phase::Shut)?;
        let rest = piece.get(used..).unwrap_or_default();
        if !rest.is_empty() {
            self.held.extend_from_slice(rest);
        }
        Ok(used)
    }

    /// The response to the released message is complete: what lies here is the next message.
    pub(crate) fn response_complete(&mut self) -> Result<(), Rejection> {
        if matches!(self.phase, Phase::Response) {
            // What was read is forgotten, so that a client that always pipelines does not make this grow.
            self.held.drain(..self.read.min(self.held.len()));
            self.clean -= self.read;
            self.read = 0;
            self.phase = Phase::Rest;
            self.advance()?;
        }
        Ok(())
    }

    /// The upstream switched protocols: everything from here on belongs to it.
    pub(crate) fn open(&mut self) {
        if matches!(self.phase, Phase::Response) && self.head.is_some_and(|head| head.websocket) {
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
                    self.heads = self.heads.wrapping_add(1);
                    self.head = Some(head);
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
                    let piece = std::mem::take(&mut self.held);
                    let used = self.body_bytes(piece.get(self.clean..).unwrap_or_default());
                    self.held = piece;
                    self.clean += used?;
                }
                Phase::Open => {
                    self.clean = self.held.len();
                    return Ok(());
                }
                Phase::Response | Phase::Shut => return Ok(()),
            }
        }
    }

    /// How many of the bytes belong to the body; all of them unless it ends here.
    fn body_bytes(&mut self, piece: &[u8]) -> Result<usize, Rejection> {
        let (used, done) = match &mut self.phase {
            Phase::Length(left) => {
                let used = usize::try_from(*left).unwrap_or(usize::MAX).min(piece.len());
                *left -= used as u64;
                (used, *left == 0)
            }
            Phase::Chunked(chunks) => match chunks.push(piece)? {
                Progress::More => (piece.len(), false),
                Progress::Done(used) => (used, true),
            },
            _ => (0, false),
        };
        if done {
            self.phase = Phase::Response;
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests;
