//! Requests over HTTP/2, and those over HTTP/1 without a body, from head to log line without the proxy library.
//!
//! The same pipeline, the same fields, the same metrics and log line as [`crate::proxy`]: only the library's work is left
//! out, which is most of what a small request costs ([decision](../../docs/decisions/requests-without-the-library.md)).
//! Left to the proxy of HTTP/1: requests with a body, version 1.0, switches of protocols, heads of very many fields.

mod downstream;
mod exchange;
mod http1;
mod http2;
mod relay;
mod request;
mod response;
mod upload;
mod upstream;

pub mod trial;

use std::sync::Arc;

use async_trait::async_trait;
use pingora::http::RequestHeader;

use self::exchange::Exchange;
use self::http1::Http1;
use self::http2::Http2;
use crate::door::{Client, Connection, Direct, H2Request, Served};
use crate::proxy::{Gateway, SharedGateway};

/// Field lines of a head that is read here; the door's lint has a limit of its own, which is no larger by default.
const FIELDS_MAX: usize = 100;

#[async_trait]
impl Direct for SharedGateway {
    async fn serve(&self, client: &mut dyn Client) -> Served {
        let bare = client.bare_head().filter(|(_, meaning)| !meaning.websocket);
        let Some((head, keep_alive)) = bare.and_then(|(bytes, said)| Some((parse(bytes)?, said.keep_alive))) else {
            return Served::Passed;
        };
        client.take_head();
        let connection = Arc::clone(client.connection());
        let _progress = Progress::begin(&self.0, &connection);
        let mut client = Http1::new(client, keep_alive);
        let outcome = Exchange::new(&self.0, &connection, head).serve(&mut client, false).await;
        match (outcome.whole, client.closes) {
            (true, false) => Served::Whole,
            (true, true) => Served::Last,
            (false, _) => Served::Cut,
        }
    }

    async fn serve_stream(&self, request: H2Request, connection: &Arc<Connection>) -> bool {
        let H2Request { head, body, respond } = request;
        let progress = Progress::begin(&self.0, connection);
        let (body_follows, head) = (!body.is_end_stream(), RequestHeader::from(head));
        let mut client = Http2::new(body, respond, connection);
        let outcome = Exchange::new(&self.0, connection, head).serve(&mut client, body_follows).await;
        drop(progress);
        client.linger().await;
        !outcome.malformed
    }
}

/// A request in progress, as the door, the drain and the metrics see it.
struct Progress<'a> {
    gateway: &'a Gateway,
    connection: &'a Connection,
}

impl<'a> Progress<'a> {
    fn begin(gateway: &'a Gateway, connection: &'a Connection) -> Self {
        connection.request_seen();
        gateway.telemetry.in_flight.inc();
        Self { gateway, connection }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.gateway.telemetry.in_flight.dec();
        self.connection.request_done();
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
