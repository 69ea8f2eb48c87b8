//! Header blocks over several frames, and promises, which no client may make: RFC 9113 sections 4.3, 6.6 and 6.10.

use super::Outcome::{Connection, Served, Stream};
use super::{Asks, Case, ENHANCE_YOUR_CALM, PROTOCOL_ERROR, WHOLE_CONNECTION, WRONG, body, case, hold};
use crate::world::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, PUSH_PROMISE, data, frame, headers,
    literal, reset, settings, window_update,
};

fn continuation(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, flags, stream, block)
}

/// The block in pieces at these places, the first with HEADERS that end the stream.
fn in_pieces(block: &[u8], places: &[usize]) -> Vec<u8> {
    let mut frames = frame(HEADERS, END_STREAM, 1, &block[..places[0]]);
    for (number, place) in places.iter().enumerate() {
        let end = places.get(number + 1).copied();
        let flags = if end.is_some() { 0 } else { END_HEADERS };
        frames.extend(continuation(1, flags, &block[*place..end.unwrap_or(block.len())]));
    }
    frames
}

fn whole_blocks(asks: &Asks<'_>) -> Vec<Case> {
    let list = asks.list();
    let served = |name, places: &[usize]| case(name, "6.10", in_pieces(&list, places), Served(&[1]));
    let trailers = literal("x-late", "1");
    let with_trailers = [
        asks.open(),
        data(1, b"12345", false),
        frame(HEADERS, END_STREAM, 1, &trailers[..3]),
        continuation(1, END_HEADERS, &trailers[3..]),
    ];
    vec![
        served("a block in two frames", &[10]),
        served("a block in three frames", &[2, 10]),
        served("a block in six frames", &[2, 3, 5, 30, 50]),
        served("a block whose HEADERS are empty", &[0]),
        served("a block whose last frame is empty", &[list.len()]),
        served("a block that is cut in every kind of place", &[1, 4, 29, 47]),
        case("trailers in two frames", "6.10", with_trailers.concat(), Served(&[1])),
        // RFC 9113 section 10.5 leaves the limit to the server: h2 counts frames, not bytes.
        case(
            "a block in single bytes",
            "10.5",
            in_pieces(&list, &(1..list.len()).collect::<Vec<_>>()),
            Connection(&[ENHANCE_YOUR_CALM]),
        ),
    ]
}

fn interrupted_blocks(asks: &Asks<'_>) -> Vec<Case> {
    let list = asks.list();
    let between = |name, bytes: Vec<u8>| {
        let begun = frame(HEADERS, END_STREAM, 1, &list[..10]);
        case(name, "4.3", [begun, bytes, continuation(1, END_HEADERS, &list[10..])].concat(), WRONG)
    };
    let later = |name, bytes: Vec<u8>| {
        let begun = [frame(HEADERS, END_STREAM, 1, &list[..10]), continuation(1, 0, &list[10..20])].concat();
        case(name, "6.10", [begun, bytes, continuation(1, END_HEADERS, &list[20..])].concat(), WRONG)
    };
    vec![
        between("DATA on the stream", data(1, b"x", false)),
        between("DATA on another stream", data(3, b"x", false)),
        between("HEADERS on the stream", headers(1, &list, true)),
        between("HEADERS on another stream", headers(3, &list, true)),
        between("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16])),
        between("RST_STREAM", reset(1, 8)),
        between("SETTINGS", settings(&[])),
        between("PING", frame(PING, 0, 0, &[0; 8])),
        between("GOAWAY", frame(GOAWAY, 0, 0, &[0; 8])),
        between("WINDOW_UPDATE", window_update(0, 1)),
        between("an unknown type", frame(0xee, 0, 1, b"x")),
        between("CONTINUATION of another stream", continuation(3, END_HEADERS, &list)),
        later("PING after CONTINUATION", frame(PING, 0, 0, &[0; 8])),
        later("HEADERS after CONTINUATION", headers(3, &list, true)),
        later("an unknown type after CONTINUATION", frame(0xee, 0, 0, b"x")),
    ]
}

fn blocks_without_a_beginning(asks: &Asks<'_>) -> Vec<Case> {
    let keyless = asks.keyless();
    let end = continuation(1, END_HEADERS, &keyless);
    let forbidden = [asks.list(), literal("connection", "close")].concat();
    vec![
        case("CONTINUATION after a whole block", "6.10", [headers(1, &keyless, false), end.clone()].concat(), WRONG),
        case(
            "CONTINUATION after a whole block in two",
            "6.10",
            [in_pieces(&keyless, &[10]), end.clone()].concat(),
            WRONG,
        ),
        case("CONTINUATION after DATA", "6.10", [asks.open(), data(1, b"1", false), end.clone()].concat(), WRONG).cut(),
        case("CONTINUATION first of all", "6.10", end, WRONG),
        // h2 drops the block at its first forbidden field, and then finds a CONTINUATION without HEADERS.
        case(
            "a forbidden field before a CONTINUATION",
            "8.2.2",
            in_pieces(&forbidden, &[forbidden.len()]),
            Stream(1, &[PROTOCOL_ERROR]),
        )
        .instead(WHOLE_CONNECTION),
    ]
}

fn promises(asks: &Asks<'_>) -> Vec<Case> {
    let promise = |stream, promised: u8| {
        frame(PUSH_PROMISE, END_HEADERS, stream, &[&[0, 0, 0, promised][..], &asks.list()].concat())
    };
    vec![
        case("a promise on an open stream", "8.4", [asks.open(), promise(1, 2)].concat(), WRONG).cut(),
        case("a promise of an odd stream", "8.4", [asks.open(), promise(1, 3), body()].concat(), WRONG).cut(),
        case("a promise on a stream that is idle", "8.4", promise(1, 2), WRONG),
        case("a promise after a request", "8.4", [headers(1, &asks.keyless(), true), promise(1, 2)].concat(), WRONG),
        case(
            "a promise of 3 bytes",
            "6.6",
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0]),
            Connection(&[PROTOCOL_ERROR, super::FRAME_SIZE_ERROR]),
        ),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_block_in_several_frames_is_one_block() {
    hold(whole_blocks).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_no_frame_may_interrupt_a_block() {
    hold(interrupted_blocks).await;
    hold(blocks_without_a_beginning).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_clients_push_promise_ends_the_connection() {
    hold(promises).await;
}
