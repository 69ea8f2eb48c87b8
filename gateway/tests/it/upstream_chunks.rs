//! Chunked responses as servers write them, also unusually, byte by byte over both versions of clients.

use crate::world::client::{Ask, Reply};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, World};

/// What becomes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The client gets all of it, and the connection serves the next request.
    Kept,
    /// The client gets all of it, and the next request gets another connection.
    Left,
    /// The client gets the data before the fault, and learns that more was to come.
    Cut,
}

/// The body of a response after its head; the data is `hello`, or before a fault the start of it.
type Variant = (&'static str, String, Then);

/// Sizes and extensions.
fn sizes() -> Vec<Variant> {
    let text = |text: &str| text.to_owned();
    let signed = |length: usize| {
        "hello".chars().map(|one| format!("1;chunk-signature={}\r\n{one}\r\n", "f".repeat(length))).collect::<String>()
            + "0\r\n\r\n"
    };
    vec![
        ("one chunk", text("5\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("chunks of one byte", text("1\r\nh\r\n1\r\ne\r\n1\r\nl\r\n1\r\nl\r\n1\r\no\r\n0\r\n\r\n"), Then::Kept),
        ("leading zeros", text("000000000000000000000005\r\nhello\r\n0000\r\n\r\n"), Then::Kept),
        ("an extension", text("5;a\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("an extension with a value", text("5;a=b;c\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("a quoted extension", text("5;a=\"b; c\\\"d\"\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("an extension without a name", text("5;\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("an extension of the last chunk", text("5\r\nhello\r\n0;a=b\r\n\r\n"), Then::Kept),
        ("signatures of chunks", signed(64), Then::Kept),
        ("extensions of 10 KB", signed(10_000), Then::Kept),
        ("space before an extension", text("5 ; a=b\r\nhello\r\n0\r\n\r\n"), Then::Left),
        ("space after a semicolon", text("5; a=b\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("sizes padded with spaces", text("5     \r\nhello\r\n0     \r\n\r\n"), Then::Left),
        ("sizes padded with tabs", text("5\t\r\nhello\r\n0\t\r\n\r\n"), Then::Left),
        ("line feeds alone", text("5\nhello\n0\n\n"), Then::Left),
        ("a line feed alone after a size", text("5\nhello\r\n0\r\n\r\n"), Then::Left),
        ("a line feed alone after the data", text("5\r\nhello\n0\r\n\r\n"), Then::Left),
        ("a line feed alone at the end", text("5\r\nhello\r\n0\r\n\n"), Then::Left),
        ("no size", text("5\r\nhello\r\n\r\n\r\n"), Then::Cut),
        ("a size with a prefix", text("5\r\nhello\r\n0x5\r\nhello\r\n0\r\n\r\n"), Then::Cut),
        ("a negative size", text("5\r\nhello\r\n-1\r\n\r\n"), Then::Cut),
        ("a size of 68 bits", text("5\r\nhello\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"), Then::Cut),
        ("data without a line end", text("5\r\nhello0\r\n\r\n"), Then::Cut),
        ("a carriage return in an extension", text("5\r\nhello\r\n5;a\rb\r\nhello\r\n0\r\n\r\n"), Then::Cut),
        ("an extension of 20 KB", format!("5\r\nhello\r\n1;{}\r\n!\r\n0\r\n\r\n", "a".repeat(20_000)), Then::Cut),
    ]
}

/// What follows the last chunk.
fn trailers() -> Vec<Variant> {
    let with = |lines: &str| format!("5\r\nhello\r\n0\r\n{lines}\r\n");
    let many = |number: usize| with(&(0..number).map(|one| format!("X-{one}: 1\r\n")).collect::<String>());
    vec![
        ("a trailer", with("X-Sum: 6\r\n"), Then::Kept),
        ("Cache-Control", with("Cache-Control: no-store\r\n"), Then::Kept),
        ("Content-Type", with("Content-Type: text/plain\r\n"), Then::Kept),
        ("Set-Cookie", with("Set-Cookie: a=b\r\n"), Then::Kept),
        ("X-Request-Id", with("X-Request-Id: 1\r\n"), Then::Kept),
        ("an underscore", with("x_sum: 6\r\n"), Then::Kept),
        ("17 trailers", many(17), Then::Kept),
        ("200 trailers", many(200), Then::Kept),
        ("a name of 62 bytes", with(&format!("X-{}: 6\r\n", "a".repeat(60))), Then::Kept),
        ("a trailer of 5 KB", with(&format!("X-Sum: {}\r\n", "6".repeat(5_000))), Then::Kept),
        ("Content-Length", with("Content-Length: 9\r\n"), Then::Kept),
        ("Transfer-Encoding", with("Transfer-Encoding: chunked\r\n"), Then::Kept),
        ("a folded trailer", with("X-Sum: 6\r\n 7\r\n"), Then::Kept),
        ("a trailer without a colon", with("X-Sum\r\n"), Then::Kept),
        ("trailers with line feeds alone", with("X-Sum: 6\nX-Other: 7\n"), Then::Left),
        ("a carriage return in a trailer", with("X-Sum: 6\r7\r\n"), Then::Left),
        ("trailers of 80 KB", with(&format!("X-Sum: {}\r\n", "6".repeat(80_000))), Then::Left),
    ]
}

/// The whole response of a raw server.
fn answer(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

/// Asks over one version or the other; a response without its end is not `complete`.
async fn ask(world: &World, over_http2: bool) -> Reply {
    let ask = Ask::get(BLOG, "/");
    if over_http2 {
        world.h2(BLOG).await.try_ask(&ask).await.expect("a head")
    } else {
        world.tls(BLOG).await.try_ask(&ask).await.expect("a head")
    }
}

#[tokio::test]
async fn chunked_responses_of_every_legal_form_are_forwarded() {
    let variants: Vec<Variant> = sizes().into_iter().chain(trailers()).collect();
    assert!(variants.len() >= 37);
    let world = World::start().await;
    for (what, body, then) in &variants {
        for over_http2 in [false, true] {
            assert_eq!(ask(&world, over_http2).await.text(), "[]");
            let before = world.blog.connections();
            world.blog.next(Act::Answer(answer(body)));
            let reply = ask(&world, over_http2).await;
            let expected = (200, "hello", *then != Then::Cut);
            assert_eq!((reply.status, reply.text(), reply.complete), expected, "{what}, HTTP/2: {over_http2}");
            assert_eq!(ask(&world, over_http2).await.text(), "[]", "{what}");
            let is_kept = world.blog.connections() == before;
            assert_eq!(is_kept, *then == Then::Kept, "{what}, HTTP/2: {over_http2}");
        }
    }
    world.end().await;
}

/// Without the blank line at the end. The body is complete with its last chunk (RFC 9112 section 8).
#[tokio::test]
async fn a_response_is_complete_with_its_last_chunk() {
    let world = World::start().await;
    for over_http2 in [false, true] {
        for body in ["5\r\nhello\r\n0\r\n", "5\r\nhello\r\n0\r\nX-Sum: 6\r\n", "5\r\nhello\r\n0\r\nX-S"] {
            for act in [Act::AnswerAndClose(answer(body)), Act::AnswerAndReset(answer(body))] {
                world.blog.next(act.clone());
                let reply = ask(&world, over_http2).await;
                assert_eq!((reply.text(), reply.complete), ("hello", true), "{act:?}, HTTP/2: {over_http2}");
            }
        }
        for body in ["5\r\nhello\r\n", "5\r\nhello\r\n0", "5\r\nhello"] {
            for act in [Act::AnswerAndClose(answer(body)), Act::AnswerAndReset(answer(body))] {
                world.blog.next(act.clone());
                let reply = ask(&world, over_http2).await;
                assert_eq!((reply.text(), reply.complete), ("hello", false), "{act:?}, HTTP/2: {over_http2}");
            }
        }
    }
    world.end().await;
}

/// A server that answers and closes: the kernel resets the connection, because the rest of the request is unread.
#[tokio::test]
async fn a_complete_response_is_not_lost_to_a_reset_after_it() {
    let world = World::start().await;
    let body = "0123456789".repeat(20_000);
    for over_http2 in [false, true] {
        for bytes in [response("413 Too Large", "", "hello").into_bytes(), answer("5\r\nhello\r\n0\r\n\r\n")] {
            world.blog.next(Act::AnswerBeforeBodyAndClose(bytes));
            let ask = Ask::new("POST", BLOG, "/").body(&body);
            let reply = if over_http2 {
                world.h2(BLOG).await.try_ask(&ask).await.expect("a response")
            } else {
                world.tls(BLOG).await.try_ask(&ask).await.expect("a response")
            };
            assert_eq!((reply.text(), reply.complete), ("hello", true), "HTTP/2: {over_http2}");
        }
    }
    world.end().await;
}
