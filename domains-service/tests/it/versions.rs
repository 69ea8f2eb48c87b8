//! Data that an earlier version has written: `versions/` holds whole databases as text, each made by the program of its
//! name and never changed afterwards, and beside it what that program said of it. It is said still; more may be. (Why an
//! attempt to deliver failed is left out: later versions say it in phrases of their own.)

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use contract::feed::Entity;
use serde_json::{Value, json};

use crate::world::{Bend, Platform};

/// A file of an earlier version.
fn written_by(version: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/versions").join(format!("{version}.{ending}"))
}

/// What a service says of everything that it has: to operators, to owners, to gateways.
async fn told(platform: &Platform) -> Value {
    let mut told = serde_json::Map::new();
    for path in [
        "/projects/demo",
        "/projects/shut",
        "/projects/demo/keys",
        "/projects/demo/domains",
        "/projects/demo/domains/shop.localhost/events",
        "/projects/demo/events",
        "/projects/demo/webhooks",
    ] {
        told.insert(path.to_owned(), platform.operator("GET", path, Value::Null).await.body);
    }
    let webhook = told["/projects/demo/webhooks"]["webhooks"][0]["id"].as_str().unwrap().to_owned();
    let deliveries = format!("/projects/demo/webhooks/{webhook}/deliveries");
    told.insert("deliveries".to_owned(), platform.operator("GET", &deliveries, Value::Null).await.body);
    let (entities, revision) = platform.follow(0).await.snapshot().await;
    told.insert("entities".to_owned(), serde_json::to_value(entities).unwrap());
    told.insert("revision".to_owned(), json!(revision));
    Value::Object(told)
}

/// Says where `is` lacks something of `was`. Objects may have more fields than they had.
fn differences(place: &str, was: &Value, is: &Value, found: &mut Vec<String>) {
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            for (name, was) in was {
                differences(&format!("{place}/{name}"), was, is.get(name).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(was), Value::Array(is)) if was.len() == is.len() => {
            for (index, (was, is)) in was.iter().zip(is).enumerate() {
                differences(&format!("{place}/{index}"), was, is, found);
            }
        }
        _ if was == is => {}
        _ => found.push(format!("{place} was {was} and is {is}")),
    }
}

#[tokio::test]
async fn what_an_earlier_version_has_written_is_said_still() {
    let directory = tempfile::tempdir().unwrap();
    let read = format!(".read {}", written_by("d523b5c", "sql").display());
    let made = Command::new("sqlite3").arg("-bail").arg(directory.path().join("domains.sqlite")).arg(read).status();
    assert!(made.expect("sqlite3 is missing: install sqlite3").success());
    let platform = Platform::bent(Bend { directory: Some(Arc::new(directory)), ..Bend::default() }).await;
    let was: Value = serde_json::from_slice(&std::fs::read(written_by("d523b5c", "json")).unwrap()).unwrap();
    let mut found = Vec::new();
    differences("", &was, &told(&platform).await, &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
    // What was sealed opens, and the history goes on.
    let sealing = chassis::seal::SealingKey::of(&chassis::secret::Secret::new(vec![8; 32]).into()).unwrap();
    let entities = platform.snapshot().await;
    let bundles = entities.iter().filter_map(|entity| match entity {
        Entity::Certificate(bundle) => Some(bundle),
        _ => None,
    });
    let keys: Vec<_> = bundles.map(|bundle| sealing.open(&bundle.key.0, bundle.hostname.as_str()).unwrap()).collect();
    assert_eq!(keys.len(), 2);
    let revision = was["revision"].as_u64().unwrap();
    platform.operator("POST", "/projects", json!({ "id": "later" })).await;
    assert_eq!(platform.follow(revision).await.change().await.revision.0, revision + 1);
}
