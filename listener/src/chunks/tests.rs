//! Chunk syntax, row by row, each row whole and cut at every byte.

use super::*;
use crate::tests::attacks;

/// Pushes the bytes in two pieces; returns where the body ended.
fn judge(body: &[u8], cut: usize) -> Result<Option<usize>, Rejection> {
    let mut chunks = Chunks::default();
    let (front, back) = body.split_at(cut);
    if let Progress::Done(used) = chunks.push(front)? {
        return Ok(Some(used));
    }
    match chunks.push(back)? {
        Progress::Done(used) => Ok(Some(front.len() + used)),
        Progress::More => Ok(None),
    }
}

fn check(body: &[u8], expected: Result<Option<usize>, Rejection>) {
    for cut in 0..=body.len() {
        assert_eq!(judge(body, cut), expected, "{:?} cut at {cut}", body.escape_ascii().to_string());
    }
}

#[test]
fn the_end_of_a_well_formed_body_is_found() {
    for body in [
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        "A\r\n0123456789\r\n0\r\n\r\n",
        "a\r\n0123456789\r\n0\r\n\r\n",
        "0005\r\nhello\r\n0000000000000000\r\n\r\n",
        "2\r\n\r\n\r\n0\r\n\r\n",
        "5;name\r\nhello\r\n0\r\n\r\n",
        "5;name=value;other\r\nhello\r\n0;last\r\n\r\n",
        "5;name=\"quoted; text\"\r\nhello\r\n0\r\n\r\n",
        "0\r\nX-Checksum: abc\r\n\r\n",
        "0\r\nX-Checksum:\r\nServer-Timing: total;dur=1\r\n\r\n",
    ] {
        check(body.as_bytes(), Ok(Some(body.len())));
        let followed = format!("{body}GET / HTTP/1.1\r\n");
        check(followed.as_bytes(), Ok(Some(body.len())));
    }
}

#[test]
fn an_incomplete_body_needs_more_bytes() {
    for body in
        ["", "5", "5\r", "5\r\n", "5\r\nhel", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\n\r", "0\r\nX: y\r\n"]
    {
        check(body.as_bytes(), Ok(None));
    }
    check(b"7fffffffffffffff\r\n", Ok(None));
}

#[test]
fn every_other_spelling_of_a_chunk_is_bad_framing() {
    let many_extensions = format!("{}0\r\n\r\n", "1;abcdefg\r\nx\r\n".repeat(33));
    for body in [
        ";\r\n",
        "10000000000000000\r\n",
        "00000000000000005\r\nhello\r\n",
        "8000000000000000\r\n",
        "5\rhello\r\n",
        "5\r\rhello\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5;;a\r\nhello\r\n",
        "5; a\r\nhello\r\n",
        "5 ;a\r\nhello\r\n",
        "5;a \r\nhello\r\n",
        "5;a=\r\nhello\r\n",
        "5;a==b\r\nhello\r\n",
        "5;a=\"b\r\nhello\r\n",
        "5;a=\"b\"c\r\nhello\r\n",
        "5;a=\"b\\\"\"\r\nhello\r\n",
        "5;a\0b\r\nhello\r\n",
        "5;a=\"\n\"\r\nhello\r\n",
        "5;\u{e9}\r\nhello\r\n",
        "0\n\r\n",
        "0\r\n\r\r",
        "0\r\ncontent-length: 5\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nCookie: a=b\r\n\r\n",
        "0\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
        "0\r\nTollhouse-Identity-Token: x\r\n\r\n",
        "0\r\nX-Authenticated-User: root\r\n\r\n",
        "0\r\nProxy-Authorization: x\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\r\nX: a\r\n b\r\n\r\n",
        "0\r\nX : a\r\n\r\n",
        "0\r\n: a\r\n\r\n",
        "0\r\nX: a\nY: b\r\n\r\n",
        "0\r\nX: a\0\r\n\r\n",
        "0\r\nA-Name-That-Is-Longer-Than-Any-Registered-Field-Name: a\r\n\r\n",
        many_extensions.as_str(),
    ] {
        check(body.as_bytes(), Err(Rejection::BadFraming));
    }
    for mut row in attacks::chunks() {
        let body = row.bytes.split_off(row.bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4);
        check(&body, Err(row.rejection));
    }
    check(b"0\r\nContent_Length: 5\r\n\r\n", Err(Rejection::UnderscoreHeader));
}

#[test]
fn trailers_have_bounds() {
    let many = format!("0\r\n{}\r\n", "X: y\r\n".repeat(17));
    check(many.as_bytes(), Err(Rejection::HeadersTooLarge));
    let large = format!("0\r\nX: {}\r\n\r\n", "y".repeat(4096));
    for cut in [0, 100, 4000] {
        assert_eq!(judge(large.as_bytes(), cut), Err(Rejection::HeadersTooLarge));
    }
    let fits = format!("0\r\n{}\r\n", "X: y\r\n".repeat(16));
    check(fits.as_bytes(), Ok(Some(fits.len())));
}

#[test]
fn data_of_any_size_is_skipped_in_one_step() {
    let mut chunks = Chunks::default();
    assert_eq!(chunks.push(b"7fffffffffffffff\r\n"), Ok(Progress::More));
    for _ in 0..4 {
        assert_eq!(chunks.push(&vec![0; 65_536]), Ok(Progress::More));
    }
    assert_eq!(chunks.left, 0x7fff_ffff_ffff_ffff - 4 * 65_536);
}

#[test]
fn no_byte_belongs_to_a_complete_body() {
    let mut chunks = Chunks::default();
    assert_eq!(chunks.push(b"0\r\n\r\n"), Ok(Progress::Done(5)));
    assert_eq!(chunks.push(b"GET"), Ok(Progress::Done(0)));
}
