//! The connection of a request to an upstream: a kept one, or a new one, with TLS where the settings say so.

mod race;

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;

use self::race::race;
use super::pool::http2::negotiated;
use super::tls::{self, Tls};
use super::{
    DialError, DialFailure, Endpoint, EndpointAddress, Lifetime, Requirements, Stream, StreamPermit, Transport,
    Upstream,
};

/// Pause before another attempt to connect to a Unix socket whose queue of connections is full.
const FULL_SOCKET_PAUSE: Duration = Duration::from_millis(5);

/// How long a server may take from accepting a connection to its first HTTP/2 frame.
const FIRST_FRAME_MAX: Duration = Duration::from_secs(8);

/// A connection for one request.
#[derive(Debug)]
pub enum UpstreamConnection {
    /// HTTP/1.1: it serves no other request meanwhile.
    Http1 {
        /// The connection.
        stream: Stream,
        /// The use that is left to it.
        lifetime: Lifetime,
        /// It has served others.
        reused: bool,
    },
    /// HTTP/2: one stream of a connection that requests share.
    Http2(StreamPermit),
}

/// Why there is no connection for a request.
#[derive(Debug)]
pub enum ConnectError {
    /// None could be opened.
    Unconnected(DialError),
    /// The upstream may no longer speak HTTP/2: the next connection negotiates again.
    NotHttp2(DialError),
}

/// Chooses the connection of a request at this address of the upstream: a kept one, or a new one; or one at another
/// address, which is returned too, if this one does not answer soon. `now` is the monotonic time.
pub async fn connect(
    (upstream, endpoint): (&Arc<Upstream>, &Arc<Endpoint>),
    requirements: &Requirements,
    is_websocket: bool,
    now: Duration,
) -> Result<(UpstreamConnection, Option<Arc<Endpoint>>), ConnectError> {
    let transport = &upstream.settings.transport;
    // Over TLS a WebSocket is asked for by HTTP/1.1, which nearly all servers speak too.
    let http2 = !is_websocket || transport.tls().is_none();
    let mut moved = None;
    if !http2 || !transport.multiplexes(endpoint) {
        if let Some((stream, lifetime)) = endpoint.http1.take(requirements, upstream.idle_max()) {
            return Ok((UpstreamConnection::Http1 { stream, lifetime, reused: true }, None));
        }
        let (stream, other) = dial_new(upstream, endpoint, http2, now).await?;
        let endpoint = other.as_ref().unwrap_or(endpoint);
        if !stream.agreed_on_http2() {
            if http2 && stream.is_tls() {
                endpoint.http2.set_http2_agreed(false);
            }
            let lifetime = endpoint.connections.begin();
            return Ok((UpstreamConnection::Http1 { stream, lifetime, reused: false }, other));
        }
        endpoint.http2.add_connected(requirements, opening_time(upstream), stream);
        moved = other;
    }
    let endpoint = moved.as_ref().unwrap_or(endpoint);
    let acquired = Box::pin(acquire(upstream, endpoint, requirements, now)).await;
    match acquired {
        Ok((permit, other)) => Ok((UpstreamConnection::Http2(permit), other.or(moved))),
        Err(error) if error.kind == DialFailure::Protocol && transport.tls().is_some() => {
            endpoint.http2.set_http2_agreed(false);
            Err(ConnectError::NotHttp2(error))
        }
        Err(error) => Err(unconnected(endpoint, error)),
    }
}

async fn dial_new(
    upstream: &Upstream,
    endpoint: &Arc<Endpoint>,
    http2: bool,
    now: Duration,
) -> Result<(Stream, Option<Arc<Endpoint>>), ConnectError> {
    let settings = &upstream.settings;
    let connected = if upstream.endpoints.len() > 1 {
        Box::pin(dial_any(upstream, endpoint, http2, now)).await
    } else {
        dial(&settings.transport, endpoint, http2, settings.connect_timeout).await.map(|stream| (stream, None))
    };
    connected.map_err(|error| unconnected(endpoint, error))
}

/// Acquires a stream of HTTP/2 at this address, or at another one, which is returned too.
async fn acquire(
    upstream: &Arc<Upstream>,
    endpoint: &Arc<Endpoint>,
    requirements: &Requirements,
    now: Duration,
) -> Result<(StreamPermit, Option<Arc<Endpoint>>), DialError> {
    if upstream.endpoints.len() == 1 {
        return acquire_at(upstream, endpoint, requirements, now).await.map(|permit| (permit, None));
    }
    let acquiring = |endpoint: Arc<Endpoint>| async move { acquire_at(upstream, &endpoint, requirements, now).await };
    // A late answer is not a failure: the address may be far away, or all its streams may be in use.
    race(&upstream.endpoints, endpoint, (now, false), acquiring).await
}

async fn acquire_at(
    upstream: &Arc<Upstream>,
    endpoint: &Arc<Endpoint>,
    requirements: &Requirements,
    now: Duration,
) -> Result<StreamPermit, DialError> {
    let connect = || {
        let (upstream, endpoint, began) = (upstream.clone(), endpoint.clone(), Instant::now());
        negotiated(async move {
            let settings = &upstream.settings;
            let dialed = dial(&settings.transport, &endpoint, true, settings.connect_timeout).await;
            // Recorded here, because the request may have gone to another address meanwhile.
            if let Err(error) = &dialed {
                endpoint.failed_because(error, now + began.elapsed());
            }
            dialed
        })
    };
    endpoint.http2.acquire(requirements, opening_time(upstream), connect).await
}

fn unconnected(endpoint: &Endpoint, error: DialError) -> ConnectError {
    endpoint.record_failure(&error);
    ConnectError::Unconnected(error)
}

/// How long a new connection may take until its first HTTP/2 frame. The kernel of a paused server still accepts
/// connections. So with a single address a request waits for the first frame as it waits for a response; with several
/// addresses it tries another one after `connect_timeout`.
fn opening_time(upstream: &Upstream) -> Duration {
    let settings = &upstream.settings;
    longest_opening(settings.connect_timeout, settings.first_byte_timeout, upstream.endpoints.len())
}

fn longest_opening(connect: Duration, first_byte: Duration, addresses: usize) -> Duration {
    if addresses > 1 { connect } else { connect.max(first_byte.min(FIRST_FRAME_MAX)) }
}

/// Connects, with a TLS handshake if configured; offers HTTP/2 if `http2`. Takes at most `connect_timeout`.
pub(super) async fn dial(
    transport: &Transport,
    endpoint: &Endpoint,
    http2: bool,
    connect_timeout: Duration,
) -> Result<Stream, DialError> {
    let until = Instant::now() + connect_timeout;
    let stream = open_until(endpoint, until).await?;
    encrypt(transport, endpoint, stream, http2, until).await
}

/// Connects to one of the addresses of an upstream, first to this one; then as [`dial`] does. Returns the address too
/// if it is another one. `now` is the monotonic time.
async fn dial_any(
    upstream: &Upstream,
    first: &Arc<Endpoint>,
    http2: bool,
    now: Duration,
) -> Result<(Stream, Option<Arc<Endpoint>>), DialError> {
    let began = Instant::now();
    let until = began + upstream.settings.connect_timeout;
    // The TLS handshake is not part of the race: a busy upstream would have to do it twice.
    let connecting = |endpoint: Arc<Endpoint>| async move { open_until(&endpoint, until).await };
    let (stream, other) = race(&upstream.endpoints, first, (now, true), connecting).await?;
    let endpoint = other.as_ref().unwrap_or(first);
    let encrypted = encrypt(&upstream.settings.transport, endpoint, stream, http2, until).await;
    if let (Err(error), Some(other)) = (&encrypted, &other) {
        other.failed_because(error, now + began.elapsed());
    }
    Ok((encrypted?, other))
}

async fn open_until(endpoint: &Endpoint, until: Instant) -> Result<Stream, DialError> {
    let late = |_| {
        let is_socket = endpoint.address.ip().is_none();
        let reason =
            is_socket.then_some(Cow::Borrowed("the socket's queue of connections is full: is the service stuck?"));
        DialError { kind: DialFailure::TimedOut, reason }
    };
    timeout_at(until, open(endpoint)).await.map_err(late)?
}

/// Does the TLS handshake, if one is configured.
async fn encrypt(
    transport: &Transport,
    endpoint: &Endpoint,
    stream: Stream,
    http2: bool,
    until: Instant,
) -> Result<Stream, DialError> {
    let (tls, stream) = match (transport, stream) {
        (Transport::Tls(tls), Stream::Plain(stream)) => (tls, stream),
        // The settings allow no TLS over Unix sockets.
        (_, stream) => return Ok(stream),
    };
    let name = tls.settings.server_name.clone().map_or_else(|| name_of(endpoint), Ok)?;
    let silent =
        |_| DialError::because(DialFailure::TimedOut, "the TLS handshake timed out: does the upstream speak TLS?");
    // Boxed, because most connections are without TLS.
    timeout_at(until, Box::pin(secure(tls, name, stream, http2))).await.map_err(silent)?
}

async fn open(endpoint: &Endpoint) -> Result<Stream, DialError> {
    let address = match &endpoint.address {
        EndpointAddress::Tcp(address) => *address,
        EndpointAddress::Unix(path) => return open_socket(path).await.map(Stream::Unix),
    };
    let stream = TcpStream::connect(address).await?;
    // Heads and bodies are written in large pieces, so Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    Ok(Stream::Plain(stream))
}

/// Connects to a Unix socket. Waits while its queue of connections is full: the kernel does so for TCP, but returns an
/// error here.
async fn open_socket(path: &Path) -> Result<UnixStream, DialError> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(FULL_SOCKET_PAUSE).await,
            connected => return connected.map_err(of_socket),
        }
    }
}

/// The failure of a connection to a Unix socket.
fn of_socket(error: io::Error) -> DialError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "the socket does not exist: does the service run?",
        io::ErrorKind::PermissionDenied => "the gateway's user may not write to the socket, or not enter its directory",
        _ => return error.into(),
    };
    DialError::because(DialFailure::Refused, reason)
}

async fn secure(tls: &Tls, name: ServerName<'static>, stream: TcpStream, http2: bool) -> Result<Stream, DialError> {
    let connected = TlsConnector::from(tls.config(http2)).connect(name, stream).await;
    connected.map(|stream| Stream::Tls(Box::new(stream))).map_err(|error| {
        let reason =
            tls::reason(&error).unwrap_or_else(|| "it ended the connection during the TLS handshake".to_owned());
        DialError::because(DialFailure::Tls, reason)
    })
}

/// The configured name or address of an endpoint.
fn name_of(endpoint: &Endpoint) -> Result<ServerName<'static>, DialError> {
    let unnamed = || DialError::because(DialFailure::Tls, "its name cannot be in a certificate: set tls.server_name");
    match (endpoint.name.as_deref(), endpoint.address.ip()) {
        (Some(name), _) => ServerName::try_from(name.to_owned()).map_err(|_| unnamed()),
        (None, Some(ip)) => Ok(ServerName::from(ip.to_canonical())),
        (None, None) => Err(unnamed()),
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    #[tokio::test]
    async fn a_unix_socket_with_a_full_queue_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.sock");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let mut held = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            held.push(stream);
        }
        let mut opening = Box::pin(open_socket(&path));
        tokio::time::timeout(FULL_SOCKET_PAUSE.saturating_mul(4), &mut opening).await.unwrap_err();
        listener.accept().unwrap();
        opening.await.unwrap();
    }

    #[test]
    fn a_paused_server_is_waited_for_as_for_a_response_where_there_is_no_other() {
        let seconds = Duration::from_secs;
        for (connect, first_byte, addresses, expected) in
            [(1, 10, 1, 8), (1, 5, 1, 5), (1, 60, 1, 8), (10, 5, 1, 10), (1, 10, 2, 1)]
        {
            let longest = longest_opening(seconds(connect), seconds(first_byte), addresses);
            assert_eq!(longest, seconds(expected), "{connect} {first_byte} {addresses}");
        }
    }
}
