//! A listener: its socket, its limits, and one task per connection.
//!
//! A listener is a pingora service: pingora's server starts it, stops it and passes its socket to a successor. At the
//! shutdown signal it stops accepting, closes idle connections and lets requests in progress finish; the caller that
//! drains sets their deadline. A panic ends only its own connection. If the kernel has no descriptor left, accepting
//! pauses and the backlog waits.

mod bind;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chassis::watchdog::Heartbeat;
use futures_util::FutureExt as _;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::Service;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::connection::{Addresses, Connection, TlsFacts};
use super::registry::{Connections, Slot};
use super::settings::ListenerSettings;
use super::stream::{ByteStream, ClientStream};
use super::tls::{self, Tickets, TlsConfigs, plain};
use super::{ConnectionEvent, Handler, HandshakeOutcome, Hooks, http1, http2, proxy_header};
use crate::network::canonical;

/// Pause after the kernel returned no connection: long enough to avoid spinning, too short to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The state of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerState {
    /// The service has not been started.
    NotYet,
    /// Connections are accepted at this address.
    At(SocketAddr),
    /// Binding the address failed. The process should report it and exit.
    Failed(String),
    /// The shutdown signal came.
    Stopped,
}

/// One listener. Pass it to `pingora::server::Server::add_service`.
pub struct Listener {
    name: String,
    address: SocketAddr,
    threads: Option<usize>,
    heartbeat: Option<Heartbeat>,
    state: watch::Sender<ListenerState>,
    context: Arc<ListenerContext>,
}

/// State that all connections of a listener share.
struct ListenerContext {
    handler: Arc<dyn Handler>,
    hooks: Arc<dyn Hooks>,
    connections: Arc<Connections>,
    settings: Arc<ListenerSettings>,
    tls: Option<TlsConfigs>,
}

impl Listener {
    /// A listener for plain HTTP.
    pub fn plain(
        name: impl Into<String>,
        address: SocketAddr,
        handler: Arc<dyn Handler>,
        hooks: Arc<dyn Hooks>,
        connections: Arc<Connections>,
        settings: Arc<ListenerSettings>,
    ) -> Self {
        Self::at(name.into(), address, ListenerContext { handler, hooks, connections, settings, tls: None })
    }

    /// A listener for HTTPS. Fails if the cryptographic library lacks an algorithm of [`super::tls::provider`].
    pub fn tls(
        name: impl Into<String>,
        address: SocketAddr,
        handler: Arc<dyn Handler>,
        hooks: Arc<dyn Hooks>,
        connections: Arc<Connections>,
        settings: Arc<ListenerSettings>,
        tickets: Arc<Tickets>,
    ) -> Result<Self, rustls::Error> {
        let tls = Some(TlsConfigs::new(tickets)?);
        Ok(Self::at(name.into(), address, ListenerContext { handler, hooks, connections, settings, tls }))
    }

    fn at(name: String, address: SocketAddr, context: ListenerContext) -> Self {
        let state = watch::Sender::new(ListenerState::NotYet);
        Self { name, address, threads: None, heartbeat: None, state, context: Arc::new(context) }
    }

    /// Threads of the runtime for this listener's connections. Default: the server's setting for all services.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sends heartbeats on the runtime for this listener's connections, for a watchdog.
    #[must_use]
    pub fn with_heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// The state of the listener, and its address once it is bound: with port 0 the kernel chooses the port.
    pub fn listening(&self) -> watch::Receiver<ListenerState> {
        self.state.subscribe()
    }

    /// Accepts until the drain begins. Pingora's shutdown signal begins it too.
    async fn accept_until_drain(&self, listener: TcpListener, mut shutdown: ShutdownWatch) {
        let draining = self.context.connections.draining();
        let mut stop = draining.clone();
        let stopped = async {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                _ = shutdown.wait_for(|stop| *stop) => self.context.connections.drain(),
            }
        };
        tokio::pin!(stopped);
        let mut paused = self.context.connections.accepting_paused();
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stopped => return,
                // The sender lives as long as the listener.
                _ = paused.changed() => continue,
                accepted = listener.accept(), if !*paused.borrow() => accepted,
            };
            match accepted {
                Ok((tcp, peer)) => {
                    // Refused before a task or a handshake is spent on it.
                    if let Some(slot) = self.context.connections.admit(&self.context.hooks) {
                        let (context, draining) = (Arc::clone(&self.context), draining.clone());
                        tokio::spawn(async move { context.serve_isolated(tcp, peer, slot, draining).await });
                    }
                }
                // The client disconnected before it was accepted.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.context.hooks.connection(ConnectionEvent::AcceptFailed);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

#[async_trait]
impl Service for Listener {
    async fn start_service(&mut self, fds: Option<ListenFds>, shutdown: ShutdownWatch, _listeners_per_fd: usize) {
        let bound = bind::listen(self.address, self.context.settings.backlog, fds.as_ref());
        let (listener, address) = match bound.and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((address, listener)) => (listener, address),
            Err(error) => {
                self.state.send_replace(ListenerState::Failed(format!("cannot listen on {}: {error}", self.address)));
                return;
            }
        };
        self.state.send_replace(ListenerState::At(address));
        if let Some(heartbeat) = self.heartbeat.take() {
            tokio::spawn(heartbeat.beat());
        }
        self.accept_until_drain(listener, shutdown).await;
        self.state.send_replace(ListenerState::Stopped);
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn threads(&self) -> Option<usize> {
        self.threads
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        Some(vec![self.address.to_string()])
    }
}

impl ListenerContext {
    async fn serve_isolated(&self, tcp: TcpStream, peer: SocketAddr, slot: Slot, shutdown: ShutdownWatch) {
        let served = AssertUnwindSafe(self.serve(tcp, peer, slot, &shutdown)).catch_unwind().await;
        if served.is_err() {
            self.hooks.connection(ConnectionEvent::Panicked);
        }
    }

    /// Serves a connection from accept to its last request. Temporary state is boxed separately, so that an idle
    /// connection is small.
    async fn serve(&self, mut tcp: TcpStream, peer: SocketAddr, mut slot: Slot, shutdown: &ShutdownWatch) {
        let started = Instant::now();
        let deadline = started + self.settings.handshake_timeout;
        // On an error the client is gone, or could not read an answer.
        let Some(addresses) = Box::pin(self.client_addresses(&mut tcp, peer, &mut slot, deadline)).await else {
            return;
        };
        let Some(configs) = &self.tls else {
            return self.serve_connection(tcp, addresses, None, slot, shutdown).await;
        };
        let client = Some(addresses.client.ip()).filter(|client| !self.settings.forwarders.include(*client));
        let handshaking = async {
            if plain::is_plain_http(&tcp).await {
                plain::answer(tcp).await;
                return Err(HandshakeOutcome::PlainHttp);
            }
            tls::accept(tcp, configs, &*self.hooks, client).await
        };
        let outcome = timeout_at(deadline, Box::pin(handshaking)).await;
        let handshaken = outcome.unwrap_or(Err(HandshakeOutcome::TimedOut));
        let known = match &handshaken {
            Ok((_, facts)) if facts.resumed => HandshakeOutcome::Resumed,
            Ok(_) => HandshakeOutcome::Full,
            Err(outcome) => *outcome,
        };
        self.hooks.handshake(known, started.elapsed());
        if let Ok((tls, facts)) = handshaken {
            self.serve_connection(tls, addresses, Some(facts), slot, shutdown).await;
        }
    }

    /// Determines the addresses of the connection; `None` if it is refused.
    async fn client_addresses(
        &self,
        tcp: &mut TcpStream,
        peer: SocketAddr,
        slot: &mut Slot,
        deadline: Instant,
    ) -> Option<Addresses> {
        let peer = canonical(peer);
        let trusted = self.settings.proxy_protocol_from.iter().any(|net| net.contains(&peer.ip()));
        let client = if trusted {
            let Ok(Ok(proxy_source)) = timeout_at(deadline, proxy_header::read(tcp)).await else {
                self.hooks.connection(ConnectionEvent::BadProxyHeader);
                return None;
            };
            match proxy_source {
                proxy_header::ProxySource::Client(client) => Some(canonical(client)),
                proxy_header::ProxySource::Balancer => None,
            }
        } else {
            Some(peer)
        };
        // Health checks of a balancer, and balancers that name many clients, are not limited per address; all others
        // are.
        if let Some(client) = client.filter(|client| !self.settings.forwarders.include(client.ip()))
            && !slot.admit_address(client.ip())
        {
            return None;
        }
        Some(Addresses { client: client.unwrap_or(peer), peer, local: canonical(tcp.local_addr().ok()?) })
    }

    /// Serves a connection after the handshake.
    async fn serve_connection<S: ByteStream>(
        &self,
        io: S,
        addresses: Addresses,
        tls: Option<TlsFacts>,
        slot: Slot,
        shutdown: &ShutdownWatch,
    ) {
        let connection = Connection::new(slot.id(), addresses, tls, &self.settings, slot.shared(), Instant::now());
        let connection = Arc::new(connection);
        slot.register(&connection);
        let (hooks, settings) = (Arc::clone(&self.hooks), Arc::clone(&self.settings));
        let stream = Box::new(ClientStream::new(io, slot, Arc::clone(&connection), hooks, settings));
        if !connection.is_h2() {
            drop(connection);
            return http1::serve(stream, &*self.handler, shutdown).await;
        }
        // An HTTP/1 response can say `Connection: close`. HTTP/2 sends GOAWAY, which the engine does at a shutdown
        // signal, so each connection has its own signal.
        let (drain_signal, idle_max) = (connection.drain_signal(), self.settings.h2_idle_timeout);
        let (served, hooks) = (Arc::clone(&connection), &*self.hooks);
        let serving = Box::pin(http2::serve(stream, served, &self.handler, hooks, idle_max, drain_signal));
        tokio::select! {
            () = serving => {}
            () = drain_in_time(&connection, shutdown.clone()) => {}
        }
    }
}

/// Drains the connection when it reaches its maximum age or the process stops. Never returns.
async fn drain_in_time(connection: &Connection, mut shutdown: ShutdownWatch) {
    tokio::select! {
        // A dropped sender means shutdown too.
        _ = shutdown.wait_for(|stop| *stop) => {}
        () = tokio::time::sleep_until(connection.max_age_at()) => {}
    }
    connection.drain();
    std::future::pending::<()>().await;
}
