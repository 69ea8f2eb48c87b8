//! Chunked responses as servers write them, also unusually, byte by byte over both versions of clients.

use crate::upstream_responses::{ENDINGS, Then, Variant, answer, sizes, trailers};
use crate::world::client::{Ask, Reply};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, World};

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

#[tokio::test]
async fn a_response_is_complete_with_its_last_chunk() {
    let world = World::start().await;
    for over_http2 in [false, true] {
        for (body, complete) in ENDINGS {
            for act in [Act::AnswerAndClose(answer(body)), Act::AnswerAndReset(answer(body))] {
                world.blog.next(act.clone());
                let reply = ask(&world, over_http2).await;
                assert_eq!((reply.text(), reply.complete), ("hello", complete), "{act:?}, HTTP/2: {over_http2}");
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
