//! A load generator for `bench/run side-by-side`, for loads that common ones lack.
//!
//!     tls_load handshakes KIND ADDRESS NAME CA.pem SECONDS                    TLS 1.3 handshakes, one request each
//!              full|resumed|hybrid, or without a request: alone|alone-hybrid
//!     tls_load idle COUNT ADDRESS NAME CA.pem                                 connections held until standard input ends
//!     tls_load steady RATE ADDRESS NAME CA.pem SECONDS [KEY]                  requests at a fixed rate over 32 connections
//!     tls_load websocket ADDRESS NAME CA.pem SECONDS                          messages there and back over 32 WebSockets
//!     tls_load echo PORT                                                      the upstream of those: sends back what comes
//!     tls_load grpc CALLS IN-FLIGHT ADDRESS NAME CA.pem SECONDS               messages there and back, in this many calls with
//!                                                                             as many messages on their way in each
//!     tls_load grpc-echo PORT                                                 the upstream of those, over HTTP/2 without TLS
//!     tls_load delay MILLISECONDS PORT=ADDRESS...                             relays that deliver bytes so much later each way
//!
//! `steady` measures from the moment a request was due, not from when there was a connection to send it on, so that a
//! proxy that stalls does not hide what waits (no coordinated omission). Prints one JSON object.

mod delay;
mod grpc;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Connections that `handshakes` opens at once, and over which `steady` spreads its requests.
const AT_ONCE: usize = 32;

/// Switches a connection to WebSocket. The key is not checked: only the following bytes are measured.
const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Bytes of a message: a frame with 64 of text, masked.
const FRAME_BYTES: usize = 70;

/// Idle connections from one address.
const PER_ADDRESS: usize = 100;

/// The largest response to this program's requests.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

struct Target {
    address: String,
    name: String,
    connector: TlsConnector,
}

impl Target {
    fn new(address: &str, name: &str, ca: &str, kind: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca)? {
            roots.add(certificate?)?;
        }
        let groups: Vec<&'static dyn SupportedKxGroup> = match kind {
            "hybrid" | "alone-hybrid" => vec![aws_lc_rs::kx_group::X25519MLKEM768],
            _ => vec![aws_lc_rs::kx_group::X25519],
        };
        let provider = CryptoProvider { kx_groups: groups, ..aws_lc_rs::default_provider() };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        if kind != "resumed" {
            config.resumption = Resumption::disabled();
        }
        if kind == "grpc" {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Ok(Self { address: address.to_owned(), name: name.to_owned(), connector: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        self.over(TcpStream::connect(&self.address).await?).await
    }

    async fn connect_from(&self, client: Ipv4Addr) -> anyhow::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((client, 0)))?;
        self.over(socket.connect(self.address.parse()?).await?).await
    }

    async fn over(&self, tcp: TcpStream) -> anyhow::Result<TlsStream<TcpStream>> {
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(self.name.clone())?;
        Ok(self.connector.connect(name, tcp).await?)
    }

    fn request(&self, key: Option<&String>) -> String {
        let key = key.map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
        format!("GET / HTTP/1.1\r\nHost: {}\r\n{key}\r\n", self.name)
    }
}

/// Sends a request and reads its response. The length of a response's body is taken from its head.
async fn exchange(stream: &mut TlsStream<TcpStream>, request: &str) -> anyhow::Result<bool> {
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut bytes = Vec::with_capacity(4096);
    loop {
        anyhow::ensure!(stream.read_buf(&mut bytes).await? > 0, "the connection ended in a response");
        anyhow::ensure!(bytes.len() < RESPONSE_BYTES_MAX, "a response without end");
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(bytes.get(..end).unwrap_or_default())?.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).context("no length")?;
        if bytes.len() >= end + 4 + length.trim().parse::<usize>()? {
            return Ok(head.starts_with("http/1.1 200"));
        }
    }
}

/// Ends a connection without a request. The server ends it too, after the end of the handshake.
async fn close(stream: &mut TlsStream<TcpStream>) -> anyhow::Result<()> {
    stream.shutdown().await?;
    let mut rest = Vec::new();
    // Either kind of end is fine.
    let _ = stream.get_mut().0.take(RESPONSE_BYTES_MAX as u64).read_to_end(&mut rest).await;
    Ok(())
}

/// Each client has its own tickets: a shared memory keeps fewer tickets than there are clients.
async fn handshakes(targets: Vec<Target>, seconds: u64, asks: bool) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let resumed = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = targets
        .into_iter()
        .map(|target| {
            let resumed = resumed.clone();
            tokio::spawn(async move {
                let request = target.request(None);
                let mut count = 0_u64;
                while Instant::now() < until {
                    let mut stream = target.connect().await?;
                    if asks {
                        // Tickets come after the handshake: once the response has arrived, they have been read.
                        exchange(&mut stream, &request).await?;
                    } else {
                        close(&mut stream).await?;
                    }
                    if stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                        resumed.fetch_add(1, Ordering::Relaxed);
                    }
                    count += 1;
                }
                anyhow::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    println!(r#"{{"handshakes": {count}, "resumed": {}}}"#, resumed.load(Ordering::Relaxed));
    Ok(())
}

async fn idle(target: &Target, count: usize) -> anyhow::Result<()> {
    let request = target.request(None);
    let mut held = Vec::with_capacity(count);
    for number in 0..count {
        // At most as many as the gateway allows one address.
        let client = Ipv4Addr::new(127, 0, 1, u8::try_from(number / PER_ADDRESS % 250)?);
        let mut stream = target.connect_from(client).await?;
        exchange(&mut stream, &request).await?;
        held.push(stream);
    }
    println!(r#"{{"idle": {}}}"#, held.len());
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

async fn steady(target: Arc<Target>, rate: u32, seconds: u64, key: Option<String>) -> anyhow::Result<()> {
    let request = Arc::new(target.request(key.as_ref()));
    let begins = Instant::now() + Duration::from_millis(200);
    let total = u64::from(rate) * seconds;
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (target, request, next) = (target.clone(), request.clone(), next.clone());
            tokio::spawn(async move {
                let mut stream = target.connect().await?;
                let mut took = Vec::new();
                let mut failed = 0_u64;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total {
                        return anyhow::Ok((took, failed));
                    }
                    let due = begins + Duration::from_nanos(number * 1_000_000_000 / u64::from(rate));
                    // The runtime's clock ticks in milliseconds: the last one is spent in a busy loop.
                    tokio::time::sleep_until(due - Duration::from_millis(1)).await;
                    while Instant::now() < due {
                        tokio::task::yield_now().await;
                    }
                    if !exchange(&mut stream, &request).await? {
                        failed += 1;
                    }
                    took.push(due.elapsed());
                }
            })
        })
        .collect();
    let (mut all, mut failed) = (Vec::new(), 0);
    for task in tasks {
        let (took, wrong) = task.await??;
        all.extend(took);
        failed += wrong;
    }
    all.sort_unstable();
    let at = |thousandths: usize| {
        let place = all.len() * thousandths / 1_000;
        all.get(place.min(all.len().saturating_sub(1))).map_or(0, Duration::as_micros)
    };
    println!(
        r#"{{"requests": {}, "failed": {failed}, "p50_us": {}, "p99_us": {}, "p999_us": {}}}"#,
        all.len(),
        at(500),
        at(990),
        at(999)
    );
    Ok(())
}

/// Reads up to the end of a head.
async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(bytes.len() < RESPONSE_BYTES_MAX, "a head without end");
        anyhow::ensure!(stream.read_buf(&mut bytes).await? > 0, "the connection ended in a head");
    }
    Ok(bytes)
}

async fn websocket(target: Arc<Target>, seconds: u64) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let target = target.clone();
        tasks.spawn(async move {
            let mut stream = target.connect().await?;
            let request = format!("GET /ws HTTP/1.1\r\nHost: {}\r\n{UPGRADE}\r\n", target.name);
            stream.write_all(request.as_bytes()).await?;
            let answer = head(&mut stream).await?;
            anyhow::ensure!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
            let mut frame = [b'x'; FRAME_BYTES];
            // A final text frame; masked, 64 bytes; the mask.
            for (place, byte) in frame.iter_mut().zip([0x81, 0x80 | 64, 1, 2, 3, 4]) {
                *place = byte;
            }
            let mut count = 0_u64;
            while Instant::now() < until {
                stream.write_all(&frame).await?;
                stream.flush().await?;
                let mut back = [0; FRAME_BYTES];
                stream.read_exact(&mut back).await?;
                anyhow::ensure!(back == frame, "another message came back");
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut count = 0;
    while let Some(task) = tasks.join_next().await {
        count += task??;
    }
    println!(r#"{{"messages": {count}}}"#);
    Ok(())
}

async fn echo(port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            head(&mut stream).await?;
            stream.write_all(SWITCHED).await?;
            let (mut from, mut to) = stream.split();
            tokio::io::copy(&mut from, &mut to).await?;
            anyhow::Ok(())
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["handshakes", kind, address, name, ca, seconds] => {
            let targets = (0..AT_ONCE).map(|_| Target::new(address, name, ca, kind)).collect::<anyhow::Result<_>>()?;
            handshakes(targets, seconds.parse()?, !kind.starts_with("alone")).await
        }
        ["idle", count, address, name, ca] => idle(&Target::new(address, name, ca, "full")?, count.parse()?).await,
        ["steady", rate, address, name, ca, seconds, key @ ..] => {
            let target = Arc::new(Target::new(address, name, ca, "full")?);
            steady(target, rate.parse()?, seconds.parse()?, key.first().map(|key| (*key).to_owned())).await
        }
        ["websocket", address, name, ca, seconds] => {
            websocket(Arc::new(Target::new(address, name, ca, "full")?), seconds.parse()?).await
        }
        ["echo", port] => echo(port.parse()?).await,
        ["grpc", calls, in_flight, address, name, ca, seconds] => {
            let target = Arc::new(Target::new(address, name, ca, "grpc")?);
            grpc::call(target, calls.parse()?, in_flight.parse()?, seconds.parse()?).await
        }
        ["grpc-echo", port] => grpc::serve(port.parse()?).await,
        ["delay", milliseconds, lines @ ..] => delay::serve(lines, Duration::from_millis(milliseconds.parse()?)).await,
        _ => anyhow::bail!("unknown mode: see the usage at the beginning of this file"),
    }
}
