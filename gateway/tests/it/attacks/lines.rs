//! 3.1: request lines, versions, other protocols, expectations, sizes, fields that `Connection` lists.

use contract::rejection::Rejection::{
    BadConnectionHeader, BadRequest, BadTarget, BodyNotAllowed, ExpectationFailed, HeadersTooLarge, MethodNotAllowed,
    UriTooLong, VersionNotSupported,
};

use super::{Row, get, post, refused_by_listener, row, smuggled};
use crate::world::{DEMO, ORDERS};

fn line(line: &str) -> String {
    format!("{line}\r\nHost: {DEMO}\r\n\r\n")
}

fn request_lines() -> Vec<Row> {
    vec![
        row("HTTP/0.9", "GET /\r\n", BadRequest),
        row("HTTP/0.9 with a version", line("GET / HTTP/0.9"), VersionNotSupported),
        row("HTTP/1.2", line("GET / HTTP/1.2"), VersionNotSupported),
        row("HTTP/2.0 as text", line("GET / HTTP/2.0"), VersionNotSupported),
        row("a version in lower case", line("GET / http/1.1"), BadRequest),
        row("a version of two digits", line("GET / HTTP/1.10"), BadRequest),
        row("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VersionNotSupported),
        row("another protocol", "SSH-2.0-OpenSSH_9.2\r\n", BadRequest),
        row("two spaces", line("GET  / HTTP/1.1"), BadTarget),
        row("a tab", line("GET\t/ HTTP/1.1"), BadRequest),
        row("a space in the target", line("GET /a b HTTP/1.1"), BadTarget),
        row("a space at the end", line("GET / HTTP/1.1 "), BadTarget),
        row("a fragment", line("GET /a#b HTTP/1.1"), BadTarget),
        row("a backslash", line("GET /a\\b HTTP/1.1"), BadTarget),
        row(
            "bytes that are not UTF-8",
            [b"GET /\xff\xfe HTTP/1.1\r\nHost: ", DEMO.as_bytes(), b"\r\n\r\n"].concat(),
            BadTarget,
        ),
        row("UTF-8", line("GET /\u{fc} HTTP/1.1"), BadTarget),
        row("%00", line("GET /a%00b HTTP/1.1"), BadTarget),
        row("half an escape", line("GET /a%4 HTTP/1.1"), BadTarget),
        row("a quote", line("GET /\"a\" HTTP/1.1"), BadTarget),
        row("a control byte", line("GET /a\x01 HTTP/1.1"), BadRequest),
        row("no leading slash", line("GET a HTTP/1.1"), BadTarget),
        row("* with GET", line("GET * HTTP/1.1"), BadTarget),
        row("a method that is no token", line("G(T / HTTP/1.1"), BadRequest),
        row("a method of 33 bytes", line(&format!("{} / HTTP/1.1", "A".repeat(33))), BadRequest),
        row("userinfo in the target", line(&format!("GET http://user@{DEMO}/ HTTP/1.1")), BadTarget),
        row("another scheme", line("GET file:///etc/passwd HTTP/1.1"), BadTarget),
        row("CONNECT", format!("CONNECT {DEMO}:443 HTTP/1.1\r\nHost: {DEMO}:443\r\n\r\n"), MethodNotAllowed),
        row("CONNECT with a path", line("CONNECT /x HTTP/1.1"), BadTarget),
    ]
}

fn sizes() -> Vec<Row> {
    let many: String = (0..101).map(|number| format!("X-{number}: y\r\n")).collect();
    let block: String = (0..5).map(|number| format!("X-{number}: {}\r\n", "y".repeat(8_000))).collect();
    let cookies: String = (0..1_000).map(|number| format!("Cookie: c{number}=v\r\n")).collect();
    vec![
        row("a target of 8,193 bytes", line(&format!("GET /{} HTTP/1.1", "a".repeat(8_192))), UriTooLong),
        row("101 fields", get(&many), HeadersTooLarge),
        row("a field of 9 KB", get(&format!("X: {}\r\n", "y".repeat(9_000))), HeadersTooLarge),
        row("40 KB of fields", get(&block), HeadersTooLarge),
        row("1,000 cookies in fields of their own", get(&cookies), HeadersTooLarge),
    ]
}

fn expectations_and_connections() -> Vec<Row> {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    vec![
        row("Expect without a body", get("Expect: 100-continue\r\n"), ExpectationFailed),
        row("Expect obscured", post("Content-Length: 5\r\nExpect: y 100-continue\r\n", "12345"), ExpectationFailed),
        row("Expect unknown", post("Content-Length: 5\r\nExpect: foo\r\n", "12345"), ExpectationFailed),
        row(
            "Expect twice",
            post("Content-Length: 5\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n", "12345"),
            ExpectationFailed,
        ),
        row("Connection: Authorization", get("Connection: Authorization\r\n"), BadConnectionHeader),
        row("Connection: X-Tenant-Id", get("Connection: close, X-Tenant-Id\r\n"), BadConnectionHeader),
        row(
            "Connection: Content-Length",
            post("Connection: Content-Length\r\nContent-Length: 5\r\n", "12345"),
            BadConnectionHeader,
        ),
        row("Connection: X-Forwarded-For", get("Connection: X-Forwarded-For\r\n"), BadConnectionHeader),
        row("ten nominations", get(&format!("Connection: {}\r\n", ["close"; 10].join(", "))), BadConnectionHeader),
        row("an upgrade with a body", post(&format!("{upgrade}Content-Length: 5\r\n"), "12345"), BodyNotAllowed),
        row(
            "an upgrade with chunks",
            post(&format!("{upgrade}Transfer-Encoding: chunked\r\n"), &smuggled()),
            BodyNotAllowed,
        ),
    ]
}

// promise: edge.4
#[tokio::test]
async fn request_lines_that_are_not_http_are_refused() {
    refused_by_listener(request_lines()).await;
}

// promise: edge.5
#[tokio::test]
async fn heads_beyond_their_limits_are_refused() {
    refused_by_listener(sizes()).await;
}

// promise: edge.6
#[tokio::test]
async fn expectations_and_nominations_that_deceive_are_refused() {
    refused_by_listener(expectations_and_connections()).await;
}

/// Bytes that are no HTTP at all on the plain port.
// promise: edge.4
#[tokio::test]
async fn a_client_hello_on_the_plain_port_is_refused() {
    let world = crate::world::World::start().await;
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.extend([7; 32]);
    super::is_refused(&world, world.plain().await, &row("a ClientHello", hello, BadRequest)).await;
}

/// TRACE reaches no upstream, and the rest of its request is not taken for the next one.
// promise: edge.4
#[tokio::test]
async fn trace_and_unknown_methods_reach_no_upstream() {
    let world = crate::world::World::start().await;
    for method in ["TRACE", "TRACK", "PROPFIND", "get", "FOO!BAR"] {
        let mut client = world.tls(DEMO).await;
        let head =
            format!("{method} {ORDERS} HTTP/1.1\r\nHost: {DEMO}\r\nAuthorization: Bearer {}\r\n\r\n", world.key.text);
        client.send(head).await;
        let reply = client.reply(method).await.expect("an answer");
        reply.refused(405, "method_not_allowed");
        assert_eq!(reply.header("allow"), Some("GET, HEAD, OPTIONS"), "{method}");
    }
    world.assert_upstreams_untouched();
}
