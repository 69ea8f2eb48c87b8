//! One connection to an upstream that serves one request.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use pingora::{Error, ErrorType};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::upload::{Body, Upload, Waits};
use crate::exchange::downstream::Downstream;
use crate::facts::ConnectionKind;
use crate::upstreams::{DialError, Endpoint, Stream, Tenant, Upstream, dial, tls_reason};

/// Room for what one read brings at first: a small response as a whole.
const FIRST_READ_BYTES: usize = 8 * 1024;

/// A WebSocket, or a stream of gRPC, in which nobody says anything for so long is over.
const SILENCE_MAX: Duration = Duration::from_hours(1);

/// Room for what one read brings of a body that goes on.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// See the module.
pub(crate) struct UpstreamConnection {
    stream: Stream,
    /// What came and was not taken yet.
    pub(crate) buffer: BytesMut,
    /// The request that it is sent.
    pub(crate) upload: Upload,
    /// Whose requests it carries.
    tenant: Tenant,
    /// It has served other requests.
    pub(crate) reused: bool,
    patience: Patience,
}

/// A way to an upstream.
pub(crate) enum Opened {
    /// A connection that serves one request at a time.
    Http1(UpstreamConnection),
    /// A new one on which HTTP/2 was agreed on.
    Http2(Stream),
}

impl UpstreamConnection {
    /// An idle connection of this tenant that has rested for `rested_max` at most, or a new one, which is offered `http2`
    /// where it has TLS. What it is to be sent follows.
    pub(crate) async fn open(
        (upstream, endpoint): (&Upstream, &Endpoint),
        http2: bool,
        tenant: Tenant,
        rested_max: Option<Duration>,
        upload: impl FnOnce() -> Upload,
        patience: Patience,
    ) -> Result<Opened, DialError> {
        let of = |stream, reused| {
            Opened::Http1(Self { stream, buffer: BytesMut::new(), upload: upload(), tenant, reused, patience })
        };
        if let Some(stream) = rested_max.and_then(|max| endpoint.idle.take(tenant, upstream.idle_max(), max)) {
            return Ok(of(stream, true));
        }
        let settings = &upstream.settings;
        let stream = dial(&settings.transport, endpoint, http2, settings.connect_timeout).await?;
        if stream.is_tls() {
            let agreed = stream.agreed_on_http2();
            if agreed {
                return Ok(Opened::Http2(stream));
            }
            if http2 {
                endpoint.sessions.note(agreed);
            }
        }
        Ok(of(stream, false))
    }

    /// Which kind of connection it is.
    pub(crate) fn kind(&self) -> ConnectionKind {
        ConnectionKind { reused: self.reused, http2: false, tls: self.stream.is_tls() }
    }

    /// Reads some more into the buffer if it is there.
    pub(crate) async fn try_receive(&mut self, room: usize) -> Option<pingora::Result<usize>> {
        self.buffer.reserve(room);
        let polled = poll_fn(|cx| Poll::Ready(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.buffer))).await;
        match polled {
            Poll::Ready(read) => Some(read.or_else(broken)),
            Poll::Pending => None,
        }
    }

    /// Sends on what there is to be sent and waits for more of the response, for as long as both sides are granted and the
    /// client is there. Zero is the end.
    pub(crate) async fn receive(&mut self, client: &mut impl Downstream, room: usize) -> pingora::Result<usize> {
        self.buffer.reserve(room);
        let Self { stream, buffer, upload, patience, .. } = self;
        let mut waiting = None;
        poll_fn(|cx| {
            // What the upstream has to say comes first: it may be why it reads no more.
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *stream), cx, buffer) {
                return Poll::Ready(read.or_else(broken));
            }
            let mut moved = false;
            let waits = match upload.poll(stream, client, &mut moved, cx) {
                Ok(Waits::Nobody) => return Poll::Ready(Ok(0)),
                Ok(waits) => waits,
                Err(error) => return Poll::Ready(Err(error)),
            };
            if client.poll_gone(cx).is_ready() {
                return Poll::Ready(left());
            }
            patience.poll(&mut waiting, waits, moved, client, cx).map(|late| late.map(|()| 0))
        })
        .await
    }

    /// Has the client take what `write` hands it, and sends on meanwhile what comes of the request: who waits for one to be
    /// read before it reads the other is served all the same.
    pub(crate) async fn hand_on<D: Downstream>(
        &mut self,
        client: &mut D,
        mut write: impl FnMut(&mut D, &mut BytesMut, &mut Context<'_>) -> Poll<pingora::Result<()>> + Send,
    ) -> pingora::Result<()> {
        poll_fn(|cx| {
            let written = write(client, &mut self.buffer, cx);
            if written.is_pending() && !self.upload.is_over() {
                self.upload.poll(&mut self.stream, client, &mut false, cx)?;
            }
            written
        })
        .await
    }

    /// The upstream has switched protocols: from here on both sides say what they like, for as long as they like.
    pub(crate) fn switch(&mut self) {
        self.upload = Upload::new(BytesMut::new(), Body::Switched, u64::MAX);
        self.patience = Patience::new(SILENCE_MAX, None);
    }

    /// Waits for the first bytes of a response.
    pub(crate) async fn receive_first(&mut self, client: &mut impl Downstream) -> pingora::Result<usize> {
        self.receive(client, FIRST_READ_BYTES).await
    }

    /// The response is complete and nothing came after it: the connection can serve another request.
    pub(crate) fn rest(mut self, endpoint: &Endpoint, good_for: Duration) {
        if self.buffer.is_empty() && self.upload.is_whole() && self.stream.is_read() {
            endpoint.idle.keep(self.stream, self.tenant, good_for);
        }
    }
}

/// How long an upstream is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The longest wait for one read or write.
    each: Duration,
    /// The end of the time that the request has as a whole.
    ends: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(each: Duration, ends: Option<Instant>) -> Self {
        Self { each, ends }
    }

    /// Each wait may be long.
    pub(crate) fn may_be_silent(&mut self) {
        self.each = SILENCE_MAX;
    }

    /// Whether the time that the request has as a whole is over.
    pub(crate) fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }

    /// Ready when somebody did not do in time what is waited for. `waiting` says since when, and `moved` that something has
    /// happened since it was asked the last time.
    pub(crate) fn poll(
        &self,
        waiting: &mut Option<(Waits, Instant)>,
        waits: Waits,
        moved: bool,
        client: &mut impl Downstream,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        let until = match *waiting {
            // A client keeps its own time.
            _ if waits == Waits::Client => None,
            Some((known, until)) if known == waits && !moved => Some(until),
            _ => Some(waiting.insert((waits, Instant::now() + self.each)).1),
        };
        let Some(until) = until.into_iter().chain(self.ends).min() else { return Poll::Pending };
        client.poll_deadline(until, cx).map(|()| late(waits))
    }
}

/// The client is no longer there.
pub(crate) fn left<T>() -> pingora::Result<T> {
    Err(Error::explain(ErrorType::ConnectionClosed, "the client has left").into_down())
}

/// Somebody did not do in time what was waited for.
fn late(waits: Waits) -> pingora::Result<()> {
    Err(match waits {
        Waits::Either | Waits::Nobody => return Ok(()),
        Waits::Client => Error::explain(ErrorType::ReadTimedout, "the request as a whole took too long").into_down(),
        Waits::Upstream => Error::explain(ErrorType::WriteTimedout, "to an upstream").into_up(),
        Waits::Response => Error::explain(ErrorType::ReadTimedout, "from an upstream").into_up(),
    })
}

fn broken<T>(error: io::Error) -> pingora::Result<T> {
    // With TLS 1.3 a server refuses our certificate when the handshake is over for us.
    if tls_reason(&error).is_some() {
        return Err(Error::because(ErrorType::TLSHandshakeFailure, "from an upstream", error).into_up());
    }
    Err(Error::because(ErrorType::ReadError, "from an upstream", error).into_up())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use bytes::Bytes;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::exchange::downstream::http1::Wire;
    use contract::rejection::Rejection;
    use listener::Timer;

    /// A client that says so much and then nothing, and whoever waits for it is woken by the time alone.
    struct Silent {
        body: Vec<Bytes>,
        timer: Timer,
    }

    impl Downstream for Silent {
        type Head = Wire;

        const TAKES_TRAILERS: bool = false;

        fn head(&self) -> Wire {
            unreachable!()
        }

        fn may_switch(&self) -> bool {
            unreachable!()
        }

        fn ends(&mut self) {
            unreachable!()
        }

        async fn interim(&mut self, _: Wire) -> pingora::Result<()> {
            unreachable!()
        }

        async fn switch(&mut self, _: Wire) -> pingora::Result<()> {
            unreachable!()
        }

        async fn begin(&mut self, _: Wire, _: bool, _: bool) -> pingora::Result<()> {
            unreachable!()
        }

        fn poll_data(
            &mut self,
            _: &mut BytesMut,
            _: &mut usize,
            _: bool,
            _: &mut Context<'_>,
        ) -> Poll<pingora::Result<()>> {
            unreachable!()
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<pingora::Result<()>> {
            unreachable!()
        }

        async fn end(&mut self, _: Option<http::HeaderMap>) -> pingora::Result<()> {
            unreachable!()
        }

        async fn answer(&mut self, _: Wire, _: Cow<'static, str>) -> pingora::Result<()> {
            unreachable!()
        }

        fn poll_body(&mut self, into: &mut BytesMut, _: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
            self.body.pop().map_or(Poll::Pending, |piece| {
                into.extend_from_slice(&piece);
                Poll::Ready(Ok(piece.len()))
            })
        }

        fn poll_trailers(&mut self, _: &mut Context<'_>) -> Poll<pingora::Result<Option<http::HeaderMap>>> {
            Poll::Ready(Ok(None))
        }

        fn refusal(&self) -> Option<Rejection> {
            None
        }

        fn body_bytes(&self) -> u64 {
            unreachable!()
        }

        fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
            self.timer.poll(deadline, cx)
        }
    }

    /// What is waited for in vain when an upstream says nothing and a client this much; and what the upstream was sent.
    async fn waits_in_vain(body: Body, pieces: &[&'static str]) -> (Box<Error>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (stream, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), async {
            listener.accept().await.unwrap().0
        });
        let (stream, mut accepted) = (stream.unwrap(), accepted);
        let mut upstream = UpstreamConnection {
            stream: Stream::Plain(stream),
            buffer: BytesMut::new(),
            upload: Upload::new("HEAD ".into(), body, 10),
            tenant: Tenant::default(),
            reused: false,
            patience: Patience::new(Duration::from_secs(5), Some(Instant::now() + Duration::from_mins(1))),
        };
        let pieces = pieces.iter().rev();
        let body = pieces.map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        let mut client = Silent { body, timer: Timer::default() };
        let error = upstream.receive_first(&mut client).await.unwrap_err();
        drop(upstream);
        let mut sent = String::new();
        accepted.read_to_string(&mut sent).await.unwrap();
        (error, sent)
    }

    #[tokio::test(start_paused = true)]
    async fn each_side_has_its_time() {
        let (error, sent) = waits_in_vain(Body::None, &[]).await;
        assert_eq!((error.to_string().contains("Upstream ReadTimedout"), sent.as_str()), (true, "HEAD "), "{error}");
        let (error, sent) = waits_in_vain(Body::Chunked, &["abc"]).await;
        assert!(error.to_string().contains("Downstream ReadTimedout"), "{error}");
        assert_eq!(sent, "HEAD 3\r\nabc\r\n");
        let (error, sent) = waits_in_vain(Body::Chunked, &["abc", "defghi", ""]).await;
        assert!(error.to_string().contains("Upstream ReadTimedout"), "{error}");
        assert_eq!(sent, "HEAD 3\r\nabc\r\n6\r\ndefghi\r\n0\r\n\r\n");
        let (error, sent) = waits_in_vain(Body::Length(9), &["abc", "defghi"]).await;
        assert_eq!((error.to_string().contains("Upstream ReadTimedout"), sent.as_str()), (true, "HEAD abcdefghi"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_more_than_it_may_have_is_not_sent() {
        let (error, sent) = waits_in_vain(Body::Length(11), &["abcdef", "ghijk"]).await;
        assert_eq!((error.etype(), sent.as_str()), (&ErrorType::HTTPStatus(413), ""));
    }
}
