//! Plain HTTP on the HTTPS port is answered with a readable error instead of a TLS alert.
//!
//! Only the first byte of the request is inspected: its content travelled unencrypted and is not used.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How much of the request is read, so that the answer is not lost in a reset. The caller sets the deadline.
const READ_MAX: u64 = 64 * 1024;

const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 63\r\n\
Cache-Control: no-store\r\nConnection: close\r\n\r\nThis port speaks HTTPS. Use https:// in place of http:// here.\n";

/// Whether the client's first byte is a letter, as in a request. A TLS record begins with its type, 22.
pub(crate) async fn is_plain_http(tcp: &TcpStream) -> bool {
    let mut first = [0];
    matches!(tcp.peek(&mut first).await, Ok(1)) && first.iter().all(u8::is_ascii_uppercase)
}

/// Sends the error, and waits until the client has received it.
pub(crate) async fn answer(mut tcp: TcpStream) {
    // If the client is gone, no answer is needed.
    let sent = async {
        tcp.write_all(ANSWER).await?;
        tcp.shutdown().await?;
        tokio::io::copy(&mut tcp.take(READ_MAX), &mut tokio::io::sink()).await
    };
    let _ = sent.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_its_declared_length() {
        let text = std::str::from_utf8(ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
