//! Redis over TLS: trusted by the configured authority only.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;

/// A certificate for this machine in a directory, and the PEM of its authority.
fn certificate() -> (TempDir, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("redis.pem"), leaf.pem()).unwrap();
    std::fs::write(directory.path().join("redis.key"), key.serialize_pem()).unwrap();
    std::fs::write(directory.path().join("ca.pem"), &authority).unwrap();
    (directory, authority)
}

#[tokio::test]
async fn redis_over_tls_must_be_trusted() {
    // As the program does at start; another test may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (directory, authority) = certificate();
    let file = |name: &str| directory.path().join(name).display().to_string();
    // The TLS port, beside the plain one.
    let port = server::reserve(0).unwrap();
    let options = [
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file("redis.pem"),
        "--tls-key-file",
        &file("redis.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "no",
    ];
    let _redis = Redis::with(&options);
    let settings = |trusted: &str| RedisSettings {
        addresses: vec![RedisAddress { host: "localhost".to_owned(), port, tls: true }],
        ca_certificate: Some(trusted.as_bytes().to_vec()),
        ..settings_for(&[port], RedisMode::Standalone)
    };
    let store = RedisStore::start(settings(&authority), 1, call_metrics(), &tasks());
    store.connected(PATIENCE).await.unwrap();
    grants(&store).await;
    let (_, stranger) = certificate();
    let distrustful = RedisStore::start(settings(&stranger), 2, call_metrics(), &tasks());
    assert!(distrustful.connected(Duration::from_secs(1)).await.is_err(), "an unknown authority");
}
