//! Serving a router: bounded connections, a deadline for request heads, and a drain that ends when the last request
//! does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::peer::ServerTls;
use crate::shutdown::Shutdown;

/// Bounds of one listener of a service.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections served at once; the next one waits in the kernel's queue.
    pub connections_max: usize,
    /// Time for a whole request head, and for the silence between requests: longer than the gateway keeps idle
    /// connections (55 s), so that it never sends a request into one that is being closed.
    pub head_timeout: Duration,
    /// After the end is announced, requests in progress get this long.
    pub drain_timeout: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self { connections_max: 1_024, head_timeout: Duration::from_secs(75), drain_timeout: Duration::from_secs(25) }
    }
}

/// Binds a TCP listener; port 0 takes any free port.
///
/// # Errors
/// When the address is taken or not ours, with the address in the message.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Serves `router` until `shutdown`, then drains.
///
/// # Errors
/// When requests were still in progress at the end of the drain.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    serve_over(listener, None, router, limits, shutdown).await
}

/// As [`serve`], over TLS if there is something to show. Whoever speaks plain text then is not answered.
pub async fn serve_over(
    listener: TcpListener,
    tls: Option<ServerTls>,
    router: Router,
    limits: ServeLimits,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let graceful = GracefulShutdown::new();
    loop {
        let place = tokio::select! {
            biased;
            () = shutdown.begun() => break,
            place = places.clone().acquire_owned() => place?,
        };
        let stream = tokio::select! {
            biased;
            () = shutdown.begun() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors or a client that left: waiting a little beats spinning.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout).max_headers(128);
        let (watcher, tls) = (graceful.watcher(), tls.clone());
        tokio::spawn(async move {
            let _place = place;
            let ended: anyhow::Result<()> = match tls {
                None => {
                    watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await.map_err(Into::into)
                }
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => {
                        watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await.map_err(Into::into)
                    }
                    Err(error) => Err(error.into()),
                },
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
