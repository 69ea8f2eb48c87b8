//! The hooks of the listeners: certificates from memory, request ids, and events for telemetry.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use contract::certificate::Challenge;
use contract::hostname::Hostname;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::exchange::Gateway;
use crate::request_id::RequestId;
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
    fn certificate(&self, sni: &Hostname, client: Option<IpAddr>) -> Option<Arc<CertifiedKey>> {
        let pipeline = &self.gateway.pipeline;
        let found = pipeline.replica.certificate(sni).or_else(|| {
            let covering = pipeline.platform_certificate.as_ref()?.covering(sni)?;
            pipeline.replica.site(sni).map(|_| covering)
        });
        if found.is_none() {
            pipeline.replica.unserved.record(sni, client);
        }
        found
    }

    fn challenge_certificate(&self, name: &Hostname) -> Option<Arc<CertifiedKey>> {
        let challenge = self.gateway.pipeline.replica.challenge_for(name)?;
        challenge_certificate(&challenge)
            .inspect_err(|error| {
                tracing::error!(
                    %name, %error,
                    "cannot create the certificate that proves a name to the certificate authority (TLS-ALPN-01); its \
                     order will fail"
                );
            })
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

/// The certificate for a TLS-ALPN-01 challenge (RFC 8737): self-signed, for one name, with the digest of the key
/// authorization in a critical extension. Created per handshake: a challenge has only a few.
///
/// # Errors
/// The name does not fit a certificate, or no key can be created.
fn challenge_certificate(challenge: &Challenge) -> anyhow::Result<Arc<CertifiedKey>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![challenge.hostname.as_str().to_owned()])?;
    // No common name: it would limit hostnames to 64 bytes.
    params.distinguished_name = rcgen::DistinguishedName::new();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, challenge.key_authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let certificate = params.self_signed(&key)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private)?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], signing)))
}
