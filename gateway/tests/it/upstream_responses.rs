//! Responses of HTTP/1.1 upstreams as bytes, for tests and for `bench/hyper-client`, which includes this file.

/// Responses that are answered with 502. A folded line and a space before a colon are not among them: from an upstream,
/// RFC 9112 (sections 5.1 and 5.2) lets a proxy repair them, and the library does.
pub(crate) fn malformed() -> Vec<(&'static str, String)> {
    let many: String = (0..300).map(|number| format!("X-{number}: y\r\n")).collect();
    let large: String = (0..20).map(|number| format!("X-{number}: {}\r\n", "y".repeat(4_000))).collect();
    let huge = format!("X: {}\r\n", "y".repeat(2_000_000));
    vec![
        ("CL twice, different", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx".to_owned()),
        ("CL with plus", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nxx".to_owned()),
        ("CL with minus", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_owned()),
        ("no colon", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n".to_owned()),
        ("CR in a value", "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n".to_owned()),
        ("NUL in a value", "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n".to_owned()),
        ("300 fields", format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 0\r\n\r\n")),
        ("80 KB of fields", format!("HTTP/1.1 200 OK\r\n{large}Content-Length: 0\r\n\r\n")),
        ("2 MB of fields", format!("HTTP/1.1 200 OK\r\n{huge}Content-Length: 0\r\n\r\n")),
        ("a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n".to_owned()),
        ("a malformed status", "HTTP/1.1 abc OK\r\n\r\n".to_owned()),
        ("another protocol", "220 mail.example ESMTP\r\n".to_owned()),
    ]
}

/// What becomes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The client gets all of it, and the connection serves the next request.
    Kept,
    /// The client gets all of it, and the next request gets another connection.
    Left,
    /// The client gets the data before the fault, and learns that more was to come.
    Cut,
}

/// The body of a response after its head; the data is `hello`, or before a fault the start of it.
pub(crate) type Variant = (&'static str, String, Then);

/// Sizes and extensions.
pub(crate) fn sizes() -> Vec<Variant> {
    let text = |text: &str| text.to_owned();
    let signed = |length: usize| {
        "hello".chars().map(|one| format!("1;chunk-signature={}\r\n{one}\r\n", "f".repeat(length))).collect::<String>()
            + "0\r\n\r\n"
    };
    vec![
        ("one chunk", text("5\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("chunks of one byte", text("1\r\nh\r\n1\r\ne\r\n1\r\nl\r\n1\r\nl\r\n1\r\no\r\n0\r\n\r\n"), Then::Kept),
        ("leading zeros", text("000000000000000000000005\r\nhello\r\n0000\r\n\r\n"), Then::Kept),
        ("an extension", text("5;a\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("an extension with a value", text("5;a=b;c\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("a quoted extension", text("5;a=\"b; c\\\"d\"\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("an extension without a name", text("5;\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("an extension of the last chunk", text("5\r\nhello\r\n0;a=b\r\n\r\n"), Then::Kept),
        ("signatures of chunks", signed(64), Then::Kept),
        ("extensions of 10 KB", signed(10_000), Then::Kept),
        ("space before an extension", text("5 ; a=b\r\nhello\r\n0\r\n\r\n"), Then::Left),
        ("space after a semicolon", text("5; a=b\r\nhello\r\n0\r\n\r\n"), Then::Kept),
        ("sizes padded with spaces", text("5     \r\nhello\r\n0     \r\n\r\n"), Then::Left),
        ("sizes padded with tabs", text("5\t\r\nhello\r\n0\t\r\n\r\n"), Then::Left),
        ("line feeds alone", text("5\nhello\n0\n\n"), Then::Left),
        ("a line feed alone after a size", text("5\nhello\r\n0\r\n\r\n"), Then::Left),
        ("a line feed alone after the data", text("5\r\nhello\n0\r\n\r\n"), Then::Left),
        ("a line feed alone at the end", text("5\r\nhello\r\n0\r\n\n"), Then::Left),
        ("no size", text("5\r\nhello\r\n\r\n\r\n"), Then::Cut),
        ("a size with a prefix", text("5\r\nhello\r\n0x5\r\nhello\r\n0\r\n\r\n"), Then::Cut),
        ("a negative size", text("5\r\nhello\r\n-1\r\n\r\n"), Then::Cut),
        ("a size of 68 bits", text("5\r\nhello\r\n10000000000000005\r\nhello\r\n0\r\n\r\n"), Then::Cut),
        ("data without a line end", text("5\r\nhello0\r\n\r\n"), Then::Cut),
        ("a carriage return in an extension", text("5\r\nhello\r\n5;a\rb\r\nhello\r\n0\r\n\r\n"), Then::Cut),
        ("an extension of 20 KB", format!("5\r\nhello\r\n1;{}\r\n!\r\n0\r\n\r\n", "a".repeat(20_000)), Then::Cut),
    ]
}

/// What follows the last chunk.
pub(crate) fn trailers() -> Vec<Variant> {
    let with = |lines: &str| format!("5\r\nhello\r\n0\r\n{lines}\r\n");
    let many = |number: usize| with(&(0..number).map(|one| format!("X-{one}: 1\r\n")).collect::<String>());
    vec![
        ("a trailer", with("X-Sum: 6\r\n"), Then::Kept),
        ("Cache-Control", with("Cache-Control: no-store\r\n"), Then::Kept),
        ("Content-Type", with("Content-Type: text/plain\r\n"), Then::Kept),
        ("Set-Cookie", with("Set-Cookie: a=b\r\n"), Then::Kept),
        ("X-Request-Id", with("X-Request-Id: 1\r\n"), Then::Kept),
        ("an underscore", with("x_sum: 6\r\n"), Then::Kept),
        ("17 trailers", many(17), Then::Kept),
        ("200 trailers", many(200), Then::Kept),
        ("a name of 62 bytes", with(&format!("X-{}: 6\r\n", "a".repeat(60))), Then::Kept),
        ("a trailer of 5 KB", with(&format!("X-Sum: {}\r\n", "6".repeat(5_000))), Then::Kept),
        ("Content-Length", with("Content-Length: 9\r\n"), Then::Kept),
        ("Transfer-Encoding", with("Transfer-Encoding: chunked\r\n"), Then::Kept),
        ("a folded trailer", with("X-Sum: 6\r\n 7\r\n"), Then::Kept),
        ("a trailer without a colon", with("X-Sum\r\n"), Then::Kept),
        ("trailers with line feeds alone", with("X-Sum: 6\nX-Other: 7\n"), Then::Left),
        ("a carriage return in a trailer", with("X-Sum: 6\r7\r\n"), Then::Left),
        ("trailers of 80 KB", with(&format!("X-Sum: {}\r\n", "6".repeat(80_000))), Then::Left),
    ]
}

/// Bodies without the blank line at the end, and whether they are complete: with the last chunk (RFC 9112 section 8).
pub(crate) const ENDINGS: [(&str, bool); 6] = [
    ("5\r\nhello\r\n0\r\n", true),
    ("5\r\nhello\r\n0\r\nX-Sum: 6\r\n", true),
    ("5\r\nhello\r\n0\r\nX-S", true),
    ("5\r\nhello\r\n", false),
    ("5\r\nhello\r\n0", false),
    ("5\r\nhello", false),
];

/// The whole response of a raw server.
pub(crate) fn answer(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

/// Numbers without a pattern, the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.below(all.len() as u64);
        all[usize::try_from(index).unwrap()]
    }
}

/// A random response for this host: its head may lie about its body, and bytes may follow. Every text in it names the
/// host.
pub(crate) fn random_response(dice: &mut Dice, host: &str) -> Vec<u8> {
    let body = format!("<{host}>");
    let status = dice.one_of(&["200 OK", "200 OK", "204 No Content", "304 Not Modified", "404 Not Found"]);
    let length = body.len();
    let framing = match dice.below(8) {
        0 => format!("Content-Length: {}\r\n", length + 7),
        1 => format!("Content-Length: {}\r\n", length - 7),
        2 => "Transfer-Encoding: chunked\r\n".to_owned(),
        3 => format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
        4 => String::new(),
        _ => format!("Content-Length: {length}\r\n"),
    };
    let body = match dice.below(4) {
        0 => String::new(),
        1 if framing.contains("chunked") => format!("{length:x}\r\n{body}\r\n"),
        _ if framing.contains("chunked") => format!("{length:x}\r\n{body}\r\n0\r\n\r\n"),
        _ => body,
    };
    format!("HTTP/1.1 {status}\r\nX-Of: {host}\r\n{framing}\r\n{body}").into_bytes()
}
