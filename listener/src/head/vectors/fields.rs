//! The rows about field lines: syntax, framing, Host, Expect, Connection.

use super::{PLAIN, check, fields, good, post};
use contract::rejection::Rejection::{
    BadConnectionHeader, BadFraming, BadHost, BadRequest, ExpectationFailed, NotImplemented, UnderscoreHeader,
};

#[test]
fn malformed_field_lines_are_refused() {
    for lines in [
        "Host: a.example\r\nX: y\n",
        "Host: a.example\r\r\n",
        "Host: a.example\r\nX: a\x0bb\r\n",
        "Host: a.example\r\nX: a\x0cb\r\n",
        "Host: a.example\r\nX: a\x1bb\r\n",
        "Host: a.example\r\n : b\r\n",
        "\tHost: a.example\r\n",
        "Host : a.example\r\n",
        "Host\t: a.example\r\n",
        "Host: a.example\r\nX Y: z\r\n",
        "Host: a.example\r\nX\"Y: z\r\n",
        "Host: a.example\r\nX(Y): z\r\n",
        "Host: a.example\r\nX@Y: z\r\n",
        "Host: a.example\r\nX\x7f: z\r\n",
    ] {
        check(fields(lines).as_bytes(), Err(BadRequest));
    }
    check(fields("Host: a.example\r\ncontent_LENGTH: 1\r\n").as_bytes(), Err(UnderscoreHeader));
    for name in ["X_User", "_", "Host_", "client_id"] {
        good(&fields(&format!("Host: a.example\r\n{name}: 1\r\n")), PLAIN);
    }
}

#[test]
fn bodies_with_an_ambiguous_length_are_refused() {
    for lines in [
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: gzip\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 5,\r\n",
        "Content-Length: ,5\r\n",
        "Content-Length: 00\r\n",
        "Content-Length: 5;a\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: 1e3\r\n",
        "Content-Length: 5_0\r\n",
        "Content-Length:\r\n",
        "Content-Length: five\r\n",
        "Content-Length: \u{665}\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: 'chunked'\r\n",
        "Transfer-Encoding: chunk\u{e9}d\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: gzip, deflate\r\n",
    ] {
        check(post(lines).as_bytes(), Err(BadFraming));
    }
    for control in ['\x0b', '\x0c', '\0'] {
        check(post(&format!("Transfer-Encoding: {control}chunked\r\n")).as_bytes(), Err(BadRequest));
        check(post(&format!("Content-Length: {control}5\r\n")).as_bytes(), Err(BadRequest));
    }
    for coding in ["gzip", "identity", "br", "x-unknown"] {
        check(post(&format!("Transfer-Encoding: {coding}\r\n")).as_bytes(), Err(NotImplemented));
    }
    check(b"POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: gzip\r\n\r\n", Err(BadFraming));
}

// promise: edge.9
#[test]
fn ambiguous_hosts_are_refused() {
    let long_name = "abcdefg.".repeat(32);
    for host in [
        " ",
        ".",
        "..",
        ".a",
        "a.example,b.example",
        "http://a.example",
        "user:password@a.example",
        "@a.example",
        "a.example@b.example",
        "a.example#b",
        "a.example?b",
        "a_b.example",
        "*",
        "a.example:080",
        "a.example:123456",
        "a.example:-1",
        "a.example:80:80",
        "a.example: 80",
        "a.example :80",
        ":80",
        "[::1",
        "::1",
        "[]",
        "[::1]x",
        "[::1]:",
        "[a.example]",
        "[::1%25eth0]",
        "[::g]",
        long_name.as_str(),
    ] {
        check(fields(&format!("Host: {host}\r\n")).as_bytes(), Err(BadHost));
    }
    check(fields("").as_bytes(), Err(BadHost));
    check(fields("X: y\r\n").as_bytes(), Err(BadHost));
    check(fields("Host: a.example\r\nhost: b.example\r\n").as_bytes(), Err(BadHost));
    check(b"GET http://a.example/ HTTP/1.1\r\n\r\n", Err(BadHost));
}

#[test]
fn expectations_that_cannot_be_met_are_refused() {
    for lines in [
        "Content-Length: 3\r\nExpect: 100-continue, x\r\n",
        "Content-Length: 3\r\nExpect: 100-continue;x\r\n",
        "Content-Length: 3\r\nExpect:\r\n",
        "Transfer-Encoding: chunked\r\nExpect: 200-ok\r\n",
    ] {
        check(post(lines).as_bytes(), Err(ExpectationFailed));
    }
    check(b"POST / HTTP/1.0\r\nHost: a.example\r\nExpect: x\r\n\r\n", Err(ExpectationFailed));
}

#[test]
fn connection_cannot_name_fields_that_others_rely_on() {
    for list in [
        "Host",
        "Transfer-Encoding",
        "Cookie",
        "x-real-ip",
        "close; a",
        "\"close\"",
        "close close",
        "close, close, close, close, close, close, close, close, close",
    ] {
        check(fields(&format!("Host: a.example\r\nConnection: {list}\r\n")).as_bytes(), Err(BadConnectionHeader));
    }
}

#[test]
fn a_websocket_has_one_upgrade() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for second in ["websocket", "h2c"] {
        check(post(&format!("{upgrade}Upgrade: {second}\r\n")).as_bytes(), Err(BadRequest));
    }
}
