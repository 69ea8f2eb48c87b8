//! A new connection to an address of an upstream: TCP, and TLS where the settings say so.

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

pub use self::race::race;
use super::tls::{self, Tls};
use super::{DialError, DialFailure, Endpoint, EndpointAddress, Stream, Transport, Upstream};

/// Pause before another attempt to connect to a Unix socket whose queue of connections is full.
const FULL_SOCKET_PAUSE: Duration = Duration::from_millis(5);

/// Connects, with a TLS handshake if configured; offers HTTP/2 if `http2`. Takes at most `connect_timeout`.
pub async fn dial(
    transport: &Transport,
    endpoint: &Endpoint,
    http2: bool,
    connect_timeout: Duration,
) -> Result<Stream, DialError> {
    let until = Instant::now() + connect_timeout;
    let stream = connect(endpoint, until).await?;
    encrypt(transport, endpoint, stream, http2, until).await
}

/// Connects to one of the addresses of an upstream, first to this one; then as [`dial`] does. Returns the address too
/// if it is another one. `now` is the monotonic time.
pub async fn dial_any(
    upstream: &Upstream,
    first: &Arc<Endpoint>,
    http2: bool,
    now: Duration,
) -> Result<(Stream, Option<Arc<Endpoint>>), DialError> {
    let began = Instant::now();
    let until = began + upstream.settings.connect_timeout;
    // The TLS handshake is not part of the race: a busy upstream would have to do it twice.
    let connecting = |endpoint: Arc<Endpoint>| async move { connect(&endpoint, until).await };
    let (stream, other) = race(&upstream.endpoints, first, (now, true), connecting).await?;
    let endpoint = other.as_ref().unwrap_or(first);
    let encrypted = encrypt(&upstream.settings.transport, endpoint, stream, http2, until).await;
    if let (Err(error), Some(other)) = (&encrypted, &other) {
        other.failed_because(error, now + began.elapsed());
    }
    Ok((encrypted?, other))
}

async fn connect(endpoint: &Endpoint, until: Instant) -> Result<Stream, DialError> {
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
}
