//! Listeners on loopback with a small app behind them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::services::Service as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::rig::GET;
use crate::connection::Connection;
use crate::fakes::FakeHooks;
use crate::tls::{TicketSeed, Tickets};
use crate::{
    Client, ConnectionEvent, Connections, H2Request, Handler, Hooks, Listener, ListenerSettings, ListenerState,
    MinimumRate, ServeOutcome,
};
use contract::time::UnixSeconds;

/// Answers every head with the client's address and the head. `panic` panics.
pub(super) struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn serve_http1(&self, client: &mut dyn Client) -> ServeOutcome {
        let text = String::from_utf8_lossy(client.head().unwrap().0).into_owned();
        assert!(!text.contains("panic"), "panic on request");
        client.take_head();
        let connection = Arc::clone(client.connection());
        connection.request_seen();
        let answer = format!("{} {text}", connection.client().ip());
        let sent = client.write_all(answer.as_bytes()).await.is_ok() && client.flush().await.is_ok();
        connection.request_done();
        if sent { ServeOutcome::Whole } else { ServeOutcome::Cut }
    }

    async fn serve_http2(&self, _: H2Request, _: &Arc<Connection>) -> bool {
        unreachable!("this handler serves HTTP/1 only")
    }
}

/// A listener that accepts connections.
pub(super) struct Open {
    pub(super) address: SocketAddr,
    pub(super) hooks: Arc<FakeHooks>,
    pub(super) connections: Arc<Connections>,
    pub(super) shutdown: watch::Sender<bool>,
    pub(super) service: JoinHandle<()>,
    pub(super) listening: watch::Receiver<ListenerState>,
}

pub(super) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub(super) async fn open(app: Arc<dyn Handler>, settings: ListenerSettings, tls: bool) -> Open {
    let hooks = Arc::new(FakeHooks::default());
    open_with(app, settings, tls, hooks, [7; 32]).await
}

pub(super) async fn open_with(
    app: Arc<dyn Handler>,
    settings: ListenerSettings,
    tls: bool,
    fake: Arc<FakeHooks>,
    seed: [u8; 32],
) -> Open {
    let connections = Connections::new(&settings);
    let hooks: Arc<dyn Hooks> = Arc::<FakeHooks>::clone(&fake);
    let (shared, settings) = (Arc::clone(&connections), Arc::new(settings));
    let mut listener = if tls {
        let tickets = Tickets::new(vec![TicketSeed::new(seed)], Arc::new(|| UnixSeconds(1_800_000_000)));
        Listener::tls("https", LOOPBACK, app, hooks, shared, settings, tickets).unwrap()
    } else {
        Listener::plain("http", LOOPBACK, app, hooks, shared, settings)
    };
    let (shutdown, watch) = watch::channel(false);
    let mut listening = listener.listening();
    let service = tokio::spawn(async move { listener.start_service(None, watch, 1).await });
    let state = listening.wait_for(|state| *state != ListenerState::NotYet).await.unwrap().clone();
    let ListenerState::At(address) = state else { panic!("{state:?}") };
    Open { address, hooks: fake, connections, shutdown, service, listening }
}

/// Sends bytes and reads until the other side closes or resets.
pub(super) async fn exchange_bytes(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(address).await.unwrap();
    // A listener that refuses the connection may close it before the write.
    let _ = client.write_all(bytes).await;
    let mut received = Vec::new();
    let _ = soon(client.read_to_end(&mut received)).await;
    received
}

/// Waits with a deadline, so that a hanging test fails with a message.
pub(super) async fn soon<T>(awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), awaited).await.expect("this should have happened by now")
}

/// The same for text.
pub(super) async fn exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8(exchange_bytes(address, bytes.as_ref()).await).unwrap()
}

async fn first_words(client: &mut TcpStream, send: &str) -> String {
    client.write_all(send.as_bytes()).await.unwrap();
    let mut buffer = [0; 1_024];
    let bytes = client.read(&mut buffer).await.unwrap();
    String::from_utf8(buffer[..bytes].to_vec()).unwrap()
}

// promise: faults.23
#[tokio::test]
async fn a_panic_ends_only_its_connection() {
    let open = open(Arc::new(Echo), ListenerSettings::default(), false).await;
    let mut other = TcpStream::connect(open.address).await.unwrap();
    assert_eq!(first_words(&mut other, GET).await, format!("127.0.0.1 {GET}"));
    assert_eq!(exchange(open.address, "GET /panic HTTP/1.1\r\nHost: a.example\r\n\r\n").await, "");
    assert_eq!(first_words(&mut other, GET).await, format!("127.0.0.1 {GET}"));
    assert_eq!(open.hooks.count(ConnectionEvent::Panicked), 1);
    drop(other);
    soon(open.connections.wait_until_closed()).await;
}

// promise: edge.12
#[tokio::test]
async fn connections_are_limited_per_client_and_in_total() {
    let settings = ListenerSettings { connections_per_address: 2, connections: 3, ..ListenerSettings::default() };
    let limited = open(Arc::new(Echo), settings, false).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = TcpStream::connect(limited.address).await.unwrap();
        assert_eq!(first_words(&mut client, GET).await, format!("127.0.0.1 {GET}"));
        clients.push(client);
    }
    assert_eq!(exchange(limited.address, GET).await, "");
    assert_eq!(limited.hooks.count(ConnectionEvent::TooManyFromAddress), 1);
    clients.clear();
    soon(limited.connections.wait_until_closed()).await;

    let full = open(Arc::new(Echo), ListenerSettings { connections: 1, ..ListenerSettings::default() }, false).await;
    let mut only = TcpStream::connect(full.address).await.unwrap();
    assert_eq!(first_words(&mut only, GET).await, format!("127.0.0.1 {GET}"));
    assert_eq!(exchange(full.address, GET).await, "");
    assert_eq!(full.hooks.count(ConnectionEvent::TooMany), 1);
    assert_eq!(first_words(&mut only, GET).await, format!("127.0.0.1 {GET}"));
}

/// Sends a response larger than any buffer.
struct Generous;

#[async_trait]
impl Handler for Generous {
    async fn serve_http1(&self, client: &mut dyn Client) -> ServeOutcome {
        client.take_head();
        client.connection().request_seen();
        let _ = client.write_all(&vec![b'x'; 64 * 1024 * 1024]).await;
        client.connection().request_done();
        ServeOutcome::Cut
    }

    async fn serve_http2(&self, _: H2Request, _: &Arc<Connection>) -> bool {
        unreachable!("this handler serves HTTP/1 only")
    }
}

#[tokio::test]
async fn unsent_data_of_a_stalled_client_is_dropped() {
    let moment = Duration::from_millis(200);
    let write_minimum_rate = MinimumRate { grace: moment, idle: moment, bytes_per_second: u32::MAX, whole: None };
    let open =
        open(Arc::new(Generous), ListenerSettings { write_minimum_rate, ..ListenerSettings::default() }, false).await;
    let mut client = TcpStream::connect(open.address).await.unwrap();
    client.write_all(GET.as_bytes()).await.unwrap();
    soon(async {
        while open.hooks.count(ConnectionEvent::Stalled) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(open.connections.wait_until_closed()).await;
    let mut received = Vec::new();
    let ended = soon(client.read_to_end(&mut received)).await;
    assert_eq!(ended.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionReset));
}

/// A PROXY header that names the client 192.0.2.x.
fn proxy_header(client: u8) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\0\x7f\0\0\x01\x30\x39\x01\xbb".to_vec();
    header[19] = client;
    header
}

#[tokio::test]
async fn only_a_trusted_balancer_names_the_client() {
    let trusting = ListenerSettings {
        proxy_protocol_from: vec!["127.0.0.0/8".parse().unwrap()],
        connections_per_address: 1,
        ..ListenerSettings::default()
    };
    let balanced = open(Arc::new(Echo), trusting, false).await;
    let mut clients = Vec::new();
    for name in [7, 8] {
        let mut client = TcpStream::connect(balanced.address).await.unwrap();
        client.write_all(&proxy_header(name)).await.unwrap();
        assert_eq!(first_words(&mut client, GET).await, format!("192.0.2.{name} {GET}"));
        clients.push(client);
    }
    assert_eq!(exchange(balanced.address, proxy_header(7)).await, "", "the client is limited, not the balancer");
    assert_eq!(balanced.hooks.count(ConnectionEvent::TooManyFromAddress), 1);
    assert_eq!(exchange(balanced.address, GET).await, "", "a trusted peer must send the header");
    assert_eq!(balanced.hooks.count(ConnectionEvent::BadProxyHeader), 1);

    let direct = open(Arc::new(Echo), ListenerSettings::default(), false).await;
    let spoofed = [&proxy_header(7)[..], GET.as_bytes()].concat();
    assert!(exchange(direct.address, spoofed).await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn at_the_signal_no_connection_is_accepted_and_idle_ones_end() {
    let mut open = open(Arc::new(Echo), ListenerSettings::default(), false).await;
    let mut client = TcpStream::connect(open.address).await.unwrap();
    assert_eq!(first_words(&mut client, GET).await, format!("127.0.0.1 {GET}"));
    open.shutdown.send(true).unwrap();
    open.service.await.unwrap();
    assert_eq!(*open.listening.borrow_and_update(), ListenerState::Stopped);
    assert!(TcpStream::connect(open.address).await.is_err());
    let mut rest = Vec::new();
    soon(client.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
    soon(open.connections.wait_until_closed()).await;
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_reported() {
    let taken = tokio::net::TcpListener::bind(LOOPBACK).await.unwrap();
    let (hooks, settings) = (Arc::new(FakeHooks::default()), Arc::new(ListenerSettings::default()));
    let connections = Connections::new(&settings);
    let mut listener =
        Listener::plain("http", taken.local_addr().unwrap(), Arc::new(Echo), hooks, connections, settings);
    let (_shutdown, watch) = watch::channel(false);
    let listening = listener.listening();
    listener.start_service(None, watch, 1).await;
    assert!(
        matches!(&*listening.borrow(), ListenerState::Failed(reason) if reason.contains("cannot listen on 127.0.0.1:"))
    );
}
