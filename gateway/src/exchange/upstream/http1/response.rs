//! The head of an upstream's response: its syntax, where its body ends, and the fields that go on to the client.
//!
//! RFC 9112: a space before a colon and folded lines are mended (sections 5.1 and 5.2), a coding goes before a length and
//! ends the connection (section 6.3), lengths that contradict each other or are no numbers are no response.

use std::mem::MaybeUninit;
use std::time::Duration;

use http::StatusCode;
use pingora::ErrorType::InvalidHTTPHeader;

use super::framing::Framing;
use crate::decorate::{PresentFields, ResponseSink};
use crate::exchange::upstream::ResponseHead;
use crate::upstreams::announces_body;
use listener::chunks::Chunks;
use listener::fields::may_stand_in_response;

/// The most field lines of a response.
const FIELDS_MAX: usize = 256;

/// A head that was read.
#[derive(Debug)]
pub(in crate::exchange) struct Parsed {
    pub(in crate::exchange) head: ResponseHead,
    /// Its bytes, blank line included.
    pub(in crate::exchange) bytes: usize,
    pub(super) framing: Framing,
    /// Whether the upstream takes another request on the connection once the body is there.
    pub(super) reusable: bool,
    /// How long it may be kept for one.
    pub(super) good_for: Duration,
}

/// What the fields say together about the body and the connection.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    coded: bool,
    close: bool,
    keep_alive: bool,
    /// Seconds for which the upstream keeps a connection that rests, where it says so.
    kept: Option<u64>,
    present: PresentFields,
}

/// Reads the head at the start of `buffer`, and writes its first line and the fields that go on to `out`. `None` asks for
/// more bytes, and has written nothing.
///
/// # Errors
/// When it is no head, or one that says two things about its body.
pub(in crate::exchange) fn read(
    buffer: &[u8],
    to_head: bool,
    is_removed: impl Fn(&str) -> bool,
    out: &mut impl ResponseSink,
) -> pingora::Result<Option<Parsed>> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .parse_response_with_uninit_headers(&mut response, buffer, &mut fields);
    let bytes = match parsed {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return wrong("the head of a response that is none"),
    };
    let (Some(code), Some(version)) = (response.code, response.version) else {
        return wrong("a head without a status");
    };
    let Ok(status) = StatusCode::from_u16(code) else { return wrong("a status out of range") };
    let (said, fields_bytes) = framing_fields(response.headers)?;
    let framing = framing(&said, status, version, to_head)?;
    write(&response, status, &said, &framing, &is_removed, out)?;
    let stays = if version == 1 { !said.close } else { said.keep_alive && !said.close };
    let ambiguous =
        said.coded && said.length.is_some() || framing == Framing::None && announces_body(said.length, said.coded);
    let reusable = stays && !ambiguous && framing != Framing::End;
    // A second less, so that no request meets the end on its way.
    let good_for = said.kept.map_or(Duration::MAX, |kept| Duration::from_secs(kept.saturating_sub(1)));
    let (ends, chunked) = (framing.is_done(), framing.is_chunked());
    let head = ResponseHead { status, fields_bytes, ends, chunked, present: said.present, grpc_status: None };
    Ok(Some(Parsed { head, bytes, framing, reusable, good_for }))
}

/// Looks at the fields that frame the body; how many bytes all fields have.
fn framing_fields(fields: &[httparse::Header<'_>]) -> pingora::Result<(Said, usize)> {
    let (mut said, mut bytes) = (Said::default(), 0);
    for field in fields {
        bytes += field.name.len() + field.value.len() + 4;
        said.present.record(field.name);
        if field.name.eq_ignore_ascii_case("content-length") {
            said.length = length(said.length, field.value)?;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if said.coded || !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return wrong("a transfer coding that nobody asked for");
            }
            said.coded = true;
        } else if field.name.eq_ignore_ascii_case("keep-alive") {
            said.kept = options(field.value).find_map(|option| number(option.strip_prefix("timeout=")?.as_bytes()));
        } else if field.name.eq_ignore_ascii_case("connection") {
            for option in options(field.value) {
                said.close |= option.eq_ignore_ascii_case("close");
                said.keep_alive |= option.eq_ignore_ascii_case("keep-alive");
            }
        }
    }
    Ok((said, bytes))
}

/// The length that a `Content-Length` field gives, after the fields before it gave `earlier`.
///
/// # Errors
/// When one is no number, or they contradict each other (RFC 9110 section 8.6).
pub(in crate::exchange) fn length(earlier: Option<u64>, field: &[u8]) -> pingora::Result<Option<u64>> {
    let mut length = earlier;
    for one in field.split(|byte| *byte == b',') {
        let number = number(one.trim_ascii());
        if number.is_none() || length.is_some() && length != number {
            return wrong("a length is no number, or lengths contradict each other");
        }
        length = number;
    }
    Ok(length)
}

fn framing(said: &Said, status: StatusCode, version: u8, to_head: bool) -> pingora::Result<Framing> {
    if said.coded && version == 0 {
        return wrong("chunks of HTTP/1.0");
    }
    let bodiless = to_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::SWITCHING_PROTOCOLS);
    Ok(match (bodiless, said.coded, said.length) {
        (true, ..) => Framing::None,
        (false, true, _) => Framing::Chunked(Chunks::default()),
        (false, false, Some(length)) => Framing::Length(length),
        (false, false, None) => Framing::End,
    })
}

fn write(
    response: &httparse::Response<'_, '_>,
    status: StatusCode,
    said: &Said,
    framing: &Framing,
    is_removed: &impl Fn(&str) -> bool,
    out: &mut impl ResponseSink,
) -> pingora::Result<()> {
    let reason = response.reason.filter(|reason| !reason.is_empty());
    out.status(status, reason.or(status.canonical_reason()).unwrap_or_default())?;
    let connections = || response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
    let has_options = connections().next().is_some();
    let is_named =
        |name: &str| connections().any(|field| options(field.value).any(|option| option.eq_ignore_ascii_case(name)));
    for field in response.headers.iter() {
        // A switch of protocols is the one thing that two connections agree on through us.
        let agreed = status == StatusCode::SWITCHING_PROTOCOLS && field.name.eq_ignore_ascii_case("upgrade");
        // The length is written anew.
        let goes_on = may_stand_in_response(field.name) && !field.name.eq_ignore_ascii_case("content-length");
        let stays_behind = !goes_on || is_removed(field.name) || has_options && is_named(field.name);
        if stays_behind && !agreed {
            continue;
        }
        if memchr::memchr2(b'\r', b'\n', field.value).is_none() {
            out.field(field.name, field.value)?;
        } else {
            // A folded line: what stood between its parts becomes one space.
            let parts = field.value.split(|byte| matches!(byte, b'\r' | b'\n')).map(<[u8]>::trim_ascii);
            let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
            out.field(field.name, &parts.join(&b' '))?;
        }
    }
    // A response to HEAD, and a 304, may say how long the body would be.
    let length = said.length.filter(|_| !said.coded && !status.is_informational() && status != StatusCode::NO_CONTENT);
    match (framing, length) {
        (_, Some(length)) => out.figure("Content-Length", length),
        (Framing::Chunked(_) | Framing::End, None) => out.field("Transfer-Encoding", b"chunked"),
        (Framing::None | Framing::Length(_), None) => Ok(()),
    }
}

/// The members of a `Connection` field that are text.
fn options(value: &[u8]) -> impl Iterator<Item = &str> {
    value.split(|byte| *byte == b',').filter_map(|one| std::str::from_utf8(one.trim_ascii()).ok())
}

/// Digits and nothing else, fewer than a 64-bit number could overflow with.
fn number(text: &[u8]) -> Option<u64> {
    let digits = (1..=19).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

fn wrong<T>(why: &'static str) -> pingora::Result<T> {
    Err(pingora::Error::explain(InvalidHTTPHeader, why).into_up())
}

#[cfg(test)]
mod tests;
