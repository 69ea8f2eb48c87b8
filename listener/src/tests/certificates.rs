//! Certificates for tests, and clients that trust them.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls::provider;

/// A self-signed certificate for `names`.
pub(super) fn certificate(names: &[&str]) -> Arc<CertifiedKey> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    Arc::new(CertifiedKey::from_der(vec![certificate.der().clone()], key, &provider()).unwrap())
}

fn der(certificate: &CertifiedKey) -> CertificateDer<'static> {
    certificate.cert[0].clone()
}

/// A client that trusts the certificate and offers these protocols.
pub(super) fn client(certificate: &CertifiedKey, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(der(certificate)).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

pub(super) async fn connect(
    config: &Arc<ClientConfig>,
    name: &str,
    tcp: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::clone(config)).connect(name, tcp).await
}
