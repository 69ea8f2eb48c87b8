//! HTTP/2 connections: an engine that knows of frames, windows and compressed fields, and an accept loop around it: a task per
//! request, GOAWAY at the signal and when nothing was in progress for long.
//!
//! What the engine takes for no request at all it resets by itself, as RFC 9113 section 8.1.1 has it, and ends connections
//! that go on with it. What it lets through and the gateway refuses for its form is answered and logged like every other
//! refusal; a connection that goes on with that is ended as well.

mod turn;
mod windows;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use pingora::server::ShutdownWatch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::turn::in_turn;
use self::windows::Windows;
use super::stream::{EdgeStream, Transport};
use super::{Connection, ConnectionEvent, Doorman, Handler};

/// How long a client that was told to go may take to say that it has heard it, once nothing is in progress.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Streams of one connection at once.
const STREAMS_MAX: u32 = 100;
/// Bytes of one header list as RFC 9113 section 6.5.2 counts them, with 32 for each field: enough for what the lint of heads
/// takes (32 KiB in 100 fields, and a target of 8 KiB), so that it is the lint that decides.
const HEADER_BYTES_MAX: u32 = 48 * 1024;
/// Bytes of a response buffered for a client that does not read; a connection has as many of them as streams.
const SEND_BUFFER_MAX: usize = 64 * 1024;

/// Requests of one connection that may be refused for their form before the connection is cut: whoever sends so many is no
/// client that made a mistake.
const REFUSED_MAX: u32 = 32;

/// A request over HTTP/2, and where its response goes.
pub struct H2Request {
    /// Its head.
    pub head: http::request::Parts,
    /// Its body.
    pub body: RecvStream,
    /// Its response.
    pub respond: SendResponse<Bytes>,
}

/// Serves a connection to its last request.
pub(super) async fn serve<S: Transport>(
    stream: Box<EdgeStream<S>>,
    connection: Arc<Connection>,
    handler: &Arc<dyn Handler>,
    doorman: &dyn Doorman,
    idle_max: Duration,
    mut signal: ShutdownWatch,
) {
    // A client without a good preface gets no answer it could read.
    let Ok(mut engine) = options().handshake::<_, Bytes>(stream).await else { return };
    let (requests, mut leaving) = (TaskTracker::new(), false);
    let mut windows = Windows::new(&connection);
    requests.close();
    let (refused, cut) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
    loop {
        let accepted = tokio::select! {
            biased;
            // A sender that is gone means the end as well.
            _ = signal.changed(), if !leaving => {
                engine.graceful_shutdown();
                leaving = true;
                continue;
            }
            accepted = in_turn(&connection, poll_fn(|cx| {
                windows.adjust(&mut engine, cx);
                engine.poll_accept(cx)
            })) => accepted,
            () = cut.cancelled() => return doorman.connection(ConnectionEvent::Flooded),
            // A request that is on its way meets a GOAWAY that says whether it was taken, and not a closed door.
            () = idle(&requests, if leaving { LEAVE_MAX } else { idle_max }) => {
                if leaving {
                    return;
                }
                engine.graceful_shutdown();
                leaving = true;
                continue;
            }
        };
        let Some(Ok((request, respond))) = accepted else { return };
        let (head, body) = request.into_parts();
        let (handler, connection) = (Arc::clone(handler), Arc::clone(&connection));
        let (refused, cut) = (Arc::clone(&refused), cut.clone());
        requests.spawn(async move {
            let is_request = handler.serve_stream(H2Request { head, body, respond }, &connection).await;
            if !is_request && refused.fetch_add(1, Ordering::AcqRel) + 1 == REFUSED_MAX {
                cut.cancel();
            }
        });
    }
}

/// What clients are told of our limits.
fn options() -> h2::server::Builder {
    let mut options = h2::server::Builder::new();
    options
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_window_size(windows::STREAM)
        .initial_connection_window_size(windows::CONNECTION)
        .max_send_buffer_size(SEND_BUFFER_MAX);
    options
}

/// Ends when nothing has been in progress for so long.
async fn idle(requests: &TaskTracker, idle_max: Duration) {
    requests.wait().await;
    tokio::time::sleep(idle_max).await;
}
