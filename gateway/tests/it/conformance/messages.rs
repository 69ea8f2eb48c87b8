//! Requests as sequences of frames: RFC 9113 sections 8.1 and 8.1.1, and the form in which valid ones reach an
//! upstream.

use super::Outcome::{Served, Stream};
use super::peer::{Peer, Seen};
use super::{Asks, Case, PROTOCOL_ERROR, WHOLE_CONNECTION, block, body, case, hold, padded_data};
use crate::world::frames::{data, headers};
use crate::world::{DEMO, World, within};

const MALFORMED: super::Outcome = Stream(1, &[PROTOCOL_ERROR]);

/// A body of five bytes, and then these trailers.
fn with_trailers(asks: &Asks<'_>, trailers: &[(&str, &str)]) -> Vec<u8> {
    [asks.open(), data(1, b"12345", false), headers(1, &block(trailers), true)].concat()
}

fn trailers(asks: &Asks<'_>) -> Vec<Case> {
    let these =
        |name, section, trailers: &[(&str, &str)]| case(name, section, with_trailers(asks, trailers), MALFORMED).cut();
    // h2 drops pseudo-fields behind a body. The gateway passes no trailer of a request on, so no upstream sees them.
    let dropped = |name, trailers: &[(&str, &str)]| {
        case(name, "8.1", with_trailers(asks, trailers), MALFORMED).instead(Served(&[1]))
    };
    let endless = [asks.open(), data(1, b"12345", false), headers(1, &block(&[("x-late", "1")]), false)].concat();
    let at_once = [asks.open(), headers(1, &block(&[("x-late", "1")]), false), body()].concat();
    vec![
        case("trailers", "8.1", with_trailers(asks, &[("x-late", "1")]), Served(&[1])),
        case("trailers of no fields", "8.1", with_trailers(asks, &[]), Served(&[1])),
        case("trailers that do not end the request", "8.1", endless, MALFORMED).cut(),
        case("trailers that do not end the request before its body", "8.1", at_once, MALFORMED).cut(),
        case(
            "trailers, and no body at all",
            "8.1",
            [headers(1, &asks.post(&[]), false), headers(1, &block(&[("x-late", "1")]), true)].concat(),
            Served(&[1]),
        ),
        dropped(":method in trailers", &[(":method", "DELETE")]),
        dropped(":path in trailers", &[(":path", "/")]),
        dropped(":authority in trailers", &[(":authority", "other.tollhouse.localhost")]),
        dropped(":status in trailers", &[(":status", "200")]),
        these("an unknown pseudo-field in trailers", "8.1", &[(":late", "1")]).instead(WHOLE_CONNECTION),
        these("a pseudo-field behind a field in trailers", "8.1", &[("x-late", "1"), (":path", "/")]),
        these("an upper-case name in trailers", "8.2", &[("X-Late", "1")]).instead(WHOLE_CONNECTION),
        these("connection in trailers", "8.2.2", &[("connection", "close")]),
        these("transfer-encoding in trailers", "8.2.2", &[("transfer-encoding", "chunked")]),
    ]
}

fn lengths(asks: &Asks<'_>) -> Vec<Case> {
    let with = |length: &str, rest: &[Vec<u8>]| {
        [headers(1, &asks.post(&[("content-length", length)]), false), rest.concat()].concat()
    };
    let bad = |name, length: &str, rest: &[Vec<u8>]| case(name, "8.1.1", with(length, rest), MALFORMED).cut();
    let whole = || [body()];
    let both = |first, second| {
        let head = asks.post(&[("content-length", first), ("content-length", second)]);
        [headers(1, &head, false), body()].concat()
    };
    let nothing = |length| headers(1, &asks.post(&[("content-length", length)]), true);
    let late = headers(1, &block(&[("x-late", "1")]), true);
    vec![
        case("a length and as much", "8.1.1", with("5", &whole()), Served(&[1])),
        case(
            "a length over three frames",
            "8.1.1",
            with("5", &[data(1, b"12", false), data(1, b"345", false), data(1, b"", true)]),
            Served(&[1]),
        ),
        case("a length of 0 and nothing", "8.1.1", nothing("0"), Served(&[1])),
        case("a length and no body", "8.1.1", nothing("5"), MALFORMED),
        bad("a length and less", "5", &[data(1, b"1234", true)]),
        bad("a length and more", "5", &[data(1, b"123456", true)]),
        bad("a length and more over two frames", "5", &[data(1, b"123", false), data(1, b"456", true)]),
        bad("a length and more that does not end", "5", &[data(1, b"123456", false)]),
        bad("a length and nothing", "5", &[data(1, b"", true)]),
        // The request is complete without the byte, which is dropped. Whether the upstream has the request by then
        // depends on timing.
        bad("a length of 0 and a byte", "0", &[data(1, b"1", true)]).whole(),
        bad("a length and less before trailers", "5", &[data(1, b"1234", false), late]),
        bad("a length that padding makes up for", "5", &[padded_data(1, b"\x02123\0\0", true)]),
        case("two lengths that differ", "8.1.1", both("5", "6"), MALFORMED).cut(),
        case("two lengths, the second no number", "8.1.1", both("5", "x"), MALFORMED).cut(),
        bad("a length as a list", "5, 5", &whole()),
        bad("a length with a plus", "+5", &whole()),
        bad("a length with a minus", "-5", &whole()),
        bad("a malformed length", "five", &whole()),
        bad("a length in hexadecimal", "0x5", &whole()),
        bad("a length that is empty", "", &whole()),
        bad("a length beyond 64 bits", "18446744073709551621", &whole()),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_trailers_end_a_request_or_are_refused() {
    hold(trailers).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_body_has_its_declared_length() {
    hold(lengths).await;
}

/// Sends this on one connection and waits for the end of the first stream.
async fn answered(world: &World, frames: impl FnOnce(&Asks<'_>) -> Vec<u8>) -> Seen {
    let mut peer = Peer::connect(world, DEMO).await;
    within(async {
        peer.open().await;
        peer.send(&frames(&Asks::of(world))).await;
        assert!(peer.until(|seen| seen.stream(1).is_over()).await, "cut off: {}", peer.seen);
    })
    .await;
    peer.seen
}

/// Parts of HTTP/2 must not reach an upstream over HTTP/1.1.
// promise: edge.14
#[tokio::test]
async fn over_http_2_an_upstream_gets_neither_padding_nor_trailers() {
    let world = World::start().await;
    let seen = answered(&world, |asks| {
        let head = asks.post(&[("content-length", "5"), ("te", "trailers"), ("trailer", "x-late")]);
        let trailers = block(&[(":path", "/late"), ("x-late", "1")]);
        let body = [padded_data(1, b"\x0312\0\0\0", false), data(1, b"", false), data(1, b"345", false)].concat();
        [headers(1, &head, false), body, headers(1, &trailers, true)].concat()
    })
    .await;
    assert!(seen.stream(1).is_served(), "{seen}");
    let request = world.orders.only_request();
    assert_eq!((request.body.as_slice(), request.complete), (&b"12345"[..], true), "{request:?}");
    assert_eq!(request.head.first_line, "POST /v2/orders HTTP/1.1");
    assert_eq!(request.head.get("content-length"), Some("5"), "{request:?}");
    for name in ["x-late", "trailer", "transfer-encoding"] {
        assert_eq!(request.head.get(name), None, "{request:?}");
    }
    // RFC 9110 section 10.1.4: it is the gateway's own, because it accepts trailers for the client.
    assert_eq!((request.head.get("te"), request.head.get("connection")), (Some("trailers"), Some("te")));
}

/// A client that does not know the length of its body sends the end in a frame of its own. The upstream would take
/// bytes after the last chunk for the next request, and another client would get the answer.
// promise: edge.14
#[tokio::test]
async fn over_http_2_a_separate_end_of_a_body_ends_it_once_at_the_upstream() {
    let ends = [data(1, b"", true), padded_data(1, &[2, 0, 0], true), headers(1, &block(&[("x-late", "1")]), true)];
    for end in &ends {
        for body in [&b""[..], b"12345"] {
            let world = World::start().await;
            let seen = answered(&world, |asks| {
                [headers(1, &asks.post(&[]), false), data(1, body, false), end.clone()].concat()
            })
            .await;
            assert!(seen.stream(1).is_served(), "{seen}");
            assert_eq!(world.ask(world.list()).await.status, 200, "the next request");
            let requests = world.orders.requests();
            let lines: Vec<&str> = requests.iter().map(|request| request.head.first_line.as_str()).collect();
            assert_eq!(lines, ["POST /v2/orders HTTP/1.1", "GET /v1/store/orders HTTP/1.1"], "{end:?}");
            assert_eq!((requests[0].body.as_slice(), requests[0].complete), (body, true));
        }
    }
}

/// RFC 9110 section 8.6: a repeated length is refused, or passed on once.
// promise: edge.14
#[tokio::test]
async fn over_http_2_a_repeated_length_reaches_the_upstream_once() {
    let world = World::start().await;
    let seen = answered(&world, |asks| {
        let head = asks.post(&[("content-length", "5"), ("content-length", "5")]);
        [headers(1, &head, false), body()].concat()
    })
    .await;
    let stream = seen.stream(1);
    if stream.is_served() {
        assert_eq!(world.orders.only_request().head.all("content-length"), ["5"]);
    } else {
        assert!(stream.reset.is_some() || stream.status == Some(400), "{seen}");
        world.assert_upstreams_untouched();
    }
}

/// RFC 9113 section 8.2.3: browsers send each cookie as a separate field, and HTTP/1.1 has one field for all.
// promise: edge.14
#[tokio::test]
async fn over_http_2_cookies_in_pieces_reach_the_upstream_as_one_field() {
    let world = World::start().await;
    let seen = answered(&world, |asks| {
        let fields = [("cookie", "a=b"), ("x-between", "1"), ("cookie", "c=d"), ("cookie", "e=f")];
        headers(1, &asks.list_with(&fields), true)
    })
    .await;
    assert!(seen.stream(1).is_served(), "{seen}");
    let request = world.orders.only_request();
    assert_eq!(request.head.all("cookie"), ["a=b; c=d; e=f"], "{request:?}");
}
