//! A client that asks for a list and leaves it unread. Its sockets take little: what it does not read stays with the
//! service.

use std::net::SocketAddr;

use chassis::clock::{Clock as _, SystemClock};
use reqwest::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::world::{caller, signed};

/// Bytes that its system takes for it. The service's system sends in pieces of at most half of that, and keeps few of
/// them.
const RECEIVED_MAX: u32 = 16 * 1_024;

/// Orders of which no more than half fit all buffers on the way.
pub(crate) const MORE_THAN_FITS: i64 = 20_000;

/// What ends a whole list: the last piece, and the end of the pieces.
const WHOLE: &[u8] = b"]\r\n0\r\n\r\n";

pub(crate) struct SlowReader {
    stream: TcpStream,
    read: Vec<u8>,
}

impl SlowReader {
    /// Asks for all orders and reads the beginning of the answer.
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

    /// Reads on until the list is whole or the connection ends. Returns how many bytes came, and whether it is whole.
    pub(crate) async fn finish(mut self) -> (usize, bool) {
        while !self.read.ends_with(WHOLE) && self.stream.read_buf(&mut self.read).await.is_ok_and(|more| more > 0) {}
        (self.read.len(), self.read.ends_with(WHOLE))
    }
}
