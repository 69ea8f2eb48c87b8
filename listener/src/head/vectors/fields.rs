//! The rows about field lines: syntax, framing, Host, Expect, Connection.

use super::{PLAIN, check, fields, good, post};
use contract::rejection::Rejection::{
    BadConnectionHeader, BadFraming, BadHost, BadRequest, BodyNotAllowed, ExpectationFailed, NotImplemented,
    UnderscoreHeader,
};

#[test]
fn malformed_field_lines_are_refused() {
    for lines in [
        "Host: a.example\nX: y\r\n",
        "Host: a.example\r\nX: y\n",
        "Host: a.example\rX: y\r\n",
        "Host: a.example\r\r\n",
        "Host: a.example\r\nX: a\0b\r\n",
        "Host: a.example\r\nX: a\x01b\r\n",
        "Host: a.example\r\nX: a\x0bb\r\n",
        "Host: a.example\r\nX: a\x0cb\r\n",
        "Host: a.example\r\nX: a\x1bb\r\n",
        "Host: a.example\r\nX: a\x7fb\r\n",
        "Host: a.example\r\nX: a\r\n folded\r\n",
        "Host: a.example\r\nX: a\r\n\tfolded\r\n",
        "Host: a.example\r\n : b\r\n",
        " Host: a.example\r\n",
        "\tHost: a.example\r\n",
        "Host : a.example\r\n",
        "Host\t: a.example\r\n",
        "Host: a.example\r\nX : y\r\n",
        "Host: a.example\r\nno colon\r\n",
        "Host: a.example\r\nX\r\n",
        "Host: a.example\r\n: empty name\r\n",
        "Host: a.example\r\nX Y: z\r\n",
        "Host: a.example\r\nX\"Y: z\r\n",
        "Host: a.example\r\nX(Y): z\r\n",
        "Host: a.example\r\nX/Y: z\r\n",
        "Host: a.example\r\nX@Y: z\r\n",
        "Host: a.example\r\nGr\u{fc}n: z\r\n",
        "Host: a.example\r\nX\0: z\r\n",
        "Host: a.example\r\nX\x7f: z\r\n",
    ] {
        check(fields(lines).as_bytes(), Err(BadRequest));
    }
    for name in ["Transfer_Encoding", "Content_Length", "content_LENGTH"] {
        check(fields(&format!("Host: a.example\r\n{name}: 1\r\n")).as_bytes(), Err(UnderscoreHeader));
    }
    for name in ["X_User", "_", "Host_", "client_id"] {
        good(&fields(&format!("Host: a.example\r\n{name}: 1\r\n")), PLAIN);
    }
}

#[test]
fn bodies_with_an_ambiguous_length_are_refused() {
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: gzip\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5,\r\n",
        "Content-Length: ,5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 05\r\n",
        "Content-Length: 00\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5;a\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: 1e3\r\n",
        "Content-Length: 5_0\r\n",
        "Content-Length: \"5\"\r\n",
        "Content-Length: \r\n",
        "Content-Length:\r\n",
        "Content-Length: five\r\n",
        "Content-Length: \u{665}\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding: chunked;x\r\n",
        "Transfer-Encoding: chunked x\r\n",
        "Transfer-Encoding: x chunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: 'chunked'\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
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
    check(post("Transfer-Encoding:\r\n chunked\r\n").as_bytes(), Err(BadRequest));
    check(post("Transfer-Encoding : chunked\r\n").as_bytes(), Err(BadRequest));
    for coding in ["gzip", "identity", "br", "x-unknown"] {
        check(post(&format!("Transfer-Encoding: {coding}\r\n")).as_bytes(), Err(NotImplemented));
    }
    for coding in ["chunked", "gzip"] {
        let old = format!("POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: {coding}\r\n\r\n");
        check(old.as_bytes(), Err(BadFraming));
    }
}

// promise: edge.9
#[test]
fn ambiguous_hosts_are_refused() {
    let long_label = format!("{}.example", "a".repeat(64));
    let long_name = "abcdefg.".repeat(32);
    for host in [
        "",
        " ",
        ".",
        "..",
        "a..b",
        ".a",
        "a.example, b.example",
        "a.example,b.example",
        "a.example b.example",
        "a.example/path",
        "a.example/../b",
        "a.example\\b",
        "http://a.example",
        "user@a.example",
        "user:password@a.example",
        "@a.example",
        "a.example@b.example",
        "a.example#b",
        "a.example?b",
        "a_b.example",
        "*.example",
        "*",
        "a%2eexample",
        "b\u{fc}cher.example",
        "a.example:",
        "a.example:port",
        "a.example:0",
        "a.example:080",
        "a.example:65536",
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
        long_label.as_str(),
        long_name.as_str(),
    ] {
        check(fields(&format!("Host: {host}\r\n")).as_bytes(), Err(BadHost));
    }
    check(fields("").as_bytes(), Err(BadHost));
    check(fields("X: y\r\n").as_bytes(), Err(BadHost));
    check(fields("Host: a.example\r\nHost: a.example\r\n").as_bytes(), Err(BadHost));
    check(fields("Host: a.example\r\nhost: b.example\r\n").as_bytes(), Err(BadHost));
    check(b"GET / HTTP/1.0\r\n\r\n", Err(BadHost));
    check(b"GET http://a.example/ HTTP/1.1\r\n\r\n", Err(BadHost));
}

#[test]
fn expectations_that_cannot_be_met_are_refused() {
    for lines in [
        "Expect: 100-continue\r\n",
        "Content-Length: 3\r\nExpect: 100-continue, x\r\n",
        "Content-Length: 3\r\nExpect: y 100-continue\r\n",
        "Content-Length: 3\r\nExpect: 100-continue;x\r\n",
        "Content-Length: 3\r\nExpect: x\r\n",
        "Content-Length: 3\r\nExpect:\r\n",
        "Content-Length: 3\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\nExpect: 200-ok\r\n",
    ] {
        check(post(lines).as_bytes(), Err(ExpectationFailed));
    }
    check(b"POST / HTTP/1.0\r\nHost: a.example\r\nExpect: x\r\n\r\n", Err(ExpectationFailed));
}

#[test]
fn connection_cannot_name_fields_that_others_rely_on() {
    for list in [
        "Authorization",
        "close, X-Tenant-Id",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "X-Forwarded-For",
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
fn a_websocket_has_one_upgrade_and_no_body() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for body in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        check(post(&format!("{upgrade}{body}")).as_bytes(), Err(BodyNotAllowed));
    }
    for second in ["websocket", "h2c"] {
        check(post(&format!("{upgrade}Upgrade: {second}\r\n")).as_bytes(), Err(BadRequest));
    }
}
