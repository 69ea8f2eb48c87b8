//! Data that a released version has written: `versions/` holds one database of each as text
//! (docs/tenant/versioning.md). The service must return their data unchanged, to the byte.

use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::world::{World, refusal};

/// A database from its text, in a folder of this test.
fn written_by(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/versions").join(format!("{version}.sql"))
}

/// A service with such a database.
async fn over(version: &str) -> World {
    let directory = tempfile::tempdir().unwrap();
    let read = format!(".read {}", written_by(version).display());
    let made = Command::new("sqlite3").arg("-bail").arg(directory.path().join("orders.db")).arg(read).status();
    assert!(made.expect("sqlite3 is missing: install sqlite3").success());
    World::over(directory, "").await
}

async fn body(response: Response) -> Value {
    response.json().await.unwrap()
}

async fn create(world: &World, key: &str, body: &str) -> Response {
    let request = world.request(Method::POST, "/v2/store/orders").header("content-type", "application/json");
    request.header("idempotency-key", key).body(body.to_owned()).send().await.unwrap()
}

// rule: 4.1.200
#[tokio::test]
async fn data_of_every_released_version_reads_back_unchanged() {
    let world = over("0.1.0").await;
    let listed = world.get("/v1/store/orders").await;
    // Clients with a cached list revalidate it with this tag.
    assert_eq!(listed.headers()["etag"], "W/\"aa53a88a2b2868f8-4\"");
    assert_eq!(
        listed.text().await.unwrap(),
        "[{\"id\":7,\"petId\":3,\"quantity\":2,\"shipDate\":\"2026-11-25T08:00:00.123456Z\",\"complete\":false},\
         {\"id\":8},\
         {\"id\":9,\"petId\":-4,\"quantity\":1,\"shipDate\":\"2026-11-01T00:00:00Z\",\"complete\":true},\
         {\"id\":10,\"petId\":5},\
         {\"id\":11,\"petId\":6,\"quantity\":1,\"shipDate\":\"2026-11-20T14:00:00Z\",\"complete\":true},\
         {\"id\":12,\"petId\":12,\"quantity\":3,\"complete\":false}]"
    );
    let states = body(world.get("/v2/store/orders").await).await;
    let states: Vec<&str> =
        states["orders"].as_array().unwrap().iter().map(|order| order["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["pending", "cancelled", "shipped", "cancelled", "shipped", "pending"]);
    for (id, event, at) in [
        (8, "cancelled", "2026-11-20T13:00:00Z"),
        (11, "shipped", "2026-11-20T14:00:00Z"),
        (12, "created", "2026-11-20T13:00:00Z"),
    ] {
        let history = body(world.get(&format!("/v2/store/orders/{id}/history")).await).await;
        assert_eq!(history, json!({ "events": [{ "event": event, "at": at }] }), "order {id}");
    }
    // Undelivered events keep their contents.
    let waiting = world.orders.store().undelivered(10).await.unwrap();
    let undelivered: Vec<_> = waiting
        .events
        .iter()
        .map(|event| (event.number, event.kind.as_str(), event.at.0, event.order.as_str()))
        .collect();
    let shipped = "{\"id\":11,\"petId\":6,\"quantity\":1,\"shipDate\":\"2026-11-20T14:00:00Z\",\"complete\":true,\
                   \"status\":\"shipped\"}";
    assert_eq!(
        undelivered,
        [
            (
                1,
                "created",
                1_795_179_600_000,
                "{\"id\":12,\"petId\":12,\"quantity\":3,\"complete\":false,\"status\":\"pending\"}"
            ),
            (2, "cancelled", 1_795_179_600_000, "{\"id\":8,\"status\":\"cancelled\"}"),
            (3, "shipped", 1_795_183_200_000, shipped),
        ]
    );
    assert!(waiting.damaged.is_empty(), "{:?}", waiting.damaged);
    // The idempotency key of an earlier creation still works.
    let again = create(&world, "placed-once", "{\"petId\":12,\"quantity\":3}").await;
    assert_eq!((again.status().as_u16(), &again.headers()["idempotency-replayed"]), (201, &"true".parse().unwrap()));
    let other = create(&world, "placed-once", "{\"petId\":12,\"quantity\":4}").await;
    assert_eq!(refusal(other).await, (409, "idempotency_key_reused".to_owned()));
    // Orders can still be changed.
    assert_eq!(world.delete("/v1/store/orders/7").await.status(), 204);
    assert_eq!(world.orders.summary(&"other".parse().unwrap()).await.unwrap().pending, 1);
}
