//! A doorman that remembers what it was told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contract::hostname::Hostname;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;

use super::{Connection, ConnectionEvent, DoorRefusal, Doorman, Early, EarlyHead, HandshakeOutcome};
use crate::rejection::Rejection;

#[derive(Debug, Default)]
pub(crate) struct FakeDoorman {
    pub(crate) certificates: Mutex<HashMap<Hostname, Arc<CertifiedKey>>>,
    pub(crate) challenges: Mutex<HashMap<Hostname, Arc<CertifiedKey>>>,
    /// Heads that are answered early, and with what.
    pub(crate) early: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    pub(crate) refusals: Mutex<Vec<(Rejection, String)>>,
    pub(crate) handshakes: Mutex<Vec<HandshakeOutcome>>,
    pub(crate) events: Mutex<Vec<ConnectionEvent>>,
}

impl FakeDoorman {
    pub(crate) fn count(&self, event: ConnectionEvent) -> usize {
        self.events.lock().iter().filter(|seen| **seen == event).count()
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

    fn early(&self, head: &EarlyHead<'_>, connection: &Arc<Connection>) -> Early {
        let answer = self.early.lock().get(head.bytes).cloned();
        answer.map_or(Early::Pass, |response| {
            connection.request_seen();
            Early::Answered { response, closes: !head.keep_alive }
        })
    }

    fn refused(&self, refusal: &DoorRefusal<'_>) {
        self.refusals.lock().push((refusal.rejection, refusal.first_line.to_owned()));
    }

    fn handshake(&self, outcome: HandshakeOutcome, _took: Duration) {
        self.handshakes.lock().push(outcome);
    }

    fn connection(&self, event: ConnectionEvent) {
        self.events.lock().push(event);
    }
}
