//! An HTTP/2 client that can send one name in the handshake and another in `:authority`.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use super::client::{Ask, Reply, handshake, try_handshake};
use super::wire::Head;
use super::{certificates, eventually, within};

/// The head to `https://{ask.host}`.
fn request(ask: &Ask) -> http::Request<()> {
    let uri = format!("https://{}{}", ask.host, ask.target);
    let mut request = http::Request::builder().method(ask.method.as_str()).uri(uri);
    for (name, value) in &ask.fields {
        request = request.header(name.as_str(), value.as_str());
    }
    request.body(()).unwrap()
}

/// Reads a response to its end.
pub(crate) async fn read(response: ResponseFuture) -> Reply {
    try_read(response).await.expect("a response")
}

async fn try_read(response: ResponseFuture) -> Result<Reply, h2::Error> {
    let (parts, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    let mut complete = true;
    while let Some(piece) = body.data().await {
        let Ok(piece) = piece else {
            complete = false;
            break;
        };
        let _ = body.flow_control().release_capacity(piece.len());
        bytes.extend_from_slice(&piece);
    }
    let fields = parts.headers.iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let head = Head { first_line: String::new(), fields: fields.collect() };
    Ok(Reply { status: parts.status.as_u16(), head, body: bytes, complete }.check())
}

/// One HTTP/2 connection to the gateway.
pub(crate) struct H2 {
    sender: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl H2 {
    pub(crate) async fn connect(to: SocketAddr, sni: &str) -> Self {
        let stream = handshake(to, Some(sni), certificates::client(&[b"h2"])).await.expect("a handshake");
        Self::over(stream).await.expect("HTTP/2")
    }

    /// The same with a gateway that may be gone.
    pub(crate) async fn try_connect(to: SocketAddr, sni: &str) -> std::io::Result<Self> {
        let stream = try_handshake(to, sni, certificates::client(&[b"h2"])).await?;
        Self::over(stream).await.map_err(std::io::Error::other)
    }

    async fn over(stream: TlsStream<TcpStream>) -> Result<Self, h2::Error> {
        let (sender, connection) = within(h2::client::handshake(stream)).await?;
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, connection })
    }

    /// Sends a request to `https://{ask.host}`; the error shows a broken stream or connection.
    pub(crate) async fn try_ask(&self, ask: &Ask) -> Result<Reply, h2::Error> {
        within(async {
            let mut sender = self.sender.clone().ready().await?;
            let (response, mut stream) = sender.send_request(request(ask), ask.body.is_empty())?;
            if !ask.body.is_empty() {
                // A refusal may come before the body was read; the response shows it.
                let _ = stream.send_data(Bytes::from(ask.body.clone()), true);
            }
            try_read(response).await
        })
        .await
    }

    /// Sends a request without a body. The response stays unread until the caller awaits it.
    pub(crate) async fn hold(&self, ask: &Ask) -> ResponseFuture {
        let mut sender = within(self.sender.clone().ready()).await.expect("a connection");
        sender.send_request(request(ask), true).expect("a stream").0
    }

    /// Begins a request with a body to follow.
    pub(crate) async fn begin(&self, ask: &Ask) -> (ResponseFuture, SendStream<Bytes>) {
        let mut sender = within(self.sender.clone().ready()).await.expect("a connection");
        sender.send_request(request(ask), false).expect("a stream")
    }

    /// Begins a CONNECT of this protocol (RFC 8441), once the gateway has announced that it accepts them.
    pub(crate) async fn connect_to(&self, protocol: &str, ask: &Ask) -> (ResponseFuture, SendStream<Bytes>) {
        let mut sender = within(self.sender.clone().ready()).await.expect("a connection");
        eventually("the gateway accepts WebSockets", async || {
            sender.is_extended_connect_protocol_enabled().then_some(())
        })
        .await;
        let mut request = request(ask);
        *request.method_mut() = http::Method::CONNECT;
        request.extensions_mut().insert(h2::ext::Protocol::from(protocol));
        sender.send_request(request, false).expect("a stream")
    }

    pub(crate) async fn ask(&self, ask: &Ask) -> Reply {
        let reply = self.try_ask(ask).await.expect("a response");
        assert!(reply.complete, "the response was cut short: {reply:?}");
        reply
    }

    /// Waits until the gateway ends the connection; this side would keep it.
    pub(crate) async fn ended(self) {
        let Self { sender, connection } = self;
        within(connection).await.expect("the connection's task");
        drop(sender);
    }
}
