//! Answers that the door gives for the gateway, before the proxy library sees the request.
//!
//! The same pipeline, the same bytes, the same metrics and log line: only the library's work is left out. A decision
//! that is not an answer, or that has to wait for the quota store, is left with the connection, and the proxy's phases
//! go on from there: nothing is decided or charged twice.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::BufMut as _;
use http::header;
use pingora::http::RequestHeader;
use pingora::protocols::http::date;

use super::Gateway;
use super::decide::connection_facts;
use crate::answer::Answer;
use crate::door::{Connection, Early, EarlyHead};
use crate::facts::{Facts, Target};
use crate::request::BodyPromise;
use crate::telemetry::Entry;

/// Field lines of a head that is looked at here; the door's lint has a limit of its own, which is no larger by default.
/// A head with more goes on to the proxy.
const FIELDS_MAX: usize = 100;

/// Bytes of a usual answer.
const ANSWER_BYTES_USUAL: usize = 1_536;

/// What is known of a request.
pub(super) struct Decided {
    head: RequestHeader,
    pub(super) facts: Box<Facts>,
    pub(super) outcome: Result<(Target, BodyPromise), Answer>,
}

/// A decision that was begun at the door.
pub(super) enum Undecided {
    /// It is there: the request is forwarded.
    Not(Box<Decided>),
    /// The quota store is being asked.
    Yet(Pin<Box<dyn Future<Output = Decided> + Send>>),
}

impl Undecided {
    pub(super) async fn decided(self) -> Decided {
        match self {
            Self::Not(decided) => *decided,
            Self::Yet(deciding) => deciding.await,
        }
    }
}

/// What the door should say to a request without a body.
pub(crate) fn answer(gateway: &Arc<Gateway>, head: &EarlyHead<'_>, connection: &Arc<Connection>) -> Early {
    let Some(parsed) = parse(head.bytes) else {
        return Early::Pass;
    };
    let mut deciding: Pin<Box<dyn Future<Output = Decided> + Send>> =
        Box::pin(decide(Arc::clone(gateway), parsed, Arc::clone(connection)));
    // Asked once. Whoever asks again, in the proxy's phases, brings a waker of its own.
    match deciding.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Decided { head: parsed, mut facts, outcome: Err(answer) }) => {
            gateway.speak(&parsed, &mut facts, answer, head.keep_alive, connection)
        }
        Poll::Ready(decided) => {
            connection.leave(Box::new(Undecided::Not(Box::new(decided))));
            Early::Pass
        }
        Poll::Pending => {
            connection.leave(Box::new(Undecided::Yet(deciding)));
            Early::Pass
        }
    }
}

async fn decide(gateway: Arc<Gateway>, head: RequestHeader, connection: Arc<Connection>) -> Decided {
    let mut facts = gateway.begin();
    let outcome = gateway.decide(&head, false, &connection, &mut facts).await;
    Decided { head, facts, outcome }
}

impl Gateway {
    /// Answers, counts and logs.
    fn speak(
        &self,
        head: &RequestHeader,
        facts: &mut Facts,
        answer: Answer,
        keep_alive: bool,
        connection: &Connection,
    ) -> Early {
        connection.request_seen();
        let closes = !keep_alive || connection.should_close();
        let is_head = head.method == http::Method::HEAD;
        let (response, status, bytes_sent) = match self.bytes(facts, answer, is_head, closes, connection) {
            Ok(written) => written,
            // Only if text of our own were no header value. The client sees the connection end, the log says why.
            Err(error) => {
                tracing::error!(%error, "an answer could not be written");
                (Vec::new(), 0, 0)
            }
        };
        let entry = Entry {
            status,
            method: head.method.as_str(),
            path: head.uri.path(),
            bytes_sent,
            connection: connection_facts(Some(connection)),
            error: None,
        };
        self.telemetry.finish(facts, &entry);
        Early::Answered { closes: closes || response.is_empty(), response }
    }

    /// The response, its status and the length of its body.
    fn bytes(
        &self,
        facts: &mut Facts,
        answer: Answer,
        is_head: bool,
        closes: bool,
        connection: &Connection,
    ) -> pingora::Result<(Vec<u8>, u16, usize)> {
        let (mut response, body) = self.compose(facts, connection, answer)?;
        response.insert_header(header::DATE, date::get_cached_date())?;
        response.insert_header(header::CONNECTION, if closes { "close" } else { "keep-alive" })?;
        let mut bytes = Vec::with_capacity(ANSWER_BYTES_USUAL);
        bytes.put_slice(b"HTTP/1.1 ");
        bytes.put_slice(response.status.as_str().as_bytes());
        bytes.put_u8(b' ');
        bytes.put_slice(response.get_reason_phrase().unwrap_or_default().as_bytes());
        bytes.put_slice(b"\r\n");
        response.header_to_h1_wire(&mut bytes);
        bytes.put_slice(b"\r\n");
        let sent = if is_head { 0 } else { body.len() };
        bytes.put_slice(body.as_bytes().get(..sent).unwrap_or_default());
        Ok((bytes, response.status.as_u16(), sent))
    }
}

/// The head as the proxy library would read it. `None` when that is not what the library is asked for every day:
/// HTTP/1.0, a target that is no path, more fields than usual.
fn parse(bytes: &[u8]) -> Option<RequestHeader> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let whole = request.parse(bytes).is_ok_and(|status| status.is_complete());
    let (method, path) = (request.method?, request.path?);
    if !whole || request.version != Some(1) || !path.starts_with('/') {
        return None;
    }
    let mut head = RequestHeader::build_no_case(method, path.as_bytes(), Some(request.headers.len())).ok()?;
    for field in request.headers.iter() {
        let name = http::HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        head.append_header(name, field.value).ok()?;
    }
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_stands() {
        let head = parse(b"GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nX-One: 1\r\nx-one:  2 \r\n\r\n").unwrap();
        assert_eq!((head.method.as_str(), head.uri.path(), head.uri.query()), ("GET", "/a", Some("b=c")));
        assert_eq!(head.headers.get("host").unwrap(), "a.example");
        let ones: Vec<_> = head.headers.get_all("x-one").iter().collect();
        assert_eq!(ones, ["1", "2"]);
        assert_eq!(head.version, http::Version::HTTP_11);
    }

    #[test]
    fn what_is_unusual_is_left_to_the_proxy() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(FIELDS_MAX + 1));
        for unusual in [
            "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.exam",
            &many,
        ] {
            assert!(parse(unusual.as_bytes()).is_none(), "{unusual}");
        }
    }
}
