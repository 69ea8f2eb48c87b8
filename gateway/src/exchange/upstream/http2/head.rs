//! Heads of requests and responses over HTTP/2 to upstreams.

use http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri};
use pingora::{Error, ErrorType};
use pingora_http::RequestHeader;

use crate::decorate::{PresentFields, ResponseSink};
use crate::exchange::upstream::ResponseHead;
use crate::exchange::upstream::http1_response;
use crate::grpc;
use listener::fields::{may_stand_in_request, may_stand_in_response};

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// The rewritten head for the h2 library.
///
/// # Errors
/// If its host is not a valid authority; the listener has checked that.
pub(crate) fn request(head: &RequestHeader, scheme: uri::Scheme) -> pingora::Result<http::Request<()>> {
    let wrong = |error: http::Error| Error::because(ErrorType::InternalError, "invalid request head", error);
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
        if name != header::HOST && may_stand_in_request(name.as_str()) {
            fields.append(name.clone(), value.clone());
        }
    }
    // RFC 9113 section 8.2.2: the only value that is allowed.
    if wants_trailers(&head.headers) {
        fields.insert(header::TE, TRAILERS);
    }
    Ok(request)
}

/// Whether the sender of these fields accepts trailers.
pub(crate) fn wants_trailers(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("trailers"))
}

/// Writes the head of a response to `out`, without the fields that the gateway removes. `ends` if nothing follows it;
/// `to_head` if it answers HEAD.
pub(crate) fn response(
    head: &http::response::Parts,
    (ends, to_head): (bool, bool),
    is_removed: impl Fn(&str) -> bool,
    out: &mut impl ResponseSink,
) -> pingora::Result<ResponseHead> {
    let (status, mut present, mut fields_bytes) = (head.status, PresentFields::default(), 0);
    out.status(status, status.canonical_reason().unwrap_or_default())?;
    let mut length = None;
    for (name, value) in &head.headers {
        fields_bytes += name.as_str().len() + value.len() + 4;
        present.record(name.as_str());
        if name == header::CONTENT_LENGTH {
            length = http1_response::length(length, value.as_bytes())?;
        } else if may_stand_in_response(name.as_str()) && !is_removed(name.as_str()) {
            out.field(name.as_str(), value.as_bytes())?;
        }
    }
    let bodiless = to_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let ends = ends || bodiless;
    let chunked = !ends && length.is_none();
    if chunked {
        out.field("Transfer-Encoding", b"chunked")?;
    } else if status.is_informational() || status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6: these have no length.
    } else if let Some(length) = length {
        out.figure("Content-Length", length)?;
    } else if !bodiless && !grpc::is_call(&head.headers) {
        out.figure("Content-Length", 0)?;
    }
    let grpc_status = if ends { grpc::status(&head.headers) } else { None };
    Ok(ResponseHead { status, fields_bytes, ends, chunked, present, grpc_status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::downstream::http1::Http1Head;

    /// A head as the client gets it; `None` if it is refused.
    fn written(status: u16, fields: &[(&str, &str)]) -> Option<String> {
        let mut head = http::Response::builder().status(status);
        for (name, value) in fields {
            head = head.header(*name, *value);
        }
        let mut out = Http1Head::new(false);
        response(&head.body(()).unwrap().into_parts().0, (true, true), |_| false, &mut out).ok()?;
        Some(String::from_utf8(out.into_bytes()).unwrap())
    }

    #[test]
    fn a_length_is_written_once_and_only_where_it_is_allowed() {
        let twice: &[_] = &[("content-length", "9"), ("content-length", "9")];
        assert_eq!(written(200, twice).unwrap(), "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n");
        assert_eq!(written(304, &[("content-length", "9, 9")]).unwrap().matches("Content-Length: 9\r\n").count(), 1);
        assert_eq!(written(204, twice).unwrap(), "HTTP/1.1 204 No Content\r\n");
        for wrong in [&[("content-length", "9"), ("content-length", "8")][..], &[("content-length", "+9")]] {
            assert_eq!(written(200, wrong), None, "{wrong:?}");
        }
    }
}
