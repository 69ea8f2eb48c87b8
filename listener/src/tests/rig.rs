//! One stream over a memory pipe, without a listener.

use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use crate::connection::{Addresses, Connection, TlsFacts};
use crate::fakes::FakeHooks;
use crate::gate::{Gate, NextRead};
use crate::stream::ClientStream;
use crate::{BodyReadError, Client as _, Connections, Hooks, ListenerSettings};
use contract::rejection::Rejection;

pub(super) const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
pub(super) const POST_5: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\n";
pub(super) const POST_CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Both ends of a connection, and the listener's state of it.
pub(super) struct Rig {
    pub(super) client: DuplexStream,
    pub(super) stream: ClientStream<DuplexStream>,
    pub(super) connection: Arc<Connection>,
    pub(super) hooks: Arc<FakeHooks>,
    pub(super) connections: Arc<Connections>,
}

pub(super) fn rig() -> Rig {
    rig_with(ListenerSettings::default(), None, 64 * 1024)
}

pub(super) fn rig_with(settings: ListenerSettings, tls: Option<TlsFacts>, pipe_bytes: usize) -> Rig {
    let (client, ours) = tokio::io::duplex(pipe_bytes);
    let fake = Arc::new(FakeHooks::default());
    let hooks: Arc<dyn Hooks> = Arc::<FakeHooks>::clone(&fake);
    let connections = Connections::new(&settings);
    let mut slot = connections.admit(&hooks).unwrap();
    let here = SocketAddr::from(([192, 0, 2, 1], 12_345));
    assert!(slot.admit_address(here.ip()));
    let addresses = Addresses { client: here, peer: here, local: here };
    let connection = Arc::new(Connection::new(slot.id(), addresses, tls, &settings, slot.shared(), Instant::now()));
    slot.register(&connection);
    let stream = ClientStream::new(ours, slot, Arc::clone(&connection), hooks, Arc::new(settings));
    Rig { client, stream, connection, hooks: fake, connections }
}

impl Rig {
    pub(super) async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.client.write_all(text.as_ref()).await.unwrap();
    }

    /// One read, as a request handler does it.
    pub(super) async fn read(&mut self) -> Result<String> {
        read(&mut self.stream).await
    }

    /// Whether a reader gets nothing for a moment.
    pub(super) async fn nothing_to_read(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(1), self.read()).await.is_err()
    }

    /// Completes the request.
    pub(super) fn done(&mut self) {
        self.connection.request_done();
        self.stream.next();
    }

    /// Closes our side; returns everything that the client received.
    pub(super) async fn received(self) -> String {
        let Self { mut client, stream, .. } = self;
        drop(stream);
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        String::from_utf8(received).unwrap()
    }

    /// Serves one request that has been read.
    pub(super) async fn respond(&mut self, response: &str) {
        self.connection.request_seen();
        self.stream.write_all(response.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
        self.done();
    }
}

impl ClientStream<DuplexStream> {
    /// Completes the response.
    pub(super) fn next(&mut self) {
        if let Some(Err(rejection)) = self.gate.as_mut().map(Gate::response_complete) {
            self.refuse(rejection);
        }
    }

    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Result<String>> {
        let mut bytes = BytesMut::new();
        let is_refused = |gate: &Gate| gate.want() == NextRead::Nothing && !gate.first_line().is_empty();
        let rests =
            self.gate.as_ref().is_some_and(|gate| matches!(gate.want(), NextRead::Head { .. }) || is_refused(gate));
        if rests || self.head().is_some() {
            if ready!(self.poll_request(cx)) {
                bytes.extend_from_slice(self.head().unwrap().0);
                self.take_head();
                bytes.extend_from_slice(self.gate.as_ref().unwrap().ready());
                let read = bytes.len();
                self.gate.as_mut().unwrap().consume(read);
            }
        } else {
            match ready!(self.poll_body(&mut bytes, cx)) {
                // Everything was read: wait for the client to disconnect.
                Ok(0) if self.is_whole() => ready!(self.poll_gone(cx)),
                Ok(_) | Err(BodyReadError::Gone) => {}
                Err(BodyReadError::Refused(Rejection::RequestTimeout)) => {
                    return Poll::Ready(Err(ErrorKind::TimedOut.into()));
                }
                Err(BodyReadError::Refused(rejection)) => {
                    return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, rejection.code())));
                }
            }
        }
        if self.connection().is_closed() {
            return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(String::from_utf8(bytes.to_vec()).unwrap()))
    }
}

/// A head with the body bytes that arrived, or more of the body, or nothing at the end of the connection.
pub(super) async fn read(stream: &mut ClientStream<DuplexStream>) -> Result<String> {
    if stream.gate.is_some() {
        return poll_fn(|cx| stream.poll_text(cx)).await;
    }
    let mut buffer = vec![0; 4_096];
    let bytes = stream.read(&mut buffer).await?;
    buffer.truncate(bytes);
    Ok(String::from_utf8(buffer).unwrap())
}
