//! A sealing secret that is rotated during operation, removed too early, or lost.

use std::sync::Arc;

use chassis::seal::{SealingKey, SealingSecrets, name_in};
use contract::certificate::CertificateBundle;
use contract::feed::{Effect, Entity, Frame};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stores;
use crate::webhooks::receiver::Receiver;
use crate::webhooks::{endpoint, is_signed};
use crate::world::{Bend, Platform, START, eventually};

const OLD: &str = "the old sealing secret of this test";
const NEW: &str = "the new sealing secret of this test";

/// More than one batch seals again.
const DOMAINS: usize = 60;

fn bend(directory: &Arc<TempDir>, secrets: &str) -> Bend {
    let sealing = SealingSecrets::parse(secrets).unwrap();
    Bend { directory: Some(directory.clone()), sealing, ..Bend::default() }
}

fn key(secret: &str) -> SealingKey {
    SealingKey::of(&SealingSecrets::parse(secret).unwrap()).unwrap()
}

async fn bundles(platform: &Platform) -> Vec<CertificateBundle> {
    let entities = platform.snapshot().await.into_iter();
    entities.filter_map(|entity| if let Entity::Certificate(bundle) = entity { Some(bundle) } else { None }).collect()
}

/// Every certificate's key opens with this secret alone.
async fn all_open_with(platform: &Platform, secret: &str) {
    let (bundles, key) = (bundles(platform).await, key(secret));
    assert_eq!(bundles.len(), DOMAINS);
    for bundle in bundles {
        assert_eq!(name_in(&bundle.key.0), key.newest());
        key.open(&bundle.key.0, bundle.hostname.as_str()).unwrap();
    }
}

/// The counts of `tollhouse status`: rows with an older secret, and rows with a missing one.
async fn left(platform: &Platform) -> (i64, i64) {
    let status = platform.operator("GET", "/status", Value::Null).await.body;
    (status["sealed_with_older"].as_i64().unwrap(), status["sealed_with_missing"].as_i64().unwrap())
}

async fn until_nothing_is_left(platform: &Platform) {
    eventually(async || match left(platform).await {
        (0, 0) => Ok(()),
        left => Err(format!("still sealed with an older secret: {left:?}")),
    })
    .await;
}

/// A platform with domains and an endpoint, all sealed with the old secret.
async fn sealed_with_old(directory: &Arc<TempDir>) -> Platform {
    let platform = Platform::bent(bend(directory, OLD)).await;
    platform.project("demo", "enterprise").await;
    let names = (0..DOMAINS).map(|number| format!("shop-{number:02}.localhost"));
    for name in names.clone() {
        let added = platform.operator("POST", "/projects/demo/domains", json!({ "name": name })).await;
        assert_eq!(added.status, 201, "{added:?}");
    }
    for name in names {
        platform.domain_in("demo", &name, "active").await;
    }
    all_open_with(&platform, OLD).await;
    platform
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_sealed_again_and_the_old_secret_can_be_removed() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let mut platform = sealed_with_old(&directory).await;
    let receiver = Receiver::start().await;
    let (id, first) = endpoint(&platform, &receiver, json!(["domain.*"])).await;
    let rotate = format!("/v1/projects/demo/webhooks/{id}/rotate");
    let rotated = platform.owner("demo").send("POST", &rotate, Value::Null).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    let signing = platform.signing().await.public().clone();
    platform.stop().await;

    // Second in the file, the new secret opens and does not seal yet: other processes may lack it.
    let mut platform = Platform::bent(bend(&directory, &format!("{OLD}\n{NEW}"))).await;
    assert_eq!(left(&platform).await, (0, 0));
    all_open_with(&platform, OLD).await;
    platform.stop().await;

    // The old one cannot go before its time.
    let refused = Platform::try_bent(bend(&directory, NEW)).await.err().unwrap().to_string();
    assert!(refused.contains(&format!("{} private keys", DOMAINS + 2)), "{refused}");
    assert!(refused.contains("Put it back") && refused.contains(key(OLD).newest()), "{refused}");

    // The first secret seals. Every row is sealed again, also by a process that follows an interrupted one.
    let both = format!("{NEW}\n{OLD}");
    let mut platform = Platform::bent(bend(&directory, &both)).await;
    platform.stop().await;
    let mut platform = Platform::bent(bend(&directory, &both)).await;
    until_nothing_is_left(&platform).await;
    all_open_with(&platform, NEW).await;
    let metrics = platform.metrics().await;
    for line in [format!("secret=\"newest\"}} {}", DOMAINS + 2), "secret=\"older\"} 0".to_owned()] {
        assert!(metrics.contains(&format!("domains_sealed_texts{{{line}\n")), "{metrics}");
    }
    platform.stop().await;

    let platform = Platform::bent(bend(&directory, NEW)).await;
    all_open_with(&platform, NEW).await;
    assert_eq!(*platform.signing().await.public(), signing, "gateways sign on with the keys that services know");
    platform.operator("POST", "/projects/demo/domains", json!({ "name": "late.localhost" })).await;
    // Both secrets of the endpoint open: the one from before its rotation signs as well.
    assert!(is_signed(&receiver.message(0).await, &first, START));
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_get_resealed_certificates_like_any_change() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let mut platform = sealed_with_old(&directory).await;
    let (_, revision) = platform.follow(0).await.snapshot().await;
    platform.stop().await;
    let platform = Platform::bent(bend(&directory, &format!("{NEW}\n{OLD}"))).await;
    let mut stream = platform.follow(revision).await;
    let new = key(NEW);
    for number in 1..=DOMAINS {
        let change = stream.change().await;
        assert_eq!(change.revision.0, revision + u64::try_from(number).unwrap(), "no gap");
        let Effect::Put(Entity::Certificate(bundle)) = change.effect else { panic!("{change:?}") };
        new.open(&bundle.key.0, bundle.hostname.as_str()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_lost_secret_are_dropped_and_certificates_ordered_again() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let mut platform = sealed_with_old(&directory).await;
    platform.stop().await;
    assert!(Platform::try_bent(bend(&directory, NEW)).await.is_err());
    let start = START.plus(60_000);
    let lost = Bend { sealing_secret_lost: true, start, ..bend(&directory, NEW) };
    let platform = Platform::bent(lost).await;
    until_nothing_is_left(&platform).await;
    all_open_with(&platform, NEW).await;
}

/// Puts this into a column of the certificate of a domain.
async fn damage(directory: &Arc<TempDir>, domain: &str, column: &str, value: &str) {
    let row = format!("kind = 'certificate' AND name = '{domain}'");
    stores::set(directory.path(), "entities", column, &row, Some(value)).await;
}

/// The certificate of a domain names another secret, in its key as well.
async fn name_another_secret(platform: &Platform, directory: &Arc<TempDir>, domain: &str, name: &str) {
    let all = bundles(platform).await;
    let mut bundle = all.into_iter().find(|bundle| bundle.hostname.as_str() == domain).unwrap();
    bundle.key.0 = bundle.key.0.replace(name_in(&bundle.key.0), name);
    let body = serde_json::to_string(&Entity::Certificate(bundle)).unwrap();
    damage(directory, domain, "body", &body).await;
    damage(directory, domain, "seal", name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_damaged_texts_do_not_stop_the_start_and_a_missing_secret_does() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let mut platform = sealed_with_old(&directory).await;
    name_another_secret(&platform, &directory, "shop-02.localhost", "0123456789abcdef").await;
    platform.stop().await;
    // Damage of the column alone is repaired.
    damage(&directory, "shop-00.localhost", "seal", "").await;
    damage(&directory, "shop-01.localhost", "seal", "no secret").await;
    let mut platform = Platform::bent(bend(&directory, OLD)).await;
    assert_eq!(left(&platform).await, (0, 1));
    // That of a key is not: it is skipped like any other row that cannot be read.
    let names = eventually(async || {
        let mut stream = platform.follow(0).await;
        let mut names = Vec::new();
        loop {
            match stream.next().await {
                Some(Frame::Entity(Entity::Certificate(bundle))) => names.push(bundle.hostname.to_string()),
                Some(Frame::SnapshotEnd { .. }) => return Ok(names),
                Some(_) => {}
                None => return Err("the stream ended".to_owned()),
            }
        }
    })
    .await;
    assert_eq!((names.len(), names.contains(&"shop-02.localhost".to_owned())), (DOMAINS - 1, false));
    let status = platform.operator("GET", "/status", Value::Null).await.body;
    assert_eq!(status["unreadable_rows"]["rows"][0]["row"], "shop-02.localhost", "{status}");
    name_another_secret(&platform, &directory, "shop-03.localhost", "0123456789abcdef").await;
    platform.stop().await;
    let refused = Platform::try_bent(bend(&directory, OLD)).await.err().unwrap();
    assert!(format!("{refused:#}").contains("0123456789abcdef"), "{refused:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_damaged_row_does_not_hide_a_wrong_secret() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let mut platform = Platform::bent(bend(&directory, OLD)).await;
    platform.project("demo", "pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    platform.stop().await;
    assert!(Platform::try_bent(bend(&directory, NEW)).await.is_err());
    let mut platform = Platform::bent(bend(&directory, OLD)).await;
    name_another_secret(&platform, &directory, "shop.localhost", "0123456789abcdef").await;
    platform.stop().await;
    let platform = Platform::bent(bend(&directory, OLD)).await;
    assert_eq!(left(&platform).await, (0, 1));
}
