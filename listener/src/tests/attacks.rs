//! The attack matrix: requests that are refused with an exact status and code. The unit tests cut them at every byte,
//! the gateway's tests send them through a whole gateway, and `bench/run strictness` sends them to other servers.

use contract::rejection::Rejection;
use contract::rejection::Rejection::{
    BadConnectionHeader, BadFraming, BadHost, BadRequest, BadTarget, BodyNotAllowed, ExpectationFailed,
    HeadersTooLarge, MethodNotAllowed, NotImplemented, UnderscoreHeader, UriTooLong, VersionNotSupported,
};

/// The platform host, path and other host of the rows.
const DEMO: &str = "demo.tollhouse.localhost";
const ORDERS: &str = "/v1/store/orders";
const OTHER: &str = "other.tollhouse.localhost";

/// One row: its name in the matrix, the bytes to send, and the expected refusal.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) rejection: Rejection,
}

pub(crate) fn row(name: &str, bytes: impl Into<Vec<u8>>, rejection: Rejection) -> Row {
    Row { name: name.to_owned(), bytes: bytes.into(), rejection }
}

/// A GET of the orders with a good Host, without a key, and with these field lines.
fn get(lines: &str) -> String {
    format!("GET {ORDERS} HTTP/1.1\r\nHost: {DEMO}\r\n{lines}\r\n")
}

/// A POST with a good Host, these field lines and this rest.
fn post(lines: &str, rest: &str) -> String {
    format!("POST /v2/orders HTTP/1.1\r\nHost: {DEMO}\r\n{lines}\r\n{rest}")
}

/// The smuggled request, which must never be read as a request.
pub(crate) fn smuggled() -> String {
    format!("DELETE {ORDERS}/1 HTTP/1.1\r\nHost: {DEMO}\r\n\r\n")
}

pub(crate) fn lengths_and_codings() -> Vec<Row> {
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

pub(crate) fn obscured_codings() -> Vec<Row> {
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

pub(crate) fn line_ends_and_controls() -> Vec<Row> {
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

pub(crate) fn chunks() -> Vec<Row> {
    let bad = |name: &str, body: &str| row(name, post("Transfer-Encoding: chunked\r\n", body), BadFraming);
    let hidden = smuggled();
    vec![
        bad("TERM.EXT: LF inside an extension", &format!("5;\nx\r\n12345\r\n0\r\n\r\n{hidden}")),
        bad("EXT.TERM: LF for the line's end", &format!("5;x\n12345\r\n0\r\n\r\n{hidden}")),
        bad("SPILL: LF behind the data", &format!("5\r\n12345\n0\r\n\r\n{hidden}")),
        bad("a bare CR in an extension", "5;a\rb\r\n12345\r\n0\r\n\r\n"),
        bad("NUL in an extension", "5;a=\0\r\n12345\r\n0\r\n\r\n"),
        bad("an extension without a name", "5;\r\n12345\r\n0\r\n\r\n"),
        bad("a malformed extension", "5;a[b\r\n12345\r\n0\r\n\r\n"),
        bad("extensions of 257 bytes", &format!("5;{}\r\n12345\r\n0\r\n\r\n", "x".repeat(257))),
        bad("extensions of 10 KB in many chunks", &format!("{}0\r\n\r\n", "1;xxxxxxxxxx\r\na\r\n".repeat(1_000))),
        bad("0x", "0x5\r\n12345\r\n0\r\n\r\n"),
        bad("plus", "+5\r\n12345\r\n0\r\n\r\n"),
        bad("minus", "-5\r\n12345\r\n0\r\n\r\n"),
        bad("an underscore", "1_0\r\n12345\r\n0\r\n\r\n"),
        bad("a space before the size", " 5\r\n12345\r\n0\r\n\r\n"),
        bad("a space behind the size", "5 \r\n12345\r\n0\r\n\r\n"),
        bad("a tab behind the size", "5\t\r\n12345\r\n0\r\n\r\n"),
        bad("no size", "\r\n12345\r\n0\r\n\r\n"),
        bad("a malformed size", "five\r\n12345\r\n0\r\n\r\n"),
        bad("a size beyond 64 bits", "10000000000000005\r\n12345\r\n0\r\n\r\n"),
        bad("a size beyond 63 bits", "ffffffffffffffff\r\n12345\r\n0\r\n\r\n"),
        bad("no CRLF behind the data", "5\r\n123450\r\n\r\n"),
        bad("more data than was said", &format!("5\r\n1234567\r\n0\r\n\r\n{hidden}")),
        bad("a bare LF behind the size", "5\n12345\r\n0\r\n\r\n"),
        bad("a bare LF at the end", "5\r\n12345\r\n0\r\n\n"),
        bad("a trailer that frames", "5\r\n12345\r\n0\r\nContent-Length: 5\r\n\r\n"),
        bad("a trailer that routes", "5\r\n12345\r\n0\r\nHost: other\r\n\r\n"),
        bad("a trailer that authenticates", "5\r\n12345\r\n0\r\nAuthorization: Bearer x\r\n\r\n"),
        bad("a malformed trailer", "5\r\n12345\r\n0\r\nno colon\r\n\r\n"),
    ]
}

fn line(line: &str) -> String {
    format!("{line}\r\nHost: {DEMO}\r\n\r\n")
}

pub(crate) fn request_lines() -> Vec<Row> {
    vec![
        row("HTTP/0.9", "GET /\r\n", BadRequest),
        row("HTTP/0.9 with a version", line("GET / HTTP/0.9"), VersionNotSupported),
        row("HTTP/1.2", line("GET / HTTP/1.2"), VersionNotSupported),
        row("HTTP/2.0 as text", line("GET / HTTP/2.0"), VersionNotSupported),
        row("a version in lower case", line("GET / http/1.1"), BadRequest),
        row("a version of two digits", line("GET / HTTP/1.10"), BadRequest),
        row("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VersionNotSupported),
        row("another protocol", "SSH-2.0-OpenSSH_9.2\r\n", BadRequest),
        row("two spaces", line("GET  / HTTP/1.1"), BadTarget),
        row("a tab", line("GET\t/ HTTP/1.1"), BadRequest),
        row("a space in the target", line("GET /a b HTTP/1.1"), BadTarget),
        row("a space at the end", line("GET / HTTP/1.1 "), BadTarget),
        row("a fragment", line("GET /a#b HTTP/1.1"), BadTarget),
        row("a backslash", line("GET /a\\b HTTP/1.1"), BadTarget),
        row(
            "bytes that are not UTF-8",
            [b"GET /\xff\xfe HTTP/1.1\r\nHost: ", DEMO.as_bytes(), b"\r\n\r\n"].concat(),
            BadTarget,
        ),
        row("UTF-8", line("GET /\u{fc} HTTP/1.1"), BadTarget),
        row("%00", line("GET /a%00b HTTP/1.1"), BadTarget),
        row("half an escape", line("GET /a%4 HTTP/1.1"), BadTarget),
        row("a quote", line("GET /\"a\" HTTP/1.1"), BadTarget),
        row("a control byte", line("GET /a\x01 HTTP/1.1"), BadRequest),
        row("no leading slash", line("GET a HTTP/1.1"), BadTarget),
        row("* with GET", line("GET * HTTP/1.1"), BadTarget),
        row("a malformed method", line("G(T / HTTP/1.1"), BadRequest),
        row("a method of 33 bytes", line(&format!("{} / HTTP/1.1", "A".repeat(33))), BadRequest),
        row("userinfo in the target", line(&format!("GET http://user@{DEMO}/ HTTP/1.1")), BadTarget),
        row("another scheme", line("GET file:///etc/passwd HTTP/1.1"), BadTarget),
        row("CONNECT", format!("CONNECT {DEMO}:443 HTTP/1.1\r\nHost: {DEMO}:443\r\n\r\n"), MethodNotAllowed),
        row("CONNECT with a path", line("CONNECT /x HTTP/1.1"), BadTarget),
    ]
}

pub(crate) fn sizes() -> Vec<Row> {
    let many: String = (0..101).map(|number| format!("X-{number}: y\r\n")).collect();
    let block: String = (0..5).map(|number| format!("X-{number}: {}\r\n", "y".repeat(8_000))).collect();
    let cookies: String = (0..1_000).map(|number| format!("Cookie: c{number}=v\r\n")).collect();
    vec![
        row("a target of 8,193 bytes", line(&format!("GET /{} HTTP/1.1", "a".repeat(8_192))), UriTooLong),
        row("101 fields", get(&many), HeadersTooLarge),
        row("a field of 9 KB", get(&format!("X: {}\r\n", "y".repeat(9_000))), HeadersTooLarge),
        row("40 KB of fields", get(&block), HeadersTooLarge),
        row("1,000 cookies in fields of their own", get(&cookies), HeadersTooLarge),
    ]
}

pub(crate) fn expectations_and_connections() -> Vec<Row> {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    vec![
        row("Expect without a body", get("Expect: 100-continue\r\n"), ExpectationFailed),
        row("Expect obscured", post("Content-Length: 5\r\nExpect: y 100-continue\r\n", "12345"), ExpectationFailed),
        row("Expect unknown", post("Content-Length: 5\r\nExpect: foo\r\n", "12345"), ExpectationFailed),
        row(
            "Expect twice",
            post("Content-Length: 5\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n", "12345"),
            ExpectationFailed,
        ),
        row("Connection: Authorization", get("Connection: Authorization\r\n"), BadConnectionHeader),
        row("Connection: X-Tenant-Id", get("Connection: close, X-Tenant-Id\r\n"), BadConnectionHeader),
        row(
            "Connection: Content-Length",
            post("Connection: Content-Length\r\nContent-Length: 5\r\n", "12345"),
            BadConnectionHeader,
        ),
        row("Connection: X-Forwarded-For", get("Connection: X-Forwarded-For\r\n"), BadConnectionHeader),
        row("ten nominations", get(&format!("Connection: {}\r\n", ["close"; 10].join(", "))), BadConnectionHeader),
        row("an upgrade with a body", post(&format!("{upgrade}Content-Length: 5\r\n"), "12345"), BodyNotAllowed),
        row(
            "an upgrade with chunks",
            post(&format!("{upgrade}Transfer-Encoding: chunked\r\n"), &smuggled()),
            BodyNotAllowed,
        ),
    ]
}

pub(crate) fn hosts() -> Vec<Row> {
    let bad = |name: &str, host: &str| {
        row(&format!("Host {name}"), format!("GET {ORDERS} HTTP/1.1\r\nHost: {host}\r\n\r\n"), BadHost)
    };
    vec![
        row("no Host", format!("GET {ORDERS} HTTP/1.1\r\n\r\n"), BadHost),
        row("no Host on HTTP/1.0", format!("GET {ORDERS} HTTP/1.0\r\n\r\n"), BadHost),
        row("two Hosts", format!("GET / HTTP/1.1\r\nHost: {DEMO}\r\nHost: {OTHER}\r\n\r\n"), BadHost),
        row("two Hosts, the same", format!("GET / HTTP/1.1\r\nHost: {DEMO}\r\nHost: {DEMO}\r\n\r\n"), BadHost),
        bad("as a list", &format!("{DEMO}, {OTHER}")),
        bad("with a path", &format!("{DEMO}/x")),
        bad("with a dotted path", &format!("{DEMO}/../x")),
        bad("with userinfo", &format!("user@{DEMO}")),
        bad("with a space", &format!("{DEMO} x")),
        bad("empty", ""),
        bad("with an empty port", &format!("{DEMO}:")),
        bad("with port 0", &format!("{DEMO}:0")),
        bad("with a port beyond 65535", &format!("{DEMO}:65536")),
        bad("with a malformed port", &format!("{DEMO}:x")),
        bad("longer than 253 bytes", &"abcdefg.".repeat(40)),
        bad("with a label longer than 63 bytes", &format!("{}.example", "a".repeat(64))),
        bad("as raw UTF-8", "b\u{fc}cher.example"),
        bad("as a wildcard", "*.tollhouse.localhost"),
        bad("with an escape", "demo%2etollhouse.localhost"),
        bad("with an empty label", "demo..tollhouse.localhost"),
        bad("with a backslash", &format!("{DEMO}\\x")),
        row("absolute target, another Host", format!("GET http://{OTHER}/ HTTP/1.1\r\nHost: {DEMO}\r\n\r\n"), BadHost),
    ]
}
