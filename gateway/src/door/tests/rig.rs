//! One stream over a memory pipe, without a listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use crate::door::connection::{Connection, Ends, TlsFacts};
use crate::door::fakes::FakeDoorman;
use crate::door::stream::{EdgeStream, Served};
use crate::door::{Connections, DoorSettings, Doorman};

pub(super) const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
pub(super) const POST_5: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\n";
pub(super) const POST_CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Both ends of a connection, and what the door knows about it.
pub(super) struct Rig {
    pub(super) client: DuplexStream,
    pub(super) stream: EdgeStream<DuplexStream>,
    pub(super) connection: Arc<Connection>,
    pub(super) doorman: Arc<FakeDoorman>,
    pub(super) connections: Arc<Connections>,
}

pub(super) fn rig() -> Rig {
    rig_with(DoorSettings::default(), None, 64 * 1024)
}

pub(super) fn rig_with(settings: DoorSettings, tls: Option<TlsFacts>, pipe_bytes: usize) -> Rig {
    let (client, ours) = tokio::io::duplex(pipe_bytes);
    let fake = Arc::new(FakeDoorman::default());
    let doorman: Arc<dyn Doorman> = Arc::<FakeDoorman>::clone(&fake);
    let connections = Connections::new(&settings);
    let slot = connections.admit(&doorman).unwrap();
    let here = SocketAddr::from(([192, 0, 2, 1], 12_345));
    let ends = Ends { client: here, peer: here, local: here };
    let connection = Arc::new(Connection::new(slot.id(), ends, tls, &settings, slot.shared(), Instant::now()));
    slot.register(&connection);
    let served = Served {
        connection: Arc::clone(&connection),
        doorman,
        settings: Arc::new(settings),
        slot,
        established_in: Duration::ZERO,
        descriptor: -1,
    };
    let stream = EdgeStream::new(ours, served).unwrap();
    Rig { client, stream, connection, doorman: fake, connections }
}

impl Rig {
    pub(super) async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.client.write_all(text.as_ref()).await.unwrap();
    }

    /// One read of the proxy.
    pub(super) async fn read(&mut self) -> std::io::Result<String> {
        read(&mut self.stream).await
    }

    /// Whether the proxy has nothing to read although it waits for a moment.
    pub(super) async fn nothing_to_read(&mut self) -> bool {
        let mut probe = [0; 1];
        tokio::time::timeout(Duration::from_millis(1), self.stream.read(&mut probe)).await.is_err()
    }

    /// Ends the proxy's side; what the client has received in all.
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
        self.connection.request_done();
    }
}

pub(super) async fn read(stream: &mut EdgeStream<DuplexStream>) -> std::io::Result<String> {
    let mut buffer = vec![0; 4_096];
    let bytes = stream.read(&mut buffer).await?;
    buffer.truncate(bytes);
    Ok(String::from_utf8(buffer).unwrap())
}
