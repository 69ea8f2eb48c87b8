//! `tollhouse webhook`: every action, for people and for programs.

use std::process::Command;

use serde_json::{Value, json};

use crate::domain_commands::{refuses, says};
use crate::world::{Platform, until};

/// A receiver on this machine; the platform blocks messages to it.
const BLOCKED: &str = "https://localhost/hooks";

/// One platform for both steps; each step uses a different project.
#[tokio::test]
async fn webhooks_are_managed_from_the_command_line() {
    let platform = Platform::start();
    a_webhook_is_added_told_repeated_and_removed(&platform).await;
    people_read_tables_and_reasons(&platform);
}

async fn a_webhook_is_added_told_repeated_and_removed(platform: &Platform) {
    let shop = platform.project("pro").id;
    let command = |action: &[&str]| platform.json(&[&["webhook"], action].concat());
    let added = command(&["add", &shop, BLOCKED, "--event", "domain.created", "--description", "till"]);
    let id = added["id"].as_str().unwrap().to_owned();
    assert!(added["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!((&added["events"], &added["description"]), (&json!(["domain.created"]), &json!("till")));
    let listed = command(&["list", &shop]);
    assert_eq!((&listed[0]["id"], listed[0].get("secret")), (&json!(id), None));

    platform.json(&["domain", "add", &shop, "till.localhost"]);
    let deliveries = || command(&["deliveries", &shop, &id]);
    until("an attempt was made", async || deliveries()[0]["last_result"] == "blocked").await;
    let first = deliveries()[0].clone();
    assert_eq!((&first["type"], &first["state"]), (&json!("domain.created"), &json!("waiting")));
    assert_eq!(command(&["deliveries", &shop, &id, "--state", "delivered"]), json!([]));
    let number = first["id"].to_string();
    let repeated = command(&["repeat", &shop, &id, &number]);
    assert_eq!(repeated["message_id"], first["message_id"]);

    let off = command(&["disable", &shop, &id]);
    assert_eq!((&off["enabled"], &off["disabled_reason"]), (&json!(false), &json!("owner")));
    assert_eq!(deliveries()[0]["state"], "failed");
    assert!(refuses(platform, &["webhook", "repeat", &shop, &id, &number]).contains("webhook_disabled"));
    assert_eq!(command(&["enable", &shop, &id])["enabled"], true);
    let rotated = command(&["rotate", &shop, &id, "--overlap-seconds", "0"]);
    assert_ne!(rotated["secret"], added["secret"]);
    assert_eq!(rotated["previous_secret_until"], Value::Null);
    assert_eq!(command(&["remove", &shop, &id]), json!({ "id": id, "removed": true }));
    assert_eq!(command(&["list", &shop]), json!([]));
}

/// Attempts of the only delivery, read from the file while no process uses it.
fn attempts(platform: &Platform) -> i64 {
    let file = platform.path("domains/domains.sqlite");
    let output = Command::new("sqlite3").arg(file).arg("SELECT attempts FROM webhook_deliveries").output();
    let output = output.expect("sqlite3 is missing: install sqlite3");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_waiting_delivery_survives_a_kill() {
    let mut platform = Platform::start();
    let shop = platform.project("pro").id;
    let added = platform.json(&["webhook", "add", &shop, BLOCKED, "--event", "domain.created"]);
    let id = added["id"].as_str().unwrap();
    platform.json(&["domain", "add", &shop, "till.localhost"]);
    platform.kill();
    // After a kill before, during or after the first attempt, another attempt follows automatically.
    let before = attempts(&platform);
    platform.up();
    let delivery = || platform.json(&["webhook", "deliveries", &shop, id])[0].clone();
    assert_eq!(delivery()["type"], "domain.created");
    until("it is tried by the new process", async || {
        let delivery = delivery();
        delivery["last_result"] == "blocked" && delivery["attempts"].as_i64().unwrap() > before
    })
    .await;
}

fn people_read_tables_and_reasons(platform: &Platform) {
    let shop = platform.project("business").id;
    assert_eq!(says(platform, &["webhook", "list", &shop]), "none\n");
    let added = says(platform, &["webhook", "add", &shop, "https://hooks.example.com/in"]);
    assert!(added.starts_with("whsec_") && added.contains("It is shown only once"), "{added}");
    let table = says(platform, &["webhook", "list", &shop]);
    assert!(table.starts_with("WEBHOOK") && table.contains("https://hooks.example.com/in"), "{table}");
    let clear = refuses(platform, &["webhook", "add", &shop, "http://hooks.example.com/in"]);
    assert!(clear.contains("must begin with https://") && clear.contains("invalid_webhook_url"), "{clear}");
    let private = refuses(platform, &["webhook", "add", &shop, "https://169.254.169.254/"]);
    assert!(private.contains("public address"), "{private}");
    let unknown = refuses(platform, &["webhook", "add", &shop, BLOCKED, "--event", "order.lost"]);
    assert!(unknown.contains("domain.active"), "it names those there are: {unknown}");
    assert!(refuses(platform, &["webhook", "deliveries", &shop, "wh_none"]).contains("webhook_not_found"));
    assert!(refuses(platform, &["webhook", "remove", &shop, "a/b?c"]).contains("webhook_not_found"));
}
