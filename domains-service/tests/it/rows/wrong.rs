//! Readable rows with impossible content: no gateway is sent a change that would stop it from taking later ones.

use chassis::seal::{SealingKey, name_in};
use chassis::secret::Secret;
use contract::certificate::{CertificateBundle, SealedKey};
use contract::feed::{Change, Effect, Entity, EntityName, Frame};
use serde_json::Value;

use super::{entities, platform, rows_unreadable};
use crate::stores;
use crate::world::{Platform, eventually};

const SITE: &str = "kind = 'site' AND name = 'bad.localhost'";
const CERTIFICATE: &str = "kind = 'certificate' AND name = 'bad.localhost'";

async fn body(platform: &Platform, row: &str) -> String {
    stores::value(platform.directory.path(), "entities", "body", row).await.unwrap()
}

/// The body of a row with another value in one field of its entity.
async fn with(platform: &Platform, row: &str, field: &str, value: Value) -> String {
    let mut body: Value = serde_json::from_str(&body(platform, row).await).unwrap();
    let entity = body.as_object_mut().unwrap().values_mut().next().unwrap();
    entity[field] = value;
    body.to_string()
}

/// The entities of a snapshot.
async fn snapshot(platform: &Platform) -> Vec<Entity> {
    eventually(async || entities(platform).await).await
}

fn names(entities: &[Entity]) -> Vec<EntityName> {
    entities.iter().map(Entity::name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_that_is_not_its_rows_or_cannot_be_is_left_out_of_snapshots() {
    let platform = platform().await;
    let directory = platform.directory.path();
    let all = names(&snapshot(&platform).await);
    let key: Value = serde_json::from_str(&body(&platform, CERTIFICATE).await).unwrap();
    let sealed = key["certificate"]["key"].as_str().unwrap();
    let another_secret = sealed.replace(name_in(sealed), "0123456789abcdef");
    let of_good = "kind = 'site' AND name = 'good.localhost'";
    let certificate_of_good = "kind = 'certificate' AND name = 'good.localhost'";
    let itself = serde_json::json!({ "to": "bad.localhost", "status": null });
    for (row, wrong) in [
        (SITE, body(&platform, of_good).await),
        (SITE, body(&platform, CERTIFICATE).await),
        (SITE, with(&platform, SITE, "redirect", itself).await),
        (CERTIFICATE, body(&platform, certificate_of_good).await),
        (CERTIFICATE, with(&platform, CERTIFICATE, "key", another_secret.into()).await),
    ] {
        let before = body(&platform, row).await;
        stores::set(directory, "entities", "body", row, Some(&wrong)).await;
        let kind = if row == SITE { "site" } else { "certificate" };
        let left_out = |name: &EntityName| {
            let (EntityName::Site(host) | EntityName::Certificate(host)) = name else { return false };
            host.as_str() == "bad.localhost" && matches!(name, EntityName::Site(_)) == (kind == "site")
        };
        let expected: Vec<_> = all.iter().filter(|name| !left_out(name)).cloned().collect();
        assert_eq!(names(&snapshot(&platform).await), expected, "{wrong}");
        let place = ("entities".to_owned(), "bad.localhost".to_owned(), kind.to_owned());
        assert_eq!(rows_unreadable(&platform).await, [place], "{wrong}");
        stores::set(directory, "entities", "body", row, Some(&before)).await;
        assert_eq!(names(&snapshot(&platform).await), all);
        assert_eq!(rows_unreadable(&platform).await, []);
    }
}

/// The newest change, and the gateway's data when that change's row holds `effect` instead.
async fn delivered_instead(platform: &Platform, effect: &Effect) -> Result<Change, Vec<Entity>> {
    let newest = "revision = (SELECT current FROM revision_counter)";
    let effect = serde_json::to_string(effect).unwrap();
    stores::set(platform.directory.path(), "changes", "effect", newest, Some(&effect)).await;
    let mut stream = platform.follow(platform.newest_revision().await - 1).await;
    loop {
        match stream.next().await.expect("the stream goes on") {
            Frame::Change(change) => return Ok(change),
            Frame::SnapshotBegin { .. } => return Err(snapshot(platform).await),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_cannot_be_is_answered_with_a_snapshot() {
    let platform = platform().await;
    let all = snapshot(&platform).await;
    let found = |is_it: fn(&Entity) -> bool| all.iter().find(|entity| is_it(entity)).unwrap().clone();
    let Entity::Certificate(good) = found(|entity| matches!(entity, Entity::Certificate(_))) else { unreachable!() };
    let Entity::Site(mut site) = found(|entity| matches!(entity, Entity::Site(_))) else { unreachable!() };
    let put = |key: String| {
        let mut bundle = good.clone();
        bundle.key.0 = key;
        Effect::Put(Entity::Certificate(bundle))
    };
    let key = &good.key.0;
    // A valid change is sent as it is.
    let delivered = delivered_instead(&platform, &put(key.clone())).await.unwrap();
    assert_eq!(delivered.effect, put(key.clone()));
    let (name, text) = key.split_once('.').unwrap();
    let flipped = text.strip_prefix('A').map_or(format!("A{}", &text[1..]), |rest| format!("B{rest}"));
    site.redirect = Some(contract::site::Redirect { to: site.hostname.clone(), status: None });
    for (effect, is_noted) in [
        // As sealed with a secret that was replaced since.
        (put(format!("0123456789abcdef.{text}")), false),
        (put(format!("{name}.{flipped}")), true),
        (Effect::Put(Entity::Site(site)), true),
    ] {
        let delivered = delivered_instead(&platform, &effect).await;
        assert_eq!(delivered.map(|change| change.effect), Err(all.clone()));
        let noted = rows_unreadable(&platform).await.iter().any(|(table, _, _)| table == "changes");
        assert_eq!(noted, is_noted, "{effect:?}");
    }
}

/// Seals the certificate with a secret that the service lacks, as another replica may do.
async fn seal_elsewhere(platform: &Platform, bundle: &CertificateBundle) -> CertificateBundle {
    let (ours, theirs) = (SealingKey::new(&Secret::new(vec![8; 32])).unwrap(), sealing_elsewhere());
    let host = bundle.hostname.as_str();
    let key = SealedKey(theirs.seal(&ours.open(&bundle.key.0, host).unwrap(), host).unwrap());
    let bundle = CertificateBundle { key, ..bundle.clone() };
    let body = serde_json::to_string(&Entity::Certificate(bundle.clone())).unwrap();
    let row = format!("kind = 'certificate' AND name = '{host}'");
    for (column, value) in [("body", body.as_str()), ("seal", theirs.newest())] {
        stores::set(platform.directory.path(), "entities", column, &row, Some(value)).await;
    }
    bundle
}

fn sealing_elsewhere() -> SealingKey {
    SealingKey::new(&Secret::new(vec![9; 32])).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_whose_secret_this_replica_lacks_reach_the_gateways_that_may_have_it() {
    let platform = platform().await;
    let all = snapshot(&platform).await;
    let mut expected = all.clone();
    let mut last = None;
    for entity in &mut expected {
        let Entity::Certificate(bundle) = entity else { continue };
        *bundle = seal_elsewhere(&platform, bundle).await;
        last = Some(bundle.clone());
    }
    assert_ne!(expected, all);
    assert_eq!(snapshot(&platform).await, expected);
    let put = Effect::Put(Entity::Certificate(last.unwrap()));
    assert_eq!(delivered_instead(&platform, &put).await.map(|change| change.effect), Ok(put));
    assert_eq!(rows_unreadable(&platform).await, []);
}
