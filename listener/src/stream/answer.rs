//! Error responses of the listener itself.

use std::fmt::Write as _;

use super::{ByteStream, ClientStream, StreamState};
use crate::ListenerRefusal;
use contract::rejection::Rejection;

/// The most bytes of a request line in a log.
const EXCERPT_BYTES_MAX: usize = 256;

/// The methods named by a 405 before the site is known.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

impl<S: ByteStream> ClientStream<S> {
    /// Refuses a message that is not a request, and answers it.
    pub(crate) fn refuse(&mut self, rejection: Rejection) {
        self.state = StreamState::Refused;
        let line = self.gate.as_ref().map(super::Gate::first_line).unwrap_or_default();
        // A response to HEAD has no body; the client would read a body as the next response.
        let to_head = line.starts_with(b"HEAD ");
        let first_line = excerpt(line);
        let request_id = self.hooks.request_id();
        let response = compose(rejection, &request_id, to_head);
        self.out.append(response.as_bytes());
        self.hooks.refused(&ListenerRefusal {
            rejection,
            connection: &self.connection,
            request_id: &request_id,
            first_line: &first_line,
        });
    }
}

fn compose(rejection: Rejection, request_id: &str, to_head: bool) -> String {
    let status = http::StatusCode::from_u16(rejection.status()).unwrap_or(http::StatusCode::BAD_REQUEST);
    let body = rejection.json();
    let date = pingora::protocols::http::date::get_cached_date();
    let mut response = String::with_capacity(512 + body.len());
    // Writing to a String cannot fail.
    let _ = write!(
        response,
        "HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Request-Id: {request_id}\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or("Refused"),
        date.to_str().unwrap_or_default(),
        body.len(),
    );
    if rejection == Rejection::MethodNotAllowed {
        let _ = write!(response, "Allow: {ALLOW}\r\n");
    }
    response.push_str("Connection: close\r\n\r\n");
    if !to_head {
        response.push_str(body);
    }
    response
}

/// The request line for a log: without its query, which may carry secrets, and in visible ASCII.
fn excerpt(line: &[u8]) -> String {
    line.iter()
        .take_while(|byte| **byte != b'?')
        .take(EXCERPT_BYTES_MAX)
        .map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_no_query_no_control_and_an_end() {
        assert_eq!(excerpt(b"GET /a?token=secret HTTP/1.1"), "GET /a");
        assert_eq!(excerpt(b"\x16\x03\x01 \x1b[31m\xc3\xa9"), "... .[31m..");
        assert_eq!(excerpt(&[b'a'; 1_000]).len(), 256);
    }

    #[test]
    fn a_response_has_all_fields_that_a_client_needs() {
        let response = compose(Rejection::BadFraming, "req-1", false);
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\nDate: "));
        for line in [
            "Content-Type: application/json",
            "Cache-Control: no-store",
            "X-Request-Id: req-1",
            "Connection: close",
            &format!("Content-Length: {}", body.len()),
        ] {
            assert!(head.lines().any(|found| found == line), "{line} is missing in {head}");
        }
        assert_eq!(body, Rejection::BadFraming.body().to_json());
        assert!(compose(Rejection::MethodNotAllowed, "", false).contains("\r\nAllow: GET, "));
        assert!(compose(Rejection::BadHost, "", true).ends_with("\r\n\r\n"));
    }
}
