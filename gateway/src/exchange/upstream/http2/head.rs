//! Heads of HTTP/2 exchanges with an upstream.

use http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri};
use pingora::{Error, ErrorType};
use pingora_http::RequestHeader;

use crate::answer::grpc;
use crate::decorate::{ResponseSink, Spoken};
use crate::exchange::upstream::request::is_hop_by_hop;

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// What a response's head says.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    /// Bytes of its fields.
    pub(crate) fields_bytes: usize,
    /// There is no body.
    pub(crate) ends: bool,
    /// Nobody knows how long the body is.
    pub(crate) chunked: bool,
    /// What it says that the gateway would say otherwise.
    pub(crate) spoken: Spoken,
    /// Of a call of gRPC that is over with its head.
    pub(crate) grpc_status: Option<u16>,
}

/// The head that an upstream is sent, once [`crate::forward::rewrite`] has been over it.
///
/// # Errors
/// When its host is no authority, which the door has seen to.
pub(crate) fn request(head: &RequestHeader, scheme: uri::Scheme) -> pingora::Result<http::Request<()>> {
    let wrong = |error: http::Error| Error::because(ErrorType::InternalError, "a head of our own", error);
    let mut parts = uri::Parts::default();
    parts.scheme = Some(scheme);
    let host = head.headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
    parts.authority = Some(uri::Authority::try_from(host).map_err(|error| wrong(error.into()))?);
    parts.path_and_query =
        Some(head.uri.path_and_query().cloned().unwrap_or_else(|| uri::PathAndQuery::from_static("/")));
    let mut request = http::Request::new(());
    *request.uri_mut() = Uri::from_parts(parts).map_err(|error| wrong(error.into()))?;
    request.method_mut().clone_from(&head.method);
    *request.version_mut() = http::Version::HTTP_2;
    let fields = request.headers_mut();
    fields.reserve(head.headers.len());
    for (name, value) in &head.headers {
        if name != header::HOST && !is_hop_by_hop(name.as_str()) {
            fields.append(name.clone(), value.clone());
        }
    }
    // RFC 9113 section 8.2.2: the one thing it may say.
    if wants_trailers(&head.headers) {
        fields.insert(header::TE, TRAILERS);
    }
    Ok(request)
}

/// Whether whoever sent these fields reads trailers.
pub(crate) fn wants_trailers(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("trailers"))
}

/// Writes the head of a response to `out`, but for what is foreign. `ends` when nothing follows it.
pub(crate) fn response(
    head: &http::response::Parts,
    (ends, to_head): (bool, bool),
    is_foreign: impl Fn(&str) -> bool,
    out: &mut impl ResponseSink,
) -> pingora::Result<ResponseHead> {
    let (status, mut spoken, mut fields_bytes) = (head.status, Spoken::default(), 0);
    out.status(status, status.canonical_reason().unwrap_or_default())?;
    for (name, value) in &head.headers {
        fields_bytes += name.as_str().len() + value.len() + 4;
        spoken.hear(name.as_str());
        if !is_foreign(name.as_str()) {
            out.field(name.as_str(), value.as_bytes())?;
        }
    }
    let bodiless = to_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let ends = ends || bodiless;
    let measured = head.headers.contains_key(header::CONTENT_LENGTH);
    let chunked = !ends && !measured;
    if chunked {
        out.field("Transfer-Encoding", b"chunked")?;
    } else if ends && !bodiless && !measured && !status.is_informational() && !grpc::is_call(&head.headers) {
        out.figure("Content-Length", 0)?;
    }
    let grpc_status = if ends { grpc::status(&head.headers) } else { None };
    Ok(ResponseHead { status, fields_bytes, ends, chunked, spoken, grpc_status })
}
