//! Compares the gate of the edge with two other parsers, pingora and hyper (the services behind the edge use hyper):
//! all must agree on the end of a message and on its body.
//!
//! A parser may refuse a message that the gate released: that is safe. It may not read more of it, or less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use listener::fuzzing;
use pingora::protocols::http::v1::server::HttpSession;
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::{Builder, Runtime};

/// A second message on the connection: a parser must continue exactly there.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: next.example\r\n\r\n";

/// The memory of a connection, and the largest compared input.
const BYTES_MAX: usize = 64 * 1024;

/// No parser needs this long for bytes in memory. A parser that does is waiting for bytes beyond the message.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Messages that both other parsers accepted.
static COMPARED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// One runtime for all messages. Its clock stops while a parser works, and jumps ahead when the parser waits in
    /// vain.
    static RUNTIME: Option<Runtime> = Builder::new_current_thread().enable_all().start_paused(true).build().ok();
}

/// The number of messages that both other parsers read.
pub fn compared() -> u64 {
    COMPARED.load(Ordering::Relaxed)
}

/// The request line and the body of a message, as a service received it.
type Received = (String, Vec<u8>);

/// Passes each whole message that the gate releases to both other parsers.
pub fn boundaries(bytes: &[u8]) {
    let bytes = bytes.get(..BYTES_MAX.min(bytes.len())).unwrap_or_default();
    let passed = fuzzing::gate(bytes, 0);
    let mut start = 0;
    for (end, _, body) in passed.messages {
        let message = bytes.get(start..end).unwrap_or_default();
        start = end;
        // One empty line before a message is skipped (RFC 9112 section 2.2).
        let message = message.strip_prefix(b"\r\n").unwrap_or(message);
        if !message.is_empty() {
            agree(message, &body);
        }
    }
}

fn agree(message: &[u8], body: &[u8]) {
    // A tunnel and a protocol switch have no end of their own.
    if message.starts_with(b"CONNECT ") || contains(message, b"upgrade:") {
        return;
    }
    let (proxys, services) = RUNTIME.with(|runtime| {
        let Some(runtime) = runtime else { return (None, None) };
        runtime.block_on(async { (pingoras(message).await, hypers(message).await) })
    });
    let text = message.escape_ascii();
    if let (Some(proxys), Some((services, went_on))) = (proxys, services) {
        COMPARED.fetch_add(1, Ordering::Relaxed);
        assert_eq!((&*proxys, &*services), (body, body), "two bodies of one message: {text}");
        assert!(went_on, "the next message was not found behind: {text}");
    }
}

fn contains(message: &[u8], wanted: &[u8]) -> bool {
    message.windows(wanted.len()).any(|window| window.eq_ignore_ascii_case(wanted))
}

/// The body as pingora reads it; `None` if it refuses the message. It never finds bytes after the message.
async fn pingoras(message: &[u8]) -> Option<Vec<u8>> {
    let (mut client, server) = tokio::io::duplex(2 * BYTES_MAX);
    client.write_all(message).await.ok()?;
    let reading = async {
        let mut session = HttpSession::new(Box::new(server));
        session.read_request().await.ok()??;
        let mut body = Vec::new();
        loop {
            match session.read_body_bytes().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => return Some(body),
                Err(_) => return None,
            }
        }
    };
    match tokio::time::timeout(WAIT_MAX, reading).await {
        Ok(body) => body,
        Err(_) => Some(b"pingora waits for bytes beyond the message".to_vec()),
    }
}

/// The body as hyper reads it, and whether it found the next message after it; `None` if it refuses the message.
async fn hypers(message: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (mut client, server) = tokio::io::duplex(4 * BYTES_MAX);
    client.write_all(message).await.ok()?;
    client.write_all(NEXT).await.ok()?;
    client.shutdown().await.ok()?;
    let seen = Arc::new(Mutex::new(Vec::<Received>::new()));
    let book = Arc::clone(&seen);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let book = Arc::clone(&book);
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let body = request.into_body().collect().await?.to_bytes();
            book.lock().unwrap_or_else(PoisonError::into_inner).push((line, body.to_vec()));
            Ok::<_, hyper::Error>(http::Response::new(Full::new(Bytes::new())))
        }
    });
    let serving =
        hyper::server::conn::http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service);
    // Errors are refusals: messages understood before them are recorded.
    let _ = tokio::time::timeout(WAIT_MAX, serving).await;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, body) = seen.first()?;
    let went_on = seen.get(1).is_some_and(|(line, body)| line == "GET /next" && body.is_empty()) && seen.len() == 2;
    // After a client has announced its last message, or spoken HTTP/1.0, nothing more is read.
    let request_line = message.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let is_last = request_line.ends_with(b" HTTP/1.0") || contains(message, b"connection:");
    Some((body.clone(), went_on || (is_last && seen.len() == 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn both(message: &str) -> (Option<Vec<u8>>, Option<(Vec<u8>, bool)>) {
        (pingoras(message.as_bytes()).await, hypers(message.as_bytes()).await)
    }

    // promise: edge.17
    #[tokio::test(start_paused = true)]
    async fn three_parsers_read_well_formed_messages() {
        for (message, body) in [
            ("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", ""),
            ("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\n12345", "12345"),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\n12345\r\n0\r\nX: y\r\n\r\n",
                "12345",
            ),
            ("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", "x"),
            ("GET / HTTP/1.0\r\nX: HTTP/1.1\r\nHost: a.example\r\n\r\n", ""),
        ] {
            let body = body.as_bytes().to_vec();
            assert_eq!(both(message).await, (Some(body.clone()), Some((body, true))), "{message:?}");
        }
    }

    #[test]
    fn pipelined_messages_are_compared_one_by_one() {
        let one = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\n12345";
        assert_eq!(fuzzing::gate(one.repeat(3).as_bytes(), 0).messages.len(), 3);
        boundaries(one.repeat(3).as_bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_with_two_possible_ends_is_detected() {
        // The release of a gate that let both lengths pass: the services would read on elsewhere.
        let (_, services) = both("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n12345").await;
        assert!(services.is_none_or(|(_, went_on)| !went_on));
        let (proxys, _) = both("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n12345").await;
        assert_ne!(proxys.as_deref(), Some(&b"12345"[..]), "pingora accepted an end that came too early");
    }
}
