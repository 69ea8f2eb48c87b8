//! Plain HTTP at the port of HTTPS: a sentence that a person can read, where an alert of TLS would be noise.
//!
//! Nothing of the request is looked at but its first byte: what it carries has travelled in the clear, and is not ours.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How much of the request is read, so that the answer is not lost in a reset. The caller keeps the deadline.
const READ_MAX: u64 = 64 * 1024;

const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 63\r\n\
Cache-Control: no-store\r\nConnection: close\r\n\r\nThis port speaks HTTPS. Use https:// in place of http:// here.\n";

/// Whether the client begins with a letter, as a request does. A record of TLS begins with the number of its type, 22.
pub(crate) async fn is_spoken(tcp: &TcpStream) -> bool {
    let mut first = [0];
    matches!(tcp.peek(&mut first).await, Ok(1)) && first.iter().all(u8::is_ascii_uppercase)
}

/// Says so, and waits until the client has heard it.
pub(crate) async fn answer(mut tcp: TcpStream) {
    // Whoever is gone needs no answer.
    let said = async {
        tcp.write_all(ANSWER).await?;
        tcp.shutdown().await?;
        tokio::io::copy(&mut tcp.take(READ_MAX), &mut tokio::io::sink()).await
    };
    let _ = said.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_as_long_as_it_says() {
        let text = std::str::from_utf8(ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
