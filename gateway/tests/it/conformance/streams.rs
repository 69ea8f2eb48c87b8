//! Numbers and states of streams: RFC 9113 section 5.1.

use super::Outcome::{Connection, Ignored, Reset, Served, Stream};
use super::Step::{self, Begun, Ended, Send};
use super::{
    Asks, CANCEL, Case, Outcome, PROTOCOL_ERROR, REFUSED_STREAM, STREAM_CLOSED, WHOLE_CONNECTION, WRONG, block, case,
    hold, script,
};
use crate::world::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PRIORITY, PUSH_PROMISE, data, frame, headers, reset, settings,
    window_update,
};
use crate::world::{DEMO, ORDERS};

/// Streams that the gateway lets a client have at once.
const STREAMS_MAX: u32 = 100;

/// The number of a stream that was used before is unexpected (section 5.1.1), and the stream is closed (section 5.1).
const USED: Outcome = Connection(&[PROTOCOL_ERROR, STREAM_CLOSED]);

fn continuation(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, END_HEADERS, stream, block)
}

fn priority(stream: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 16])
}

fn numbers(asks: &Asks<'_>) -> Vec<Case> {
    let (list, keyless) = (asks.list(), asks.keyless());
    let promise = [&[0, 0, 0, 2][..], &list].concat();
    let two = |first, second| [headers(first, &keyless, true), headers(second, &keyless, true)].concat();
    vec![
        case("DATA on no stream", "6.1", data(0, b"x", true), WRONG),
        case("HEADERS on no stream", "6.2", headers(0, &list, true), WRONG),
        case("PRIORITY on no stream", "6.3", priority(0), WRONG),
        case("RST_STREAM on no stream", "6.4", reset(0, CANCEL), WRONG),
        case("PUSH_PROMISE on no stream", "6.6", frame(PUSH_PROMISE, END_HEADERS, 0, &promise), WRONG),
        case("CONTINUATION on no stream", "6.10", continuation(0, &list), WRONG),
        case("HEADERS on an even stream", "5.1.1", headers(2, &list, true), WRONG),
        case("DATA on an even stream", "5.1.1", data(2, b"x", true), WRONG),
        case("RST_STREAM on an even stream", "5.1.1", reset(2, CANCEL), WRONG),
        case("WINDOW_UPDATE on an even stream", "5.1.1", window_update(2, 1), WRONG),
        case("a lower number after a higher one", "5.1.1", two(5, 3), WRONG),
        case("the same number twice", "5.1.1", two(1, 1), USED),
        case(
            "numbers that skip others",
            "5.1.1",
            [headers(5, &list, true), headers(9, &list, true)].concat(),
            Served(&[5, 9]),
        ),
        case(
            "PRIORITY opens no stream and closes none",
            "5.1.1",
            [priority(9), headers(1, &list, true), headers(3, &list, true)].concat(),
            Served(&[1, 3]),
        ),
        case("the highest number", "5.1.1", headers(0x7fff_ffff, &list, true), Served(&[0x7fff_ffff])),
        case("a number after the highest", "5.1.1", two(0x7fff_ffff, 1), WRONG),
    ]
}

fn limit(asks: &Asks<'_>) -> Vec<Case> {
    // The windows are closed, so no stream ends.
    let keyless = asks.keyless();
    let ids = || (0..STREAMS_MAX).map(|number| 2 * number + 1);
    let all = ids().flat_map(|id| headers(id, &keyless, true));
    let one_more = headers(2 * STREAMS_MAX + 1, &keyless, true);
    let resets = ids().flat_map(|id| reset(id, CANCEL));
    let steps = vec![
        Send(settings(&[(4, 0)])),
        Send(all.chain(one_more).collect()),
        Step::Reset(2 * STREAMS_MAX + 1),
        Send(resets.collect()),
    ];
    vec![script("one stream more than allowed", "5.1.2", steps, Reset(2 * STREAMS_MAX + 1, &[REFUSED_STREAM])).shut()]
}

fn idle(_: &Asks<'_>) -> Vec<Case> {
    vec![
        case("DATA", "5.1", data(1, b"x", true), WRONG),
        case("RST_STREAM", "5.1", reset(1, CANCEL), WRONG),
        case("WINDOW_UPDATE", "5.1", window_update(1, 1), WRONG),
        case("CONTINUATION", "5.1", continuation(1, &[0x82]), WRONG),
        case("PRIORITY", "5.1", priority(1), Ignored),
    ]
}

/// The client has ended its side; its window keeps the gateway from ending the other.
fn half_closed(asks: &Asks<'_>) -> Vec<Case> {
    let keyless = asks.keyless();
    let then = |name, bytes: Vec<u8>, outcome| {
        let first = [settings(&[(4, 0)]), headers(1, &keyless, true)].concat();
        script(name, "5.1", vec![Send(first), Begun(1), Send(bytes)], outcome).shut()
    };
    let closed = Reset(1, &[STREAM_CLOSED]);
    vec![
        then("DATA", data(1, b"x", true), closed.clone()).instead(WHOLE_CONNECTION),
        then("DATA of no bytes", data(1, b"", false), closed.clone()).instead(WHOLE_CONNECTION),
        then("HEADERS", headers(1, &keyless, true), closed.clone()).instead(WHOLE_CONNECTION),
        // They would be malformed on an open stream, and h2 says so.
        then("HEADERS that do not end", headers(1, &keyless, false), closed).instead(Reset(1, &[PROTOCOL_ERROR])),
        then("CONTINUATION", continuation(1, &keyless), USED),
        then("PRIORITY", priority(1), Ignored),
        then("RST_STREAM", reset(1, CANCEL), Ignored),
        then("WINDOW_UPDATE lets the response out", window_update(1, 10_000), Stream(1, &[])),
    ]
}

/// Frames of each kind on a stream that is closed; `then` sends them after what closed it.
fn after_the_end(block: &[u8], then: impl Fn(&'static str, Vec<u8>, Outcome) -> Case) -> Vec<Case> {
    vec![
        // As long as h2 remembers the request it ends the connection.
        then("DATA", data(1, b"x", true), Reset(1, &[STREAM_CLOSED])).or(WHOLE_CONNECTION),
        then("HEADERS", headers(1, block, true), USED),
        then("CONTINUATION", continuation(1, block), USED),
        then("PRIORITY", priority(1), Ignored),
        then("RST_STREAM", reset(1, CANCEL), Ignored),
        then("WINDOW_UPDATE", window_update(1, 1), Ignored),
    ]
}

/// Both sides have ended.
fn ended(asks: &Asks<'_>) -> Vec<Case> {
    let keyless = asks.keyless();
    after_the_end(&keyless, |name, bytes, outcome| {
        let first = headers(1, &keyless, true);
        script(name, "5.1", vec![Send(first), Ended(1), Send(bytes)], outcome)
    })
}

/// The client has reset the stream.
fn given_up(asks: &Asks<'_>) -> Vec<Case> {
    after_the_end(&asks.list(), |name, bytes, outcome| {
        case(name, "5.1", [asks.open(), reset(1, CANCEL), bytes].concat(), outcome).cut()
    })
}

/// The gateway has reset the stream; frames on their way are ignored.
fn refused(asks: &Asks<'_>) -> Vec<Case> {
    let without_method = block(&[(":scheme", "https"), (":authority", DEMO), (":path", ORDERS)]);
    let then = |name, bytes: Vec<u8>| {
        let first = headers(1, &without_method, false);
        let steps = vec![Send(first), Step::Reset(1), Send(bytes)];
        script(name, "5.1", steps, Reset(1, &[PROTOCOL_ERROR]))
    };
    let list = asks.list();
    vec![
        then("DATA", data(1, b"x", false)),
        then("DATA that ends", data(1, b"x", true)),
        then("HEADERS", headers(1, &list, true)),
        then("trailers over two frames", [frame(HEADERS, END_STREAM, 1, &list), continuation(1, &[])].concat()),
        then("PRIORITY", priority(1)),
        then("RST_STREAM", reset(1, CANCEL)),
        then("WINDOW_UPDATE", window_update(1, 1)),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_numbers_of_streams_are_odd_and_rise() {
    hold(numbers).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_stream_beyond_the_limit_is_refused_and_no_other() {
    hold(limit).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_frames_on_an_idle_stream_end_the_connection() {
    hold(idle).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_frames_after_the_end_of_a_request_are_ignored_or_refused() {
    hold(half_closed).await;
    hold(ended).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_frames_after_a_reset_are_ignored_or_refused() {
    hold(given_up).await;
    hold(refused).await;
}
