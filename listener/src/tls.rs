//! TLS: the `ClientHello` is read first, and the handshake continues only for a name that has a certificate.
//!
//! Versions 1.2 and 1.3 with the cipher suites of Mozilla's intermediate profile, the hybrid post-quantum key exchange
//! first, no early data (a replayed DELETE would cancel an order again), tickets that every node of the fleet can
//! decrypt, no session store. A client that names an unknown host gets the alert `unrecognized_name`; nothing is signed
//! or stored for it.
//!
//! [`Hooks::certificate`] is called once per handshake and answers from memory. If it has none, for
//! whatever reason, the name is unknown.

pub(crate) mod accept;
pub(crate) mod plain;
mod tickets;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

pub use self::tickets::{Now, TicketSeed, Tickets};
#[cfg(doc)]
use super::Hooks;

/// The protocol of a TLS-ALPN-01 challenge (RFC 8737).
pub(crate) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";
pub(crate) const H2_PROTOCOL: &[u8] = b"h2";

/// The key exchanges and cipher suites that we offer, in order of preference.
pub fn provider() -> CryptoProvider {
    use aws_lc_rs::{cipher_suite as suite, kx_group as group};
    CryptoProvider {
        kx_groups: vec![group::X25519MLKEM768, group::X25519, group::SECP256R1, group::SECP384R1],
        cipher_suites: vec![
            suite::TLS13_AES_128_GCM_SHA256,
            suite::TLS13_AES_256_GCM_SHA384,
            suite::TLS13_CHACHA20_POLY1305_SHA256,
            suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    }
}

/// The TLS configurations of a listener.
#[derive(Clone, Debug)]
pub(crate) struct TlsTerms {
    traffic: ServerConfig,
    challenge: ServerConfig,
}

impl TlsTerms {
    pub(crate) fn new(tickets: Arc<Tickets>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(provider());
        let terms = |protocols: &[&[u8]]| {
            let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(Nothing));
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.max_early_data_size = 0;
            // The server's order of cipher suites applies, as security scanners expect.
            config.ignore_client_order = true;
            Ok::<_, rustls::Error>(config)
        };
        let mut traffic = terms(&[H2_PROTOCOL, b"http/1.1"])?;
        traffic.ticketer = tickets;
        Ok(Self { traffic, challenge: terms(&[CHALLENGE_PROTOCOL])? })
    }

    /// The configuration for one client, with exactly this certificate. Cloning costs a few reference counts; in return
    /// the certificate is looked up once and is known when requests are matched to it.
    fn presenting(&self, certificate: Arc<CertifiedKey>, challenge: bool) -> Arc<ServerConfig> {
        let mut config = if challenge { self.challenge.clone() } else { self.traffic.clone() };
        config.cert_resolver = Arc::new(FixedCertificate(certificate));
        Arc::new(config)
    }
}

#[derive(Debug)]
struct Nothing;

impl ResolvesServerCert for Nothing {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
