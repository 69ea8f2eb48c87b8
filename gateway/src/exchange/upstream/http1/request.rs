//! The head of a request to an upstream.

use bytes::{BufMut as _, BytesMut};
use http::header;
use pingora_http::RequestHeader;

use crate::exchange::upstream::wants_trailers;
use listener::fields::may_stand_in_request;

/// Buffer size for a usual head.
const BYTES_USUAL: usize = 1_024;

/// The rewritten head as bytes. The body is sent in chunks if `chunked`; `switches` asks for a WebSocket. Trailers are
/// accepted if the client accepts them: many servers send them only then.
pub(super) fn bytes(head: &RequestHeader, chunked: bool, switches: bool) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(BYTES_USUAL);
    bytes.put_slice(head.method.as_str().as_bytes());
    bytes.put_u8(b' ');
    bytes.put_slice(head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes());
    bytes.put_slice(b" HTTP/1.1\r\n");
    let mut has_te = false;
    for (name, value) in &head.headers {
        if !may_stand_in_request(name.as_str()) {
            has_te |= name == header::TE;
            continue;
        }
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_slice(b": ");
        bytes.put_slice(value.as_bytes());
        bytes.put_slice(b"\r\n");
    }
    if switches {
        bytes.put_slice(b"connection: upgrade\r\nupgrade: websocket\r\n");
    } else if has_te && wants_trailers(&head.headers) {
        // RFC 9110 section 10.1.4: `TE` is for this connection, so `Connection` names it.
        bytes.put_slice(b"connection: te\r\nte: trailers\r\n");
    }
    if chunked {
        bytes.put_slice(b"transfer-encoding: chunked\r\n");
    }
    bytes.put_slice(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&'static str, &str)]) -> RequestHeader {
        let mut head = RequestHeader::build_no_case("GET", b"/a?b=c", None).unwrap();
        head.append_header("host", "a.example").unwrap();
        for (name, value) in fields {
            head.append_header(*name, *value).unwrap();
        }
        head
    }

    #[test]
    fn fields_of_the_clients_connection_are_not_forwarded() {
        let head = head(&[("connection", "te"), ("te", "gzip"), ("x-a", "1"), ("x-a", "2")]);
        let text = |chunked| String::from_utf8(bytes(&head, chunked, false).to_vec()).unwrap();
        let fields = "GET /a?b=c HTTP/1.1\r\nhost: a.example\r\nx-a: 1\r\nx-a: 2\r\n";
        assert_eq!(text(false), format!("{fields}\r\n"), "the client has sent a length");
        assert_eq!(text(true), format!("{fields}transfer-encoding: chunked\r\n\r\n"));
        let switching = bytes(&head, false, true);
        assert_eq!(switching, format!("{fields}connection: upgrade\r\nupgrade: websocket\r\n\r\n"));
    }
    #[test]
    fn an_upstream_learns_that_the_client_accepts_trailers() {
        let head = head(&[("te", "gzip;q=0.5, Trailers"), ("connection", "te")]);
        let fields = "GET /a?b=c HTTP/1.1\r\nhost: a.example\r\n";
        assert_eq!(bytes(&head, false, false), format!("{fields}connection: te\r\nte: trailers\r\n\r\n"));
        assert_eq!(bytes(&head, false, true), format!("{fields}connection: upgrade\r\nupgrade: websocket\r\n\r\n"));
    }
}
