//! Active health checks of addresses.
//!
//! Off unless configured. A GET of one path must be answered with 2xx in time: on the port of the upstream in its
//! protocol, or on another port in clear text, because services often have a separate port for health. A configured
//! number of consecutive failures takes an address out of the rotation, and a number of successes brings it back. If
//! all addresses are out, requests are sent anyway, so that a wrong check does no harm.

mod multiplexed;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::dial::dial;
use super::pool::http2::answer_to_ping;
use super::{
    DialError, DialFailure, Endpoint, EndpointAddress, Endpoints, Stream, Transport, Upstream, UpstreamSettings,
    Upstreams,
};

/// The start of a status line: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;

/// The pause between two connections to an address that failed.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// A silent address that no request has tried for this time counts as working again.
const SILENCE_KNOWN_FOR: Duration = Duration::from_mins(1);

/// The request of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A GET of this path.
    Get(String),
    /// gRPC's health check (`grpc.health.v1.Health/Check`) of this service; empty: of the whole server.
    Grpc(String),
}

/// The settings of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The request.
    pub question: Question,
    /// The port, if it differs from that of the endpoint.
    pub port: Option<u16>,
    /// The pause between two checks.
    pub every: Duration,
    /// Time for one check, including the connection.
    pub timeout: Duration,
    /// Consecutive failures that take an address out.
    pub falls: u32,
    /// Consecutive successes that bring it back.
    pub rises: u32,
}

impl HealthCheck {
    /// Checks one address once and records the result.
    pub(super) async fn run(&self, endpoint: &Endpoint, settings: &UpstreamSettings) {
        let healthy = tokio::time::timeout(self.timeout, self.check(endpoint, settings)).await.unwrap_or(false);
        if healthy && self.port.is_none() {
            endpoint.worked();
        }
        if endpoint.checked(healthy, (self.falls, self.rises)) {
            tracing::warn!(address = %endpoint.address, healthy, "the health of an upstream address changed");
        }
    }

    /// Whether the check succeeds.
    async fn check(&self, endpoint: &Endpoint, settings: &UpstreamSettings) -> bool {
        let http2 = matches!(self.question, Question::Grpc(_));
        let stream = match self.port.and_then(|port| Some((endpoint.address.ip()?, port))) {
            Some(place) => TcpStream::connect(place).await.map(Stream::Plain).map_err(Into::into),
            None => dial(&settings.transport, endpoint, http2, self.timeout).await,
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => return self.unconnected(endpoint, &error),
        };
        let plain_http2 = self.port.is_none() && matches!(settings.transport, Transport::PlainHttp2);
        let host = self.host(endpoint, settings);
        match &self.question {
            Question::Get(path) if plain_http2 => multiplexed::get(stream, &host, path).await.unwrap_or(false),
            Question::Get(path) => ask_http1(stream, &host, path).await.unwrap_or(false),
            Question::Grpc(service) => multiplexed::grpc(stream, &host, service).await.unwrap_or(false),
        }
    }

    /// The host of the request.
    fn host(&self, endpoint: &Endpoint, settings: &UpstreamSettings) -> String {
        if let Some(host) = settings.host.as_ref().and_then(|host| host.to_str().ok()) {
            return host.to_owned();
        }
        match &endpoint.address {
            EndpointAddress::Tcp(address) => {
                SocketAddr::new(address.ip(), self.port.unwrap_or(address.port())).to_string()
            }
            EndpointAddress::Unix(_) => "localhost".to_owned(),
        }
    }

    fn unconnected(&self, endpoint: &Endpoint, error: &DialError) -> bool {
        if self.port.is_none() {
            endpoint.record_failure(error);
        }
        false
    }
}

impl Endpoints {
    /// Runs a health check on every address.
    pub(super) async fn check(&self, check: &HealthCheck, settings: &UpstreamSettings) {
        let all = self.all();
        join_all(all.iter().map(|endpoint| check.run(endpoint, settings))).await;
    }
}

/// As [`Upstreams::keep_probed`].
pub(super) async fn keep_probed(upstreams: &Upstreams) {
    let (mut round, mut busy) = (tokio::time::interval(PROBE_EVERY), Vec::<Arc<Endpoint>>::new());
    // Those of which the log says that they do not respond.
    let mut logged = Vec::new();
    let mut probing = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some((upstream, probed)) = probing.next() => {
                busy.retain(|one| !Arc::ptr_eq(one, &probed));
                // Many addresses fail only once, such as the later one of two that were tried at the same time.
                if probed.is_failing() && !contains(&logged, &probed) {
                    log_failing(&upstream, &probed);
                    logged.push(probed);
                }
            }
            _ = round.tick() => {
                let failing = failing(upstreams);
                logged.retain(|one| {
                    let fails = failing.iter().any(|(_, other)| Arc::ptr_eq(one, other));
                    // Others were removed from the settings.
                    if !fails && !one.is_failing() {
                        tracing::info!(address = one.text(), "an address of an upstream responds again");
                    }
                    fails
                });
                for (upstream, one) in failing {
                    // One that takes long delays no other.
                    if !contains(&busy, &one) {
                        busy.push(one.clone());
                        probing.push(probe(upstream, one));
                    }
                }
            }
        }
    }
}

/// The addresses that fail, with their upstreams.
fn failing(upstreams: &Upstreams) -> Vec<(Arc<Upstream>, Arc<Endpoint>)> {
    let mut found = Vec::new();
    for upstream in upstreams.all() {
        let all = upstream.endpoints.all();
        found.extend(all.iter().filter(|one| one.is_failing()).map(|one| (upstream.clone(), one.clone())));
    }
    found
}

fn contains(all: &[Arc<Endpoint>], one: &Arc<Endpoint>) -> bool {
    all.iter().any(|other| Arc::ptr_eq(one, other))
}

fn log_failing(upstream: &Arc<Upstream>, endpoint: &Endpoint) {
    tracing::warn!(
        upstream = upstream.settings.name.as_str(),
        address = endpoint.text(),
        reason = endpoint.failing_because().as_deref(),
        what_to_do = "start the service at this address, or correct the endpoints of the upstream",
        "an address of an upstream does not respond; trying it until it does"
    );
}

/// Connects to an address whose last connection failed, and returns both. If it accepts a connection, and answers a PING
/// where it speaks HTTP/2, it works again.
async fn probe(upstream: Arc<Upstream>, endpoint: Arc<Endpoint>) -> (Arc<Upstream>, Arc<Endpoint>) {
    let settings = &upstream.settings;
    if let Some(tried) = endpoint.silent_at() {
        // Only a request shows whether it responds.
        if tried.elapsed() >= SILENCE_KNOWN_FOR.saturating_add(settings.first_byte_timeout) {
            endpoint.worked();
        }
        return (upstream, endpoint);
    }
    match connect(&endpoint, &settings.transport, settings.connect_timeout).await {
        Ok(()) => endpoint.worked(),
        Err(error) => endpoint.record_failure(&error),
    }
    (upstream, endpoint)
}

/// Connects, and exchanges a PING over HTTP/2: a stopped process accepts connections too.
async fn connect(endpoint: &Endpoint, transport: &Transport, timeout: Duration) -> Result<(), DialError> {
    let stream = dial(transport, endpoint, true, timeout).await?;
    if matches!(transport, Transport::PlainHttp2) || stream.agreed_on_http2() {
        let answered = tokio::time::timeout(timeout, answer_to_ping(stream)).await;
        return answered.unwrap_or_else(|_| Err(DialError::because(DialFailure::TimedOut, "it does not answer PING")));
    }
    Ok(())
}

async fn ask_http1(mut stream: Stream, host: &str, path: &str) -> std::io::Result<bool> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tollhouse\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let mut status = [0; STATUS_BYTES];
    stream.read_exact(&mut status).await?;
    Ok(status.starts_with(b"HTTP/1.") && status.get(8..10) == Some(b" 2"))
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::ConnectionLimits;

    #[test]
    fn consecutive_failures_remove_an_address_and_successes_restore_it() {
        let check = HealthCheck {
            question: Question::Get("/".to_owned()),
            port: None,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            falls: 3,
            rises: 2,
        };
        let connections = ConnectionLimits { age: Duration::from_secs(1), requests: 1 };
        let endpoint =
            Endpoint::new(SocketAddr::from(([127, 0, 0, 1], 1)).into(), None, connections, Arc::new(Semaphore::new(1)));
        let now = Duration::from_secs(1);
        let answers = [false, false, true, false, false, false, true, false, true, true];
        let up = [true, true, true, true, true, false, false, false, false, true];
        for (answer, up) in answers.into_iter().zip(up) {
            endpoint.checked(answer, (check.falls, check.rises));
            assert_eq!(endpoint.is_up(now), up);
        }
    }

    #[tokio::test]
    async fn a_probe_over_http2_needs_an_answer_to_a_ping() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connections = ConnectionLimits { age: Duration::from_secs(1), requests: 1 };
        let address = listener.local_addr().unwrap().into();
        let endpoint = Endpoint::new(address, None, connections, Arc::new(Semaphore::new(1)));
        let probing = async |timeout| connect(&endpoint, &Transport::PlainHttp2, Duration::from_millis(timeout)).await;
        let stopped = probing(300).await.unwrap_err();
        assert_eq!(stopped.reason.as_deref(), Some("it does not answer PING"));
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // That of the probe above has ended.
                let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
                while let Some(Ok(_)) = connection.accept().await {}
            }
        });
        probing(30_000).await.unwrap();
        serving.abort();
    }
}
