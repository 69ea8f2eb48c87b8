//! One request and its response over a stream of an HTTP/2 connection to an upstream.

pub(crate) mod body;
pub(crate) mod head;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::HeaderMap;
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use self::body::{Sending, Source};
use super::connection::{Patience, READ_BYTES, left};
use crate::exchange::downstream::Downstream;
use crate::upstreams::Lease;

/// See the module. Dropped before the response is complete, it resets the stream.
pub(crate) struct Call {
    /// Its place on the connection.
    pub(crate) lease: Lease,
    /// When its head was sent.
    pub(crate) sent_at: Instant,
    response: ResponseFuture,
    body: Option<RecvStream>,
    /// What came of the response and was not handed on yet.
    buffer: BytesMut,
    pub(crate) sending: Sending,
    patience: Patience,
}

/// What comes first of a response.
pub(crate) enum First {
    /// An interim response.
    Interim(http::response::Parts),
    /// The head of the final one, and whether that is all.
    Head(http::response::Parts, bool),
}

impl Call {
    /// Sends the head.
    ///
    /// # Errors
    /// When the connection takes no more streams; then nothing was sent.
    pub(crate) fn begin(
        mut lease: Lease,
        request: http::Request<()>,
        source: Box<Source>,
        patience: Patience,
    ) -> Result<Self, (h2::Error, Box<Source>)> {
        match lease.sender.send_request(request, source.is_empty()) {
            Ok((response, stream)) => {
                lease.sends();
                let (sending, sent_at) = (Sending::new(stream, source), Instant::now());
                Ok(Self { lease, sent_at, response, body: None, buffer: BytesMut::new(), sending, patience })
            }
            Err(error) => {
                lease.leave();
                Err((error, source))
            }
        }
    }

    /// Sends on what there is to be sent until there is something of the response.
    pub(crate) async fn receive_first(&mut self, client: &mut impl Downstream) -> pingora::Result<First> {
        let Self { lease, response, sending, patience, body, .. } = self;
        let first = wait(lease, sending, patience, client, |cx| {
            if let Poll::Ready(Some(Ok(interim))) = response.poll_informational(cx) {
                return Poll::Ready(Ok(Some(First::Interim(interim.into_parts().0))));
            }
            match Pin::new(&mut *response).poll(cx) {
                Poll::Ready(Ok(whole)) => {
                    let (head, came) = whole.into_parts();
                    let ends = came.is_end_stream();
                    *body = Some(came);
                    Poll::Ready(Ok(Some(First::Head(head, ends))))
                }
                Poll::Ready(Err(error)) => Poll::Ready(broken(error)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await?;
        if first.is_some() {
            self.lease.responds();
        }
        if matches!(first, Some(First::Head(..))) {
            self.sending.is_answered();
        }
        first.ok_or_else(|| Error::explain(ErrorType::ReadTimedout, "from an upstream").into_up())
    }

    /// Both sides may say nothing for long: PING finds out whether the upstream is there.
    pub(crate) fn may_be_silent(&mut self) {
        self.patience.may_be_silent();
    }

    /// Hands the body of the response on to its end, and counts its bytes in `sent`; its trailers, if there are any. Before
    /// a wait everything is on its way.
    pub(crate) async fn relay<D: Downstream>(
        &mut self,
        client: &mut D,
        in_time: impl Fn() -> pingora::Result<()> + Send + Sync,
        sent: &mut u64,
    ) -> pingora::Result<Option<HeaderMap>> {
        loop {
            let there = poll_fn(|cx| Poll::Ready(self.poll_data(cx))).await;
            let came = if let Poll::Ready(came) = there {
                came?
            } else {
                self.hand_on(client, |client, _, cx| client.poll_flush(cx)).await?;
                self.receive(client).await?
            };
            in_time()?;
            let Some(bytes) = came else { break };
            self.lease.responds();
            *sent += bytes as u64;
            let (mut left, last) = (bytes, self.body.as_ref().is_some_and(RecvStream::is_end_stream));
            self.hand_on(client, |client, buffer, cx| client.poll_data(buffer, &mut left, last, cx)).await?;
            // More is taken when this has been handed on.
            if let Some(body) = &mut self.body {
                body.flow_control().release_capacity(bytes).or_else(broken)?;
            }
        }
        let trailers = poll_fn(|cx| match &mut self.body {
            Some(body) => body.poll_trailers(cx),
            None => Poll::Ready(Ok(None)),
        });
        trailers.await.or_else(broken)
    }

    /// Waits for some more of the body; `None` at its end.
    async fn receive(&mut self, client: &mut impl Downstream) -> pingora::Result<Option<usize>> {
        let Self { lease, sending, patience, body, buffer, .. } = self;
        let came = wait(lease, sending, patience, client, |cx| gather(body, buffer, cx).map_ok(Some)).await?;
        came.ok_or_else(|| Error::explain(ErrorType::ReadTimedout, "from an upstream").into_up())
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<usize>>> {
        gather(&mut self.body, &mut self.buffer, cx)
    }

    /// Has the client take what `write` hands it, and sends on meanwhile what comes of the request.
    async fn hand_on<D: Downstream>(
        &mut self,
        client: &mut D,
        mut write: impl FnMut(&mut D, &mut BytesMut, &mut Context<'_>) -> Poll<pingora::Result<()>> + Send,
    ) -> pingora::Result<()> {
        poll_fn(|cx| {
            let written = write(client, &mut self.buffer, cx);
            if written.is_pending() && !self.sending.is_over() {
                self.sending.poll(client, &mut false, cx)?;
            }
            written
        })
        .await
    }

    /// What the client sends, for another connection.
    pub(crate) fn into_source(self) -> Box<Source> {
        self.sending.source
    }
}

/// Takes what is there of a body: how many bytes; `None` at its end.
fn gather(
    body: &mut Option<RecvStream>,
    buffer: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<pingora::Result<Option<usize>>> {
    let Some(body) = body else { return Poll::Ready(Ok(None)) };
    let before = buffer.len();
    while buffer.len() - before < READ_BYTES {
        match body.poll_data(cx) {
            Poll::Ready(Some(Ok(piece))) => buffer.extend_from_slice(&piece),
            Poll::Ready(Some(Err(error))) if buffer.len() == before => return Poll::Ready(broken(error)),
            Poll::Ready(None) if buffer.len() == before => return Poll::Ready(Ok(None)),
            Poll::Pending if buffer.len() == before => return Poll::Pending,
            // It is said again when this has been handed on.
            Poll::Ready(Some(Err(_)) | None) | Poll::Pending => break,
        }
        if body.is_end_stream() {
            break;
        }
    }
    // The last piece may be empty.
    let came = buffer.len() - before;
    Poll::Ready(Ok((came > 0).then_some(came)))
}

/// Sends on what there is to be sent and waits until `look` has something, for as long as both sides are granted and the
/// client is there. A connection over which nothing came in the time that the upstream is granted takes no more requests.
async fn wait<T>(
    lease: &Lease,
    sending: &mut Sending,
    patience: &mut Patience,
    client: &mut impl Downstream,
    mut look: impl FnMut(&mut Context<'_>) -> Poll<pingora::Result<Option<T>>> + Send,
) -> pingora::Result<Option<T>> {
    let (began, mut waiting) = (Instant::now(), None);
    poll_fn(|cx| {
        if let Poll::Ready(found) = look(cx) {
            return Poll::Ready(found);
        }
        let mut moved = false;
        let waits = match sending.poll(client, &mut moved, cx) {
            Ok(waits) => waits,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if client.poll_gone(cx).is_ready() {
            return Poll::Ready(left());
        }
        let late = ready!(patience.poll(&mut waiting, waits, moved, client, cx));
        // How long a request may take as a whole, a client may say: that teaches nothing about the connection.
        if late.is_err() && !patience.is_over() && lease.is_silent_since(began) {
            lease.leave();
        }
        Poll::Ready(late.map(|()| None))
    })
    .await
}

fn broken<T>(error: h2::Error) -> pingora::Result<T> {
    let kind = if error.is_io() { ErrorType::ReadError } else { ErrorType::H2Error };
    Err(Error::because(kind, "from an upstream", error).into_up())
}

/// What an upstream takes no more of. It has done nothing about the request, which may be sent again whatever it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// This request: `REFUSED_STREAM`.
    Stream,
    /// Requests on this connection: GOAWAY.
    Connection,
}

impl Refused {
    /// What an upstream has refused, where it has.
    pub(crate) fn of(error: &Error) -> Option<Self> {
        let cause = error.cause.as_deref()?.downcast_ref::<h2::Error>()?;
        let is_stream = cause.is_reset() && cause.reason() == Some(Reason::REFUSED_STREAM);
        match (cause.is_remote(), cause.is_go_away()) {
            (true, true) => Some(Self::Connection),
            (true, false) if is_stream => Some(Self::Stream),
            _ => None,
        }
    }
}

/// What an upstream has ended a stream or a connection with, for an operator.
pub(crate) fn reason(error: &Error) -> Option<Cow<'static, str>> {
    let cause = error.cause.as_deref()?.downcast_ref::<h2::Error>()?;
    let word = if cause.is_go_away() { "GOAWAY" } else { "RST_STREAM" };
    let side = if cause.is_remote() { "it sent" } else { "it broke HTTP/2; we sent" };
    cause.reason().map(|reason| Cow::Owned(format!("{side} {word} {reason:?}")))
}
