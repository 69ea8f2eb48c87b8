use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::exchange::downstream::http1::Http1Head as Head;
use contract::rejection::Rejection;
use listener::Timer;
use upstreams::AnnouncedBody;
use upstreams::{ConnectionLimits, PoolKey, Stream};

/// A client that sends these pieces and then nothing; only the deadline wakes the task.
struct Silent {
    body: Vec<Bytes>,
    timer: Timer,
}

impl Downstream for Silent {
    type Head = Head;

    const TAKES_TRAILERS: bool = false;

    fn head(&self) -> Head {
        unreachable!()
    }

    fn may_switch(&self) -> bool {
        unreachable!()
    }

    fn close_after_response(&mut self) {
        unreachable!()
    }

    async fn interim(&mut self, _: Head) -> pingora::Result<()> {
        unreachable!()
    }

    async fn switch(&mut self, _: Head) -> pingora::Result<()> {
        unreachable!()
    }

    async fn begin(&mut self, _: Head, _: bool, _: bool) -> pingora::Result<()> {
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

    async fn end(&mut self, _: Option<HeaderMap>) -> pingora::Result<()> {
        unreachable!()
    }

    async fn break_off(&mut self) {
        unreachable!()
    }

    async fn answer(&mut self, _: Head, _: Cow<'static, str>) -> pingora::Result<()> {
        unreachable!()
    }

    fn poll_body(&mut self, into: &mut BytesMut, _: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        self.body.pop().map_or(Poll::Pending, |piece| {
            into.extend_from_slice(&piece);
            Poll::Ready(Ok(piece.len()))
        })
    }

    fn poll_trailers(&mut self, _: &mut Context<'_>) -> Poll<pingora::Result<Option<HeaderMap>>> {
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

/// The timeout if an upstream sends nothing and a client only these pieces; the bytes that reached the upstream; and
/// whether the client was awaited.
async fn times_out(announced: AnnouncedBody, pieces: &[&'static str]) -> (Box<Error>, String, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (stream, accepted) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), async { listener.accept().await.unwrap().0 });
    let (stream, mut accepted) = (stream.unwrap(), accepted);
    let head = RequestHeader::build_no_case("GET", b"/", None).unwrap();
    let requirements = Requirements { pool_key: PoolKey::default(), may_be_repeated: true, received_after: None };
    let wait_limits = WaitLimits::new(Duration::from_secs(5), Some(Instant::now() + Duration::from_mins(1)));
    let request = Request { head: &head, switches: false, requirements, wait_limits };
    let mut request_body = RequestBody::new(announced, 10, None);
    request_body.begin(false, false);
    let lifetime = ConnectionLimits { age: Duration::from_hours(1), requests: 1 }.begin();
    let version = Version::Http1(Http1Call::new((Stream::Plain(stream), lifetime), &request, &request_body));
    let kind = ConnectionKind { reused: false, http2: false, tls: false };
    let mut upstream = UpstreamCall::new(version, &request, kind);
    let pieces = pieces.iter().rev();
    let body = pieces.map(|piece| Bytes::from_static(piece.as_bytes())).collect();
    let mut client = Silent { body, timer: Timer::default() };
    let error = upstream.receive_head(&mut request_body, &mut client).await.unwrap_err();
    drop(upstream);
    let mut sent = String::new();
    accepted.read_to_string(&mut sent).await.unwrap();
    let sent = sent.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| format!("HEAD {body}"));
    (error, sent, request_body.client_awaited() > Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn each_side_has_its_own_timeout_and_only_a_slow_client_is_awaited() {
    for (announced, pieces, side, reached, is_awaited) in [
        (AnnouncedBody::None, &[][..], "Upstream", "HEAD ", false),
        (AnnouncedBody::Unknown, &["abc"], "Downstream", "HEAD 3\r\nabc\r\n", true),
        (AnnouncedBody::Unknown, &["abc", "defghi", ""], "Upstream", "HEAD 9\r\nabcdefghi\r\n0\r\n\r\n", false),
        (AnnouncedBody::Length(9), &["abc", "defghi"], "Upstream", "HEAD abcdefghi", false),
    ] {
        let (error, sent, awaited) = times_out(announced, pieces).await;
        assert!(error.to_string().contains(&format!("{side} ReadTimedout")), "{pieces:?}: {error}");
        assert_eq!((sent.as_str(), awaited), (reached, is_awaited), "{pieces:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_above_its_limit_is_not_sent() {
    let (error, sent, _) = times_out(AnnouncedBody::Length(11), &["abcdef", "ghijk"]).await;
    assert_eq!((error.etype(), sent.as_str()), (&ErrorType::HTTPStatus(413), ""));
}
