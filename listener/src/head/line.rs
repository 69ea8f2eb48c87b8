//! The request line: `method SP target SP version`, with single spaces and nothing before or after.

use std::ops::Range;

use super::HeadLimits;
use super::bytes::is_token;
use super::target;
use contract::rejection::Rejection;

/// Bytes of a method; the longest registered one has 17.
pub(super) const METHOD_BYTES_MAX: usize = 32;

/// The parts of the request line that other checks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestLine {
    /// HTTP/1.1, not 1.0.
    pub(super) http_1_1: bool,
    /// Range of the authority of an absolute-form target, in bytes of the line. Host must equal it.
    pub(super) authority: Option<Range<usize>>,
}

fn is_method(method: &[u8]) -> bool {
    (1..=METHOD_BYTES_MAX).contains(&method.len()) && method.iter().all(|byte| is_token(*byte))
}

/// The refusal of a line that is too long, from its first bytes: the target is too long, unless the line does not begin
/// with a method.
pub(super) fn too_long(line: &[u8]) -> Rejection {
    let begins = line.splitn(2, |byte| *byte == b' ').next().is_some_and(is_method);
    if begins { Rejection::UriTooLong } else { Rejection::BadRequest }
}

/// Checks the method and target of HTTP/2. The target of CONNECT is its authority.
pub(super) fn judge(method: &[u8], target: &[u8], limits: &HeadLimits) -> Result<RequestLine, Rejection> {
    if !is_method(method) {
        return Err(Rejection::BadRequest);
    }
    if target.len() > limits.target_bytes {
        return Err(Rejection::UriTooLong);
    }
    // The engine accepts no absolute-form path, so there is no authority to compare.
    target::check(method, target).map(|_| RequestLine { http_1_1: true, authority: None })
}

/// Parses the line without its CRLF.
pub(super) fn parse(line: &[u8], limits: &HeadLimits) -> Result<RequestLine, Rejection> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let (Some(method), Some(target)) = (method.filter(|method| is_method(method)), target) else {
        return Err(Rejection::BadRequest);
    };
    if target.len() > limits.target_bytes {
        return Err(Rejection::UriTooLong);
    }
    // The version is checked before the target, so that the refusal of another protocol names the protocol.
    let http_1_1 = match version {
        Some(b"HTTP/1.1") => true,
        Some(b"HTTP/1.0") => false,
        Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Rejection::VersionNotSupported);
        }
        // More than three parts: a space inside the target, or around it.
        Some(text) if text.contains(&b' ') => return Err(Rejection::BadTarget),
        Some(_) | None => return Err(Rejection::BadRequest),
    };
    let authority =
        target::check(method, target)?.map(|range| (range.start + method.len() + 1)..(range.end + method.len() + 1));
    Ok(RequestLine { http_1_1, authority })
}
