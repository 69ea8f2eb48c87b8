//! A doorman that remembers what it was told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::hostname::Hostname;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

use super::head::Head;
use super::{Client, Connection, ConnectionEvent, Direct, DoorRefusal, Doorman, H2Request, HandshakeOutcome, Served};
use crate::rejection::Rejection;

#[derive(Debug, Default)]
pub(crate) struct FakeDoorman {
    pub(crate) certificates: Mutex<HashMap<Hostname, Arc<CertifiedKey>>>,
    pub(crate) challenges: Mutex<HashMap<Hostname, Arc<CertifiedKey>>>,
    /// Heads that are answered without the proxy, and with what.
    pub(crate) known: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    pub(crate) refusals: Mutex<Vec<(Rejection, String)>>,
    pub(crate) handshakes: Mutex<Vec<HandshakeOutcome>>,
    pub(crate) events: Mutex<Vec<ConnectionEvent>>,
    event: Notify,
}

impl FakeDoorman {
    pub(crate) fn count(&self, event: ConnectionEvent) -> usize {
        self.events.lock().iter().filter(|seen| **seen == event).count()
    }

    /// Waits until this has happened once.
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

impl Doorman for FakeDoorman {
    fn certificate(&self, sni: &Hostname) -> Option<Arc<CertifiedKey>> {
        self.certificates.lock().get(sni).cloned()
    }

    fn challenge_certificate(&self, name: &Hostname) -> Option<Arc<CertifiedKey>> {
        self.challenges.lock().get(name).cloned()
    }

    fn request_id(&self) -> String {
        "test-request".to_owned()
    }

    fn refused(&self, refusal: &DoorRefusal<'_>) {
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

#[async_trait]
impl Direct for FakeDoorman {
    async fn serve(&self, client: &mut dyn Client) -> Served {
        let known = |(bytes, head): (&[u8], Head)| Some((self.known.lock().get(bytes)?.clone(), head.keep_alive));
        let Some((response, keep_alive)) = client.bare_head().and_then(known) else { return Served::Passed };
        client.take_head();
        client.connection().request_seen();
        let sent = async {
            client.write_all(&response).await?;
            client.flush().await
        };
        let sent = sent.await.is_ok();
        client.connection().request_done();
        match (sent, keep_alive) {
            (true, true) => Served::Whole,
            (true, false) => Served::Last,
            (false, _) => Served::Cut,
        }
    }

    /// Says what it got, as the upstream of the fake proxy does.
    async fn serve_stream(&self, request: H2Request, connection: &Arc<Connection>) -> bool {
        connection.request_seen();
        let H2Request { head, mut body, mut respond } = request;
        let mut body_bytes = 0;
        while let Some(Ok(piece)) = body.data().await {
            body_bytes += piece.len();
            let _ = body.flow_control().release_capacity(piece.len());
        }
        let said = format!("{} {} {body_bytes}\n", head.method, head.uri.path());
        if let Ok(mut response) = respond.send_response(http::Response::new(()), false) {
            let _ = response.send_data(said.into(), true);
        }
        connection.request_done();
        true
    }
}
