//! The operator's command line.

use serde_json::json;

use crate::world::{Platform, until};

/// One platform for all: each step uses what the others leave alone.
#[tokio::test]
async fn the_command_line_does_what_it_says() {
    let platform = Platform::start();
    a_bad_line_is_named_and_nothing_is_imported(&platform).await;
    keys_are_created_rotated_and_revoked(&platform).await;
    status_says_how_the_platform_is(&platform);
    explain_says_what_the_edge_believes_of_a_host(&platform);
    a_second_platform_on_the_same_directory_is_refused(&platform);
}

async fn a_bad_line_is_named_and_nothing_is_imported(platform: &Platform) {
    let file = platform.path("bad.jsonl");
    std::fs::write(&file, "{\"id\":5001}\n{\"id\":5002,\"color\":\"red\"}\n").unwrap();
    let output = platform.command(&["orders", "import", file.to_str().unwrap(), "--project", "demo-pro"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(words.contains("Line 2") && words.contains("color"), "{words}");
    let shop = platform.project("pro");
    let orders = shop.list(platform, &platform.client()).await;
    assert!(orders.iter().all(|order| order["id"] != json!(5001)), "nothing is half imported");
}

// rule: 5.4
async fn keys_are_created_rotated_and_revoked(platform: &Platform) {
    let (client, mut shop) = (platform.client(), platform.project("pro"));
    let created = platform.json(&["key", "create", &shop.id, "--scope", "orders:read", "--label", "till"]);
    shop.key = created["key"].as_str().unwrap().to_owned();
    let id = created["id"].as_str().unwrap().to_owned();
    let status = async |key: &str| {
        let request = shop.bare(platform, &client, reqwest::Method::GET, "/v1/store/orders").bearer_auth(key);
        request.send().await.unwrap().status().as_u16()
    };
    until("the key is known to the edge", async || status(&shop.key).await == 200).await;
    let brief = platform.json(&["key", "create", &shop.id, "--expires-in-days", "7"]);
    assert!(brief["expires_at"].as_str().is_some_and(|end| end.ends_with('Z')), "{brief}");
    let rotated = platform.json(&["key", "rotate", &shop.id, &id]);
    let new_key = rotated["key"].as_str().unwrap().to_owned();
    until("the new key is known", async || status(&new_key).await == 200).await;
    assert_eq!(status(&shop.key).await, 200, "the old one overlaps");
    platform.json(&["key", "revoke", &shop.id, &id]);
    until("the old key is refused", async || status(&shop.key).await == 401).await;
    assert_eq!(status(&new_key).await, 200);
    let listed = platform.json(&["key", "list", &shop.id]);
    assert!(!listed.to_string().contains(&shop.key), "lists never show a key");
}

fn status_says_how_the_platform_is(platform: &Platform) {
    let status = platform.json(&["status"]);
    assert_eq!(status["ready"], true);
    assert_eq!(status["edge"]["quota"]["mode"], "exact");
    assert!(status["edge"]["revision"].as_u64().unwrap() > 0);
    let text = platform.command(&["status"]);
    assert!(String::from_utf8_lossy(&text.stdout).starts_with("edge      ready"));
}

fn explain_says_what_the_edge_believes_of_a_host(platform: &Platform) {
    let known = platform.json(&["explain", "petshop.localhost"]);
    assert_eq!(known["site"]["redirect"]["to"], "www.petshop.localhost");
    assert_eq!(known["certificate"], "own");
}

#[test]
fn without_a_platform_commands_say_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tollhouse"))
        .args(["status", "--data-dir"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("tollhouse up"));
}

fn a_second_platform_on_the_same_directory_is_refused(platform: &Platform) {
    let output = platform.command(&["up", "--http-port", "0", "--https-port", "0", "--admin-port", "0"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("another tollhouse runs"));
}
