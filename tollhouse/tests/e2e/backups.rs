//! Backups of a platform that runs, and what becomes of it when one is restored.

use reqwest::Method;

use crate::world::{Platform, until};

#[tokio::test]
async fn a_restored_platform_is_as_it_was_and_gateways_believe_it() {
    let mut platform = Platform::start();
    let (client, shop) = (platform.client(), platform.project("pro"));
    let place = tempfile::tempdir().unwrap();
    let place = place.path().join("backup");
    let place = place.to_str().unwrap();
    let made = platform.json(&["backup", place]);
    assert!(made["databases"]["orders"]["rows"]["orders"].as_u64().unwrap() >= 40, "{made}");
    let again = platform.command(&["backup", place]);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("choose another directory"));

    // Afterwards an order is cancelled and a project published. Neither is in the backup.
    assert_eq!(shop.cancel(&platform, &client, shop.pending[0]).await.unwrap().status(), 204);
    let keys = platform.json(&["key", "list", &shop.id]);
    let key = keys.as_array().unwrap().iter().find(|key| key["label"] == "demo, everything").unwrap();
    let key = key["id"].as_str().unwrap().to_owned();
    platform.json(&["project", "create", "late", "--access", "public"]);
    let late = "late.tollhouse.localhost";
    until("the late project is served", async || platform.command(&["explain", late]).status.success()).await;

    let running = platform.command(&["restore", place]);
    assert!(!running.status.success(), "a platform that runs is not replaced");
    assert!(String::from_utf8_lossy(&running.stderr).contains("another tollhouse runs"));
    platform.stop();
    platform.json(&["restore", place]);
    platform.up();

    let client = platform.client();
    until("the gateway has taken what is older", async || !platform.command(&["explain", late]).status.success()).await;
    assert_eq!(shop.cancel(&platform, &client, shop.pending[0]).await.unwrap().status(), 204, "it is pending again");
    // And what is changed now arrives.
    platform.json(&["key", "revoke", &shop.id, &key]);
    until("the key is unknown to the edge", async || !platform.command(&["explain", &key]).status.success()).await;
    let list = shop.bare(&platform, &client, Method::GET, "/v1/store/orders").bearer_auth(&shop.read_only_key);
    assert_eq!(list.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_backup_that_is_not_what_was_made_is_not_restored() {
    let mut platform = Platform::start();
    let place = tempfile::tempdir().unwrap();
    let place = place.path().join("backup");
    platform.json(&["backup", place.to_str().unwrap()]);
    platform.stop();
    let refused = |words: &str| {
        let output = platform.command(&["restore", place.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert!(!platform.path("domains/domains.sqlite.before-restore").exists(), "nothing was touched");
    };
    let orders = place.join("orders.sqlite");
    let whole = std::fs::read(&orders).unwrap();
    std::fs::write(&orders, whole.get(..whole.len() / 2).unwrap()).unwrap();
    refused("orders.sqlite");
    std::fs::write(&orders, &whole).unwrap();
    std::fs::remove_file(place.join("backup.json")).unwrap();
    refused("is no complete backup");
}
