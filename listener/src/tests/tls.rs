//! Handshakes on loopback.

use std::sync::Arc;
use std::time::Duration;

use contract::hostname::Hostname;
use rustls::{AlertDescription, HandshakeKind, NamedGroup};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::certificates::{certificate, client, connect};
use super::listeners::{Echo, Open, open_with, soon};
use super::rig::{GET, rig_with};
use crate::connection::TlsFacts;
use crate::fakes::FakeHooks;
use crate::forwarded::Forwarders;
use crate::{ConnectionEvent, HandshakeOutcome, ListenerSettings};

const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];

fn host(name: &str) -> Hostname {
    Hostname::parse(name).unwrap()
}

async fn secure(seed: u8) -> (Open, Arc<rustls::sign::CertifiedKey>) {
    let (hooks, key) = (FakeHooks::default(), certificate(&["a.example", "b.example"]));
    for name in ["a.example", "b.example"] {
        hooks.certificates.lock().insert(host(name), Arc::clone(&key));
    }
    (open_with(Arc::new(Echo), ListenerSettings::default(), true, Arc::new(hooks), [seed; 32]).await, key)
}

async fn tcp(open: &Open) -> TcpStream {
    TcpStream::connect(open.address).await.unwrap()
}

/// The alert that ended a handshake.
fn alert(error: &std::io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

#[tokio::test]
async fn a_known_name_gets_its_certificate_and_a_post_quantum_key_exchange() {
    let (open, key) = secure(1).await;
    let config = client(&key, &[b"http/1.1"]);
    let mut stream = connect(&config, "a.example", tcp(&open).await).await.unwrap();
    let session = stream.get_ref().1;
    assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(
        session.negotiated_key_exchange_group().map(rustls::crypto::SupportedKxGroup::name),
        Some(NamedGroup::X25519MLKEM768)
    );
    assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    stream.write_all(GET.as_bytes()).await.unwrap();
    let mut buffer = [0; 256];
    let bytes = stream.read(&mut buffer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer[..bytes]), format!("127.0.0.1 {GET}"));
    assert_eq!(*open.hooks.handshakes.lock(), [HandshakeOutcome::Full]);

    let both = client(&key, HTTP);
    let stream = connect(&both, "a.example", tcp(&open).await).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
}

#[tokio::test]
async fn an_unknown_name_gets_an_alert_and_no_certificate() {
    let (open, key) = secure(1).await;
    let config = client(&key, HTTP);
    for name in ["unknown.example", "192.0.2.1"] {
        let error = connect(&config, name, tcp(&open).await).await.unwrap_err();
        assert_eq!(alert(&error), Some(AlertDescription::UnrecognisedName), "{name}: {error}");
    }
    soon(open.connections.wait_until_closed()).await;
    assert_eq!(*open.hooks.handshakes.lock(), [HandshakeOutcome::UnknownName; 2]);
    // An address is no name, so no certificate is looked for.
    assert_eq!(*open.hooks.askers.lock(), [Some(open.address.ip())]);
}

#[tokio::test]
async fn a_balancer_that_names_clients_in_requests_is_not_the_client_of_a_handshake() {
    let forwarders = Forwarders { networks: vec!["127.0.0.1/32".parse().unwrap()], ..Forwarders::default() };
    let settings = ListenerSettings { forwarders: Arc::new(forwarders), ..ListenerSettings::default() };
    let open = open_with(Arc::new(Echo), settings, true, Arc::new(FakeHooks::default()), [1; 32]).await;
    let config = client(&certificate(&["a.example"]), HTTP);
    assert!(connect(&config, "unknown.example", tcp(&open).await).await.is_err());
    assert_eq!(*open.hooks.askers.lock(), [None]);
}

#[tokio::test]
async fn a_challenge_is_answered_with_its_certificate_and_nothing_is_served() {
    let (open, _) = secure(1).await;
    let answer = certificate(&["pending.example"]);
    open.hooks.challenges.lock().insert(host("pending.example"), Arc::clone(&answer));
    let authority = client(&answer, &[b"acme-tls/1"]);
    let mut stream = connect(&authority, "pending.example", tcp(&open).await).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    let mut rest = Vec::new();
    let _ = stream.write_all(GET.as_bytes()).await;
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());

    let error = connect(&authority, "a.example", tcp(&open).await).await.unwrap_err();
    assert_eq!(alert(&error), Some(AlertDescription::UnrecognisedName), "no challenge is open for this name");
    let clever = client(&answer, &[b"acme-tls/1", b"h2"]);
    let error = connect(&clever, "pending.example", tcp(&open).await).await.unwrap_err();
    assert_eq!(alert(&error), Some(AlertDescription::UnrecognisedName), "an authority offers nothing else");
    soon(open.connections.wait_until_closed()).await;
    assert_eq!(open.hooks.handshakes.lock().first(), Some(&HandshakeOutcome::Challenge));
}

/// Connects, exchanges a request so that tickets arrive, and returns the kind of handshake.
async fn kind(config: &Arc<rustls::ClientConfig>, name: &str, open: &Open) -> Option<HandshakeKind> {
    let mut stream = connect(config, name, tcp(open).await).await.unwrap();
    stream.write_all(GET.as_bytes()).await.unwrap();
    let mut buffer = [0; 256];
    assert_ne!(stream.read(&mut buffer).await.unwrap(), 0);
    stream.get_ref().1.handshake_kind()
}

#[tokio::test]
async fn a_ticket_of_one_node_is_honoured_by_another_with_the_same_seed_for_the_same_name() {
    let ((one, key), (other, _), (stranger, _)) = (secure(1).await, secure(1).await, secure(2).await);
    other.hooks.certificates.lock().clone_from(&one.hooks.certificates.lock());
    stranger.hooks.certificates.lock().clone_from(&one.hooks.certificates.lock());
    let config = client(&key, &[b"http/1.1"]);
    assert_eq!(kind(&config, "a.example", &one).await, Some(HandshakeKind::Full));
    assert_eq!(kind(&config, "a.example", &other).await, Some(HandshakeKind::Resumed));
    assert_eq!(kind(&config, "b.example", &other).await, Some(HandshakeKind::Full), "not for another name");
    assert_eq!(kind(&config, "a.example", &stranger).await, Some(HandshakeKind::Full), "not with another seed");
    assert_eq!(other.hooks.handshakes.lock().first(), Some(&HandshakeOutcome::Resumed));

    other.hooks.certificates.lock().clear();
    let error = connect(&config, "a.example", tcp(&other).await).await.unwrap_err();
    assert_eq!(alert(&error), Some(AlertDescription::UnrecognisedName), "a ticket does not outlive its name");
}

#[tokio::test]
async fn plain_http_and_old_versions_get_no_handshake() {
    let (open, _) = secure(1).await;
    let answer = super::listeners::exchange_bytes(open.address, GET.as_bytes()).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("This port speaks HTTPS."), "{answer}");
    let answer = super::listeners::exchange_bytes(open.address, b"\x17 no handshake").await;
    assert_eq!(answer.first(), Some(&0x15), "an alert record: {answer:?}");
    // A ClientHello of TLS 1.0 without extensions, and so without a name.
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 1];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 2, 0, 0x2f, 1, 0]);
    let answer = super::listeners::exchange_bytes(open.address, &hello).await;
    assert_eq!(answer.get(..2), Some(&[0x15, 3][..]), "an alert record: {answer:?}");
    soon(open.connections.wait_until_closed()).await;
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_handshake_is_dropped() {
    let settings = ListenerSettings { handshake_timeout: Duration::from_millis(20), ..ListenerSettings::default() };
    let open = open_with(Arc::new(Echo), settings, true, Arc::default(), [1; 32]).await;
    assert!(super::listeners::exchange_bytes(open.address, &[0x16, 3, 1, 2, 0]).await.is_empty());
    soon(open.connections.wait_until_closed()).await;
    assert_eq!(*open.hooks.handshakes.lock(), [HandshakeOutcome::TimedOut]);
}

#[tokio::test(start_paused = true)]
async fn http_2_has_time_for_its_preface_and_then_passes_untouched() {
    let facts = || TlsFacts {
        sni: host("a.example"),
        version: "TLSv1_3",
        cipher: "TLS13_AES_128_GCM_SHA256",
        resumed: false,
        h2: true,
        certificate: certificate(&["a.example"]),
    };
    let mut silent = rig_with(ListenerSettings::default(), Some(facts()), 1_024);
    let start = tokio::time::Instant::now();
    assert_eq!(silent.read().await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed().as_secs(), 10);
    assert_eq!(silent.hooks.count(ConnectionEvent::Idle), 1);

    let mut speaking = rig_with(ListenerSettings::default(), Some(facts()), 1_024);
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    speaking.send(preface).await;
    assert_eq!(speaking.read().await.unwrap(), preface);
    speaking.send("\0\0\0\u{4}\0\0\0\0\0").await;
    assert_eq!(speaking.read().await.unwrap(), "\0\0\0\u{4}\0\0\0\0\0");
    let hour = tokio::time::timeout(Duration::from_hours(1), speaking.read()).await;
    assert!(hour.is_err(), "the engine's loop times the rest");
}
