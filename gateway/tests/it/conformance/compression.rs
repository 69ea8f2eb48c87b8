//! Header compression: RFC 7541, and the handling of its errors in RFC 9113 section 4.3.

use super::Outcome::{Connection, Served, Stream};
use super::Step::{Ended, Send};
use super::{Asks, COMPRESSION_ERROR, Case, GENERAL_CODE, PROTOCOL_ERROR, WHOLE_CONNECTION, block, case, hold, script};
use crate::world::frames::{CONTINUATION, END_HEADERS, END_STREAM, HEADERS, frame, headers, literal, string};

const BAD: super::Outcome = Connection(&[COMPRESSION_ERROR]);

/// Adds `x: y` to the table, where it is number 62 until something else is added.
const ADDING: &[u8] = &[0x40, 1, b'x', 1, b'y'];
/// The newest field of the table.
const NEWEST: u8 = 0xbe;
/// Sets the table's size to 0.
const EMPTIED: u8 = 0x20;
/// The table is to hold 4,096 bytes, as much as it may.
const RESTORED: &[u8] = &[0x3f, 0xe1, 0x1f];

fn with(asks: &Asks<'_>, stream: u32, bytes: &[u8]) -> Vec<u8> {
    headers(stream, &[&asks.list()[..], bytes].concat(), true)
}

/// A block without its end, followed by any bytes.
fn bad(asks: &Asks<'_>, name: &'static str, section: &'static str, bytes: &[u8]) -> Case {
    case(name, section, with(asks, 1, bytes), BAD).instead(GENERAL_CODE)
}

fn tables(asks: &Asks<'_>) -> Vec<Case> {
    let list = asks.list();
    let key = [vec![0x57], string(format!("Bearer {}", asks.key).as_bytes())].concat();
    let keyless = asks.keyless();
    let both = |first: &[u8], second: &[u8]| [with(asks, 1, first), with(asks, 3, second)].concat();
    let large = |size: usize| [vec![0x40, 1, b'x'], string(&vec![b'y'; size])].concat();
    let then_bad = |name, section, first: &[u8], second: &[u8]| {
        let first = headers(1, &[&keyless[..], first].concat(), true);
        let steps = vec![Send(first), Ended(1), Send(with(asks, 3, second))];
        script(name, section, steps, BAD).instead(GENERAL_CODE)
    };
    let malformed = [&list[..], &literal("connection", "close"), ADDING].concat();
    vec![
        case("a field of the table", "6.1", both(ADDING, &[NEWEST]), Served(&[1, 3])),
        case(
            "a key in the table",
            "6.2.1",
            [headers(1, &[&keyless[..], &key].concat(), true), headers(3, &[&keyless[..], &[NEWEST]].concat(), true)]
                .concat(),
            Served(&[1, 3]),
        ),
        case("a name of the table", "6.2.1", both(ADDING, &[0x7e, 1, b'z']), Served(&[1, 3])),
        case("a field that is never to be stored", "6.2.3", with(asks, 1, &[0x10, 1, b'x', 1, b'y']), Served(&[1])),
        case(
            "a field that pushes out another",
            "4.4",
            both(&[ADDING, &large(4_063)].concat(), &[NEWEST]),
            Served(&[1, 3]),
        ),
        case("a field larger than the table", "4.4", with(asks, 1, &large(5_000)), Served(&[1])),
        case(
            "entries of a refused request count",
            "RFC 9113 4.3",
            [headers(1, &malformed, true), with(asks, 3, &[NEWEST])].concat(),
            Served(&[3]),
        ),
        then_bad("a field that was pushed out", "4.4", &[ADDING, &large(4_063)].concat(), &[NEWEST + 1]),
        then_bad("a field that a larger one pushed out", "4.4", &[ADDING, &large(5_000)].concat(), &[NEWEST]),
        then_bad("a field beyond those of the table", "2.3.3", ADDING, &[NEWEST + 1]),
        bad(asks, "number 0", "6.1", &[0x80]),
        bad(asks, "number 62 of an empty table", "2.3.3", &[NEWEST]),
        bad(asks, "number 70 of an empty table", "2.3.3", &[0xc6]),
        bad(asks, "number 2^21", "2.3.3", &[0xff, 0x81, 0xff, 0x7f]),
        bad(asks, "a name with number 62", "2.3.3", &[0x0f, 0x2f, 1, b'y']),
        bad(asks, "a name with number 62, to be stored", "2.3.3", &[0x7e, 1, b'y']),
        bad(asks, "a name with number 62, never to be stored", "2.3.3", &[0x1f, 0x2f, 1, b'y']),
        case(
            "a field of responses from the table",
            "RFC 9113 8.3",
            headers(1, &[&[0x88][..], &list].concat(), true),
            Stream(1, &[PROTOCOL_ERROR]),
        ),
    ]
}

fn sizes_of_the_table(asks: &Asks<'_>) -> Vec<Case> {
    let list = asks.list();
    let first =
        |name, section, update: &[u8]| case(name, section, headers(1, &[update, &list].concat(), true), Served(&[1]));
    let too_large =
        |name, update: &[u8]| case(name, "6.3", headers(1, &[update, &list].concat(), true), BAD).instead(GENERAL_CODE);
    let late = frame(CONTINUATION, END_HEADERS, 1, &[&[EMPTIED][..], &list[2..]].concat());
    let adding = headers(1, &[&asks.keyless()[..], ADDING].concat(), true);
    let emptied = headers(3, &[&[EMPTIED][..], &list, &[NEWEST]].concat(), true);
    vec![
        first("a size of 0", "6.3", &[EMPTIED]),
        first("the largest size", "6.3", RESTORED),
        first("two sizes, the smaller first", "4.2", &[&[EMPTIED][..], RESTORED].concat()),
        too_large("a size of 4,097", &[0x3f, 0xe2, 0x1f]),
        too_large("a size of 2^21", &[0x3f, 0xe1, 0xff, 0x7f]),
        bad(asks, "a size at the end of a block", "4.2", &[EMPTIED]),
        bad(asks, "a size between fields", "4.2", &[&[EMPTIED][..], &block(&[("x", "y")])].concat()),
        // h2 decodes every frame as a new block. Both sides agree on the table all the same.
        case(
            "a size at the start of a CONTINUATION",
            "4.2",
            [frame(HEADERS, END_STREAM, 1, &list[..2]), late].concat(),
            BAD,
        )
        .instead(Served(&[1])),
        script("a field that a size pushed out", "4.3", vec![Send(adding), Ended(1), Send(emptied)], BAD)
            .instead(GENERAL_CODE),
    ]
}

fn numbers_and_strings(asks: &Asks<'_>) -> Vec<Case> {
    let bad = |name, section, bytes: &[u8]| bad(asks, name, section, bytes);
    // RFC 7541 appendix C.4.3: custom-key and custom-value.
    let name = [0x88, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f];
    let value = [0x89, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf];
    let coded = |value: &[u8]| [&[0, 1, b'x'][..], value].concat();
    // The letter `a` is 00011.
    vec![
        case("a field in Huffman's code", "5.2", with(asks, 1, &[&[0][..], &name, &value].concat()), Served(&[1])),
        case("a value in Huffman's code of no bytes", "5.2", with(asks, 1, &coded(&[0x80])), Served(&[1])),
        case("a letter and its padding", "5.2", with(asks, 1, &coded(&[0x81, 0b0001_1111])), Served(&[1])),
        bad("padding of more than 7 bits", "5.2", &coded(&[0x82, 0b0001_1111, 0xff])),
        bad("padding of a whole byte and nothing else", "5.2", &coded(&[0x81, 0xff])),
        bad("padding with zeros", "5.2", &coded(&[0x81, 0b0001_1000])),
        bad("padding with a zero at its end", "5.2", &coded(&[0x81, 0b0001_1110])),
        bad("the end of strings within a string", "5.2", &coded(&[0x84, 0xff, 0xff, 0xff, 0xff])),
        bad("the end of strings before its padding", "5.2", &coded(&[0x85, 0b0001_1111, 0xff, 0xff, 0xff, 0xff])),
        bad("a value longer than the block", "5.2", &[0, 1, b'x', 10, b'y']),
        bad("a value that is missing", "5.2", &[0, 1, b'x']),
        bad("a name longer than the block", "5.2", &[0, 10, b'x']),
        bad("a name that is missing", "6.2.2", &[0]),
        bad("a name by number without a value", "6.2.1", &[0x41]),
        bad("a value of 2^21 bytes", "5.2", &[0, 1, b'x', 0x7f, 0x81, 0xff, 0x7f, b'y']),
        bad("a number that breaks off", "5.1", &[0xff]),
        bad("a number that breaks off later", "5.1", &[0xff, 0xff, 0xff]),
        bad("a number beyond 32 bits", "5.1", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        bad("a number that never ends", "5.1", &[0xff; 40]),
        bad("a length beyond 32 bits", "5.1", &[0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, b'x']),
        case("an empty name", "RFC 9113 8.2", with(asks, 1, &[0, 0, 1, b'y']), Stream(1, &[PROTOCOL_ERROR]))
            .instead(WHOLE_CONNECTION),
        case("a block of no bytes", "RFC 9113 8.3.1", headers(1, &[], true), Stream(1, &[PROTOCOL_ERROR])),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_fields_are_named_by_number_as_long_as_the_table_has_them() {
    hold(tables).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_the_table_is_resized_first_of_all_and_within_its_limit() {
    hold(sizes_of_the_table).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_numbers_and_strings_that_break_off_end_the_connection() {
    hold(numbers_and_strings).await;
}
