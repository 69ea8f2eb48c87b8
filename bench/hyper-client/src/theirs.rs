//! hyper's client, with the limits of the gateway's. Connections are driven by tasks of their own, as hyper's pool does.

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use listener::fields::may_stand_in_response;
use tokio::net::TcpStream;

use crate::{Ask, FIELDS, Reply};

pub struct HyperClient {
    upstream: SocketAddr,
    /// The connection, if it accepts another request.
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl HyperClient {
    pub fn new(upstream: SocketAddr) -> Self {
        Self { upstream, kept: None }
    }

    pub async fn send(&mut self, ask: Ask, count: usize) -> anyhow::Result<Reply> {
        let fields = FIELDS.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let fields = HeaderMap::from_iter(fields);
        let mut reply = Reply::default();
        for _ in 0..count {
            let mut request = Request::new(Full::from(vec![b'x'; ask.body_bytes]));
            *request.method_mut() = ask.method.parse()?;
            // The gateway may have to send the head again.
            *request.headers_mut() = fields.clone();
            reply = self.send_once(request).await?;
        }
        Ok(reply)
    }

    async fn send_once(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Reply> {
        let mut sender = match self.kept.take().filter(SendRequest::is_ready) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let mut reply = Reply::default();
        let Ok(response) = sender.send_request(request).await else { return Ok(reply) };
        write_head(&response, &mut reply.head);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Ok(reply) };
            frame.data_ref().inspect(|data| reply.body.extend_from_slice(data));
        }
        reply.whole = true;
        self.kept = sender.ready().await.is_ok().then_some(sender);
        Ok(reply)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TokioIo::new(TcpStream::connect(self.upstream).await?);
        let opened = Builder::new()
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .max_headers(256)
            .max_header_size(64 * 1024)
            .handshake(stream)
            .await;
        let (sender, connection) = opened.context("connecting")?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// The head as the gateway would write it for its client.
fn write_head<B>(response: &Response<B>, out: &mut Vec<u8>) {
    out.reserve(1_280);
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or_default();
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in response.headers().iter().filter(|(name, _)| may_stand_in_response(name.as_str())) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}
