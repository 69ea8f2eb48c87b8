//! The gateway's own client.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use bytes::BytesMut;
use gateway::fuzzing::exchange::Forwarding;
use listener::head::{Head, HeadLimits, lint};
use listener::{Addresses, BodyReadError, Client, Connection};
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use upstreams::{
    AnnouncedBody, ConnectionLimits, IdentityForm, Transport, Upstream, UpstreamSettings, Upstreams, WebSocketLimits,
};

use crate::{Ask, FIELDS, Reply};

pub struct OurClient(Arc<Upstream>);

impl OurClient {
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let long = Duration::from_secs(60);
        let settings = UpstreamSettings {
            name: "bench".parse()?,
            endpoints: vec![address.into()],
            transport: Transport::Plain,
            host: None,
            connect_timeout: long,
            first_byte_timeout: long,
            total_timeout: None,
            in_flight_max: 100,
            websockets: WebSocketLimits { max: 1, idle_timeout: long },
            connections: ConnectionLimits { age: Duration::from_secs(3_600), requests: u32::MAX },
            shared_connections: false,
            grpc_web: false,
            body_bytes_max: u64::MAX,
            health: None,
            identity: IdentityForm::None,
            takes_keys: false,
            routes: Vec::new(),
            fields: Default::default(),
            cors: Default::default(),
            hsts: Default::default(),
            error_page: None,
        };
        let name = settings.name.clone();
        Ok(Self(Upstreams::new([settings], 100).find(&name).context("the upstream")?))
    }

    pub async fn send(&mut self, ask: Ask, count: usize) -> anyhow::Result<Reply> {
        let mut client = InMemory::new(ask)?;
        let announced = match ask.body_bytes {
            0 => AnnouncedBody::None,
            bytes => AnnouncedBody::Length(bytes as u64),
        };
        let mut reply = Reply::default();
        let mut forwarding = Forwarding::new(&mut client, announced, self.0.clone())
            .map_err(|_| anyhow::anyhow!("the request is malformed"))?;
        for _ in 0..count {
            reply.whole = forwarding.send(&mut reply.head).await.is_ok();
        }
        drop(forwarding);
        // Of the last response alone.
        let earlier = client.received.len() / count * (count - 1);
        reply.body = client.received.split_off(earlier);
        Ok(reply)
    }
}

/// A client of the gateway that has sent a request, and keeps the body of the response.
struct InMemory {
    connection: Arc<Connection>,
    request: (Vec<u8>, Head),
    body_bytes: usize,
    received: Vec<u8>,
}

impl InMemory {
    fn new(ask: Ask) -> anyhow::Result<Self> {
        let address = SocketAddr::from(([192, 0, 2, 1], 1));
        let connection = Connection::unattached(Addresses { client: address, peer: address, local: address });
        let mut head = format!("{} / HTTP/1.1\r\n", ask.method);
        FIELDS.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        if ask.body_bytes > 0 {
            head.push_str(&format!("content-length: {}\r\n", ask.body_bytes));
        }
        head.push_str("\r\n");
        let meaning = lint(head.as_bytes(), &HeadLimits::default())
            .map_err(|rejection| anyhow::anyhow!("the request is refused: {rejection:?}"))?;
        let request = (head.into_bytes(), meaning);
        Ok(Self { connection: Arc::new(connection), request, body_bytes: ask.body_bytes, received: Vec::new() })
    }
}

impl Client for InMemory {
    fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn head(&self) -> Option<(&[u8], Head)> {
        Some((&self.request.0, self.request.1))
    }

    fn take_head(&mut self) {}

    fn poll_body(&mut self, into: &mut BytesMut, _: &mut Context<'_>) -> Poll<Result<usize, BodyReadError>> {
        let bytes = self.body_bytes.min(16 * 1024);
        into.resize(into.len() + bytes, b'x');
        self.body_bytes -= bytes;
        Poll::Ready(Ok(bytes))
    }

    fn is_whole(&self) -> bool {
        self.body_bytes == 0
    }

    fn switch(&mut self) {}

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_deadline(&mut self, _: Instant, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl AsyncWrite for InMemory {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.received.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
