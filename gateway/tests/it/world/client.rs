//! Clients: HTTP/1.1 written by hand, so that a test can send invalid bytes, and requests for both versions.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use contract::error::ErrorBody;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::wire::{Body, Framing, Head, Wire};
use super::{certificates, within};

/// A request to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Ask {
    pub(crate) fn new(method: &str, host: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            host: host.to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn get(host: &str, target: &str) -> Self {
        Self::new("GET", host, target)
    }

    pub(crate) fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.field("Authorization", &format!("Bearer {key}"))
    }

    /// With a body of known length.
    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = body.as_bytes().to_vec();
        let length = self.body.len().to_string();
        self.field("Content-Length", &length)
    }

    /// The bytes of HTTP/1.1.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, self.host);
        for (name, value) in &self.fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A response, whichever version brought it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to its stated end.
    pub(crate) complete: bool,
}

impl Reply {
    /// The one value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    /// A header that is a number.
    pub(crate) fn number(&self, name: &str) -> i64 {
        let value = self.header(name).unwrap_or_else(|| panic!("{name} is missing in {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name}: {value} is not an integer"))
    }

    /// Limit, remaining and reset.
    pub(crate) fn rate_limit_headers(&self) -> (i64, i64, i64) {
        (self.number("x-ratelimit-limit"), self.number("x-ratelimit-remaining"), self.number("x-ratelimit-reset"))
    }

    pub(crate) fn request_id(&self) -> &str {
        self.header("x-request-id").expect("every response has a request id")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Asserts that this is a refusal with this status and code, in the form every refusal has.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("an Error body");
        let fields: Vec<&String> = body.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["code", "message", "status"]);
        let body: ErrorBody = serde_json::from_value(body).unwrap();
        assert_eq!((body.code.as_str(), body.status), (code, status));
        assert!(!body.message.is_empty());
        self
    }

    /// Asserts the properties of every response of the gateway.
    pub(crate) fn check(self) -> Self {
        let id = self.request_id();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        // A site's own server may name itself in `Server`.
        let is_theirs = |server: &str| server.starts_with("nginx/") || server.starts_with("nghttpd ");
        assert!(self.header("server").is_none_or(is_theirs), "{self:?}");
        assert!(self.header("date").is_some(), "{self:?}");
        self
    }
}

/// An HTTP/1.1 connection to the gateway.
pub(crate) struct Client {
    pub(crate) wire: Wire,
}

impl Client {
    /// Without encryption.
    pub(crate) async fn plain(to: SocketAddr) -> Self {
        Self::from(to, IpAddr::from([127, 0, 0, 1])).await
    }

    /// Without encryption, from another address of this machine.
    pub(crate) async fn from(to: SocketAddr, from: IpAddr) -> Self {
        Self { wire: Wire::new(connect(to, from).await) }
    }

    /// With TLS, naming `sni` in the handshake.
    pub(crate) async fn tls(to: SocketAddr, sni: &str) -> Self {
        let stream = handshake(to, Some(sni), certificates::client(&[b"http/1.1"])).await;
        Self { wire: Wire::new(stream.expect("a handshake")) }
    }

    /// The same from another address of this machine.
    pub(crate) async fn tls_from(to: SocketAddr, from: IpAddr, sni: &str) -> Self {
        Self::try_tls_from(to, from, sni).await.expect("a handshake")
    }

    /// The same when the handshake may be refused.
    pub(crate) async fn try_tls_from(to: SocketAddr, from: IpAddr, sni: &str) -> std::io::Result<Self> {
        let stream = connect(to, from).await;
        let connector = TlsConnector::from(Arc::new(certificates::client(&[b"http/1.1"])));
        let name = ServerName::try_from(sni.to_owned()).unwrap();
        Ok(Self { wire: Wire::new(within(connector.connect(name, stream)).await?) })
    }

    /// The same with a gateway that may be gone.
    pub(crate) async fn try_tls(to: SocketAddr, sni: &str) -> std::io::Result<Self> {
        Ok(Self { wire: Wire::new(try_handshake(to, sni, certificates::client(&[b"http/1.1"])).await?) })
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Reply {
        let reply = self.try_ask(ask).await.expect("a response");
        assert!(reply.complete, "the response was cut short: {reply:?}");
        reply
    }

    /// Sends a request; `None` when the connection ended without a response.
    pub(crate) async fn try_ask(&mut self, ask: &Ask) -> Option<Reply> {
        // If the connection has ended, reading the response shows it.
        let _ = within(self.wire.send(&ask.to_bytes())).await;
        self.reply(&ask.method).await
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.wire.send(bytes.as_ref())).await.expect("the gateway takes bytes");
    }

    /// The next final response, to a request with this method.
    pub(crate) async fn reply(&mut self, method: &str) -> Option<Reply> {
        within(async {
            let head = self.wire.head().await.ok()??;
            let status = status_of(&head);
            let empty = method == "HEAD" || matches!(status, 100..200 | 204 | 304);
            let body = if empty {
                Body { bytes: Vec::new(), complete: true }
            } else {
                self.wire.body(head.framing(Framing::UntilEnd)).await
            };
            Some(Reply { status, head, body: body.bytes, complete: body.complete }.check())
        })
        .await
    }

    /// The next head as it is, an interim one included.
    pub(crate) async fn head(&mut self) -> Head {
        within(self.wire.head()).await.expect("a head").expect("a head")
    }

    /// Waits for the end of the connection; returns the bytes before it.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        within(self.wire.body(Framing::UntilEnd)).await.bytes
    }
}

pub(crate) fn status_of(head: &Head) -> u16 {
    head.first_line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line")
}

async fn connect(to: SocketAddr, from: IpAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let stream = within(socket.connect(to)).await.expect("the gateway accepts");
    stream.set_nodelay(true).unwrap();
    stream
}

/// A TLS handshake, with or without a name.
pub(crate) async fn handshake(
    to: SocketAddr,
    sni: Option<&str>,
    mut config: rustls::ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    config.enable_sni = sni.is_some();
    let name = ServerName::try_from(sni.unwrap_or("unknown.example").to_owned()).unwrap();
    let stream = connect(to, IpAddr::from([127, 0, 0, 1])).await;
    within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// A TLS handshake with a gateway that may be gone.
pub(crate) async fn try_handshake(
    to: SocketAddr,
    sni: &str,
    config: rustls::ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    within(async {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(sni.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    })
    .await
}
