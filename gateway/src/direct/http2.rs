//! A client that speaks HTTP/2, in one of its streams.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::http::ResponseHeader;
use pingora::protocols::http::v2::server::HttpSession;
use pingora::{Error, ErrorType, OrErr as _};
use tokio::time::Instant;

use super::downstream::Downstream;
use super::upstream::READ_BYTES;
use crate::decorate::ResponseSink;
use crate::door::Timer;
use crate::proxy::bytes;

/// See the module.
pub(super) struct Http2<'a> {
    stream: &'a mut HttpSession,
    timer: Timer,
}

impl<'a> Http2<'a> {
    pub(super) fn new(stream: &'a mut HttpSession) -> Self {
        Self { stream, timer: Timer::default() }
    }
}

/// Fields whose values are another's in the next response. They are kept out of the table of fields that both sides remember
/// (RFC 7541 section 7.1.3), or they would push out of it what every response repeats.
const FLEETING: &[&str] = &["x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"];

/// A head as the engine takes it.
pub(super) struct Fields(StatusCode, http::HeaderMap);

impl ResponseSink for Fields {
    fn status(&mut self, status: StatusCode, _reason: &str) -> pingora::Result<()> {
        self.0 = status;
        Ok(())
    }

    fn field(&mut self, name: &str, value: &[u8]) -> pingora::Result<()> {
        // Chunks are HTTP/1.1's (RFC 9113 section 8.2.2).
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(());
        }
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.or_err(ErrorType::InvalidHTTPHeader, "a name that is none").map_err(Error::into_up)?;
        let value = HeaderValue::from_bytes(value);
        let mut value = value.or_err(ErrorType::InvalidHTTPHeader, "a value that is none").map_err(Error::into_up)?;
        value.set_sensitive(FLEETING.contains(&name.as_str()));
        self.1.append(name, value);
        Ok(())
    }
}

impl Downstream for Http2<'_> {
    type Head = Fields;

    fn head() -> Fields {
        Fields(StatusCode::OK, http::HeaderMap::with_capacity(24))
    }

    /// The engine has no way to send any.
    async fn interim(&mut self, _head: Fields) -> pingora::Result<()> {
        Ok(())
    }

    async fn begin(&mut self, head: Fields, ends: bool) -> pingora::Result<()> {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        (parts.status, parts.headers) = (head.0, head.1);
        self.stream.write_response_header(Box::new(ResponseHeader::from(parts)), ends).map_err(Error::into_down)
    }

    async fn data(&mut self, from: &mut BytesMut, bytes: usize, _chunked: bool, last: bool) -> pingora::Result<()> {
        // A piece that waits for the client keeps all of the buffer it is part of.
        let piece = if bytes < READ_BYTES / 2 {
            let piece = Bytes::copy_from_slice(from.get(..bytes).unwrap_or_default());
            from.advance(bytes);
            piece
        } else {
            from.split_to(bytes).freeze()
        };
        self.stream.write_body(piece, last).await.map_err(Error::into_down)
    }

    /// The engine sends as soon as it may.
    async fn flush(&mut self) -> pingora::Result<()> {
        Ok(())
    }

    async fn end(&mut self, _chunked: bool) -> pingora::Result<()> {
        self.stream.finish().map_err(Error::into_down)
    }

    async fn answer(&mut self, head: Fields, body: Cow<'static, str>) -> pingora::Result<()> {
        let ends = body.is_empty();
        self.begin(head, ends).await?;
        if ends { Ok(()) } else { self.stream.write_body(bytes(body), true).await.map_err(Error::into_down) }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.stream.idle()).poll(cx).map(|_| ())
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll(deadline, cx)
    }
}
