//! TLS before an upstream, and files of certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::certificates;

/// Puts TLS before the listener at `to`. It ends with the test's runtime.
pub(crate) async fn front(to: SocketAddr, config: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, acceptor) = (listener.local_addr().unwrap(), TlsAcceptor::from(Arc::new(config)));
    tokio::spawn(async move {
        let mut served = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            served.spawn(async move {
                let mut outside = match acceptor.accept(stream).into_fallible().await {
                    Ok(outside) => outside,
                    // If it closed at once, the client's unread bytes would reset the connection before it reads the
                    // reason.
                    Err((_, mut refused)) => return drop(tokio::io::copy(&mut refused, &mut tokio::io::sink()).await),
                };
                let Ok(mut inside) = TcpStream::connect(to).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    address
}

/// A server's TLS settings: chain and key in PEM, these versions, and with `asks` only clients of the tests' authority.
pub(crate) fn server(
    (chain, key): &(String, String),
    versions: &[&'static SupportedProtocolVersion],
    asks: bool,
) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).unwrap();
    let builder = if asks {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificates::root().as_bytes()).unwrap()).unwrap();
        builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap(),
        )
    } else {
        builder.with_no_client_auth()
    };
    builder.with_single_cert(chain, key).unwrap()
}

/// The same with every version, without client certificates.
pub(crate) fn usual(names: &[&str]) -> ServerConfig {
    server(&certificates::leaf(names), rustls::ALL_VERSIONS, false)
}

/// Replaces a file with one that only its owner may read.
pub(crate) fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let (path, fresh) = (directory.join(name), directory.join(format!("{name}.new")));
    let _ = std::fs::remove_file(&fresh);
    chassis::secret::write_private(&fresh, text.as_bytes()).unwrap();
    std::fs::rename(&fresh, &path).unwrap();
    path
}
