//! Single frames, known and unknown: RFC 9113 sections 4.1, 4.2, 5.3, 5.5 and 6.1 to 6.4.

use super::Outcome::{Connection, Ignored, Reset, Served, Stream};
use super::{
    Asks, Case, FRAME_SIZE_ERROR, GENERAL_CODE, PROTOCOL_ERROR, SIZE, WHOLE_CONNECTION, WRONG, body, case, hold,
    padded_data,
};
use crate::world::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PRIORITISED, PRIORITY, RST_STREAM, SETTINGS, data,
    frame, headers, literal,
};

/// The largest payload by default (RFC 9113 section 6.5.2).
const LARGEST: usize = 16_384;

const UNKNOWN: u8 = 0xee;

/// Too short for what its flags promise: section 4.2 has a code for it, sections 6.1 and 6.2 another.
const SHORT: super::Outcome = Connection(&[FRAME_SIZE_ERROR, PROTOCOL_ERROR]);

/// The frame on another stream, the reserved bit included.
fn on_stream(bits: u32, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[5..9].copy_from_slice(&bits.to_be_bytes());
    bytes
}

fn types_and_flags(asks: &Asks<'_>) -> Vec<Case> {
    let list = asks.list();
    let between = [asks.open(), frame(UNKNOWN, 0xff, 1, b"anything"), body()].concat();
    let flags = !(PADDED | PRIORITISED);
    vec![
        case("an unknown type on the connection", "4.1", frame(UNKNOWN, 0xff, 0, b"anything"), Ignored),
        case("an unknown type on a stream that is idle", "5.5", frame(UNKNOWN, 0, 7, b"anything"), Ignored),
        case("an unknown type on an even stream", "5.5", frame(UNKNOWN, 0, 2, &[]), Ignored),
        case("an unknown type within a request", "5.5", between, Served(&[1])),
        case(
            "types of other specifications",
            "5.5",
            [10, 12, 16].map(|kind| frame(kind, 0, 0, b"h2")).concat(),
            Ignored,
        ),
        case("HEADERS with flags that have no meaning", "4.1", frame(HEADERS, flags, 1, &list), Served(&[1])),
        case(
            "DATA with flags that have no meaning",
            "4.1",
            [asks.open(), frame(DATA, !PADDED, 1, b"12345")].concat(),
            Served(&[1]),
        ),
        case("a stream with the reserved bit", "4.1", on_stream(0x8000_0001, headers(1, &list, true)), Served(&[1])),
    ]
}

fn sizes(asks: &Asks<'_>) -> Vec<Case> {
    let filled = |size: usize| {
        let some =
            [asks.list(), literal("x-first", "a".repeat(8_000)), literal("x-second", "b".repeat(4_000))].concat();
        // Name and lengths of the last field are 11 bytes.
        let last = literal("x-last", "c".repeat(size - some.len() - 11));
        headers(1, &[some, last].concat(), true)
    };
    let open = headers(1, &asks.post(&[]), false);
    let many = vec![0; LARGEST + 2];
    let announced = |kind, stream: u8| vec![0xff, 0xff, 0xff, kind, 0, 0, 0, 0, stream];
    vec![
        case("HEADERS as large as may be", "4.2", filled(LARGEST), Served(&[1])),
        case("an unknown type as large as may be", "4.2", frame(UNKNOWN, 0, 0, &many[2..]), Ignored),
        case("HEADERS one byte too large", "4.2", filled(LARGEST + 1), SIZE),
        case("SETTINGS too large", "4.2", frame(SETTINGS, 0, 0, &many), SIZE),
        case("an unknown type one byte too large", "4.2", frame(UNKNOWN, 0, 0, &many[1..]), SIZE),
        // An end of the stream would do (section 5.4.1 leaves it to the server).
        case(
            "DATA one byte too large",
            "4.2",
            [open, data(1, &many[1..], true)].concat(),
            Stream(1, &[FRAME_SIZE_ERROR]),
        )
        .instead(SIZE)
        .cut(),
        case(
            "CONTINUATION one byte too large",
            "4.2",
            [frame(HEADERS, END_STREAM, 1, &asks.list()), frame(CONTINUATION, END_HEADERS, 1, &many[1..])].concat(),
            SIZE,
        ),
        case("HEADERS announced with 2^24-1 bytes", "4.2", announced(HEADERS, 1), SIZE),
        case("SETTINGS announced with 2^24-1 bytes", "4.2", announced(SETTINGS, 0), SIZE),
        case("PRIORITY announced with 2^24-1 bytes", "4.2", announced(PRIORITY, 1), SIZE),
    ]
}

fn padding(asks: &Asks<'_>) -> Vec<Case> {
    let of_data = |name, payload: &[u8], outcome| {
        case(name, "6.1", [asks.open(), padded_data(1, payload, true)].concat(), outcome)
    };
    let of_headers = |name, flags, payload: &[u8], outcome| {
        case(name, "6.2", frame(HEADERS, flags | END_HEADERS | END_STREAM, 1, payload), outcome)
    };
    let list = asks.list();
    let dependency = [0, 0, 0, 0, 15];
    let empty = headers(1, &asks.post(&[("content-length", "0")]), false);
    vec![
        of_data("padded DATA", b"\x0312345\0\0\0", Served(&[1])),
        of_data("DATA with padding of no bytes", b"\x0012345", Served(&[1])),
        case(
            "DATA that is all padding",
            "6.1",
            [empty.clone(), padded_data(1, &[2, 0, 0], true)].concat(),
            Served(&[1]),
        ),
        case("DATA of no bytes ends a body", "6.1", [empty, data(1, &[], true)].concat(), Served(&[1])),
        of_data("DATA with padding as long as the frame", &[5, 1, 2, 3, 4], WRONG).cut(),
        of_data("DATA with padding longer than the frame", &[255, 1, 2, 3, 4], WRONG).cut(),
        of_data("padded DATA without its length", &[], SHORT).cut(),
        of_headers("padded HEADERS", PADDED, &[&[4][..], &list, &[0; 4]].concat(), Served(&[1])),
        of_headers(
            "padded HEADERS with a priority",
            PADDED | PRIORITISED,
            &[&[2][..], &dependency, &list, &[0; 2]].concat(),
            Served(&[1]),
        ),
        of_headers("HEADERS with a priority", PRIORITISED, &[&dependency[..], &list].concat(), Served(&[1])),
        of_headers("HEADERS with padding longer than the frame", PADDED, &[&[255][..], &list[..20]].concat(), WRONG),
        of_headers("HEADERS with padding that leaves no priority", PADDED | PRIORITISED, &[1, 0, 0, 0, 0, 15], WRONG),
        of_headers("padded HEADERS without their length", PADDED, &[], SHORT),
        of_headers("HEADERS without their priority", PRIORITISED, &[0, 0, 0, 0], SHORT),
    ]
}

fn priorities_and_resets(asks: &Asks<'_>) -> Vec<Case> {
    let open = asks.open();
    let of = |name, length: usize| {
        // The stream is idle; the fault does not concern the connection's other streams.
        case(name, "6.3", frame(PRIORITY, 0, 1, &vec![0; length]), Reset(1, &[FRAME_SIZE_ERROR]))
            .instead(WHOLE_CONNECTION)
    };
    let reset = |name, length: usize| {
        case(name, "6.4", [open.clone(), frame(RST_STREAM, 0, 1, &vec![0; length])].concat(), SIZE)
            .instead(GENERAL_CODE)
            .cut()
    };
    let itself = [0, 0, 0, 1, 16];
    let dependent = |block: &[u8]| {
        let flags = END_HEADERS | END_STREAM | PRIORITISED;
        frame(HEADERS, flags, 1, &[&itself[..], block].concat())
    };
    // The table is to hold `x: y` afterwards.
    let adding = [asks.list(), vec![0x40, 1, b'x', 1, b'y']].concat();
    let using = headers(3, &[asks.list(), vec![0xbe]].concat(), true);
    vec![
        of("PRIORITY of 4 bytes", 4),
        of("PRIORITY of 6 bytes", 6),
        of("PRIORITY of 0 bytes", 0),
        case("PRIORITY", "6.3", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 16]), Ignored),
        case(
            "PRIORITY within a request",
            "6.3",
            [asks.open(), frame(PRIORITY, 0, 1, &[0x80, 0, 0, 0, 255]), body()].concat(),
            Served(&[1]),
        ),
        case(
            "PRIORITY that depends on itself",
            "RFC 7540 5.3.1",
            frame(PRIORITY, 0, 1, &itself),
            Reset(1, &[PROTOCOL_ERROR]),
        ),
        case(
            "HEADERS that depend on themselves",
            "RFC 7540 5.3.1",
            dependent(&asks.list()),
            Stream(1, &[PROTOCOL_ERROR]),
        ),
        // h2 resets the stream without a look at the block, so its table lacks what the block adds. The reference to
        // it is an error then, or another field that the same client sent before: it harms itself alone.
        case(
            "what HEADERS that depend on themselves add to the table",
            "4.3",
            [dependent(&adding), using].concat(),
            Served(&[3]),
        )
        .instead(WHOLE_CONNECTION),
        reset("RST_STREAM of 3 bytes", 3),
        reset("RST_STREAM of 5 bytes", 5),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_unknown_frames_and_flags_are_ignored() {
    hold(types_and_flags).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_frame_beyond_its_size_ends_the_connection() {
    hold(sizes).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_padding_is_removed_or_refused() {
    hold(padding).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_priorities_and_resets_have_their_lengths() {
    hold(priorities_and_resets).await;
}
