//! HTTP/1.1 as bytes, for both ends: messages are recorded as sent, and a truncated message is reported as such.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// A socket, or a TLS session over one.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// The head of a request or response, in the order and spelling of the wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) first_line: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let first_line = lines.next().unwrap_or_default().to_owned();
        let fields = lines.map(|line| line.split_once(':').expect("a field line has a colon"));
        Self { first_line, fields: fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect() }
    }

    /// The values of a field, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let matching = self.fields.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        matching.map(|(_, value)| value.as_str()).collect()
    }

    /// The one value of a field; `None` when it is absent. Two of them are a failure of the test.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let values = self.all(name);
        assert!(values.len() <= 1, "{name} appears {} times in {self:?}", values.len());
        values.first().copied()
    }

    /// Field names in lower case, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort();
        names
    }

    /// How the body of a message with this head ends, when it has one.
    pub(crate) fn framing(&self, otherwise: Framing) -> Framing {
        match (self.get("transfer-encoding"), self.get("content-length")) {
            (Some(_), _) => Framing::Chunked,
            (None, Some(length)) => Framing::Length(length.parse().expect("a length")),
            (None, None) => otherwise,
        }
    }
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    UntilEnd,
}

/// A body, and whether all of it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    pub(crate) complete: bool,
}

/// A connection, and the bytes that were read too far.
pub(crate) struct Wire {
    socket: Box<dyn Socket>,
    held: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(socket: impl Socket + 'static) -> Self {
        Self { socket: Box::new(socket), held: Vec::new() }
    }

    /// The socket, and the bytes that were read too far.
    pub(crate) fn into_parts(self) -> (Box<dyn Socket>, Vec<u8>) {
        (self.socket, self.held)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await?;
        self.socket.flush().await
    }

    pub(crate) async fn close(&mut self) {
        // The other side may be gone already; then it is closed.
        let _ = self.socket.shutdown().await;
    }

    /// The next head as text; `None` when the connection ended before the first byte of it.
    pub(crate) async fn raw_head(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = position(&self.held, b"\r\n\r\n") {
                let head = self.held.drain(..end + 4).collect();
                return Ok(Some(String::from_utf8(head).expect("a head is text")));
            }
            match self.more().await? {
                0 if self.held.is_empty() => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
    }

    pub(crate) async fn head(&mut self) -> io::Result<Option<Head>> {
        Ok(self.raw_head().await?.map(|text| Head::parse(&text)))
    }

    /// The body that follows; chunked ones without their framing.
    pub(crate) async fn body(&mut self, framing: Framing) -> Body {
        match framing {
            Framing::Length(length) => {
                let complete = self.fill(length).await;
                let length = length.min(self.held.len());
                Body { bytes: self.held.drain(..length).collect(), complete }
            }
            Framing::UntilEnd => {
                let ended = loop {
                    match self.more().await {
                        Ok(0) => break true,
                        Ok(_) => {}
                        Err(_) => break false,
                    }
                };
                Body { bytes: std::mem::take(&mut self.held), complete: ended }
            }
            Framing::Chunked => self.chunks().await,
        }
    }

    async fn chunks(&mut self) -> Body {
        let mut body = Body::default();
        loop {
            let Some(line) = self.line().await else { return body };
            let length = usize::from_str_radix(&line, 16).expect("a chunk's size");
            let whole = self.fill(length).await;
            body.bytes.extend(self.held.drain(..length.min(self.held.len())));
            if length == 0 {
                // Trailers, up to an empty line.
                while let Some(line) = self.line().await {
                    if line.is_empty() {
                        body.complete = true;
                        break;
                    }
                }
                return body;
            }
            if !whole || self.line().await.as_deref() != Some("") {
                return body;
            }
        }
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = position(&self.held, b"\r\n") {
                let line: Vec<u8> = self.held.drain(..end + 2).take(end).collect();
                return Some(String::from_utf8(line).expect("a line is text"));
            }
            if matches!(self.more().await, Ok(0) | Err(_)) {
                return None;
            }
        }
    }

    /// Reads exactly `length` bytes, unless the connection ends first.
    pub(crate) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        self.fill(length).await;
        let length = length.min(self.held.len());
        self.held.drain(..length).collect()
    }

    async fn fill(&mut self, length: usize) -> bool {
        while self.held.len() < length {
            if matches!(self.more().await, Ok(0) | Err(_)) {
                return false;
            }
        }
        true
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.held.reserve(8 * 1024);
        self.socket.read_buf(&mut self.held).await
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
