//! A scripted upstream that sends exact bytes and records every byte that it receives.

mod http2;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::eventually;
use super::wire::{Framing, Head, Wire};

/// The upstream's reaction to one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends these bytes and waits for the next request.
    Answer(Vec<u8>),
    /// Sends these bytes and closes.
    AnswerAndClose(Vec<u8>),
    /// Sends these bytes and resets the connection.
    AnswerAndReset(Vec<u8>),
    /// Sends the first bytes at once and the others when the gate has a permit.
    AnswerInTwo(Vec<u8>, Arc<Semaphore>, Vec<u8>),
    /// Sends these bytes before it reads the body.
    AnswerBeforeBody(Vec<u8>),
    /// Sends these bytes before it reads the body, and closes.
    AnswerBeforeBodyAndClose(Vec<u8>),
    /// Sends nothing until the gateway gives up.
    Hang,
    /// Accepts a WebSocket and echoes it.
    Echo,
}

impl Act {
    /// A response with this body.
    pub(crate) fn body(status: &str, body: &str) -> Self {
        Self::Answer(response(status, "Content-Type: application/json\r\n", body).into_bytes())
    }
}

/// A response as an application would write it, extra field lines included.
pub(crate) fn response(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
    pub(crate) raw_head: String,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Whether all of the body came.
    pub(crate) complete: bool,
}

#[derive(Default)]
struct Book {
    acts: VecDeque<Act>,
    requests: Vec<Received>,
    connections: usize,
    heads: usize,
    left: usize,
}

/// The upstream. It ends with the test's runtime.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    book: Arc<Mutex<Book>>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        Self::over(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    /// The same on this listener.
    pub(crate) fn over(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let book = Arc::new(Mutex::new(Book::default()));
        let shared = book.clone();
        tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = {
                    let mut book = shared.lock();
                    book.connections += 1;
                    book.connections - 1
                };
                served.spawn(serve(stream, number, shared.clone()));
            }
        });
        Self { address, book }
    }

    /// Sets the answer to the next request; by default a request gets 200 and `[]`.
    pub(crate) fn next(&self, act: Act) {
        self.book.lock().acts.push_back(act);
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.book.lock().requests.clone()
    }

    /// The one request so far.
    pub(crate) fn only_request(&self) -> Received {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    }

    /// How many connections were opened.
    pub(crate) fn connections(&self) -> usize {
        self.book.lock().connections
    }

    /// How many requests began, whether or not their bodies ever came.
    pub(crate) fn heads(&self) -> usize {
        self.book.lock().heads
    }

    /// Waits for this number of requests.
    pub(crate) async fn asked(&self, times: usize) {
        eventually("requests at the upstream", async || (self.requests().len() >= times).then_some(())).await;
    }

    /// Waits until the gateway has closed this number of unanswered connections.
    pub(crate) async fn left(&self, times: usize) {
        eventually("connections left", async || (self.book.lock().left >= times).then_some(())).await;
    }
}

async fn serve(stream: TcpStream, connection: usize, book: Arc<Mutex<Book>>) {
    // A second handle to the socket, for ending it rudely.
    let stream = Arc::new(stream.into_std().unwrap());
    let mut wire = Wire::new(TcpStream::from_std(stream.try_clone().unwrap()).unwrap());
    while let Ok(Some(raw_head)) = wire.raw_head().await {
        book.lock().heads += 1;
        let head = Head::parse(&raw_head);
        let early = match book.lock().acts.front() {
            Some(Act::AnswerBeforeBody(bytes)) => Some((bytes.clone(), false)),
            Some(Act::AnswerBeforeBodyAndClose(bytes)) => Some((bytes.clone(), true)),
            _ => None,
        };
        if let Some((bytes, closes)) = early {
            drop(wire.send(&bytes).await);
            if closes {
                let mut book = book.lock();
                book.acts.pop_front();
                book.requests.push(Received { connection, raw_head, head, body: Vec::new(), complete: false });
                return;
            }
        }
        let key = head.get("sec-websocket-key").unwrap_or_default().to_owned();
        let body = wire.body(head.framing(Framing::Length(0))).await;
        let act = {
            let mut book = book.lock();
            let received = Received { connection, raw_head, head, body: body.bytes, complete: body.complete };
            book.requests.push(received);
            book.acts.pop_front().unwrap_or_else(|| Act::body("200 OK", "[]"))
        };
        match act {
            Act::Answer(bytes) => drop(wire.send(&bytes).await),
            Act::AnswerBeforeBody(_) | Act::AnswerBeforeBodyAndClose(_) => {}
            Act::AnswerAndClose(bytes) => {
                drop(wire.send(&bytes).await);
                return wire.close().await;
            }
            Act::AnswerAndReset(bytes) => {
                drop(wire.send(&bytes).await);
                let reset = SockRef::from(&*stream).set_linger(Some(std::time::Duration::ZERO));
                reset.unwrap();
                return;
            }
            Act::AnswerInTwo(first, gate, second) => {
                drop(wire.send(&first).await);
                gate.acquire().await.unwrap().forget();
                drop(wire.send(&second).await);
            }
            Act::Hang => {
                wire.body(Framing::UntilEnd).await;
                book.lock().left += 1;
            }
            Act::Echo => return echo(wire, &key).await,
        }
    }
}

/// The answer to the key of a WebSocket's handshake (RFC 6455 section 4.2.2).
pub(crate) fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

async fn echo(mut wire: Wire, key: &str) {
    let agreed = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        accept(key)
    );
    drop(wire.send(agreed.as_bytes()).await);
    let (mut socket, held) = wire.into_parts();
    drop(socket.write_all(&held).await);
    let mut room = [0; 1024];
    while let Ok(read @ 1..) = socket.read(&mut room).await {
        if socket.write_all(&room[..read]).await.is_err() {
            return;
        }
    }
}
