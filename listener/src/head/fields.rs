//! Field lines: their syntax, and the combined meaning of the framing, routing and connection fields.

use http::{HeaderMap, header};

use super::bytes::{is_token, trim};
use super::line::RequestLine;
use super::{Framing, Head, HeadLimits, host};
use crate::HEALTH_PATH;
use crate::fields::may_be_nominated;
use contract::rejection::Rejection;

/// Names that `Connection` may list; no client needs more than close, te, and upgrade with its settings.
const NOMINATIONS_MAX: usize = 8;

/// Splits one line without its CRLF into name and trimmed value; refuses a malformed line.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Rejection> {
    // No token contains a colon, so the name ends at the first byte outside of a token, which must be the colon.
    let name_bytes = line.iter().position(|byte| !is_token(*byte)).ok_or(Rejection::BadRequest)?;
    let (name, value) = line.split_at_checked(name_bytes).ok_or(Rejection::BadRequest)?;
    let Some(value) = value.strip_prefix(b":").filter(|_| !name.is_empty()) else {
        return Err(Rejection::BadRequest);
    };
    Ok((name, trim(value)))
}

/// Bytes of a field line beside its name and value, as most clients write it: colon, space, line end.
const LINE_BYTES: usize = ": \r\n".len();

/// Counts the size that fields would have as lines.
struct Size<'a> {
    limits: &'a HeadLimits,
    fields: usize,
    bytes: usize,
}

impl Size<'_> {
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), Rejection> {
        let line = name.len() + value.len() + LINE_BYTES;
        self.fields += 1;
        self.bytes += line;
        let fits = line - "\r\n".len() <= self.limits.field_bytes
            && self.fields <= self.limits.fields
            && self.bytes <= self.limits.fields_bytes;
        if fits { Ok(()) } else { Err(Rejection::HeadersTooLarge) }
    }
}

/// The fields that matter for framing, routing and the connection.
#[derive(Debug, Default)]
pub(super) struct Fields<'head> {
    host: Option<&'head [u8]>,
    length: Option<u64>,
    coding: Option<&'head [u8]>,
    expect: Option<&'head [u8]>,
    upgrade: Option<&'head [u8]>,
    connection: ConnectionField,
    /// Bytes of all cookies together: an upstream receives them in one field.
    cookie_bytes: usize,
}

/// The names in `Connection`.
#[derive(Debug, Default)]
struct ConnectionField {
    close: bool,
    keep_alive: bool,
    names: usize,
}

impl<'head> Fields<'head> {
    /// Reads all field lines. `lines` ends with the CRLF of the last one; the scan has checked that every line end is
    /// CRLF and that there are no control bytes.
    pub(super) fn read(lines: &'head [u8]) -> Result<Self, Rejection> {
        let mut fields = Self::default();
        let mut rest = lines;
        while let Some(end) = memchr::memchr(b'\r', rest) {
            let (line, tail) = rest.split_at_checked(end).ok_or(Rejection::BadRequest)?;
            rest = tail.strip_prefix(b"\r\n").ok_or(Rejection::BadRequest)?;
            let (name, value) = field(line)?;
            fields.add(name, value)?;
        }
        if rest.is_empty() { Ok(fields) } else { Err(Rejection::BadRequest) }
    }

    /// Reads the fields of HTTP/2, where `:authority` replaces Host and no field frames the body except its length.
    pub(super) fn read_map(
        authority: Option<&'head [u8]>,
        headers: &'head HeaderMap,
        body_follows: bool,
        limits: &HeadLimits,
    ) -> Result<Self, Rejection> {
        let (mut fields, mut size) = (Self::default(), Size { limits, fields: 0, bytes: 0 });
        if let Some(authority) = authority {
            size.add(b"host", authority)?;
            fields.add(b"host", authority)?;
        }
        for (name, value) in headers {
            if *name == header::HOST && authority.is_some() {
                continue;
            }
            let value = trim(value.as_bytes());
            size.add(name.as_str().as_bytes(), value)?;
            fields.add(name.as_str().as_bytes(), value)?;
        }
        if body_follows && fields.length.is_none() {
            fields.coding = Some(b"chunked");
        }
        Ok(fields)
    }

    fn add(&mut self, name: &'head [u8], value: &'head [u8]) -> Result<(), Rejection> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is(b"host") => {
                host::check(value)?;
                once(&mut self.host, value, Rejection::BadHost)
            }
            6 if is(b"cookie") => {
                self.cookie_bytes += value.len() + "; ".len();
                Ok(())
            }
            6 if is(b"expect") => once(&mut self.expect, value, Rejection::ExpectationFailed),
            7 if is(b"upgrade") => once(&mut self.upgrade, value, Rejection::BadRequest),
            10 if is(b"connection") => self.connection.read(value),
            14 if is(b"content-length") => once(&mut self.length, length(value)?, Rejection::BadFraming),
            17 if is(b"transfer-encoding") => once(&mut self.coding, value, Rejection::BadFraming),
            // Some servers treat these spellings as framing fields.
            14 if is(b"content_length") => Err(Rejection::UnderscoreHeader),
            17 if is(b"transfer_encoding") => Err(Rejection::UnderscoreHeader),
            _ => Ok(()),
        }
    }

    /// Combines the fields into the meaning of the head. The ranges of `line` point into `line_bytes`.
    pub(super) fn judge(&self, line: &RequestLine, line_bytes: &[u8], limits: &HeadLimits) -> Result<Head, Rejection> {
        if self.cookie_bytes > limits.field_bytes {
            return Err(Rejection::HeadersTooLarge);
        }
        let framing = self.framing(line)?;
        // Without Host there is no tenant. Only health checks of the gateway may omit it.
        if self.host.is_none() && (line.http_1_1 || !is_health_check(line_bytes)) {
            return Err(Rejection::BadHost);
        }
        // RFC 9112 section 3.2.2 prefers the target; a request with two different hosts is refused instead.
        if line.authority.clone().is_some_and(|range| line_bytes.get(range) != self.host) {
            return Err(Rejection::BadHost);
        }
        let has_body = !matches!(framing, Framing::None | Framing::Length(0));
        let expects_continue = match self.expect {
            None => false,
            // RFC 9110 section 10.1.1: expectations ignore case.
            Some(expect) if !expect.eq_ignore_ascii_case(b"100-continue") => return Err(Rejection::ExpectationFailed),
            // An HTTP/1.0 expectation is ignored.
            Some(_) if !line.http_1_1 => false,
            // Upload clients also send it with an empty file. It is refused only if no body is announced.
            Some(_) if framing == Framing::None => return Err(Rejection::ExpectationFailed),
            Some(_) => has_body,
        };
        let websocket = line.http_1_1 && self.upgrade.is_some_and(|name| name.eq_ignore_ascii_case(b"websocket"));
        // With a body, it would be ambiguous which bytes are the body and which are WebSocket frames.
        if websocket && has_body {
            return Err(Rejection::BodyNotAllowed);
        }
        Ok(Head {
            framing,
            expects_continue,
            websocket,
            keep_alive: !self.connection.close && (line.http_1_1 || self.connection.keep_alive),
        })
    }

    fn framing(&self, line: &RequestLine) -> Result<Framing, Rejection> {
        match (self.length, self.coding) {
            (None, None) => Ok(Framing::None),
            (Some(bytes), None) => Ok(Framing::Length(bytes)),
            (None, Some(coding)) if line.http_1_1 && coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            // A single other coding is 501; anything that resembles `chunked` is 400.
            (None, Some(coding)) if line.http_1_1 && is_other_coding(coding) => Err(Rejection::NotImplemented),
            (_, Some(_)) => Err(Rejection::BadFraming),
        }
    }
}

impl ConnectionField {
    fn read(&mut self, list: &[u8]) -> Result<(), Rejection> {
        for name in list.split(|byte| *byte == b',').map(trim).filter(|name| !name.is_empty()) {
            self.names += 1;
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            if self.names > NOMINATIONS_MAX || !std::str::from_utf8(name).is_ok_and(may_be_nominated) {
                return Err(Rejection::BadConnectionHeader);
            }
            self.close |= is(b"close");
            self.keep_alive |= is(b"keep-alive");
        }
        Ok(())
    }
}

/// Whether a request line asks for the gateway's health.
fn is_health_check(line: &[u8]) -> bool {
    line.split(|byte| *byte == b' ').nth(1) == Some(HEALTH_PATH.as_bytes())
}

fn once<T>(slot: &mut Option<T>, value: T, repeated: Rejection) -> Result<(), Rejection> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(repeated),
    }
}

/// Parses a canonical decimal: no sign, no leading zero, no list, no blank, at most 19 digits and below 2^63, so that
/// no integer type of an upstream overflows.
fn length(value: &[u8]) -> Result<u64, Rejection> {
    let canonical = match value {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => value.len() <= 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return Err(Rejection::BadFraming);
    }
    let bytes = value.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    if bytes > i64::MAX.unsigned_abs() { Err(Rejection::BadFraming) } else { Ok(bytes) }
}

/// Whether `coding` is a single token that does not contain `chunked` in any case.
fn is_other_coding(coding: &[u8]) -> bool {
    !coding.is_empty()
        && coding.iter().all(|byte| is_token(*byte))
        && !coding.windows(b"chunked".len()).any(|part| part.eq_ignore_ascii_case(b"chunked"))
}
