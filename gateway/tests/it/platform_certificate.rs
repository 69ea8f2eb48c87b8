//! A wrong certificate for the platform's hosts never takes the place of a good one.

use std::time::Duration;

use contract::feed::Entity;
use contract::project::Access;
use contract::site::{Serves, Site};
use contract::trouble::Trouble;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, PKCS_ECDSA_P384_SHA384,
    PKCS_ECDSA_P521_SHA512, PKCS_ED25519, SignatureAlgorithm,
};
use rustls::pki_types::CertificateDer;

use crate::world::client::handshake;
use crate::world::{DEMO, NOW, World, certificates, eventually};

const WILDCARD: &str = "*.tollhouse.localhost";
const DAY: i64 = 86_400;

/// Chain and key, valid for these days around the test's present.
fn pair(names: &[&str], from: i64, until: i64) -> (String, String) {
    certificates::leaf_with(names, valid(from, until))
}

fn valid(from: i64, until: i64) -> impl FnOnce(&mut CertificateParams) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = move |days: i64| epoch + Duration::from_secs((NOW + days * DAY).unsigned_abs());
    move |params| (params.not_before, params.not_after) = (at(from), at(until))
}

/// A pair of another authority that has the name of the right one, as every `tollhouse init` makes one.
fn namesake() -> (String, String) {
    certificates::leaf_of_a_namesake(&[WILDCARD], valid(-1, 90))
}

fn with_root((chain, key): (String, String)) -> (String, String) {
    (chain + &certificates::root(), key)
}

/// A block behind the certificate that holds none: clients end the handshake.
fn with_junk((chain, key): (String, String)) -> (String, String) {
    (chain + "-----BEGIN CERTIFICATE-----\nMAMCAQU=\n-----END CERTIFICATE-----\n", key)
}

/// A self-signed pair with a long validity, which no client trusts.
fn staging() -> (String, String) {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed([WILDCARD.to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

/// A pair of the right authority, for clients only.
fn clients() -> (String, String) {
    certificates::leaf_with(&[WILDCARD], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    })
}

/// A pair of the right authority with another kind of key.
fn of_key(kind: &'static SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(kind).unwrap();
    (certificates::leaf_of(&key, &[WILDCARD], valid(-1, 90)), key.serialize_pem())
}

/// A pair of the right authority that is itself a CA.
fn authoritys() -> (String, String) {
    certificates::leaf_with(&[WILDCARD], |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))
}

/// The leaf that a handshake for the platform's host shows.
async fn shown(world: &World) -> CertificateDer<'static> {
    let stream = handshake(world.https, Some(DEMO), certificates::credulous_client(&[b"http/1.1"])).await;
    let stream = stream.expect("a handshake");
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
}

fn leaf((chain, _): &(String, String)) -> CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()
}

async fn faults(world: &World) -> Vec<String> {
    let (status, text) = world.admin.get("/status").await;
    assert_eq!(status, 200);
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    let faults: Vec<Trouble> = serde_json::from_value(status["platform_certificate_faults"].clone()).unwrap();
    faults.into_iter().map(|fault| format!("{}: {}", fault.problem, fault.what_to_do)).collect()
}

/// Waits until the gateway reports exactly one fault of its platform certificate, with these words.
async fn says(world: &World, words: &str) {
    eventually(words, async || {
        let faults = faults(world).await;
        (faults.len() == 1 && faults[0].contains(words)).then_some(())
    })
    .await;
}

fn series(certificate: &str, reason: &str) -> String {
    format!("edge_platform_certificate_fault{{certificate=\"{certificate}\",reason=\"{reason}\"}}")
}

#[tokio::test]
async fn a_wrong_certificate_never_replaces_a_valid_one() {
    let good = pair(&[WILDCARD], -10, 60);
    let world = World::with(|setup| setup.platform = good.clone()).await;
    let broken = (pair(&[WILDCARD], -1, 90).0, good.1.clone());
    let key_alone = (good.0.clone(), pair(&[WILDCARD], -1, 90).1);
    let wrong = [
        (pair(&[WILDCARD], -30, -2), "expired", "it expired at 2027-01-13T08:00:10Z"),
        (pair(&[WILDCARD], 1, 90), "not_yet_valid", "it is not valid before 2027-01-16T08:00:10Z"),
        (pair(&["other.example"], -1, 90), "names", "it covers other.example and does not cover *.tollhouse.localhost"),
        (pair(&[DEMO], -1, 90), "names", "does not cover *.tollhouse.localhost"),
        (pair(&[WILDCARD], -1, 30), "ends_earlier", "it expires at 2027-02-14T08:00:10Z, the one in use at 2027-03-16"),
        (staging(), "authority", "its chain ends at \"CN=rcgen self signed cert\", which the system does not trust"),
        (namesake(), "authority", "but perhaps another key"),
        // The right authority's certificate in the chain does not help.
        (with_root(namesake()), "authority", "but perhaps another key"),
        (with_junk(pair(&[WILDCARD], -1, 90)), "unusable", "cannot parse certificate 2 of its chain"),
        (clients(), "purpose", "it is not for servers"),
        (authoritys(), "ca", "it is a CA certificate"),
        (of_key(&PKCS_ED25519), "key", "its key is Ed25519, which browsers do not accept"),
        (of_key(&PKCS_ECDSA_P521_SHA512), "key", "its key is of the curve P-521, which browsers do not accept"),
        (broken, "unusable", "the private key does not belong to the certificate"),
        (key_alone, "unusable", "the private key does not belong to the certificate"),
        (("no certificate".to_owned(), good.1.clone()), "unusable", "the chain is empty"),
    ];
    for (pair, reason, words) in &wrong {
        world.put_platform_certificate(pair);
        says(&world, words).await;
        assert!(faults(&world).await[0].contains("platform.pem is refused, and the certificate in use stays"));
        world.admin.counts(&series("refused", reason), 1).await;
        assert_eq!(shown(&world).await, leaf(&good), "{reason}");
    }
    // A better one is used, and no fault is left.
    let better = pair(&[WILDCARD, "tollhouse.localhost"], -1, 90);
    world.put_platform_certificate(&better);
    eventually("the better one", async || (shown(&world).await == leaf(&better)).then_some(())).await;
    eventually("no fault", async || faults(&world).await.is_empty().then_some(())).await;
    for (_, reason, _) in &wrong {
        world.admin.counts(&series("refused", reason), 0).await;
    }
}

#[tokio::test]
async fn a_certificate_with_a_key_that_browsers_refuse_is_reported_and_any_other_replaces_it() {
    let wrong = of_key(&PKCS_ED25519);
    let world = World::with(|setup| setup.platform = wrong.clone()).await;
    says(&world, "its key is Ed25519").await;
    assert_eq!(shown(&world).await, leaf(&wrong), "there is no other");
    // It ends earlier.
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let good = (certificates::leaf_of(&key, &[WILDCARD], valid(-1, 30)), key.serialize_pem());
    world.put_platform_certificate(&good);
    eventually("the good one", async || (shown(&world).await == leaf(&good)).then_some(())).await;
    eventually("no fault", async || faults(&world).await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_renewal_by_the_same_authority_is_used_and_the_former_certificate_may_return() {
    let first = pair(&[WILDCARD], -10, 60);
    let world = World::with(|setup| setup.platform = first.clone()).await;
    let second = with_root(pair(&[WILDCARD], -1, 90));
    let third = pair(&[WILDCARD], -1, 120);
    // The last two end earlier than the one in use.
    for (case, pair) in
        [("with its root", &second), ("without", &third), ("the first", &first), ("the second", &second)]
    {
        world.put_platform_certificate(pair);
        eventually(case, async || (shown(&world).await == leaf(pair)).then_some(())).await;
        eventually("no fault", async || faults(&world).await.is_empty().then_some(())).await;
    }
    // A certificate that was never served is still refused.
    world.put_platform_certificate(&pair(&[WILDCARD], -1, 30));
    says(&world, "it expires at").await;
    assert_eq!(shown(&world).await, leaf(&second));
}

/// At the start there is no other certificate: a bad one is served and reported.
#[tokio::test]
async fn a_bad_certificate_at_the_start_is_served_and_reported() {
    let expired = pair(&[WILDCARD], -30, -2);
    let world = World::with(|setup| setup.platform = expired.clone()).await;
    assert_eq!(shown(&world).await, leaf(&expired));
    says(&world, "platform.pem): it expired at 2027-01-13T08:00:10Z: replace it with a valid certificate").await;
    world.admin.counts(&series("in_use", "expired"), 1).await;
    // A certificate that expires within a month is better than an expired one.
    let fixed = pair(&[WILDCARD], -1, 5);
    world.put_platform_certificate(&fixed);
    eventually("the fixed one", async || (shown(&world).await == leaf(&fixed)).then_some(())).await;
    world.admin.counts(&series("in_use", "expired"), 0).await;
    assert_eq!(faults(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn wrong_names_at_the_start_are_reported_and_corrected_without_a_restart() {
    let api = "api.tollhouse.localhost";
    let world = World::with(|setup| {
        setup.platform = pair(&["other.example"], -1, 90);
        setup.entities.push(Entity::Site(Site {
            hostname: api.parse().unwrap(),
            serves: Serves::Platform { upstream: "orders".parse().unwrap(), access: Access::Key },
            redirect: None,
        }));
    })
    .await;
    says(&world, "it covers other.example and does not cover api.tollhouse.localhost").await;
    world.admin.counts(&series("in_use", "names"), 1).await;
    let right = pair(&[WILDCARD], -1, 60);
    world.put_platform_certificate(&right);
    eventually("no fault", async || faults(&world).await.is_empty().then_some(())).await;
    assert_eq!(shown(&world).await, leaf(&right));
}

/// An untrusted certificate is reported, and does not affect the checks of the valid one after it.
#[tokio::test]
async fn a_self_signed_certificate_at_the_start_is_reported_and_replaced_by_a_good_one() {
    for (pair_at_start, reason, words) in
        [(staging(), "self_signed", "it is self-signed"), (authoritys(), "ca", "it is a CA certificate")]
    {
        let world = World::with(|setup| setup.platform = pair_at_start.clone()).await;
        says(&world, words).await;
        world.admin.counts(&series("in_use", reason), 1).await;
        assert_eq!(shown(&world).await, leaf(&pair_at_start));
        let good = pair(&[WILDCARD], -1, 60);
        world.put_platform_certificate(&good);
        eventually("the good one", async || (shown(&world).await == leaf(&good)).then_some(())).await;
        world.admin.counts(&series("in_use", reason), 0).await;
        assert_eq!(faults(&world).await, Vec::<String>::new());
        world.end().await;
    }
}

/// A path that is not a regular file is refused like other mistakes, and the gateway does not wait for it.
#[tokio::test]
async fn a_pipe_in_place_of_the_certificate_does_not_end_the_watching() {
    let good = pair(&[WILDCARD], -10, 60);
    let world = World::with(|setup| setup.platform = good.clone()).await;
    let file = world.settings_file().with_file_name("platform.pem");
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    says(&world, "is not a regular file").await;
    world.admin.counts(&series("refused", "unusable"), 1).await;
    assert_eq!(shown(&world).await, leaf(&good));
    std::fs::remove_file(&file).unwrap();
    let better = pair(&[WILDCARD], -1, 90);
    world.put_platform_certificate(&better);
    eventually("the better one", async || (shown(&world).await == leaf(&better)).then_some(())).await;
}
