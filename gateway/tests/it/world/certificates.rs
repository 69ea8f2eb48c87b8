//! A certificate authority for the tests, and clients that trust it.

use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

struct Authority {
    root: CertificateDer<'static>,
    root_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(make_authority)
}

fn make_authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // With the same name as the certificates that it signs, it would be taken for one of them.
    params.distinguished_name.push(rcgen::DnType::CommonName, "The authority of the tests");
    let root = params.self_signed(&key).unwrap();
    Authority { root_pem: root.pem(), root: root.der().clone(), issuer: Issuer::new(params, key) }
}

/// The authority's own certificate, PEM.
pub(crate) fn root() -> String {
    authority().root_pem.clone()
}

/// Writes chain and key of the platform's certificate into a directory.
pub(crate) fn write(directory: &std::path::Path, (chain, key): &(String, String)) {
    std::fs::write(directory.join("platform.pem"), chain).unwrap();
    std::fs::write(directory.join("platform.key"), key).unwrap();
}

/// Chain and key for these names, both PEM.
pub(crate) fn leaf(names: &[&str]) -> (String, String) {
    leaf_with(names, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth])
}

/// The same with a certificate that differs in something.
pub(crate) fn leaf_with(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (leaf_of(&key, names, change), key.serialize_pem())
}

/// The same for an existing key.
pub(crate) fn leaf_of(key: &KeyPair, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> String {
    signed_by(authority(), key, names, change)
}

/// The same of a new authority that has the name of the tests' one and another key.
pub(crate) fn leaf_of_a_namesake(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (signed_by(&make_authority(), &key, names, change), key.serialize_pem())
}

fn signed_by(
    authority: &Authority,
    key: &KeyPair,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.use_authority_key_identifier_extension = true;
    change(&mut params);
    params.signed_by(key, &authority.issuer).unwrap().pem()
}

/// The wildcard certificate of the platform's hosts, one for all tests.
pub(crate) fn platform() -> &'static (String, String) {
    static PLATFORM: OnceLock<(String, String)> = OnceLock::new();
    PLATFORM.get_or_init(|| leaf(&["*.tollhouse.localhost"]))
}

/// A client that trusts the authority, offering these protocols.
pub(crate) fn client(protocols: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority().root.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// A client that accepts any certificate, as a certificate authority does for a challenge certificate.
pub(crate) fn credulous_client(protocols: &[&[u8]]) -> ClientConfig {
    let mut config = client(protocols);
    config.dangerous().set_certificate_verifier(Arc::new(Anybody(aws_lc_rs::default_provider())));
    config
}

#[derive(Debug)]
struct Anybody(CryptoProvider);

/// Signatures are not checked either: the library refuses a certificate with the challenge's extension.
impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
