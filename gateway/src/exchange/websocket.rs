//! WebSockets: the handshake over HTTP/2 (RFC 8441), and the end of a WebSocket when the gateway stops.
//!
//! Over HTTP/1.1 a handshake is a GET with `Upgrade: websocket`; client and upstream check each other's key. Over
//! HTTP/2 it is a CONNECT with `:protocol`, without keys, and status 200 accepts it. The request is forwarded as a GET,
//! so the gateway sends a key of its own and checks the answer: otherwise a response that merely looks like a WebSocket
//! would be one to the client.
//!
//! Bytes are forwarded unchanged. Their frames are followed only to know where one ends, so that a stopping gateway can
//! send Close frames with status 1001 between two others.

mod frames;

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use chassis::random;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pingora::{Error, ErrorType};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::WaitForCancellationFuture;

use self::frames::Frames;
use super::Exchange;
use super::downstream::Downstream;
use super::upstream::{RequestBody, UpstreamCall};
use contract::rejection::Rejection;
use listener::Connection;

/// The key of the client, and the answer that proves that a server has read it.
pub(crate) static KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
/// See [`KEY`].
pub(crate) static ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");

/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A Close frame of a server with status 1001, "going away".
const CLOSE: &[u8] = &[0x88, 2, 0x03, 0xe9];

/// The same of a client. Clients mask their frames; a mask of zeros changes nothing, and the frame has no content that
/// a page chose.
const CLOSE_MASKED: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

/// Longest wait for the Close frame of the upstream after a client has sent its own and ended its side, as browsers do
/// over HTTP/2. As long as browsers wait.
const CLOSE_ANSWER_MAX: Duration = Duration::from_secs(10);

/// A handshake that began over HTTP/2.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
}

impl Handshake {
    /// Makes a GET of the head if it is a CONNECT for a WebSocket whose stream `is_open`. Others stay as they are, and
    /// are refused like every CONNECT.
    pub(super) fn take(head: &mut http::request::Parts, is_open: bool) -> Option<Self> {
        if head.method != Method::CONNECT {
            return None;
        }
        let protocol = head.extensions.get::<h2::ext::Protocol>()?;
        if !is_open || !protocol.as_str().eq_ignore_ascii_case("websocket") {
            return None;
        }
        let key = HeaderValue::try_from(STANDARD.encode(random::bytes::<16>().ok()?)).ok()?;
        let accept = accept(&key)?;
        head.method = Method::GET;
        head.headers.insert(KEY.clone(), key);
        Some(Self { accept })
    }

    /// Checks the answer of the upstream, and removes from the head what belongs to HTTP/1.1.
    ///
    /// # Errors
    /// If the upstream has not read the key, as an upstream's fault.
    pub(super) fn complete(&self, fields: &mut HeaderMap) -> pingora::Result<()> {
        fields.remove(http::header::UPGRADE);
        if fields.remove(&ACCEPT).as_ref() == Some(&self.accept) {
            return Ok(());
        }
        Err(Error::explain(ErrorType::InvalidHTTPHeader, "Sec-WebSocket-Accept does not match the key").into_up())
    }
}

/// Makes a CONNECT of a GET for a WebSocket, for an upstream that speaks HTTP/2. Returns the answer to the client's
/// key; `None` without a key: the request stays as it is.
pub(super) fn connect(request: &mut http::Request<()>) -> Option<HeaderValue> {
    let accept = request.headers().get(&KEY).and_then(accept)?;
    request.headers_mut().remove(&KEY);
    *request.method_mut() = Method::CONNECT;
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    Some(accept)
}

/// The answer to a key.
pub(super) fn accept(key: &HeaderValue) -> Option<HeaderValue> {
    let sum = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), GUID].concat());
    HeaderValue::try_from(STANDARD.encode(sum)).ok()
}

impl Exchange<'_> {
    /// Forwards a WebSocket to its end, after the upstream has accepted it with this head.
    pub(super) async fn forward_websocket<D: Downstream>(
        &mut self,
        mut call: UpstreamCall,
        mut request_body: RequestBody,
        client: &mut D,
        out: D::Head,
    ) -> pingora::Result<()> {
        if let Some(target) = &mut self.facts.upstream.target
            && let Some(permit) = target.websocket_permit.take()
        {
            target.permit = permit;
        }
        client.switch(out).await?;
        self.status = StatusCode::SWITCHING_PROTOCOLS.as_u16();
        let idle_timeout = self.facts.upstream.forwarded_to().map(|upstream| upstream.settings.websockets.idle_timeout);
        call.switch(&mut request_body, idle_timeout.unwrap_or_default());
        let mut client = WebSocketClient::new(client, self.connection);
        let relayed = call.relay(&mut request_body, &mut client, || Ok(()), &mut self.body_bytes).await;
        if let Err(error) = relayed {
            self.facts.upstream.reason = call.reason(&error);
            return Err(error);
        }
        client.end(None).await
    }
}

/// The client of a WebSocket, after the handshake over either version.
pub(super) struct WebSocketClient<'a, D> {
    client: &'a mut D,
    connection: &'a Connection,
    /// Ready when the gateway stops; the waker that it has.
    stops: Pin<Box<WaitForCancellationFuture<'a>>>,
    waker: Option<Waker>,
    has_stopped: bool,
    /// The place in the bytes for the client, and the number of those that are not written yet.
    sent: Frames,
    unwritten: usize,
    /// The place in the bytes of the client.
    received: Frames,
    /// Until when the upstream may answer a client that has closed and ended its side.
    answer_timer: Option<Pin<Box<Sleep>>>,
    /// The Close frame, or the part of it that is not written yet.
    closing: BytesMut,
    state: Closing,
}

/// The end of a WebSocket that the gateway closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// The client is being sent a Close frame, and nothing else any more.
    Client,
    /// The upstream gets one too.
    Upstream,
    Done,
}

impl<'a, D: Downstream> WebSocketClient<'a, D> {
    pub(super) fn new(client: &'a mut D, connection: &'a Connection) -> Self {
        Self {
            client,
            connection,
            stops: Box::pin(connection.websockets_end().cancelled()),
            waker: None,
            has_stopped: false,
            sent: Frames::default(),
            unwritten: 0,
            received: Frames::default(),
            answer_timer: None,
            closing: BytesMut::new(),
            state: Closing::No,
        }
    }

    /// Ready when the gateway stops. Several looks come with each message, and one at the token takes two locks: it is
    /// asked again only for another waker, or when it is about to be cancelled.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_stopped {
            let is_known = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
            if is_known && !self.connection.websockets_must_end() {
                return Poll::Pending;
            }
            self.waker = Some(cx.waker().clone());
            ready!(self.stops.as_mut().poll(cx));
            self.has_stopped = true;
        }
        Poll::Ready(())
    }

    /// Reads bytes of the client, and follows its frames. After a Close frame its side ends only once the upstream has
    /// answered with its own.
    fn poll_received(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        if self.answer_timer.is_none() {
            let before = into.len();
            let read = ready!(self.client.poll_body(into, cx));
            self.received.pass(into.get(before..).unwrap_or_default());
            if !matches!(read, Ok(0)) || !self.received.has_closed() {
                return Poll::Ready(read);
            }
        }
        let timer = self.answer_timer.get_or_insert_with(|| Box::pin(sleep(CLOSE_ANSWER_MAX)));
        if self.unwritten > 0 || !self.sent.has_closed() || !self.sent.is_between() {
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Ready(Ok(0))
    }

    /// Closes the WebSocket of a gateway that stops, if no frame is in progress towards the client. Ready with the
    /// bytes for the upstream, then with none: the client's side has ended.
    fn poll_close(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        if self.state == Closing::No {
            if self.unwritten > 0 || !self.sent.is_between() {
                return Poll::Pending;
            }
            // Nothing follows a Close frame.
            self.closing = BytesMut::from(if self.sent.has_closed() { &b""[..] } else { CLOSE });
            self.state = Closing::Client;
        }
        if self.state == Closing::Client {
            let mut left = self.closing.len();
            if left > 0 {
                ready!(self.client.poll_data(&mut self.closing, &mut left, false, cx))?;
            }
            ready!(self.client.poll_flush(cx))?;
            self.state = Closing::Upstream;
        }
        let is_first = std::mem::replace(&mut self.state, Closing::Done) == Closing::Upstream;
        if is_first && self.received.is_between() && !self.received.has_closed() {
            into.extend_from_slice(CLOSE_MASKED);
            return Poll::Ready(Ok(CLOSE_MASKED.len()));
        }
        Poll::Ready(Ok(0))
    }
}

impl<D: Downstream> Downstream for WebSocketClient<'_, D> {
    type Head = D::Head;

    const TAKES_TRAILERS: bool = false;

    fn head(&self) -> Self::Head {
        self.client.head()
    }

    fn may_switch(&self) -> bool {
        false
    }

    fn close_after_response(&mut self) {}

    async fn interim(&mut self, head: Self::Head) -> pingora::Result<()> {
        self.client.interim(head).await
    }

    async fn switch(&mut self, head: Self::Head) -> pingora::Result<()> {
        self.client.switch(head).await
    }

    async fn begin(&mut self, head: Self::Head, ends: bool, chunked: bool) -> pingora::Result<()> {
        self.client.begin(head, ends, chunked).await
    }

    fn poll_data(
        &mut self,
        from: &mut BytesMut,
        left: &mut usize,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        if self.state != Closing::No {
            // The client has got its Close frame.
            drop(from.split_to(std::mem::take(left)));
            return Poll::Ready(Ok(()));
        }
        // After a wait the first bytes are those that were not written then.
        self.sent.pass(from.get(self.unwritten..*left).unwrap_or_default());
        let written = self.client.poll_data(from, left, last, cx);
        self.unwritten = *left;
        written
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        self.client.poll_flush(cx)
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> pingora::Result<()> {
        self.client.end(trailers).await
    }

    async fn break_off(&mut self) {
        self.client.break_off().await;
    }

    async fn answer(&mut self, head: Self::Head, body: Cow<'static, str>) -> pingora::Result<()> {
        self.client.answer(head, body).await
    }

    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        if !self.has_stopped
            && let Poll::Ready(read) = self.poll_received(into, cx)
        {
            return Poll::Ready(read);
        }
        ready!(self.poll_stopped(cx));
        if let Poll::Ready(closed) = self.poll_close(into, cx) {
            return Poll::Ready(closed);
        }
        self.poll_received(into, cx)
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<HeaderMap>>> {
        self.client.poll_trailers(cx)
    }

    fn refusal(&self) -> Option<Rejection> {
        self.client.refusal()
    }

    fn body_bytes(&self) -> u64 {
        self.client.body_bytes()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_deadline(deadline, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_rfc() {
        let answer = accept(&HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==")).unwrap();
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
