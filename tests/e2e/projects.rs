//! A project is removed, and its name is used again: the new project gets no data of the old one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use chassis::clock::{Clock as _, SystemClock};
use chassis::guard::{pass, pass_key};
use chassis::secret::Secret;
use contract::trust::PassFor;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{Platform, Project, order_file, rate_limit_headers, until};

/// Creates the project with its own limits, and a key.
fn create(platform: &Platform, name: &str) -> Project {
    platform.json(&["project", "create", name, "--plan", "enterprise", "--per-minute", "1000", "--per-day", "50000"]);
    let key = platform.json(&["key", "create", name])["key"].as_str().unwrap().to_owned();
    let host = format!("{name}.tollhouse.localhost");
    let id = name.to_owned();
    Project { id, host, read_only_key: key.clone(), key, pending: Vec::new(), shipped: Vec::new() }
}

/// Places an order under an idempotency key; its id.
async fn place(platform: &Platform, project: &Project) -> i64 {
    let request = project.request(platform, &platform.client(), Method::POST, "/v2/store/orders");
    let answer =
        request.header("idempotency-key", "once").json(&json!({ "petId": 5, "quantity": 1 })).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    answer.json::<Value>().await.unwrap()["id"].as_i64().unwrap()
}

/// The number of the project's orders, and its remaining requests of the day.
async fn seen(platform: &Platform, project: &Project) -> (usize, i64) {
    let request = project.request(platform, &platform.client(), Method::GET, "/v1/store/orders");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (_, remaining, _) = rate_limit_headers(&answer);
    (answer.json::<Vec<Value>>().await.unwrap().len(), remaining)
}

fn said(platform: &Platform, arguments: &[&str]) -> String {
    let output = platform.command(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_project_with_a_used_name_sees_no_data_of_the_old_one() {
    let platform = Platform::start();
    let first = create(&platform, "acme");
    order_file(&platform.path("orders.jsonl"), 100, 20);
    let file = platform.path("orders.jsonl").to_str().unwrap().to_owned();
    platform.json(&["orders", "import", &file, "--project", "acme"]);
    for _ in 0..3 {
        assert_eq!(place(&platform, &first).await, 120, "one order per idempotency key");
    }
    let (orders, spent) = seen(&platform, &first).await;
    assert_eq!(orders, 21);
    let unasked = platform.command(&["project", "remove", "acme"]);
    let words = String::from_utf8_lossy(&unasked.stderr).into_owned();
    assert!(!unasked.status.success() && words.contains("--yes") && words.contains("orders"), "{words}");
    platform.json(&["project", "remove", "acme", "--yes"]);
    let request = first.request(&platform, &platform.client(), Method::GET, "/v1/store/orders");
    assert!(request.send().await.is_err(), "its host is gone with it");

    let second = create(&platform, "acme");
    let (orders, fresh) = seen(&platform, &second).await;
    assert_eq!(orders, 0);
    assert!(fresh > spent, "a quota of its own: {fresh} left, of the first {spent}");
    let answer = second.bare(&platform, &platform.client(), Method::GET, "/v1/store/orders").bearer_auth(&first.key);
    assert_eq!(answer.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(place(&platform, &second).await, 1, "no stored answer, and ids from one");
    let export = platform.path("export.jsonl");
    let exported = platform.json(&["orders", "export", export.to_str().unwrap(), "--project", "acme"]);
    assert_eq!(exported["exported"], 1);

    // The first cannot be restored while the second has the name, and `--now` erases both.
    assert!(said(&platform, &["project", "restore", "acme"]).contains("project_exists"));
    let kept = platform.json(&["project", "removed"])[0].clone();
    platform.json(&["project", "create", "other"]);
    platform.json(&["project", "remove", "other", "--yes"]);
    let words = said(&platform, &["project", "remove", "acme", "--now"]);
    for what in ["uid", "removed_at", "erase_at"] {
        assert!(words.contains(kept[what].as_str().unwrap()), "{what}: {words}");
    }
    let other = platform.json(&["project", "removed"])[0]["uid"].as_str().unwrap().to_owned();
    assert!(!words.contains(&other), "{words}");
    assert!(!said(&platform, &["project", "remove", "acme"]).contains("earlier"), "without --now they stay");
    let removed = platform.json(&["project", "remove", "acme", "--now", "--yes"]);
    assert_eq!(removed["kept_erased"], json!([kept]), "{removed}");
    assert!(said(&platform, &["project", "restore", "acme"]).contains("project_not_found"), "--now spares nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_project_can_be_restored_with_its_orders_until_its_erasure() {
    let platform = Platform::start();
    let shop = create(&platform, "acme");
    let uid = platform.json(&["project", "show", "acme"])["uid"].as_str().unwrap().to_owned();
    place(&platform, &shop).await;
    platform.json(&["project", "remove", "acme", "--yes"]);
    assert_eq!(platform.json(&["project", "removed"])[0]["uid"], json!(uid));
    platform.json(&["project", "restore", "acme"]);
    assert_eq!(seen(&platform, &shop).await.0, 1);
    platform.json(&["project", "remove", "acme", "--now", "--yes"]);
    // Only the operator of the service can request the orders of an erased identity.
    let run: Value = serde_json::from_slice(&std::fs::read(platform.path("run.json")).unwrap()).unwrap();
    let secret = Secret::load_or_create(&platform.path("secrets/platform.key")).unwrap();
    let key = pass_key(&secret).unwrap();
    let url = format!("http://{}/internal/orders/{uid}/summary", run["orders"].as_str().unwrap());
    let none = json!({ "pending": 0, "shipped": 0, "cancelled": 0 });
    until("the orders are erased", async || {
        let pass = pass(&key, &PassFor::service("orders-service"), SystemClock::new().now_seconds());
        let answer = platform.client().get(&url).bearer_auth(pass).send().await.unwrap();
        answer.json::<Value>().await.unwrap() == none
    })
    .await;
    // Only the record of the erasure remains, so that later changes are refused.
    assert_eq!(tables_with(&platform.path("orders/orders.sqlite"), &uid), ["erased_projects"]);
    until("the control plane knows of it", async || {
        // The change log keeps its changes until newer ones replace them.
        tables_with(&platform.path("domains/domains.sqlite"), &uid) == ["changes"]
    })
    .await;
}

/// The tables of a database with a row that contains this text.
fn tables_with(database: &Path, text: &str) -> Vec<String> {
    let asked = Command::new("sqlite3").arg("-readonly").arg(database).arg(".dump").output();
    let output = asked.expect("sqlite3 is needed: install the package sqlite3 (./check does)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dump = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<&str> = dump.lines().filter_map(|line| line.strip_prefix("INSERT INTO ")).collect();
    assert!(rows.len() > 10, "{} has few rows", database.display());
    let with = rows.into_iter().filter(|row| row.contains(text));
    let tables: BTreeSet<&str> = with.filter_map(|row| row.split([' ', '(']).next()).collect();
    tables.into_iter().map(|table| table.trim_matches('"').to_owned()).collect()
}

#[test]
fn an_import_needs_an_existing_project() {
    let platform = Platform::start();
    order_file(&platform.path("orders.jsonl"), 1, 3);
    let file = platform.path("orders.jsonl").to_str().unwrap().to_owned();
    assert!(said(&platform, &["orders", "import", &file, "--project", "nope"]).contains("no such project"));
}

#[tokio::test(flavor = "multi_thread")]
async fn cors_and_hsts_are_settings_of_the_project() {
    let platform = Platform::start();
    let shop = create(&platform, "acme");
    let client = platform.client();
    let allowed = async || {
        let request = shop.request(&platform, &client, Method::GET, "/v1/store/orders");
        let answer = request.header("origin", "https://app.example").send().await.unwrap();
        answer.headers().get("access-control-allow-origin").map(|value| value.to_str().unwrap().to_owned())
    };
    let set = |value: &str| platform.json(&["project", "set", "acme", "--cors", value]);
    let shown = set("https://b.example,https://app.example");
    assert_eq!(shown["cors"], json!(["https://b.example", "https://app.example"]));
    until("one origin may read", async || allowed().await.as_deref() == Some("https://app.example")).await;
    assert_eq!(set("off")["cors"], "off");
    until("no origin may read", async || allowed().await.is_none()).await;
    assert_eq!(set("default")["cors"], Value::Null);
    until("the setting of the upstream applies", async || allowed().await.as_deref() == Some("*")).await;
    assert!(said(&platform, &["project", "set", "acme", "--cors", "app.example"]).contains("https://app.example"));
}
