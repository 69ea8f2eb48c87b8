//! Connections in the hands of whoever serves them. Those of HTTP/1 are [`super::http1`]'s; for those of HTTP/2 there is the
//! proxy's engine, and an accept loop of our own around it.
//!
//! The engine refuses some requests by itself: for what they say of their host, as an `:authority` and a `Host` that
//! disagree, or neither (status 400 without a body); for a target with control bytes or lengths that contradict each other
//! (the stream is reset). It says that it refused one, and not which or why. That is enough for a log line and a count as
//! every other refusal has them: all are `bad_request`, also those whose client saw a reset.
//!
//! Beyond that the loop does what the library's own does (`accept_downstream_sessions` of pingora 0.9.1): a task per
//! request, GOAWAY at the signal, the end when nothing was in progress for long.

mod turn;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Accept, HttpSession, handshake};
use pingora::protocols::tls::ALPN;
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use self::turn::in_turn;
use super::{Connection, ConnectionEvent, Direct, DoorRefusal, Doorman, http1};
use crate::rejection::Rejection;

/// Requests of one connection that the engine may refuse before the connection is cut: whoever sends so many is no
/// client that made a mistake.
const REFUSED_MAX: u32 = 32;

/// The proxy, with an eye on what its HTTP/2 engine refuses.
pub struct Engine<P> {
    proxy: Arc<P>,
    direct: Arc<dyn Direct>,
    doorman: Arc<dyn Doorman>,
}

impl<P: HttpServerApp + Send + Sync + 'static> Engine<P> {
    /// Leaves to `proxy` what `direct` does not serve, and tells `doorman` of requests that neither gets to see.
    pub fn new(proxy: P, direct: Arc<dyn Direct>, doorman: Arc<dyn Doorman>) -> Self {
        Self { proxy: Arc::new(proxy), direct, doorman }
    }

    async fn http1(&self, stream: Stream, shutdown: &ShutdownWatch) {
        let (direct, proxy) = (&*self.direct, &self.proxy);
        if stream.get_ssl_digest().is_some() {
            if let Some(stream) = http1::own::<TlsStream<TcpStream>>(stream) {
                http1::serve(stream, direct, proxy, shutdown).await;
            }
        } else if let Some(stream) = http1::own::<TcpStream>(stream) {
            http1::serve(stream, direct, proxy, shutdown).await;
        }
    }

    async fn http2(&self, stream: Stream, mut signal: ShutdownWatch) {
        let digest = Arc::new(Digest {
            ssl_digest: stream.get_ssl_digest(),
            timing_digest: stream.get_timing_digest(),
            proxy_digest: stream.get_proxy_digest(),
            socket_digest: stream.get_socket_digest(),
        });
        // A client without a good preface gets no answer it could read.
        let (Some(connection), Ok(mut engine)) =
            (Connection::in_digest(&digest), handshake(stream, self.proxy.h2_options()).await)
        else {
            return;
        };
        let idle_max = self.proxy.server_options().and_then(|options| options.h2_idle_timeout);
        let (requests, mut refused, mut leaving) = (TaskTracker::new(), 0, false);
        requests.close();
        loop {
            let accepted = tokio::select! {
                biased;
                // A sender that is gone means the end as well.
                _ = signal.changed(), if !leaving => {
                    engine.graceful_shutdown();
                    leaving = true;
                    continue;
                }
                accepted = in_turn(&connection, HttpSession::from_h2_conn(&mut engine, Arc::clone(&digest))) => accepted,
                () = idle(&requests, idle_max), if !leaving => return,
            };
            match accepted {
                Ok(Some(H2Accept::Session(session))) => {
                    let (direct, proxy) = (Arc::clone(&self.direct), Arc::clone(&self.proxy));
                    let (connection, signal) = (Arc::clone(&connection), signal.clone());
                    requests.spawn(async move {
                        if let Some(session) = direct.serve_stream(session, &connection).await {
                            proxy.process_new_http(ServerSession::new_http2(session), &signal).await;
                        }
                    });
                }
                Ok(Some(H2Accept::Rejected)) => {
                    self.refused(&connection);
                    refused += 1;
                    if refused >= REFUSED_MAX {
                        self.doorman.connection(ConnectionEvent::Flooded);
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn refused(&self, connection: &Connection) {
        let request_id = self.doorman.request_id();
        self.doorman.refused(&DoorRefusal {
            rejection: Rejection::BadRequest,
            connection,
            request_id: &request_id,
            first_line: "",
        });
    }
}

/// Ends when nothing has been in progress for so long.
async fn idle(requests: &TaskTracker, idle_max: Option<Duration>) {
    let Some(idle_max) = idle_max else {
        return std::future::pending().await;
    };
    requests.wait().await;
    tokio::time::sleep(idle_max).await;
}

#[async_trait]
impl<P: HttpServerApp + Send + Sync + 'static> ServerApp for Engine<P> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            self.http2(stream, shutdown.clone()).await;
        } else {
            self.http1(stream, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
    }
}
