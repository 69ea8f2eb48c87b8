//! One request and its response over a stream of an HTTP/2 connection to an upstream.

mod body_sender;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri};
use pingora::{Error, ErrorType};
use pingora_http::RequestHeader;
use tokio::time::Instant;

use self::body_sender::BodySender;
use super::wait_limits::Waits;
use super::{READ_BYTES, RequestBody, ResponseHead, http1_response};
use crate::decorate::{PresentFields, ResponseSink};
use crate::exchange::downstream::Downstream;
use crate::exchange::retry::{FailedAttempt, Failure, Refused};
use crate::exchange::websocket;
use crate::grpc;
use listener::fields::{may_stand_in_request, may_stand_in_response};
use upstreams::StreamPermit;

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// One request over a stream. Dropped before the response is complete, it resets the stream.
pub(super) struct Http2Call {
    /// Its use of the connection.
    permit: StreamPermit,
    /// When its head was sent.
    pub(super) sent_at: Instant,
    response: ResponseFuture,
    /// The last head, and whether nothing follows it.
    head: Option<(http::response::Parts, bool)>,
    body: Option<RecvStream>,
    sender: BodySender,
    /// The answer to the client's key, if the request is a CONNECT for a WebSocket.
    accept: Option<HeaderValue>,
}

impl Http2Call {
    /// Sends the head; a request that `switches` as a CONNECT, if the upstream accepts that (RFC 8441).
    ///
    /// # Errors
    /// If the connection accepts no more streams: [`Failure::Unsent`].
    pub(super) fn begin(
        mut permit: StreamPermit,
        mut request: http::Request<()>,
        request_body: &RequestBody,
        switches: bool,
    ) -> Result<Self, FailedAttempt> {
        let is_tunnel = switches && permit.sender.is_extended_connect_protocol_enabled();
        let accept = if is_tunnel { websocket::connect(&mut request) } else { None };
        let is_over = request_body.is_empty();
        match permit.sender.send_request(request, is_over && accept.is_none()) {
            Ok((response, stream)) => {
                permit.request_sent();
                let (sender, sent_at) = (BodySender::new(stream, is_over), Instant::now());
                Ok(Self { permit, sent_at, response, head: None, body: None, sender, accept })
            }
            Err(error) => {
                permit.drain();
                let error = Error::because(ErrorType::H2Error, "writing to the upstream", error).into_up();
                Err(FailedAttempt { failure: Failure::Unsent, ..error.into() })
            }
        }
    }

    /// Sends as much of the body as is available and the upstream accepts, and returns what to wait for.
    pub(super) fn poll_send(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        self.sender.poll(request_body, client, moved, cx)
    }

    /// Whether nothing more will be sent.
    pub(super) fn has_sent(&self) -> bool {
        self.sender.is_over
    }

    /// Waits for the next head.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        if let Poll::Ready(Some(Ok(interim))) = self.response.poll_informational(cx) {
            self.head = Some((interim.into_parts().0, true));
        } else {
            match Pin::new(&mut self.response).poll(cx) {
                Poll::Ready(Ok(whole)) => {
                    let (head, body) = whole.into_parts();
                    self.head = Some((head, body.is_end_stream()));
                    self.body = Some(body);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(broken(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.permit.response_received();
        Poll::Ready(Ok(()))
    }

    /// Takes the last head.
    pub(super) fn take_head(
        &mut self,
        to_head: bool,
        is_removed: impl Fn(&str) -> bool,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<Option<ResponseHead>> {
        let Some((mut parts, ends)) = self.head.take() else { return Ok(None) };
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "status 101 over HTTP/2").into_up());
        }
        let Some(accept) = self.accept.as_ref().filter(|_| parts.status.is_success()) else {
            return response_head(&parts, (ends, to_head), is_removed, out).map(Some);
        };
        // In the same words as for HTTP/1.1.
        parts.status = StatusCode::SWITCHING_PROTOCOLS;
        parts.headers.remove(&websocket::ACCEPT);
        let head = response_head(&parts, (true, to_head), is_removed, out)?;
        out.field("Upgrade", b"websocket")?;
        out.field("Sec-WebSocket-Accept", accept.as_bytes())?;
        Ok(Some(head))
    }

    /// The WebSocket was accepted: the client's bytes follow.
    pub(super) fn switch(&mut self) {
        self.sender.is_over = false;
    }

    /// Appends more of the body to the buffer and returns the number of bytes; `None` at its end.
    pub(super) fn poll_data(
        &mut self,
        buffer: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<Option<usize>>> {
        let added = self.append_data(buffer, cx);
        if let Poll::Ready(Ok(Some(_))) = &added {
            self.permit.response_received();
        }
        added
    }

    fn append_data(&mut self, buffer: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<usize>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(None)) };
        let before = buffer.len();
        while buffer.len() - before < READ_BYTES {
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) => buffer.extend_from_slice(&piece),
                Poll::Ready(Some(Err(error))) if buffer.len() == before => return Poll::Ready(broken(error)),
                Poll::Ready(None) if buffer.len() == before => return Poll::Ready(Ok(None)),
                Poll::Pending if buffer.len() == before => return Poll::Pending,
                // Reported again after these bytes were forwarded.
                Poll::Ready(Some(Err(_)) | None) | Poll::Pending => break,
            }
            if body.is_end_stream() {
                break;
            }
        }
        // The last piece may be empty.
        let added = buffer.len() - before;
        Poll::Ready(Ok((added > 0).then_some(added)))
    }

    /// Whether the body ends with the bytes of the last [`Self::poll_data`].
    pub(super) fn is_done(&self) -> bool {
        self.body.as_ref().is_some_and(RecvStream::is_end_stream)
    }

    /// These bytes of the body were forwarded: the upstream may send as many again.
    pub(super) fn has_forwarded(&mut self, bytes: usize) -> pingora::Result<()> {
        match &mut self.body {
            Some(body) => body.flow_control().release_capacity(bytes).or_else(broken),
            None => Ok(()),
        }
    }

    /// The trailers after the body.
    pub(super) async fn trailers(&mut self) -> pingora::Result<Option<HeaderMap>> {
        let trailers = poll_fn(|cx| match &mut self.body {
            Some(body) => body.poll_trailers(cx),
            None => Poll::Ready(Ok(None)),
        });
        trailers.await.or_else(broken)
    }

    /// The upstream timed out. If the whole connection was silent since `began`, it gets no more requests.
    pub(super) fn was_late(&self, began: Option<Instant>) {
        if began.is_some_and(|began| self.permit.is_silent_since(began)) {
            self.permit.drain();
        }
    }

    /// Whether the connection was silent since a PING, or, if it `was_reset`, since the request was sent.
    pub(super) fn is_silent(&self, was_reset: bool) -> bool {
        self.permit.is_silent() || was_reset && self.permit.is_silent_since(self.sent_at)
    }

    /// The kind of the refusal, if the upstream refused the request. A connection with a GOAWAY gets no more requests.
    pub(super) fn refused(&self, error: &Error) -> Option<Refused> {
        let refused = Refused::of(error);
        if refused == Some(Refused::Connection) {
            self.permit.drain();
        }
        refused
    }

    /// The code that ended the stream or connection, for an operator.
    pub(super) fn reason(&self, error: &Error) -> Option<Cow<'static, str>> {
        reason(error).or_else(|| self.permit.reason().map(Into::into))
    }
}

fn broken<T>(error: h2::Error) -> pingora::Result<T> {
    let kind = if error.is_io() { ErrorType::ReadError } else { ErrorType::H2Error };
    Err(Error::because(kind, "reading from the upstream", error).into_up())
}

/// The code that ended a stream or a connection, for an operator.
fn reason(error: &Error) -> Option<Cow<'static, str>> {
    let cause = error.cause.as_deref()?.downcast_ref::<h2::Error>()?;
    let word = if cause.is_go_away() { "GOAWAY" } else { "RST_STREAM" };
    let side = if cause.is_remote() { "it sent" } else { "it violated HTTP/2; we sent" };
    cause.reason().map(|reason| Cow::Owned(format!("{side} {word} {reason:?}")))
}

/// The rewritten head for the h2 library.
///
/// # Errors
/// If its host is not a valid authority; the listener has checked that.
pub(super) fn request_head(head: &RequestHeader, scheme: uri::Scheme) -> pingora::Result<http::Request<()>> {
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
fn response_head(
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
        response_head(&head.body(()).unwrap().into_parts().0, (true, true), |_| false, &mut out).ok()?;
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
