//! Validates a request head: raw bytes in, one meaning or one refusal out.
//!
//! Tenants of this edge do not trust each other. Therefore a head that two servers could read differently is refused
//! here, before any other parser sees it. An accepted head has exactly one request line, CRLF line ends, token names,
//! one well-formed Host and one statement of the body's length; a lenient and a strict parser agree about it.
//!
//! The pipeline decides which methods, paths and hosts exist: `TRACE /` and `DELETE /nowhere` are valid heads here.
//! HTTP/2 requests follow the same rules (`judge`), so both versions accept and refuse the same requests.
//!
//! This module does not allocate or wait, keeps only a few counters, and depends on nothing.

pub(crate) mod bytes;
mod fields;
mod host;
mod line;
mod scan;
mod target;
#[cfg(test)]
mod vectors;

use pingora_http::RequestHeader;

use self::fields::Fields;
use self::line::RequestLine;
use self::scan::{Scan, Scanned};
pub use self::target::has_dot_segments;
use contract::rejection::Rejection;

/// Size limits of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the request target; more is 414. Default 8 KiB.
    pub target_bytes: usize,
    /// Bytes of all field lines with their line ends; more is 431. Default 32 KiB.
    pub fields_bytes: usize,
    /// Bytes of one field line without its line end; more is 431. Default 8 KiB.
    pub field_bytes: usize,
    /// Field lines; more is 431. Default 100, which is also what common HTTP servers behind the edge accept.
    pub fields: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { target_bytes: 8 * 1024, fields_bytes: 32 * 1024, field_bytes: 8 * 1024, fields: 100 }
    }
}

/// How the end of the body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body follows.
    None,
    /// Exactly this many bytes follow; zero is possible.
    Length(u64),
    /// Chunks follow.
    Chunked,
}

/// The facts in an accepted head about the message and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How the body ends.
    pub framing: Framing,
    /// The client waits for `100 Continue` before it sends the body. Never on HTTP/1.0, where the expectation is
    /// ignored.
    pub expects_continue: bool,
    /// The client asks to switch to WebSocket: `Upgrade: websocket` on HTTP/1.1, without a body. The caller checks that
    /// `Connection` lists `upgrade`.
    pub websocket: bool,
    /// The client wants to reuse the connection.
    pub keep_alive: bool,
}

/// Reads one head as its bytes arrive. The result depends only on the bytes, not on how they were split.
#[derive(Debug, Default)]
pub struct HeadReader {
    scan: Scan,
    /// Bytes of the buffer that were scanned.
    scanned: usize,
    /// The end of the request line (after its CRLF), and the parsed line.
    line: Option<(usize, RequestLine)>,
}

impl HeadReader {
    /// Scans `buffer`, which starts at the head's first byte and only grows between calls. `Some` holds the length of
    /// the head, blank line included, and its meaning; `None` asks for more bytes.
    pub fn advance(&mut self, buffer: &[u8], limits: &HeadLimits) -> Result<Option<(usize, Head)>, Rejection> {
        loop {
            let fresh = buffer.get(self.scanned..).unwrap_or_default();
            let scanned = self.scan.push(fresh, limits).map_err(|rejection| match rejection {
                Rejection::UriTooLong => line::too_long(buffer),
                other => other,
            });
            match scanned? {
                Scanned::More => {
                    self.scanned = buffer.len();
                    return Ok(None);
                }
                // The request line is checked as soon as it is complete: a client of another protocol, or of HTTP/0.9,
                // waits for an answer and would never send the rest.
                Scanned::RequestLine(bytes) => {
                    self.scanned += bytes;
                    let line = buffer.get(..self.scanned.saturating_sub(2)).unwrap_or_default();
                    self.line = Some((self.scanned, line::parse(line, limits)?));
                }
                Scanned::End(bytes) => {
                    self.scanned += bytes;
                    let (start, line) = self.line.as_ref().ok_or(Rejection::BadRequest)?;
                    let fields = buffer.get(*start..self.scanned.saturating_sub(2)).unwrap_or_default();
                    let target = buffer.get(..*start).unwrap_or_default();
                    let head = Fields::read(fields)?.judge(line, target, limits)?;
                    return Ok(Some((self.scanned, head)));
                }
            }
        }
    }
}

/// Checks a head that HTTP/2 delivered, by the rules for HTTP/1 lines.
pub fn judge(head: &RequestHeader, body_follows: bool, limits: &HeadLimits) -> Result<Head, Rejection> {
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target = match head.uri.path_and_query() {
        _ if head.method == http::Method::CONNECT => authority.unwrap_or_default(),
        Some(target) => target.as_str().as_bytes(),
        None => b"/",
    };
    let line = line::judge(head.method.as_str().as_bytes(), target, limits)?;
    Fields::read_map(authority, &head.headers, body_follows, limits)?.judge(&line, &[], limits)
}

/// Whether a target is valid for this method.
pub(crate) fn judge_target(method: &[u8], target: &[u8]) -> Result<(), Rejection> {
    target::check(method, target).map(|_| ())
}

/// Checks one complete head, blank line included. A head that ends early, or has bytes after it, is a bad request.
pub fn lint(head: &[u8], limits: &HeadLimits) -> Result<Head, Rejection> {
    match HeadReader::default().advance(head, limits)? {
        Some((length, meaning)) if length == head.len() => Ok(meaning),
        Some(_) | None => Err(Rejection::BadRequest),
    }
}
