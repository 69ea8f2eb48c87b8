//! Requests of a certificate authority while it validates a domain.

use std::sync::Arc;

use contract::feed::{Entity, EntityName};
use contract::site::RedirectStatus;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::world::client::{Ask, handshake};
use crate::world::entities::{challenge, redirecting};
use crate::world::{BLOG, DEMO, SHOP, World, certificates};

const PATH: &str = "/.well-known/acme-challenge/";

#[tokio::test]
async fn the_proof_is_served_over_plain_http_for_its_token_and_host() {
    let world = World::start().await;
    // A domain that is being attached has no site yet.
    world.control.put(Entity::Challenge(challenge("new.example", "token-1"))).await;
    let reply = world.ask_plain(Ask::get("new.example", &format!("{PATH}token-1"))).await;
    assert_eq!((reply.status, reply.text()), (200, "token-1.thumbprint"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    world.assert_upstreams_untouched();
}

#[tokio::test]
async fn a_wrong_token_or_host_is_not_found_never_redirected_and_never_forwarded() {
    let world = World::start().await;
    world.control.put(Entity::Challenge(challenge("new.example", "token-1"))).await;
    // A tenant could obtain certificates if its upstream answered the authority.
    world.control.put(redirecting("www.shop.example", "demo", Some((SHOP, Some(RedirectStatus::Found))))).await;
    for host in [DEMO, BLOG, SHOP, "www.shop.example", "unknown.example"] {
        for token in ["token-1", "token-2", "", "..", "a/b", "t%6fken-1"] {
            let reply = world.ask_plain(Ask::get(host, &format!("{PATH}{token}"))).await;
            reply.refused(404, "not_found");
        }
    }
    world.ask_plain(Ask::get("new.example", &format!("{PATH}token-2"))).await.refused(404, "not_found");
    world.assert_upstreams_untouched();
}

#[tokio::test]
async fn the_proof_ends_with_its_order() {
    let world = World::start().await;
    world.control.put(Entity::Challenge(challenge("new.example", "token-1"))).await;
    world.control.remove(EntityName::Challenge("token-1".to_owned())).await;
    world.ask_plain(Ask::get("new.example", &format!("{PATH}token-1"))).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_tls_alpn_challenge_is_answered_with_its_certificate_and_nothing_else() {
    let world = World::start().await;
    let proof = challenge("new.example", "token-1");
    world.control.put(Entity::Challenge(proof.clone())).await;
    let config = certificates::credulous_client(&[b"acme-tls/1"]);
    let stream = handshake(world.https, Some("new.example"), config).await.expect("a handshake");
    let session = stream.get_ref().1;
    assert_eq!(session.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    let leaf = session.peer_certificates().expect("a certificate")[0].clone();
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    let names = leaf.subject_alternative_name().unwrap().expect("names");
    assert_eq!(names.value.general_names, [x509_parser::extensions::GeneralName::DNSName("new.example")]);
    // RFC 8737 section 3: id-pe-acmeIdentifier, critical, an OCTET STRING of the digest.
    let identifier = leaf.iter_extensions().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31").expect("it");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, proof.key_authorization.as_bytes());
    assert!(identifier.critical);
    assert_eq!(identifier.value, [&[0x04, 0x20], digest.as_ref()].concat());
    // The connection ends after the handshake: no HTTP on this protocol.
    let mut client = crate::world::client::Client { wire: crate::world::wire::Wire::new(stream) };
    assert!(client.try_ask(&Ask::get("new.example", "/")).await.is_none());
}

#[tokio::test]
async fn without_a_challenge_in_progress_the_protocol_gets_no_handshake() {
    let world = World::start().await;
    world.control.put(Entity::Challenge(challenge("new.example", "token-1"))).await;
    for (host, protocols) in [
        (DEMO, vec![&b"acme-tls/1"[..]]),
        (SHOP, vec![&b"acme-tls/1"[..]]),
        ("new.example", vec![&b"http/1.1"[..]]),
        ("new.example", vec![&b"acme-tls/1"[..], b"http/1.1"]),
    ] {
        let config = certificates::credulous_client(&protocols);
        assert!(handshake(world.https, Some(host), config).await.is_err(), "{host}");
    }
}

#[tokio::test]
async fn only_modern_tls_versions_and_tickets_are_offered() {
    let world = World::start().await;
    let config = Arc::new(certificates::client(&[b"http/1.1"]));
    let stream = handshake(world.https, Some(DEMO), (*config).clone()).await.expect("a handshake");
    let session = stream.get_ref().1;
    assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(
        session.negotiated_key_exchange_group().map(rustls::crypto::SupportedKxGroup::name),
        Some(rustls::NamedGroup::X25519MLKEM768)
    );
}
