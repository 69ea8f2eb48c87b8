//! A client that requests a list and stops reading. Its socket buffers are small, so the unread part stays with the
//! service.

use std::net::SocketAddr;

use chassis::clock::{Clock as _, SystemClock};
use reqwest::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::world::{caller, signed};

/// Receive buffer of the client in bytes. The service's kernel sends pieces of at most half of it, and buffers few of
/// them.
const RECEIVED_MAX: u32 = 16 * 1_024;

/// A number of orders of which at most half fit into all buffers of the connection.
pub(crate) const MORE_THAN_FITS: i64 = 20_000;

/// The end of a complete list: the last chunk, and the end of the chunked body.
const WHOLE: &[u8] = b"]\r\n0\r\n\r\n";

pub(crate) struct SlowReader {
    stream: TcpStream,
    read: Vec<u8>,
}

impl SlowReader {
    /// Requests all orders and reads the beginning of the response.
    pub(crate) async fn ask(http: SocketAddr) -> Self {
        let target = "/v1/store/orders";
        let request = Client::new().get(format!("http://{http}{target}"));
        let request = signed(request, Some(caller()), SystemClock::new().now()).build().unwrap();
        let mut head = format!("GET {target} HTTP/1.1\r\nhost: {http}\r\n");
        for (name, value) in request.headers() {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        head.push_str("\r\n");
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVED_MAX).unwrap();
        let mut stream = socket.connect(http).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !read.windows(2).any(|pair| pair == b"[{") {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "{}", String::from_utf8_lossy(&read));
        }
        assert!(read.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&read));
        Self { stream, read }
    }

    /// Reads until the list is complete or the connection ends. Returns the bytes, and whether the list is complete.
    pub(crate) async fn finish(mut self) -> (usize, bool) {
        while !self.read.ends_with(WHOLE) && self.stream.read_buf(&mut self.read).await.is_ok_and(|more| more > 0) {}
        (self.read.len(), self.read.ends_with(WHOLE))
    }
}
