//! Fake listener hooks that record their calls, and a small service behind the listener.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use contract::hostname::Hostname;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

use super::{
    BodyReadError, Client, Connection, ConnectionEvent, H2Request, Handler, HandshakeOutcome, Hooks, ListenerRefusal,
    ServeOutcome,
};
use contract::rejection::Rejection;

#[derive(Debug, Default)]
pub(crate) struct FakeHooks {
    pub(crate) certificates: Mutex<HashMap<Hostname, Arc<CertifiedKey>>>,
    pub(crate) challenges: Mutex<HashMap<Hostname, Arc<CertifiedKey>>>,
    /// Heads with a prepared response, and that response.
    pub(crate) known: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    pub(crate) refusals: Mutex<Vec<(Rejection, String)>>,
    pub(crate) handshakes: Mutex<Vec<HandshakeOutcome>>,
    /// The clients that asked for a certificate.
    pub(crate) askers: Mutex<Vec<Option<IpAddr>>>,
    pub(crate) events: Mutex<Vec<ConnectionEvent>>,
    /// Heads and body bytes that reached the service.
    pub(crate) heads: AtomicUsize,
    pub(crate) body_bytes: AtomicUsize,
    /// Refusals of bodies.
    pub(crate) broken: Mutex<Vec<Rejection>>,
    event: Notify,
}

impl FakeHooks {
    pub(crate) fn count(&self, event: ConnectionEvent) -> usize {
        self.events.lock().iter().filter(|seen| **seen == event).count()
    }

    /// Waits until this event has happened once.
    pub(crate) async fn happens(&self, event: ConnectionEvent) {
        loop {
            let another = self.event.notified();
            if self.count(event) > 0 {
                return;
            }
            another.await;
        }
    }

    pub(crate) fn refused(&self) -> Vec<Rejection> {
        self.refusals.lock().iter().map(|(rejection, _)| *rejection).collect()
    }
}

impl Hooks for FakeHooks {
    fn certificate(&self, sni: &Hostname, client: Option<IpAddr>) -> Option<Arc<CertifiedKey>> {
        self.askers.lock().push(client);
        self.certificates.lock().get(sni).cloned()
    }

    fn challenge_certificate(&self, name: &Hostname) -> Option<Arc<CertifiedKey>> {
        self.challenges.lock().get(name).cloned()
    }

    fn request_id(&self) -> String {
        "test-request".to_owned()
    }

    fn refused(&self, refusal: &ListenerRefusal<'_>) {
        self.refusals.lock().push((refusal.rejection, refusal.first_line.to_owned()));
    }

    fn handshake(&self, outcome: HandshakeOutcome, _took: Duration) {
        self.handshakes.lock().push(outcome);
    }

    fn connection(&self, event: ConnectionEvent) {
        self.events.lock().push(event);
        self.event.notify_waiters();
    }
}

/// A service that reports its input.
#[async_trait]
impl Handler for FakeHooks {
    async fn serve_http1(&self, client: &mut dyn Client) -> ServeOutcome {
        let Some((bytes, facts)) = client.head().map(|(bytes, facts)| (bytes.to_vec(), facts)) else {
            return ServeOutcome::Cut;
        };
        let line = String::from_utf8_lossy(&bytes).split(" HTTP/").next().unwrap_or_default().to_owned();
        if line.starts_with("CONNECT ") {
            return ServeOutcome::Refused(Rejection::MethodNotAllowed);
        }
        client.take_head();
        client.connection().request_seen();
        self.heads.fetch_add(1, Ordering::AcqRel);
        let known = self.known.lock().get(&bytes).cloned();
        let served = match known {
            Some(response) => say(client, &response, facts.keep_alive).await,
            None if facts.websocket => echo(client).await,
            None => self.measure(client, &line, facts.keep_alive).await,
        };
        client.connection().request_done();
        served
    }

    async fn serve_http2(&self, request: H2Request, connection: &Arc<Connection>) -> bool {
        connection.request_seen();
        let H2Request { head, mut body, mut respond } = request;
        let mut body_bytes = 0;
        while let Some(Ok(piece)) = body.data().await {
            body_bytes += piece.len();
            let _ = body.flow_control().release_capacity(piece.len());
        }
        let mut body = format!("{} {} {body_bytes}\n", head.method, head.uri.path());
        if head.uri.path() == "/large" {
            body = "0123456789abcdef".repeat(16_384);
        }
        if let Ok(mut response) = respond.send_response(http::Response::new(()), false) {
            let _ = response.send_data(body.into(), true);
        }
        connection.request_done();
        true
    }
}

impl FakeHooks {
    async fn measure(&self, client: &mut dyn Client, line: &str, keep_alive: bool) -> ServeOutcome {
        let (mut body, mut came) = (BytesMut::new(), 0);
        loop {
            match poll_fn(|cx| client.poll_body(&mut body, cx)).await {
                Ok(0) => break,
                Ok(bytes) => {
                    came += bytes;
                    self.body_bytes.fetch_add(bytes, Ordering::AcqRel);
                    body.clear();
                }
                Err(BodyReadError::Gone) => return ServeOutcome::Cut,
                Err(BodyReadError::Refused(rejection)) => {
                    self.broken.lock().push(rejection);
                    let answer = format!("HTTP/1.1 {} No\r\nConnection: close\r\n\r\n", rejection.status());
                    return say(client, answer.as_bytes(), false).await;
                }
            }
        }
        let keep_alive = keep_alive && !client.connection().should_close();
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let body = format!("{line} {came}\n");
        let head = format!("HTTP/1.1 200 OK\r\nConnection: {connection}\r\nContent-Length: {}\r\n\r\n", body.len());
        say(client, (head + &body).as_bytes(), keep_alive).await
    }
}

async fn say(client: &mut dyn Client, response: &[u8], keep_alive: bool) -> ServeOutcome {
    let sent = async {
        client.write_all(response).await?;
        client.flush().await
    };
    match (sent.await.is_ok(), keep_alive) {
        (true, true) => ServeOutcome::Whole,
        (true, false) => ServeOutcome::Last,
        (false, _) => ServeOutcome::Cut,
    }
}

/// Accepts a WebSocket and echoes its bytes.
async fn echo(client: &mut dyn Client) -> ServeOutcome {
    let agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    say(client, agreed, true).await;
    client.switch();
    let mut came = BytesMut::new();
    while let Ok(1..) = poll_fn(|cx| client.poll_body(&mut came, cx)).await {
        say(client, &came, true).await;
        came.clear();
    }
    ServeOutcome::Last
}
