//! The attack matrix of request heads: every row whole and cut at every byte, through the reader and through the lint.

mod fields;

use super::*;
use crate::tests::attacks;
use contract::rejection::Rejection::{
    BadHost, BadRequest, BadTarget, HeadersTooLarge, UriTooLong, VersionNotSupported,
};

/// Checks the bytes in two pieces.
fn judge(head: &[u8], cut: usize) -> Result<Head, Rejection> {
    let (mut reader, limits) = (HeadReader::default(), HeadLimits::default());
    if let Some((_, meaning)) = reader.advance(&head[..cut], &limits)? {
        return Ok(meaning);
    }
    reader.advance(head, &limits)?.map(|(_, meaning)| meaning).ok_or(BadRequest)
}

fn check(head: &[u8], expected: Result<Head, Rejection>) {
    assert_eq!(lint(head, &HeadLimits::default()), expected, "{}", head.escape_ascii());
    let step = (head.len() / 200).max(1);
    for cut in (0..=head.len()).step_by(step) {
        assert_eq!(judge(head, cut), expected, "{} cut at {cut}", head.escape_ascii());
    }
}

const PLAIN: Head = Head { framing: Framing::None, expects_continue: false, websocket: false, keep_alive: true };

fn good(head: &str, expected: Head) {
    check(head.as_bytes(), Ok(expected));
}

/// A GET with only these field lines.
fn fields(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\n{lines}\r\n")
}

/// A POST with a valid Host and these field lines.
fn post(lines: &str) -> String {
    format!("POST /upload HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n")
}

/// A valid head with this request line.
fn line(line: &str) -> String {
    format!("{line}\r\nHost: a.example\r\n\r\n")
}

#[test]
fn every_head_of_the_matrix_is_refused_with_any_cut() {
    let rows = [
        attacks::request_lines(),
        attacks::sizes(),
        attacks::lengths_and_codings(),
        attacks::obscured_codings(),
        attacks::line_ends_and_controls(),
        attacks::expectations_and_connections(),
        attacks::hosts(),
    ];
    // A valid CONNECT is refused behind the head.
    let of_heads = rows.into_iter().flatten().filter(|row| row.rejection != Rejection::MethodNotAllowed);
    for attacks::Row { name, bytes, rejection } in of_heads {
        assert_eq!(lint(&bytes, &HeadLimits::default()), Err(rejection), "{name}");
        check(&bytes, Err(rejection));
    }
}

#[test]
fn heads_of_ordinary_clients_pass() {
    for target in [
        "/",
        "/a/b;c=d,e",
        "/a?b=c&d[0]=e",
        "/%e2%82%ac?q=%00",
        "//double/../dots/./%2f",
        "/?a={b}|`c`^[d]?e",
        "/?q=100%",
        "/?utm=50%off&q=%u00fc",
        "/a?b\\c",
        "/a|b^[c]",
        "/~user/!$&'()*+,;=:@",
        "http://a.example/path?query",
        "HTTPS://a.example",
        "http://a.example?query",
    ] {
        good(&line(&format!("GET {target} HTTP/1.1")), PLAIN);
    }
    for method in ["GET", "HEAD", "DELETE", "TRACE", "get", "M-SEARCH", "FOO!BAR", "X"] {
        good(&line(&format!("{method} / HTTP/1.1")), PLAIN);
    }
    good(&line("OPTIONS * HTTP/1.1"), PLAIN);
    good(&line("CONNECT a.example:443 HTTP/1.1"), PLAIN);
    for host in
        ["a", "A.Example.", "a.example:8080", "192.0.2.1", "[2001:db8::1]", "[::1]:443", "xn--bcher-kva.example"]
    {
        good(&fields(&format!("Host: {host}\r\n")), PLAIN);
    }
    good(&fields("hOST:a.example\r\nX-Empty:\r\nX-Tab:\ta\tb\t\r\nX-8bit: gr\u{fc}n\r\n"), PLAIN);
}

#[test]
fn accepted_heads_have_the_expected_framing() {
    let of = |framing| Head { framing, ..PLAIN };
    good(&post("Content-Length: 0\r\n"), of(Framing::Length(0)));
    good(&post("content-length:\t42 \r\n"), of(Framing::Length(42)));
    good(&post("Content-Length: 9223372036854775807\r\n"), of(Framing::Length(i64::MAX as u64)));
    for coding in ["chunked", "Chunked", "CHUNKED"] {
        good(&post(&format!("Transfer-Encoding: {coding}\r\n")), of(Framing::Chunked));
    }
    let waiting = Head { expects_continue: true, ..of(Framing::Length(3)) };
    good(&post("Content-Length: 3\r\nExpect: 100-continue\r\n"), waiting);
    good(&post("Content-Length: 3\r\nExpect: 100-Continue\r\n"), waiting);
    good(&post("Content-Length: 0\r\nExpect: 100-continue\r\n"), of(Framing::Length(0)));
    good(&post("Connection: close\r\n"), Head { keep_alive: false, ..PLAIN });
    good(&post("Connection: Keep-Alive, TE\r\nConnection: Close\r\n"), Head { keep_alive: false, ..PLAIN });
    good(&post("Connection: , ,\r\n"), PLAIN);
    let socket = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    good(&post(socket), Head { websocket: true, ..PLAIN });
    good(&post("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), PLAIN);

    let old = |lines: &str| format!("POST / HTTP/1.0\r\nHost: a.example\r\n{lines}\r\n");
    let once = Head { keep_alive: false, ..PLAIN };
    good(&old(""), once);
    good(&old("Connection: keep-alive\r\n"), PLAIN);
    good(&old(socket), PLAIN);
    good(&old("Content-Length: 3\r\nExpect: 100-continue\r\n"), Head { framing: Framing::Length(3), ..once });
    good(&old("Expect: 100-continue\r\n"), once);
}

// promise: edge.4
#[test]
fn request_lines_that_are_not_http_are_refused() {
    for (request_line, rejection) in [
        ("GET", BadRequest),
        ("GET /", BadRequest),
        (" GET / HTTP/1.1", BadRequest),
        ("G\u{e9}T / HTTP/1.1", BadRequest),
        ("GET: / HTTP/1.1", BadRequest),
        ("GET /\tHTTP/1.1", BadRequest),
        ("GET / HTTP/1.1\t", BadRequest),
        ("GET / HTTP/1,1", BadRequest),
        ("GET / HTTP/1", BadRequest),
        ("GET / HTTP/01.1", BadRequest),
        ("GET / HTTPS/1.1", BadRequest),
        ("GET / ", BadRequest),
        ("GET / HTTP/3.0", VersionNotSupported),
        ("PRI * HTTP/2.0", VersionNotSupported),
        ("GET /  HTTP/1.1", BadTarget),
        ("GET a.example:443 HTTP/1.1", BadTarget),
        ("GET ?query HTTP/1.1", BadTarget),
        ("GET *a HTTP/1.1", BadTarget),
        ("OPTIONS *a HTTP/1.1", BadTarget),
        ("GET \\\\evil HTTP/1.1", BadTarget),
        ("GET /<a> HTTP/1.1", BadTarget),
        ("GET /{a} HTTP/1.1", BadTarget),
        ("GET /`a HTTP/1.1", BadTarget),
        ("GET /a?<b> HTTP/1.1", BadTarget),
        ("GET /a?\"b\" HTTP/1.1", BadTarget),
        ("GET /a%zz HTTP/1.1", BadTarget),
        ("GET /a% HTTP/1.1", BadTarget),
        ("GET http:///path HTTP/1.1", BadTarget),
        ("GET http:/a.example/ HTTP/1.1", BadTarget),
        ("GET ftp://a.example/ HTTP/1.1", BadTarget),
        ("GET http://a.example:/ HTTP/1.1", BadTarget),
        ("GET http://a.example/ a HTTP/1.1", BadTarget),
        ("GET http://b.example/ HTTP/1.1", BadHost),
        ("GET http://A.example/ HTTP/1.1", BadHost),
        ("GET http://a.example:80/ HTTP/1.1", BadHost),
        ("CONNECT a.example HTTP/1.1", BadTarget),
        ("CONNECT user@a.example:443 HTTP/1.1", BadTarget),
        ("CONNECT a.example:443/path HTTP/1.1", BadTarget),
    ] {
        check(line(request_line).as_bytes(), Err(rejection));
    }
    check(b"\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", Err(BadRequest));
    check(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Err(BadRequest));
    check(b"\x80.\x01\x00\x02\x00\x15\x00\x00\x00\x10", Err(BadRequest));
    check(b"GET / HTTP/1.1\r\nHost: a.example\r\n", Err(BadRequest));
}

#[test]
fn sizes_have_limits_and_the_limit_itself_passes() {
    let target = |bytes: usize| line(&format!("GET /{} HTTP/1.1", "a".repeat(bytes - 1)));
    good(&target(8_192), PLAIN);
    check(target(8_193).as_bytes(), Err(UriTooLong));
    check(target(40_000).as_bytes(), Err(UriTooLong));
    check(line(&format!("{} / HTTP/1.1", "A".repeat(40_000))).as_bytes(), Err(BadRequest));
    check(line(&format!("GE(T /{} HTTP/1.1", "a".repeat(40_000))).as_bytes(), Err(BadRequest));

    let field = |bytes: usize| fields(&format!("Host: a.example\r\nX: {}\r\n", "a".repeat(bytes - 3)));
    good(&field(8_192), PLAIN);
    check(field(8_193).as_bytes(), Err(HeadersTooLarge));

    let cookies = |bytes: usize| {
        let half = |bytes: usize| format!("Cookie: {}\r\n", "a".repeat(bytes / 2 - "; ".len()));
        fields(&format!("Host: a.example\r\n{}{}", half(bytes), half(bytes)))
    };
    good(&cookies(8_192), PLAIN);
    check(cookies(8_194).as_bytes(), Err(HeadersTooLarge));

    let many = |count: usize| fields(&format!("Host: a.example\r\n{}", "X: y\r\n".repeat(count - 1)));
    good(&many(100), PLAIN);
    check(many(101).as_bytes(), Err(HeadersTooLarge));

    let block = |bytes: usize| {
        let full = format!("X: {}\r\n", "a".repeat(8_187)).repeat(3);
        let host = "Host: a.example\r\n";
        let rest = bytes - full.len() - host.len() - "X: \r\n".len();
        fields(&format!("{host}{full}X: {}\r\n", "a".repeat(rest)))
    };
    good(&block(32_768), PLAIN);
    check(block(32_769).as_bytes(), Err(HeadersTooLarge));
}

#[test]
fn a_wrong_protocol_is_refused_at_its_first_line() {
    let limits = HeadLimits::default();
    for (bytes, rejection) in [
        (&b"GET /\r\n"[..], BadRequest),
        (b"PRI * HTTP/2.0\r\n", VersionNotSupported),
        (b"\x16\x03", BadRequest),
        (b"GET / HTTP/1.1\n", BadRequest),
        (b"EHLO mail.example\r\n", BadRequest),
    ] {
        assert_eq!(HeadReader::default().advance(bytes, &limits), Err(rejection), "{}", bytes.escape_ascii());
    }
    assert_eq!(HeadReader::default().advance(b"GET / HTTP/1.1\r\nHost: a.exam", &limits), Ok(None));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_lint_panic_and_no_cut_changes_its_result(
        start in proptest::sample::select(vec!["", "GET / HTTP/1.1\r\n", "POST /a HTTP/1.1\r\nHost: a.example\r\n"]),
        bytes in proptest::collection::vec(proptest::sample::select(b"GET / HTP1.\r\n:\t a0-chunked,Content-Length".to_vec()), 0..120),
        cut in 0_usize..200,
    ) {
        let head = [start.as_bytes(), &bytes].concat();
        let whole = judge(&head, 0);
        proptest::prop_assert_eq!(judge(&head, cut.min(head.len())), whole);
    }
}
