//! The operator's command line.

use serde_json::json;

use crate::world::{Platform, until};

/// One platform for all steps; each step uses different objects.
#[tokio::test]
async fn commands_have_their_documented_effects() {
    let platform = Platform::start();
    a_bad_line_is_named_and_nothing_is_imported(&platform).await;
    keys_are_created_rotated_and_revoked(&platform).await;
    status_shows_every_process(&platform);
    explain_shows_how_a_host_is_handled(&platform);
    all_projects_are_listed(&platform);
    errors_are_json_for_programs_with_an_exit_code(&platform);
    the_api_description_needs_no_key_and_a_bad_key_is_explained(&platform).await;
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

fn status_shows_every_process(platform: &Platform) {
    let status = platform.json(&["status"]);
    assert_eq!(status["ready"], true);
    assert_eq!(status["edge"]["quota"]["mode"], "exact");
    assert!(status["edge"]["revision"].as_u64().unwrap() > 0);
    let text = platform.command(&["status"]);
    assert!(String::from_utf8_lossy(&text.stdout).starts_with("edge      ready"));
}

fn explain_shows_how_a_host_is_handled(platform: &Platform) {
    let known = platform.json(&["explain", "petshop.localhost"]);
    assert_eq!(known["site"]["redirect"]["to"], "www.petshop.localhost");
    assert_eq!(known["certificate"], "own");
    let port = platform.https_port();
    let pasted = platform.json(&["explain", &format!("https://petshop.localhost:{port}/v1/store/orders?a=b")]);
    assert_eq!(pasted["site"]["redirect"]["to"], "www.petshop.localhost");
    let shop = platform.project("pro");
    assert_eq!(platform.json(&["explain", &shop.id])["project"]["id"], shop.id.as_str());
    let key = platform.json(&["explain", &shop.key]);
    assert!(key["key"]["id"].as_str().unwrap().starts_with("key_"), "{key}");
    assert!(!key.to_string().contains(&shop.key), "the key itself is not shown again");
}

fn all_projects_are_listed(platform: &Platform) {
    let before = platform.json(&["project", "list"]).as_array().unwrap().len();
    for number in 0..55 {
        platform.json(&["project", "create", &format!("many-{number}")]);
    }
    assert_eq!(platform.json(&["project", "list"]).as_array().unwrap().len(), before + 55);
}

fn errors_are_json_for_programs_with_an_exit_code(platform: &Platform) {
    let missing = platform.command(&["project", "show", "missing", "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&missing.stderr).unwrap();
    assert_eq!((missing.status.code(), &error["error"]["code"]), (Some(1), &json!("project_not_found")));
    let usage = platform.command(&["project", "shwo", "--json"]);
    let error: serde_json::Value = serde_json::from_slice(&usage.stderr).unwrap();
    assert_eq!((usage.status.code(), &error["error"]["code"]), (Some(2), &json!("usage")));
    // A new key that could not be printed is lost, so the command fails.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut create = crate::world::tollhouse();
    create.args(["key", "create", "demo-pro", "--data-dir"]).arg(platform.path("")).stdout(full);
    let lost = create.stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!(lost.status.code(), Some(1), "{}", String::from_utf8_lossy(&lost.stderr));
}

async fn the_api_description_needs_no_key_and_a_bad_key_is_explained(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    for path in ["/openapi.json", "/v1/openapi.json", "/v2/openapi.json", "/reference"] {
        let answer = shop.bare(platform, &client, reqwest::Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert!(answer.headers().contains_key("x-ratelimit-limit"), "{path}");
    }
    let url = format!("https://api.tollhouse.localhost:{}/v1/openapi.json", platform.https_port());
    assert_eq!(client.get(url).send().await.unwrap().status(), 200);
    let mut cut = shop.key.clone();
    cut.pop();
    let (mut flipped, last) = (shop.key.clone(), if shop.key.ends_with('a') { 'b' } else { 'a' });
    flipped.pop();
    flipped.push(last);
    for (value, words) in [
        (shop.key.clone(), "Authorization: Bearer"),
        (format!("Bearer {cut}"), "Incomplete"),
        (format!("Bearer {flipped}"), "mistyped"),
    ] {
        let request = shop.bare(platform, &client, reqwest::Method::GET, "/v1/store/orders");
        let answer = request.header("authorization", value).send().await.unwrap();
        assert_eq!(answer.status(), 401);
        let body: serde_json::Value = answer.json().await.unwrap();
        assert!(body["message"].as_str().unwrap().contains(words), "{body}");
    }
}

#[test]
fn without_a_running_platform_commands_name_the_command_to_start_one() {
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
