//! 3.1: the end of a body.

use contract::rejection::Rejection::{BadFraming, BadRequest, NotImplemented, UnderscoreHeader};

use super::{Row, get, post, refused_by_listener, row, smuggled};
use crate::world::{DEMO, ORDERS};

fn lengths_and_codings() -> Vec<Row> {
    let hidden = smuggled();
    let chunked = format!("0\r\n\r\n{hidden}");
    vec![
        row("CL.TE", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", &chunked), BadFraming),
        row("TE.CL", post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", &chunked), BadFraming),
        row("CL.TE with CL 0", post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", &chunked), BadFraming),
        row("CL twice, the same", post("Content-Length: 5\r\nContent-Length: 5\r\n", "12345"), BadFraming),
        row("CL twice, different", post("Content-Length: 5\r\nContent-Length: 6\r\n", "12345"), BadFraming),
        row("CL as a list", post("Content-Length: 5, 5\r\n", "12345"), BadFraming),
        row("CL with plus", post("Content-Length: +5\r\n", "12345"), BadFraming),
        row("CL with minus", post("Content-Length: -5\r\n", "12345"), BadFraming),
        row("CL hexadecimal", post("Content-Length: 0x5\r\n", "12345"), BadFraming),
        row("CL with a leading zero", post("Content-Length: 05\r\n", "12345"), BadFraming),
        row("CL with a space inside", post("Content-Length: 5 5\r\n", "12345"), BadFraming),
        row("CL of 20 digits", post("Content-Length: 99999999999999999999\r\n", "12345"), BadFraming),
        row("CL just beyond 63 bits", post("Content-Length: 9223372036854775808\r\n", "12345"), BadFraming),
        row("CL empty", post("Content-Length: \r\n", "12345"), BadFraming),
        row("CL quoted", post("Content-Length: \"5\"\r\n", "12345"), BadFraming),
        row("CL as an exponent", post("Content-Length: 1e1\r\n", "12345"), BadFraming),
        row("CL behind a vertical tab", post("Content-Length: \x0b5\r\n", "12345"), BadRequest),
        row("0.CL on GET", get("Content-Length: 5, 0\r\n"), BadFraming),
    ]
}

fn obscured_codings() -> Vec<Row> {
    let bad = |name: &str, value: &str| {
        row(&format!("TE {name}"), post(&format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n"), BadFraming)
    };
    let control = |name: &str, value: &str| {
        row(&format!("TE {name}"), post(&format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n"), BadRequest)
    };
    vec![
        bad("gzip first", "gzip, chunked"),
        bad("gzip last", "chunked, gzip"),
        bad("chunked twice in a list", "chunked, chunked"),
        bad("leading comma", ",chunked"),
        bad("trailing comma", "chunked,"),
        bad("with a parameter", "chunked;x"),
        bad("behind a word", "x chunked"),
        bad("before a word", "chunked x"),
        bad("quoted", "\"chunked\""),
        bad("with a prefix", "xchunked"),
        bad("with a suffix", "chunkedx"),
        bad("with identity", "chunked, identity"),
        bad("empty", ""),
        control("with a vertical tab", "\x0bchunked"),
        control("with a form feed", "chunked\x0c"),
        control("with NUL", "chunked\0"),
        row("TE twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), BadFraming),
        row(
            "TE twice, the second hidden",
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "0\r\n\r\n"),
            BadFraming,
        ),
        row("TE folded", post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), BadRequest),
        row("TE with a space before the colon", post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), BadRequest),
        row(
            "TE on HTTP/1.0",
            format!("POST /v2/orders HTTP/1.0\r\nHost: {DEMO}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            BadFraming,
        ),
        row("TE that is unsupported", post("Transfer-Encoding: gzip\r\n", ""), NotImplemented),
        row("Transfer_Encoding", post("Transfer_Encoding: chunked\r\n", "0\r\n\r\n"), UnderscoreHeader),
        row("Content_Length", post("Content_Length: 5\r\n", "12345"), UnderscoreHeader),
    ]
}

fn line_ends_and_controls() -> Vec<Row> {
    vec![
        row("bare LF behind the request line", format!("GET {ORDERS} HTTP/1.1\nHost: {DEMO}\r\n\r\n"), BadRequest),
        row("bare LF between fields", get("X: y\nZ: z\r\n"), BadRequest),
        row("bare LF as the end", format!("GET {ORDERS} HTTP/1.1\r\nHost: {DEMO}\r\n\n"), BadRequest),
        row("bare LF everywhere", format!("GET {ORDERS} HTTP/1.1\nHost: {DEMO}\n\n"), BadRequest),
        row("bare CR between fields", get("X: y\rZ: z\r\n"), BadRequest),
        row("bare CR in a value", get("X: y\rz\r\n"), BadRequest),
        row("NUL in a value", get("X: a\0b\r\n"), BadRequest),
        row("NUL in a name", get("X\0: b\r\n"), BadRequest),
        row("a control byte in a value", get("X: a\x01b\r\n"), BadRequest),
        row("DEL in a value", get("X: a\x7fb\r\n"), BadRequest),
        row("obs-fold with a space", get("X: a\r\n b\r\n"), BadRequest),
        row("obs-fold with a tab", get("X: a\r\n\tb\r\n"), BadRequest),
        row("a space before the colon", get("X : a\r\n"), BadRequest),
        row("a tab before the colon", get("X\t: a\r\n"), BadRequest),
        row("white space before the first field", format!("GET / HTTP/1.1\r\n Host: {DEMO}\r\n\r\n"), BadRequest),
        row("an empty name", get(": a\r\n"), BadRequest),
        row("no colon", get("X\r\n"), BadRequest),
        row("an 8-bit name", get("X\u{fc}: a\r\n"), BadRequest),
        row("a separator in a name", get("X/Y: a\r\n"), BadRequest),
        row("two empty lines first", format!("\r\n\r\n{}", get("")), BadRequest),
        row("a bare LF first", format!("\n{}", get("")), BadRequest),
    ]
}

// promise: edge.1
#[tokio::test]
async fn a_body_with_two_possible_ends_is_refused() {
    refused_by_listener(lengths_and_codings()).await;
}

// promise: edge.1
#[tokio::test]
async fn a_transfer_coding_in_disguise_is_refused() {
    refused_by_listener(obscured_codings()).await;
}

// promise: edge.2
#[tokio::test]
async fn lines_that_end_or_hide_something_are_refused() {
    refused_by_listener(line_ends_and_controls()).await;
}
