//! TLS: the `ClientHello` is read first, and the handshake continues only for a name that has a certificate.
//!
//! Versions 1.2 and 1.3 with the cipher suites of Mozilla's intermediate profile, the hybrid post-quantum key exchange
//! first, no early data (a replayed DELETE would cancel an order again), tickets that every node of the fleet can
//! decrypt, no session store. A client that names an unknown host gets the alert `unrecognized_name`; nothing is signed
//! or stored for it.
//!
//! [`Hooks::certificate`] is called once per handshake and answers from memory. If it has none, for any reason,
//! the name is unknown.

pub(crate) mod plain;
mod tickets;

use std::net::IpAddr;
use std::sync::Arc;

use contract::hostname::Hostname;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection, version};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::tickets::{Now, TicketSeed, Tickets};
use super::connection::TlsFacts;
use super::stream::ByteStream;
use super::{HandshakeOutcome, Hooks};

/// The protocol of a TLS-ALPN-01 challenge (RFC 8737).
const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";
const H2_PROTOCOL: &[u8] = b"h2";

/// The alert record `fatal, unrecognized_name` (RFC 6066 section 3). Alerts before the server's first message are not
/// encrypted.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];

/// Encrypted bytes buffered for an HTTP/2 client that does not read: two records. Because the engine's flushes may be
/// deferred, it would otherwise fill the default of 64 KiB.
const H2_UNSENT_MAX: usize = 32 * 1024;

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
pub(crate) struct TlsConfigs {
    traffic: ServerConfig,
    challenge: ServerConfig,
}

impl TlsConfigs {
    pub(crate) fn new(tickets: Arc<Tickets>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(provider());
        let config = |protocols: &[&[u8]]| {
            let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(NoCertificate));
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.max_early_data_size = 0;
            // The server's order of cipher suites applies, as security scanners expect.
            config.ignore_client_order = true;
            Ok::<_, rustls::Error>(config)
        };
        let mut traffic = config(&[H2_PROTOCOL, b"http/1.1"])?;
        traffic.ticketer = tickets;
        Ok(Self { traffic, challenge: config(&[CHALLENGE_PROTOCOL])? })
    }

    /// The configuration for one client, with exactly this certificate. Cloning costs a few reference counts; in return
    /// the certificate is looked up once and is known when requests are matched to it.
    fn presenting(&self, certificate: Arc<CertifiedKey>, challenge: bool) -> Arc<ServerConfig> {
        let mut config = if challenge { self.challenge.clone() } else { self.traffic.clone() };
        config.cert_resolver = Arc::new(FixedCertificate(certificate));
        Arc::new(config)
    }
}

/// Reads the `ClientHello`, finds the certificate and completes the handshake. The caller sets the deadline. An error
/// is the outcome of a handshake after which nothing is served.
pub(crate) async fn accept<S: ByteStream>(
    io: S,
    configs: &TlsConfigs,
    hooks: &dyn Hooks,
    client: Option<IpAddr>,
) -> Result<(TlsStream<S>, TlsFacts), HandshakeOutcome> {
    let failed = |_| HandshakeOutcome::Failed;
    let mut start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await.map_err(failed)?;
    let (sni, challenge) = {
        let hello = start.client_hello();
        let sni = hello.server_name().and_then(|name| Hostname::from_ascii(name).ok());
        // RFC 8737: the authority offers only this protocol. A client that offers others too is not an authority.
        let challenge = hello
            .alpn()
            .is_some_and(|mut offered| offered.next() == Some(CHALLENGE_PROTOCOL) && offered.next().is_none());
        (sni, challenge)
    };
    let found = sni.and_then(|sni| {
        let certificate = if challenge { hooks.challenge_certificate(&sni) } else { hooks.certificate(&sni, client) };
        Some((sni, certificate?))
    });
    let Some((sni, certificate)) = found else {
        // An error needs no action: the client may be gone already.
        let _ = start.io.write_all(&UNRECOGNIZED_NAME).await;
        let _ = start.io.shutdown().await;
        return Err(HandshakeOutcome::UnknownName);
    };
    let config = configs.presenting(Arc::clone(&certificate), challenge);
    let mut stream = start.into_stream(config).await.map_err(failed)?;
    if challenge {
        // The authority has seen the certificate. No data follows over this protocol.
        let _ = stream.shutdown().await;
        return Err(HandshakeOutcome::Challenge);
    }
    let facts = facts(stream.get_ref().1, sni, certificate);
    if facts.h2 {
        stream.get_mut().1.set_buffer_limit(Some(H2_UNSENT_MAX));
    }
    Ok((stream, facts))
}

fn facts(session: &ServerConnection, sni: Hostname, certificate: Arc<CertifiedKey>) -> TlsFacts {
    TlsFacts {
        sni,
        version: match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1_3",
            _ => "TLSv1_2",
        },
        cipher: session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown"),
        resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        h2: session.alpn_protocol() == Some(H2_PROTOCOL),
        certificate,
    }
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
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
