//! HTTP/2 connections: an engine that handles frames, windows and compressed fields, and an accept loop around it. Each
//! request has a task, and the responses of many leave in one write. GOAWAY is sent at the shutdown signal and after an
//! idle time.
//!
//! The engine resets malformed requests (RFC 9113 section 8.1.1) and ends connections that keep sending them. Requests
//! that the engine accepts and the gateway refuses as malformed are answered and logged like every other refusal; a
//! connection with too many of them is ended too.

mod windows;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use pingora::server::ShutdownWatch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::windows::Windows;
use super::stream::{ByteStream, ClientStream};
use super::{Connection, ConnectionEvent, H2Request, Handler, Hooks};

/// Once nothing is in progress, a client has this long to acknowledge GOAWAY.
const GOAWAY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Concurrent streams of one connection.
const STREAMS_MAX: u32 = 100;
/// Bytes of one header list as RFC 9113 section 6.5.2 counts them, with 32 for each field. It exceeds the limits for
/// heads (32 KiB in 100 fields, and a target of 8 KiB), so that those limits decide.
const HEADER_BYTES_MAX: u32 = 48 * 1024;
/// Bytes of a response buffered for a client that does not read; each stream of a connection may buffer as many.
const SEND_BUFFER_MAX: usize = 64 * 1024;

/// Malformed requests of one connection before it is cut off. A client that made a mistake sends fewer.
const REFUSED_MAX: u32 = 32;

/// Serves a connection until it ends.
pub(super) async fn serve<S: ByteStream>(
    stream: Box<ClientStream<S>>,
    connection: Arc<Connection>,
    handler: &Arc<dyn Handler>,
    hooks: &dyn Hooks,
    idle_max: Duration,
    mut signal: ShutdownWatch,
) {
    // A client with a bad preface could not read an answer.
    let Ok(mut engine) = options().handshake::<_, Bytes>(stream).await else { return };
    let (requests, mut draining) = (TaskTracker::new(), false);
    let mut windows = Windows::new(&connection);
    requests.close();
    let (refused, cut) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
    loop {
        let accepted = tokio::select! {
            biased;
            // A dropped sender means shutdown too.
            _ = signal.changed(), if !draining => {
                engine.graceful_shutdown();
                draining = true;
                continue;
            }
            accepted = coalesced(&connection, poll_fn(|cx| {
                windows.adjust(&mut engine, cx);
                engine.poll_accept(cx)
            })) => accepted,
            () = cut.cancelled() => return hooks.connection(ConnectionEvent::Flooded),
            // A request already on its way meets a GOAWAY that says whether it was accepted, instead of a closed
            // connection.
            () = idle(&requests, if draining { GOAWAY_WAIT_MAX } else { idle_max }) => {
                if draining {
                    return;
                }
                engine.graceful_shutdown();
                draining = true;
                continue;
            }
        };
        let Some(Ok((request, respond))) = accepted else { return };
        let (head, body) = request.into_parts();
        let (handler, connection) = (Arc::clone(handler), Arc::clone(&connection));
        let (refused, cut) = (Arc::clone(&refused), cut.clone());
        requests.spawn(async move {
            let is_request = handler.serve_http2(H2Request { head, body, respond }, &connection).await;
            if !is_request && refused.fetch_add(1, Ordering::AcqRel) + 1 == REFUSED_MAX {
                cut.cancel();
            }
        });
    }
}

/// The limits announced to clients.
fn options() -> h2::server::Builder {
    let mut options = h2::server::Builder::new();
    options
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_window_size(windows::STREAM)
        .initial_connection_window_size(windows::CONNECTION)
        .max_send_buffer_size(SEND_BUFFER_MAX)
        // WebSockets (RFC 8441); the handler refuses other uses.
        .enable_connect_protocol();
    options
}

/// Returns when nothing has been in progress for `idle_max`.
async fn idle(requests: &TaskTracker, idle_max: Duration) {
    requests.wait().await;
    tokio::time::sleep(idle_max).await;
}

/// Runs the engine of a connection with write coalescing: at once the first time and while at most one request is in
/// progress, otherwise after yielding.
///
/// A stream that writes wakes the connection's engine, and the runtime runs the last woken task first. Without
/// coalescing, the engine would send every response in its own TLS record and system call. Therefore the engine yields
/// until all runnable tasks have run and the runtime has polled the sockets. A connection with at most one request in
/// progress has nothing to coalesce, and its engine runs at once. The engine also flushes after every larger piece of a
/// body; those flushes are deferred until it has nothing more to write.
async fn coalesced<F: Future>(connection: &Connection, engine: F) -> F::Output {
    let mut engine = pin!(engine);
    let mut begun = false;
    let mut pending: Option<Arc<Yield>> = None;
    poll_fn(|cx| {
        match &pending {
            None if begun && connection.in_progress() > 1 => {
                pending = Some(Yield::request(cx));
                return Poll::Pending;
            }
            Some(pending) if !pending.is_over.load(Ordering::Acquire) => return Poll::Pending,
            _ => {}
        }
        (begun, pending) = (true, None);
        connection.coalesce_writes(true);
        let mut polled = engine.as_mut().poll(cx);
        connection.coalesce_writes(false);
        if polled.is_pending() && connection.has_deferred_flush() {
            // The engine has nothing left to write, so this poll flushes.
            polled = engine.as_mut().poll(cx);
        }
        polled
    })
    .await
}

/// A yield to all runnable tasks.
struct Yield {
    is_over: AtomicBool,
    task: Waker,
}

impl Yield {
    /// Wakes the task after the yield: when a worker of the runtime has no other task, or has run 61 more.
    fn request(cx: &Context<'_>) -> Arc<Self> {
        let pending = Arc::new(Self { is_over: AtomicBool::new(false), task: cx.waker().clone() });
        let waker = Waker::from(Arc::clone(&pending));
        // Only the wake-up is needed: the runtime keeps the waker.
        if pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker)).is_ready() {
            waker.wake();
        }
        pending
    }
}

impl Wake for Yield {
    fn wake(self: Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests;
