//! A client that speaks HTTP/2, in one of its streams.

use std::borrow::Cow;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::{Error, ErrorType, OrErr as _};
use tokio::time::Instant;

use super::downstream::Downstream;
use super::upstream::READ_BYTES;
use crate::decorate::ResponseSink;
use crate::door::{Connection, LINGER_BYTES_MAX, LINGER_MAX, Pace, Timer};
use crate::proxy::bytes;

/// How long a client may leave a response lying, its window closed; what the door's own clock allows the connection as a
/// whole. Every such response holds a place at its upstream.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// See the module. Dropped before its response is complete, it resets the stream.
pub(super) struct Http2 {
    request: RecvStream,
    respond: SendResponse<Bytes>,
    /// The response, once its head is on its way.
    response: Option<SendStream<Bytes>>,
    /// The response is complete.
    ended: bool,
    timer: Timer,
    /// Of the request's body.
    pace: Pace,
    body_bytes: u64,
}

impl Http2 {
    pub(super) fn new(request: RecvStream, respond: SendResponse<Bytes>, connection: &Connection) -> Self {
        let pace = Pace::new(connection.body_pace());
        Self { request, respond, response: None, ended: false, timer: Timer::default(), pace, body_bytes: 0 }
    }

    /// Takes what the client still sends after a response that is complete, for a while and no more: a stream that is reset at
    /// once costs some clients the response (curl 7.88 shows none).
    pub(super) async fn linger(mut self) {
        if !self.ended {
            return;
        }
        let taking = async {
            let mut left = LINGER_BYTES_MAX;
            while let Ok(Some(piece)) = poll_fn(|cx| self.poll_body(cx)).await {
                let Some(rest) = left.checked_sub(piece.len()) else { return };
                left = rest;
            }
        };
        let _ = tokio::time::timeout(LINGER_MAX, taking).await;
    }

    async fn send(&mut self, mut piece: Bytes, last: bool) -> pingora::Result<()> {
        let response = self.response.as_mut().ok_or_else(|| Error::explain(ErrorType::InternalError, "no head"))?;
        let mut deadline = None;
        while !piece.is_empty() {
            response.reserve_capacity(piece.len());
            let room = poll_fn(|cx| match response.poll_capacity(cx) {
                Poll::Ready(Some(room)) => Poll::Ready(room.or_else(unsent)),
                Poll::Ready(None) => Poll::Ready(unsent("the stream is gone")),
                Poll::Pending => {
                    let until = *deadline.get_or_insert_with(|| Instant::now() + WRITE_MAX);
                    let late = || Error::explain(ErrorType::WriteTimedout, "to the client").into_down();
                    self.timer.poll(until, cx).map(|()| Err(late()))
                }
            });
            let room = room.await?.min(piece.len());
            let now = piece.split_to(room);
            response.send_data(now, last && piece.is_empty()).or_else(unsent)?;
        }
        self.ended = last;
        Ok(())
    }
}

/// Fields whose values are another's in the next response. They are kept out of the table of fields that both sides remember
/// (RFC 7541 section 7.1.3), or they would push out of it what every response repeats.
const FLEETING: &[&str] = &["x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit"];

/// Fields of a usual response.
const FIELDS_USUAL: usize = 24;

/// A head as the engine takes it.
pub(super) struct Fields(StatusCode, http::HeaderMap);

impl Fields {
    fn into_response(self) -> http::Response<()> {
        let mut response = http::Response::new(());
        (*response.status_mut(), *response.headers_mut()) = (self.0, self.1);
        response
    }
}

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

impl Downstream for Http2 {
    type Head = Fields;

    fn head() -> Fields {
        Fields(StatusCode::OK, http::HeaderMap::with_capacity(FIELDS_USUAL))
    }

    async fn interim(&mut self, head: Fields) -> pingora::Result<()> {
        self.respond.send_informational(head.into_response()).or_else(unsent)
    }

    async fn begin(&mut self, head: Fields, ends: bool) -> pingora::Result<()> {
        self.response = Some(self.respond.send_response(head.into_response(), ends).or_else(unsent)?);
        self.ended = ends;
        Ok(())
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
        self.send(piece, last).await
    }

    /// The engine sends as soon as it may.
    async fn flush(&mut self) -> pingora::Result<()> {
        Ok(())
    }

    async fn end(&mut self, _chunked: bool) -> pingora::Result<()> {
        match &mut self.response {
            Some(response) if !self.ended => response.send_data(Bytes::new(), true).or_else(unsent)?,
            _ => return Ok(()),
        }
        self.ended = true;
        Ok(())
    }

    async fn answer(&mut self, head: Fields, body: Cow<'static, str>) -> pingora::Result<()> {
        let ends = body.is_empty();
        self.begin(head, ends).await?;
        if ends { Ok(()) } else { self.send(bytes(body), true).await }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<Bytes>>> {
        loop {
            let piece = match self.request.poll_data(cx) {
                Poll::Ready(Some(Ok(piece))) => piece,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(broken(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Pending => {
                    let until = self.pace.wait(Instant::now());
                    let late = || Error::explain(ErrorType::ReadTimedout, "the body of a request").into_down();
                    return self.timer.poll(until, cx).map(|()| Err(late()));
                }
            };
            self.body_bytes += piece.len() as u64;
            self.pace.moved(piece.len(), Instant::now());
            // More is taken when this has been sent on.
            if let Err(error) = self.request.flow_control().release_capacity(piece.len()) {
                return Poll::Ready(broken(error));
            }
            if !piece.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
        }
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

/// The client did not take what it was sent.
fn unsent<T>(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> pingora::Result<T> {
    Err(Error::because(ErrorType::WriteError, "to the client", error).into_down())
}

/// The client did not send what it announced.
fn broken<T>(error: h2::Error) -> pingora::Result<T> {
    Err(Error::because(ErrorType::ReadError, "the body of a request", error).into_down())
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::door::Ends;

    /// Between two pieces less passes than a client may be silent, and yet it is too slow.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up() {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let client = tokio::spawn(async move {
            let (mut sender, connection) = h2::client::handshake(there).await.unwrap();
            let driven = tokio::spawn(connection);
            let request = http::Request::post("https://a.example/").body(()).unwrap();
            let (_response, mut body) = sender.send_request(request, false).unwrap();
            while body.send_data("x".into(), false).is_ok() {
                sleep(Duration::from_secs(10)).await;
            }
            drop(driven.await);
        });
        let mut engine = h2::server::handshake(here).await.unwrap();
        let (request, respond) = engine.accept().await.unwrap().unwrap();
        let driven = tokio::spawn(async move { while engine.accept().await.is_some() {} });
        let address = "192.0.2.1:1".parse().unwrap();
        let connection = Connection::unattached(Ends { client: address, peer: address, local: address });
        let mut stream = Http2::new(request.into_body(), respond, &connection);
        let error = loop {
            match poll_fn(|cx| stream.poll_body(cx)).await {
                Ok(piece) => assert_eq!(piece.unwrap(), "x"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.etype(), error.esource().as_str()), (&ErrorType::ReadTimedout, "Downstream"));
        assert_eq!(stream.body_bytes(), 2);
        driven.abort();
        client.abort();
    }
}
