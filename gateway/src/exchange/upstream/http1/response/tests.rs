use super::*;
use crate::exchange::downstream::http1::Http1Head;

/// A head as the client gets it, with its framing and whether the connection is reused; `None` if it is refused.
fn read_whole(text: &str, to_head: bool) -> Option<(String, Framing, bool)> {
    let mut out = Http1Head::new(false);
    let head = read(text.as_bytes(), to_head, |name| name.eq_ignore_ascii_case("server"), &mut out).ok()?.unwrap();
    assert_eq!(head.bytes, text.find("\r\n\r\n").unwrap() + 4);
    Some((String::from_utf8(out.into_bytes()).unwrap(), head.framing, head.reusable))
}

fn framing_of(fields: &str) -> Option<(Framing, bool)> {
    read_whole(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), false).map(|(_, framing, reusable)| (framing, reusable))
}

fn chunked() -> Framing {
    Framing::Chunked(ChunkedBody::default())
}

#[test]
fn a_body_ends_where_the_fields_say() {
    for (fields, expected) in [
        ("Content-Length: 5\r\n", Some((Framing::Length(5), true))),
        ("content-length:5\r\nContent-Length: 5\r\n", Some((Framing::Length(5), true))),
        ("Content-Length: 5, 5\r\n", Some((Framing::Length(5), true))),
        ("Content-Length: 0\r\nConnection: close\r\n", Some((Framing::Length(0), false))),
        ("Transfer-Encoding: Chunked\r\n", Some((chunked(), true))),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Some((chunked(), false))),
        ("", Some((Framing::End, false))),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", None),
        ("Content-Length: 5, 6\r\n", None),
        ("Content-Length: +5\r\n", None),
        ("Content-Length: 0x5\r\n", None),
        ("Content-Length:\r\n", None),
        ("Content-Length: 18446744073709551616\r\n", None),
        ("Transfer-Encoding: gzip\r\n", None),
        ("Transfer-Encoding: gzip, chunked\r\n", None),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", None),
    ] {
        assert_eq!(framing_of(fields), expected, "{fields}");
    }
}

#[test]
fn some_responses_have_no_body_despite_their_fields() {
    for (status, length) in
        [("204 No Content", ""), ("304 Not Modified", "Content-Length: 9\r\n"), ("103 Early Hints", "")]
    {
        let (text, framing, _) = read_whole(&format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n"), false).unwrap();
        assert_eq!((text, framing), (format!("HTTP/1.1 {status}\r\n{length}"), Framing::None));
    }
    let (text, framing, _) = read_whole("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true).unwrap();
    assert_eq!((text.as_str(), framing), ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n", Framing::None), "to HEAD");
}

#[test]
fn a_response_with_a_forbidden_body_ends_its_connection() {
    for (status, fields, reusable) in [
        ("204 No Content", "", true),
        ("204 No Content", "Content-Length: 0\r\n", true),
        ("204 No Content", "Content-Length: 9\r\n", false),
        ("204 No Content", "Transfer-Encoding: chunked\r\n", false),
        ("304 Not Modified", "", true),
        ("304 Not Modified", "Content-Length: 9\r\n", false),
        ("304 Not Modified", "Transfer-Encoding: chunked\r\n", false),
    ] {
        let (_, framing, kept) = read_whole(&format!("HTTP/1.1 {status}\r\n{fields}\r\n"), false).unwrap();
        assert_eq!((framing, kept), (Framing::None, reusable), "{status} {fields}");
    }
    for (fields, reusable) in [
        ("", true),
        ("Content-Length: 0\r\n", true),
        ("Content-Length: 9\r\n", false),
        ("Transfer-Encoding: chunked\r\n", false),
    ] {
        let (_, framing, kept) = read_whole(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), true).unwrap();
        assert_eq!((framing, kept), (Framing::None, reusable), "to HEAD: {fields}");
    }
}

#[test]
fn http_1_0_keeps_a_connection_only_with_keep_alive() {
    let of = |fields: &str| {
        read_whole(&format!("HTTP/1.0 200 OK\r\n{fields}\r\n"), false).map(|(_, framing, kept)| (framing, kept))
    };
    assert_eq!(of("Content-Length: 1\r\n"), Some((Framing::Length(1), false)));
    assert_eq!(of("Content-Length: 1\r\nConnection: keep-alive\r\n"), Some((Framing::Length(1), true)));
    assert_eq!(of("Transfer-Encoding: chunked\r\n"), None);
}

#[test]
fn fields_keep_their_spelling_and_those_of_the_connection_are_dropped() {
    let head = "HTTP/1.1 201 Made\r\nX-One: 1\r\nx-one:2\r\nServer: s\r\nDate: d\r\nConnection: x-mine, close\r\nX-Mine: 3\r\n\
        Content-Length: 2\r\n\r\n";
    let (text, ..) = read_whole(head, false).unwrap();
    assert_eq!(text, "HTTP/1.1 201 Made\r\nX-One: 1\r\nx-one: 2\r\nDate: d\r\nContent-Length: 2\r\n");
}

#[test]
fn spaces_before_colons_and_folded_lines_are_corrected() {
    let head = "HTTP/1.1 200\r\nX-Space : a\r\nX-Folded: b\r\n  c\r\n\td\r\n\r\n";
    let (text, ..) = read_whole(head, false).unwrap();
    assert_eq!(text, "HTTP/1.1 200 OK\r\nX-Space: a\r\nX-Folded: b c d\r\nTransfer-Encoding: chunked\r\n");
}

#[test]
fn malformed_heads_are_refused_and_incomplete_ones_awaited() {
    let read = |text: &str| {
        let mut out = Http1Head::new(false);
        let outcome = read(text.as_bytes(), false, |_| false, &mut out);
        assert!(out.into_bytes().is_empty(), "{text:?}");
        outcome
    };
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(FIELDS_MAX + 1));
    for bad in [
        "220 mail.example ESMTP\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: a\r\n\r\n",
        &many,
    ] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).unwrap().is_none(), "{end}");
    }
}

#[test]
fn keep_alive_timeouts_of_upstreams_are_used() {
    let good_for = |fields: &str| {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
        read(text.as_bytes(), false, |_| false, &mut Http1Head::new(false)).unwrap().unwrap().good_for
    };
    assert_eq!(good_for("Keep-Alive: timeout=5\r\n"), Duration::from_secs(4));
    assert_eq!(good_for("keep-alive: max=100, timeout=2\r\n"), Duration::from_secs(1));
    assert_eq!(good_for("Keep-Alive: timeout=0\r\n"), Duration::ZERO);
    for none in ["", "Keep-Alive: 5\r\n", "Keep-Alive: timeout=x\r\n"] {
        assert_eq!(good_for(none), Duration::MAX, "{none:?}");
    }
}
