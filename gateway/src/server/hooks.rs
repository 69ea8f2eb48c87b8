//! The hooks of the listeners: certificates from memory, request ids, and events for telemetry.

use std::sync::Arc;
use std::time::Duration;

use contract::hostname::Hostname;
use rustls::sign::CertifiedKey;

use crate::gateway::Gateway;
use crate::request_id::RequestId;
use crate::tls::challenge;
use listener::{ConnectionEvent, Connections, HandshakeOutcome, Hooks, ListenerRefusal};

pub(super) struct EdgeHooks {
    gateway: Arc<Gateway>,
    connections: Arc<Connections>,
}

impl EdgeHooks {
    pub(super) fn new(gateway: Arc<Gateway>, connections: Arc<Connections>) -> Self {
        Self { gateway, connections }
    }
}

impl Hooks for EdgeHooks {
    /// A customer's own certificate, else the platform's wildcard, but only for names that have a site: any other
    /// handshake ends before a certificate is sent.
    fn certificate(&self, sni: &Hostname) -> Option<Arc<CertifiedKey>> {
        let pipeline = &self.gateway.pipeline;
        pipeline.replica.certificate(sni).or_else(|| {
            let covering = pipeline.platform_certificate.as_ref()?.covering(sni)?;
            pipeline.replica.site(sni).map(|_| covering)
        })
    }

    fn challenge_certificate(&self, name: &Hostname) -> Option<Arc<CertifiedKey>> {
        let challenge = self.gateway.pipeline.replica.challenge_for(name)?;
        challenge::certificate(&challenge)
            .inspect_err(|error| tracing::error!(%name, %error, "cannot make a challenge certificate"))
            .ok()
    }

    fn request_id(&self) -> String {
        RequestId::random().as_str().to_owned()
    }

    fn refused(&self, refusal: &ListenerRefusal<'_>) {
        self.gateway.telemetry.refused_by_listener(refusal);
    }

    fn handshake(&self, outcome: HandshakeOutcome, took: Duration) {
        self.gateway.telemetry.handshake_ended(outcome, took);
    }

    fn connection(&self, event: ConnectionEvent) {
        self.gateway.telemetry.connection_event(event);
        self.gateway.telemetry.show_connections(self.connections.live());
    }
}
