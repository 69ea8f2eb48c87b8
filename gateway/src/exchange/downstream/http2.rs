//! One stream of a client that speaks HTTP/2.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pingora::{Error, ErrorType, OrErr as _};
use pingora_http::RequestHeader;
use tokio::time::{Instant, sleep, timeout};

use super::{BREAK_OFF_MAX, Downstream};
use crate::decorate::ResponseSink;
use crate::exchange::upstream::READ_BYTES;
use crate::exchange::websocket::Handshake;
use contract::rejection::Rejection;
use listener::{Connection, LINGER_MAX, LINGER_MAX_LONG, MinimumRateTimer, ReaderRateTimer, Timer};

/// The client of one request over HTTP/2. Dropped before its response is complete, it resets the stream.
pub(crate) struct Http2Client {
    request: RecvStream,
    respond: SendResponse<Bytes>,
    /// The response, once its head was sent.
    response: Option<SendStream<Bytes>>,
    /// The response is complete.
    ended: bool,
    timer: Timer,
    /// For the request's body.
    body_timer: MinimumRateTimer,
    /// For the response: a slow reader occupies a permit of its upstream.
    write_timer: ReaderRateTimer,
    body_bytes: u64,
    connection: Arc<Connection>,
    /// The client stops reading after a complete response, and could never send the rest of its request. Therefore the
    /// last byte of the response is withheld until the request is complete.
    stops_reading: bool,
    /// That byte.
    last_byte: Option<Bytes>,
    /// The request is a handshake for a WebSocket.
    handshake: Option<Box<Handshake>>,
    /// The handshake was accepted: the bytes are those of the WebSocket.
    is_switched: bool,
}

impl Http2Client {
    pub(crate) fn new(request: RecvStream, respond: SendResponse<Bytes>, connection: &Arc<Connection>) -> Self {
        let (body_timer, write_timer) =
            (MinimumRateTimer::new(connection.body_minimum_rate()), ReaderRateTimer::new(connection));
        let (timer, connection) = (Timer::default(), Arc::clone(connection));
        Self {
            request,
            respond,
            response: None,
            ended: false,
            timer,
            body_timer,
            write_timer,
            body_bytes: 0,
            connection,
            stops_reading: false,
            last_byte: None,
            handshake: None,
            is_switched: false,
        }
    }

    /// The request is this handshake.
    pub(crate) fn set_handshake(&mut self, handshake: Handshake) {
        self.stops_reading = false;
        self.handshake = Some(Box::new(handshake));
    }

    /// Recognises clients that hang if a response ends before their request: curl 7 stops reading flow-control windows
    /// then.
    pub(crate) fn with_known_client(mut self, head: &RequestHeader) -> Self {
        let agent = head.headers.get(header::USER_AGENT).map(HeaderValue::as_bytes);
        self.stops_reading = agent.is_some_and(|agent| agent.starts_with(b"curl/7."));
        self
    }

    /// After a complete response: reads and discards the rest of the request, because some clients lose the response if
    /// the stream is reset, even with `NO_ERROR` (curl 7.88 shows none). The connection stays open; the listener reads
    /// the rest after the last response of a connection.
    pub(crate) async fn discard_rest_of_request(mut self) {
        if self.ended {
            self.discard_rest().await;
        }
    }

    /// Until the end of the request, a pause of [`LINGER_MAX`], [`LINGER_MAX_LONG`] in all, or the end of the
    /// connection's budget for discarded bytes.
    async fn discard_rest(&mut self) {
        if self.request.is_end_stream() {
            return;
        }
        let discarding = async {
            while let Ok(Ok(Some(piece))) = timeout(LINGER_MAX, poll_fn(|cx| self.poll_piece(cx))).await {
                if !self.connection.streams().may_discard(piece.len()) {
                    return;
                }
            }
        };
        let _ = timeout(LINGER_MAX_LONG, discarding).await;
    }

    /// The number of bytes, of these `wanted`, that the client accepts now; at least one.
    fn poll_capacity(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        let Some(response) = &mut self.response else {
            return Poll::Ready(Err(Error::explain(ErrorType::InternalError, "unsent head")));
        };
        response.reserve_capacity(wanted);
        match response.poll_capacity(cx) {
            Poll::Ready(Some(Ok(capacity))) => {
                let capacity = capacity.min(wanted);
                self.write_timer.moved(capacity, Instant::now());
                if capacity == wanted {
                    self.connection.streams().count_forwarded();
                }
                Poll::Ready(Ok(capacity))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(unsent(error)),
            Poll::Ready(None) => Poll::Ready(unsent("the stream was closed")),
            Poll::Pending => {
                let until = self.write_timer.wait(Instant::now());
                let late = || Error::explain(ErrorType::WriteTimedout, "writing to the client").into_down();
                self.timer.poll(until, cx).map(|()| Err(late()))
            }
        }
    }

    fn send(&mut self, mut piece: Bytes, last: bool) -> pingora::Result<()> {
        let withholds = last && self.stops_reading && !piece.is_empty() && !self.request.is_end_stream();
        if withholds {
            self.last_byte = Some(piece.split_off(piece.len() - 1));
        }
        let last = last && !withholds;
        let response = self.response.as_mut().ok_or_else(|| Error::explain(ErrorType::InternalError, "unsent head"))?;
        response.send_data(piece, last).or_else(unsent)?;
        self.ended = last;
        Ok(())
    }

    /// The next piece of the request's body, never empty; `None` at its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<Bytes>>> {
        loop {
            let piece = match self.request.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) => piece,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(broken(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                // A WebSocket has a limit of its own for silence.
                Poll::Pending if self.is_switched => return Poll::Pending,
                Poll::Pending => {
                    let until = self.body_timer.wait(Instant::now());
                    let late = || Error::explain(ErrorType::ReadTimedout, "reading the request body").into_down();
                    return self.timer.poll(until, cx).map(|()| Err(late()));
                }
            };
            self.body_bytes += piece.len() as u64;
            self.body_timer.moved(piece.len(), Instant::now());
            // The window for it opens again when it was forwarded.
            if let Err(error) = self.request.flow_control().release_capacity(piece.len()) {
                return Poll::Ready(broken(error));
            }
            if !piece.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }
}

/// Fields with another value in each response. They are not indexed (RFC 7541 section 7.1.3), or they would displace
/// the fields that every response repeats.
const NEVER_INDEXED: &[&str] = &["x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"];

/// Number of fields of a usual response.
const FIELDS_USUAL: usize = 24;

/// The head of a response for the h2 library.
pub(crate) struct Http2Head(StatusCode, HeaderMap);

impl Http2Head {
    fn into_response(self) -> http::Response<()> {
        let mut response = http::Response::new(());
        (*response.status_mut(), *response.headers_mut()) = (self.0, self.1);
        response
    }
}

impl ResponseSink for Http2Head {
    fn status(&mut self, status: StatusCode, _reason: &str) -> pingora::Result<()> {
        self.0 = status;
        Ok(())
    }

    fn field(&mut self, name: &str, value: &[u8]) -> pingora::Result<()> {
        // HTTP/2 has no chunks (RFC 9113 section 8.2.2).
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(());
        }
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.or_err(ErrorType::InvalidHTTPHeader, "invalid field name").map_err(Error::into_up)?;
        let value = HeaderValue::from_bytes(value);
        let mut value = value.or_err(ErrorType::InvalidHTTPHeader, "invalid field value").map_err(Error::into_up)?;
        value.set_sensitive(NEVER_INDEXED.contains(&name.as_str()));
        self.1.append(name, value);
        Ok(())
    }
}

impl Downstream for Http2Client {
    type Head = Http2Head;

    const TAKES_TRAILERS: bool = true;

    fn head(&self) -> Http2Head {
        Http2Head(StatusCode::OK, HeaderMap::with_capacity(FIELDS_USUAL))
    }

    fn may_switch(&self) -> bool {
        self.handshake.is_some()
    }

    fn is_tunnel(&self) -> bool {
        self.handshake.is_some()
    }

    fn close_after_response(&mut self) {}

    async fn interim(&mut self, head: Http2Head) -> pingora::Result<()> {
        self.respond.send_informational(head.into_response()).or_else(unsent)
    }

    async fn switch(&mut self, mut head: Http2Head) -> pingora::Result<()> {
        let Some(handshake) = &self.handshake else {
            return Err(Error::explain(ErrorType::InternalError, "the client asked for no other protocol"));
        };
        handshake.complete(&mut head.1)?;
        head.0 = StatusCode::OK;
        self.response = Some(self.respond.send_response(head.into_response(), false).or_else(unsent)?);
        self.is_switched = true;
        Ok(())
    }

    async fn begin(&mut self, head: Http2Head, ends: bool, _chunked: bool) -> pingora::Result<()> {
        // A client that is refused or redirected sends no more of its request.
        self.stops_reading &= head.0.is_success();
        self.response = Some(self.respond.send_response(head.into_response(), ends).or_else(unsent)?);
        self.ended = ends;
        Ok(())
    }

    fn poll_data(
        &mut self,
        from: &mut BytesMut,
        left: &mut usize,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        while *left > 0 {
            let capacity = ready!(self.poll_capacity(*left, cx))?;
            // A small piece that waits for the client is copied, because it would keep the whole buffer.
            let piece = if capacity < READ_BYTES / 2 {
                let piece = Bytes::copy_from_slice(from.get(..capacity).unwrap_or_default());
                from.advance(capacity);
                piece
            } else {
                from.split_to(capacity).freeze()
            };
            *left -= capacity;
            self.send(piece, last && *left == 0)?;
        }
        Poll::Ready(Ok(()))
    }

    /// The h2 library flushes by itself.
    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        Poll::Ready(Ok(()))
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> pingora::Result<()> {
        if self.ended || self.response.is_none() {
            return Ok(());
        }
        if std::mem::take(&mut self.stops_reading) {
            self.discard_rest().await;
        }
        let last_byte = self.last_byte.take().unwrap_or_default();
        let Some(trailers) = trailers else { return self.send(last_byte, true) };
        if !last_byte.is_empty() {
            self.send(last_byte, false)?;
        }
        let Some(response) = &mut self.response else { return Ok(()) };
        response.send_trailers(trailers).or_else(unsent)?;
        self.ended = true;
        Ok(())
    }

    /// The h2 library discards written data when the stream is reset, and does not tell when it was sent.
    async fn break_off(&mut self) {
        sleep(BREAK_OFF_MAX).await;
    }

    async fn answer(&mut self, head: Http2Head, body: Cow<'static, str>) -> pingora::Result<()> {
        self.stops_reading = false;
        self.begin(head, body.is_empty(), false).await?;
        let mut body = bytes(body);
        while !body.is_empty() {
            let capacity = poll_fn(|cx| self.poll_capacity(body.len(), cx)).await?;
            let piece = body.split_to(capacity);
            self.send(piece, body.is_empty())?;
        }
        Ok(())
    }

    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        self.poll_piece(cx).map_ok(|piece| {
            piece.map_or(0, |piece| {
                into.extend_from_slice(&piece);
                self.connection.streams().count_received(piece.len());
                self.connection.streams().count_forwarded();
                piece.len()
            })
        })
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<HeaderMap>>> {
        self.request.poll_trailers(cx).map(|trailers| trailers.or_else(broken))
    }

    /// The h2 library checks bodies.
    fn refusal(&self) -> Option<Rejection> {
        None
    }

    fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.response {
            Some(response) => response.poll_reset(cx).map(|_| ()),
            None => self.respond.poll_reset(cx).map(|_| ()),
        }
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll(deadline, cx)
    }
}

/// A text as a body, without a copy.
fn bytes(text: Cow<'static, str>) -> Bytes {
    match text {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    }
}

/// The error of a failed write to the client.
fn unsent<T>(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> pingora::Result<T> {
    Err(Error::because(ErrorType::WriteError, "writing to the client", error).into_down())
}

/// The error of a request body that broke off.
fn broken<T>(error: h2::Error) -> pingora::Result<T> {
    Err(Error::because(ErrorType::ReadError, "reading the request body", error).into_down())
}

#[cfg(test)]
mod tests;
