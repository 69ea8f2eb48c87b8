//! The head of an upstream's response: its syntax, the framing of its body, and the fields that the client gets.
//!
//! RFC 9112: a space before a colon and folded lines are corrected (sections 5.1 and 5.2). A transfer coding overrides
//! a length, and the connection is not reused (section 6.3). Malformed or contradictory lengths are an error.

use std::mem::MaybeUninit;
use std::time::Duration;

use http::StatusCode;
use pingora::ErrorType::InvalidHTTPHeader;

use super::chunks::ChunkedBody;
use super::framing::Framing;
use crate::decorate::{PresentFields, ResponseSink};
use crate::exchange::upstream::ResponseHead;
use listener::fields::may_stand_in_response;
use upstreams::announces_body;

/// The most field lines of a response.
const FIELDS_MAX: usize = 256;

/// A parsed head.
#[derive(Debug)]
pub(in crate::exchange) struct Parsed {
    pub(in crate::exchange) head: ResponseHead,
    /// Its bytes, including the blank line.
    pub(in crate::exchange) bytes: usize,
    pub(super) framing: Framing,
    /// Whether the upstream accepts another request on the connection after the body.
    pub(super) reusable: bool,
    /// How long it may be kept idle.
    pub(super) good_for: Duration,
}

/// The fields about the body and the connection.
#[derive(Default)]
struct FramingFields {
    length: Option<u64>,
    coded: bool,
    close: bool,
    keep_alive: bool,
    /// Seconds for which the upstream keeps an idle connection, if it says so.
    keep_alive_seconds: Option<u64>,
    present: PresentFields,
}

/// Parses the head at the start of `buffer`, and writes its status and the forwarded fields to `out`. `None` if the
/// head is incomplete; nothing is written then.
///
/// # Errors
/// If the head is malformed or contradicts itself about its body.
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
        Err(_) => return wrong("the head of the response is malformed"),
    };
    let (Some(code), Some(version)) = (response.code, response.version) else {
        return wrong("the response has no status");
    };
    let Ok(status) = StatusCode::from_u16(code) else { return wrong("the status is out of range") };
    let (info, fields_bytes) = framing_fields(response.headers)?;
    let framing = framing(&info, status, version, to_head)?;
    write(&response, status, &info, &framing, &is_removed, out)?;
    let stays = if version == 1 { !info.close } else { info.keep_alive && !info.close };
    let ambiguous =
        info.coded && info.length.is_some() || framing == Framing::None && announces_body(info.length, info.coded);
    let reusable = stays && !ambiguous && framing != Framing::End;
    // A second less, so that no request is sent while the upstream closes.
    let good_for = info.keep_alive_seconds.map_or(Duration::MAX, |kept| Duration::from_secs(kept.saturating_sub(1)));
    let (ends, chunked) = (framing.is_done(), framing.is_chunked());
    let head = ResponseHead { status, fields_bytes, ends, chunked, present: info.present, grpc_status: None };
    Ok(Some(Parsed { head, bytes, framing, reusable, good_for }))
}

/// Reads the fields that frame the body; returns the bytes of all fields too.
fn framing_fields(fields: &[httparse::Header<'_>]) -> pingora::Result<(FramingFields, usize)> {
    let (mut info, mut bytes) = (FramingFields::default(), 0);
    for field in fields {
        bytes += field.name.len() + field.value.len() + 4;
        info.present.record(field.name);
        if field.name.eq_ignore_ascii_case("content-length") {
            info.length = length(info.length, field.value)?;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if info.coded || !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return wrong("the transfer coding is not chunked");
            }
            info.coded = true;
        } else if field.name.eq_ignore_ascii_case("keep-alive") {
            info.keep_alive_seconds =
                options(field.value).find_map(|option| number(option.strip_prefix("timeout=")?.as_bytes()));
        } else if field.name.eq_ignore_ascii_case("connection") {
            for option in options(field.value) {
                info.close |= option.eq_ignore_ascii_case("close");
                info.keep_alive |= option.eq_ignore_ascii_case("keep-alive");
            }
        }
    }
    Ok((info, bytes))
}

/// The length in a `Content-Length` field, after earlier fields with the length `earlier`.
///
/// # Errors
/// If one is not a number, or they contradict each other (RFC 9110 section 8.6).
pub(in crate::exchange) fn length(earlier: Option<u64>, field: &[u8]) -> pingora::Result<Option<u64>> {
    let mut length = earlier;
    for one in field.split(|byte| *byte == b',') {
        let number = number(one.trim_ascii());
        if number.is_none() || length.is_some() && length != number {
            return wrong("the content length is malformed or contradictory");
        }
        length = number;
    }
    Ok(length)
}

fn framing(info: &FramingFields, status: StatusCode, version: u8, to_head: bool) -> pingora::Result<Framing> {
    if info.coded && version == 0 {
        return wrong("a chunked response of HTTP/1.0");
    }
    let bodiless = to_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::SWITCHING_PROTOCOLS);
    Ok(match (bodiless, info.coded, info.length) {
        (true, ..) => Framing::None,
        (false, true, _) => Framing::Chunked(ChunkedBody::default()),
        (false, false, Some(length)) => Framing::Length(length),
        (false, false, None) => Framing::End,
    })
}

fn write(
    response: &httparse::Response<'_, '_>,
    status: StatusCode,
    info: &FramingFields,
    framing: &Framing,
    is_removed: &impl Fn(&str) -> bool,
    out: &mut impl ResponseSink,
) -> pingora::Result<()> {
    let reason = response.reason.filter(|reason| !reason.is_empty());
    out.status(status, reason.or(status.canonical_reason()).unwrap_or_default())?;
    let connections = || response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
    // Most have `keep-alive` alone, which names no field that is forwarded.
    let names_fields =
        connections().any(|field| options(field.value).any(|option| !option.eq_ignore_ascii_case("keep-alive")));
    let is_named =
        |name: &str| connections().any(|field| options(field.value).any(|option| option.eq_ignore_ascii_case(name)));
    for field in response.headers.iter() {
        // A switch of protocols is agreed on end to end.
        let agreed = status == StatusCode::SWITCHING_PROTOCOLS && field.name.eq_ignore_ascii_case("upgrade");
        // The length is written anew.
        let is_forwarded = may_stand_in_response(field.name) && !field.name.eq_ignore_ascii_case("content-length");
        let is_dropped = !is_forwarded || is_removed(field.name) || names_fields && is_named(field.name);
        if is_dropped && !agreed {
            continue;
        }
        if memchr::memchr2(b'\r', b'\n', field.value).is_none() {
            out.field(field.name, field.value)?;
        } else {
            // A folded line: its parts are joined by one space.
            let parts = field.value.split(|byte| matches!(byte, b'\r' | b'\n')).map(<[u8]>::trim_ascii);
            let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
            out.field(field.name, &parts.join(&b' '))?;
        }
    }
    // A response to HEAD, and a 304, may have the length of the body that they omit.
    let length = info.length.filter(|_| !info.coded && !status.is_informational() && status != StatusCode::NO_CONTENT);
    match (framing, length) {
        (_, Some(length)) => out.figure("Content-Length", length),
        (Framing::Chunked(_) | Framing::End, None) => out.field("Transfer-Encoding", b"chunked"),
        (Framing::None | Framing::Length(_), None) => Ok(()),
    }
}

/// The members of a comma-separated field; members that are not UTF-8 are skipped.
fn options(value: &[u8]) -> impl Iterator<Item = &str> {
    value.split(|byte| *byte == b',').filter_map(|one| std::str::from_utf8(one.trim_ascii()).ok())
}

/// Parses digits only, at most 19, so that 64 bits suffice.
fn number(text: &[u8]) -> Option<u64> {
    let digits = (1..=19).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

fn wrong<T>(why: &'static str) -> pingora::Result<T> {
    Err(pingora::Error::explain(InvalidHTTPHeader, why).into_up())
}

#[cfg(test)]
mod tests;
