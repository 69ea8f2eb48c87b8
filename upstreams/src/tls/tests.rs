//! Handshakes with servers whose keys are pinned.

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, PublicKeyData as _, date_time_ymd};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ALL_VERSIONS, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

fn pin(key: &KeyPair) -> KeyPin {
    let digest = digest::digest(&digest::SHA256, &key.subject_public_key_info());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>().parse().unwrap()
}

/// A self-signed certificate of this key.
fn certificate(key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["shop.internal".to_owned()]).unwrap();
    change(&mut params);
    params.self_signed(key).unwrap().der().clone()
}

/// The reason why a server with this certificate, which signs with this key, is refused.
async fn refusal(
    version: &'static SupportedProtocolVersion,
    pins: &[KeyPin],
    certificate: CertificateDer<'static>,
    key: &KeyPair,
) -> Option<String> {
    let key = any_supported_type(&PrivateKeyDer::try_from(key.serialize_der()).unwrap()).unwrap();
    let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let server = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    let pins = pins.to_vec();
    let settings = TlsSettings { server_name: None, authority: None, pins, client: None, http2: true, insecure: false };
    let config = Tls::load(settings).unwrap().config(true);
    let name = ServerName::try_from("shop.internal").unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (connected, _accepted) = tokio::join!(
        TlsConnector::from(config).connect(name, ours),
        TlsAcceptor::from(Arc::new(server)).accept(theirs)
    );
    connected.err().map(|error| reason(&error).expect("an error of TLS"))
}

type Change = fn(&mut CertificateParams);

#[tokio::test]
async fn a_certificate_with_a_pinned_key_needs_the_right_name_and_dates_but_no_chain() {
    let (key, next, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let authority: Change = |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cases: [(&KeyPair, Change, Option<&str>); 9] = [
        (&key, |_| {}, None),
        (&key, |params| params.not_after = date_time_ymd(2999, 1, 1), None),
        (&key, authority, None),
        (&next, |_| {}, None),
        (&key, |params| params.not_after = date_time_ymd(2020, 1, 1), Some("has expired")),
        (&key, |params| params.not_before = date_time_ymd(2999, 1, 1), Some("is not valid yet")),
        (&key, |params| params.subject_alt_names.clear(), Some("has no subjectAltName")),
        (&other, |_| {}, Some("none of the public keys in tls.public_key_sha256")),
        (&other, authority, Some("none of the public keys in tls.public_key_sha256")),
    ];
    let pins = [pin(&next), pin(&key)];
    for version in ALL_VERSIONS {
        for (index, (key, change, expected)) in cases.into_iter().enumerate() {
            let refusal = refusal(version, &pins, certificate(key, change), key).await;
            match expected {
                None => assert_eq!(refusal, None, "{index}, {version:?}"),
                Some(words) => assert!(refusal.unwrap_or_default().contains(words), "{index}, {version:?}: {words}"),
            }
        }
        let params = CertificateParams::new(vec!["blog.internal".to_owned()]).unwrap();
        let elsewhere = params.self_signed(&key).unwrap().der().clone();
        let refusal = refusal(version, &pins, elsewhere, &key).await;
        assert!(refusal.unwrap_or_default().contains("is for another name"), "{version:?}");
    }
}

/// Everyone can show the certificate of a server.
#[tokio::test]
async fn a_server_with_a_pinned_certificate_needs_its_private_key() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    for version in ALL_VERSIONS {
        let shown = certificate(&key, |_| {});
        assert_eq!(refusal(version, &[pin(&key)], shown.clone(), &key).await, None, "{version:?}");
        assert!(refusal(version, &[pin(&key)], shown, &other).await.is_some(), "{version:?}");
    }
}

#[test]
fn a_pin_is_64_hexadecimal_digits() {
    let digits = "4a83f91f1e94331bb609c72d0fc2f547271fc43c75e14b3f2f616186e1e09149";
    assert_eq!(digits.parse::<KeyPin>(), digits.to_uppercase().parse());
    let with_colons = ["4a"; 32].join(":");
    let with_sign = format!("+{}", &digits[1..]);
    for wrong in ["", &digits[1..], &format!("{digits}0"), &with_colons, &with_sign, &digits.replace('f', "g")] {
        assert!(wrong.parse::<KeyPin>().is_err(), "{wrong:?}");
    }
}
