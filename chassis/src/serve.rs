//! Serves a router: bounded connections, a deadline for request heads, and a drain that ends with the last request.

mod listeners;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, Bytes};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub use self::listeners::ServiceListeners;
use crate::peer::ServerTls;
use crate::shutdown::Shutdown;
use crate::supervise::Supervisor;

/// Limits of one listener of a service.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections served at once. Another one waits for a free slot.
    pub connections_max: usize,
    /// While a connection waits for a slot, connections idle for this long are closed, the longest first.
    pub yields_after: Duration,
    /// Time for a whole request head, and for the pause between requests: longer than the gateway keeps idle
    /// connections (55 s), so that it never sends a request into a closing connection.
    pub head_timeout: Duration,
    /// How long requests in progress may take during the drain.
    pub drain_timeout: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            yields_after: Duration::from_secs(1),
            head_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(25),
        }
    }
}

/// Binds a TCP listener; port 0 takes any free port.
///
/// # Errors
/// If the address is in use or not local; the message has the address.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Serves `router` until `shutdown`, then drains.
///
/// # Errors
/// If requests were still in progress at the end of the drain.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    serve_over(listener, None, router, limits, shutdown).await
}

/// Like [`serve`], over TLS if a certificate is configured. Plain text then gets no answer. The supervisor's task
/// `listener_certificate` reads changed files of the certificate.
pub async fn serve_over(
    listener: TcpListener,
    tls: Option<(ServerTls, Supervisor)>,
    router: Router,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let idle = Arc::new(Mutex::new(Idle::default()));
    let graceful = GracefulShutdown::new();
    if let Some((tls, tasks)) = &tls {
        tasks.spawn("listener_certificate", &shutdown, tls.clone(), ServerTls::watch);
    }
    loop {
        let stream = tokio::select! {
            biased;
            () = shutdown.begun() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // No descriptor left, or the client disconnected: a short pause avoids spinning.
                    tracing::warn!(%error, "cannot accept a connection; retrying");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let permit = tokio::select! {
            biased;
            () = shutdown.begun() => break,
            permit = acquire(&permits, &idle, limits.yields_after) => permit?,
        };
        let _ = stream.set_nodelay(true);
        let connection = Connection::new(idle.clone());
        let router = TowerToHyperService::new(router.clone());
        let of_service = connection.clone();
        let service = service_fn(move |request| {
            let busy = of_service.begin();
            let answered = router.call(request);
            async move { answered.await.map(|response| response.map(|body| Held { body, _busy: busy })) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout).max_headers(128);
        let (watcher, tls) = (graceful.watcher(), tls.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let served = async {
                match tls {
                    None => watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await?,
                    Some((tls, _)) => {
                        let stream = tls.accept(stream).await?;
                        watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await?;
                    }
                }
                anyhow::Ok(())
            };
            let ended = tokio::select! {
                ended = served => ended,
                () = connection.close_idle.notified() => Err(anyhow::anyhow!("closed the idle connection to make room for a new one")),
            };
            if let Err(error) = ended {
                tracing::debug!(error = format!("{error:#}"), "a connection ended early");
            }
        });
    }
    drop(listener);
    tokio::time::timeout(limits.drain_timeout, graceful.shutdown())
        .await
        .context("requests were still in progress when the drain ended")
}

/// Acquires a slot for a connection. If all are taken, closes the connection that has been idle longest, so that silent
/// connections do not keep others out. A new connection gets time to send its request.
async fn acquire(
    permits: &Arc<Semaphore>,
    idle: &Mutex<Idle>,
    yields_after: Duration,
) -> anyhow::Result<OwnedSemaphorePermit> {
    let mut look_at = Instant::now();
    loop {
        tokio::select! {
            biased;
            permit = permits.clone().acquire_owned() => return Ok(permit?),
            () = tokio::time::sleep_until(look_at) => look_at = idle.lock().make_room(yields_after),
        }
    }
}

/// The idle connections of a listener, the longest idle first.
#[derive(Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<u64, (Instant, Arc<Notify>)>,
}

impl Idle {
    /// Closes the connection that has been idle longest, if long enough. Returns when to check again.
    fn make_room(&mut self, yields_after: Duration) -> Instant {
        let now = Instant::now();
        let Some(longest) = self.waiting.first_entry() else { return now + yields_after };
        let yields_at = longest.get().0 + yields_after;
        if yields_at > now {
            return yields_at;
        }
        longest.remove().1.notify_one();
        now + yields_after
    }

    /// Registers an idle connection; returns its number.
    fn register(&mut self, close_idle: &Arc<Notify>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (Instant::now(), close_idle.clone()));
        number
    }
}

/// A connection, and whether it is idle.
struct Connection {
    idle: Arc<Mutex<Idle>>,
    close_idle: Arc<Notify>,
    number: AtomicU64,
}

impl Connection {
    fn new(idle: Arc<Mutex<Idle>>) -> Arc<Self> {
        let close_idle = Arc::new(Notify::new());
        let number = AtomicU64::new(idle.lock().register(&close_idle));
        Arc::new(Self { idle, close_idle, number })
    }

    /// Starts a request; it ends when its response is sent or dropped.
    fn begin(self: &Arc<Self>) -> Busy {
        self.idle.lock().waiting.remove(&self.number.load(Ordering::Relaxed));
        Busy(self.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.idle.lock().waiting.remove(&self.number.load(Ordering::Relaxed));
    }
}

/// A request in progress.
struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        let number = self.0.idle.lock().register(&self.0.close_idle);
        self.0.number.store(number, Ordering::Relaxed);
    }
}

/// The body of a response; its request is in progress while the body is being sent.
struct Held {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    #[tokio::test]
    async fn idle_connections_make_room_for_new_ones_and_a_request_in_progress_stays() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, release) = (Shutdown::new(), Arc::new(Notify::new()));
        let held = release.clone();
        let router =
            Router::new().route("/", get(async || "quick")).route("/slow", get(async move || held.notified().await));
        let yields_after = Duration::from_millis(20);
        let limits = ServeLimits { connections_max: 3, yields_after, ..ServeLimits::default() };
        let serving = tokio::spawn(serve(listener, router, limits, end.clone()));
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..10 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(ASK).await.unwrap();
        let mut answer = [0; 12];
        asking.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        // Eight of the silent connections were closed.
        assert_eq!(silent[0].read(&mut answer).await.unwrap(), 0);
        release.notify_one();
        slow.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        end.begin();
        drop((slow, asking, silent));
        serving.await.unwrap().unwrap();
    }
}
