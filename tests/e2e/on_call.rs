//! An operator's questions during an incident, each answered by one command.

use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::world::{Platform, until};

/// A row of a table by its name.
fn row<'a>(rows: &'a Value, name: &str) -> &'a Value {
    let found = rows["rows"].as_array().unwrap().iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {rows}"))
}

/// Sends some traffic: successful requests, one without a key, one for an unknown path. Returns the id of the last one.
async fn traffic(platform: &Platform, client: &Client) -> String {
    let shop = platform.project("pro");
    for _ in 0..3 {
        assert_eq!(shop.list(platform, client).await.len(), 40);
    }
    let bare = shop.bare(platform, client, Method::GET, "/v1/store/orders").send().await.unwrap();
    assert_eq!(bare.status(), 401);
    let nothing = shop.request(platform, client, Method::GET, "/v1/nothing").send().await.unwrap();
    assert_eq!(nothing.status(), 404);
    nothing.headers()["x-request-id"].to_str().unwrap().to_owned()
}

/// One platform for all steps. The first step counts all requests; the last one suspends a project.
#[tokio::test]
async fn commands_answer_an_operators_questions() {
    let platform = Platform::start();
    top_lists_projects_hosts_keys_and_codes(&platform).await;
    the_five_questions_are_answered_by_the_documented_commands(&platform).await;
    changes_say_what_was_done_and_when(&platform).await;
    check_config_compares_what_runs_with_what_a_file_says(&platform);
    a_drained_gateway_is_not_ready_serves_on_and_comes_back(&platform).await;
    explain_knows_requests_keys_and_hosts(&platform).await;
}

async fn top_lists_projects_hosts_keys_and_codes(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    traffic(platform, &client).await;
    // The end of a request is counted after its response was sent.
    until("all is counted", async || row(&platform.json(&["top"]), &shop.id)["requests"] == 5).await;
    let by_project = platform.json(&["top", "--by", "project"]);
    assert_eq!(row(&by_project, &shop.id)["client"], 2, "{by_project}");
    assert_eq!(row(&by_project, &shop.id)["platform"], 0);
    let by_host = platform.json(&["top", "--by", "host", "--minutes", "2"]);
    assert_eq!(row(&by_host, &shop.host)["requests"], 5);
    let by_code = platform.json(&["top", "--by", "code"]);
    assert_eq!(
        (&row(&by_code, "missing_api_key")["requests"], &row(&by_code, "not_found")["requests"]),
        (&json!(1), &json!(1))
    );
    let by_key = platform.json(&["top", "--by", "key"]);
    assert!(by_key["rows"].as_array().unwrap().iter().any(|row| row["name"].as_str().unwrap().starts_with("key_")));
    let text = platform.command(&["top"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("PROJECT") && text.contains(&shop.id), "{text}");
    let status = platform.json(&["status"]);
    let refused: Vec<&str> =
        status["edge"]["top_refusals"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(refused.contains(&"missing_api_key") && !refused.contains(&"ok"), "{refused:?}");
    assert_eq!(status["trouble"], json!([]), "nothing is wrong with a fresh platform");
    let ends: Vec<i64> =
        status["edge"]["certificates"].as_array().unwrap().iter().map(|one| one["ends_at"].as_i64().unwrap()).collect();
    assert!(ends.len() >= 3 && ends.is_sorted(), "the platform's and two domains', soonest first: {ends:?}");
}

async fn explain_knows_requests_keys_and_hosts(platform: &Platform) {
    let client = platform.client();
    let id = traffic(platform, &client).await;
    until("the request is remembered", async || platform.command(&["explain", &id]).status.success()).await;
    let request = platform.json(&["explain", &id]);
    assert_eq!((&request["request"]["request_id"], &request["request"]["code"]), (&json!(id), &json!("not_found")));
    assert_eq!(request["why"]["who_must_act"], "client");
    let key = request["request"]["api_key_id"].as_str().unwrap();
    let known = platform.json(&["explain", key]);
    assert_eq!((&known["key"]["project"], &known["why"]), (&json!("demo-pro"), &json!(["Valid; has quota left."])));
    assert!(!known.to_string().contains("digest"), "nothing of the key itself is shown");
    platform.json(&["ban", "add", key, "--seconds", "60"]);
    assert!(platform.json(&["explain", key])["why"][0].as_str().unwrap().contains("banned"));
    platform.json(&["project", "suspend", "demo-pro"]);
    until("the edge knows", async || {
        let why = platform.json(&["explain", "demo-pro.tollhouse.localhost"])["why"].to_string();
        why.contains("project_suspended")
    })
    .await;
    for (about, words) in [
        ("key_aaaaaaaaaaaaaaaa", "has no such key"),
        ("00000000000000000000000000000000", "has no record"),
        ("missing.example", "serves no such host"),
    ] {
        let output = platform.command(&["explain", about]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{about}: {said}");
    }
}

async fn changes_say_what_was_done_and_when(platform: &Platform) {
    platform.json(&["project", "set", "demo-free", "--plan", "business"]);
    let published = |all: &Value| {
        let changes = all["changes"].as_array().unwrap();
        changes.iter().any(|change| change["words"].as_str().unwrap().ends_with("project demo-free (business plan)"))
    };
    until("the change is there", async || published(&platform.json(&["changes"]))).await;
    let all = platform.json(&["changes", "--limit", "512"]);
    let changes = all["changes"].as_array().unwrap();
    assert!(changes.iter().any(|change| change["what"] == "start"), "{all}");
    let times: Vec<i64> = changes.iter().map(|change| change["at"].as_i64().unwrap()).collect();
    assert!(times.iter().rev().is_sorted(), "newest first");
}

fn check_config_compares_what_runs_with_what_a_file_says(platform: &Platform) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.toml");
    std::fs::write(&file, "threads = 3\n[quota]\nbans = \"off\"\n[drain]\nlame_duck = \"0s\"\n").unwrap();
    let found = platform.json(&["check-config", "--running", file.to_str().unwrap()]);
    let of = |setting: &str| found.as_array().unwrap().iter().find(|row| row["setting"] == setting);
    assert_eq!(of("quota.bans").unwrap()["running"], "on", "as in the shipped file");
    assert_eq!(of("threads").unwrap()["file"], "3");
    assert!(of("drain.lame_duck").is_none(), "both say the same");
    // A given default and a missing setting are equal.
    let defaults = "[quota]\nbans = \"on\"\n[upstreams.orders]\nendpoints = [\"127.0.0.1:1\"]\nin_flight_max = 256\n";
    std::fs::write(&file, defaults).unwrap();
    let found = platform.json(&["check-config", "--running", file.to_str().unwrap()]);
    let named = |setting: &str| found.as_array().unwrap().iter().any(|row| row["setting"] == setting);
    assert!(!named("quota.bans") && !named("quota.on_store_down") && named("upstreams.orders.endpoints"), "{found}");
    let orders = directory.path().join("orders-service.toml");
    std::fs::write(&orders, "credential = \"never shown, never compared\"\n").unwrap();
    let text = platform.command(&["check-config", "--running", orders.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("database") && !text.contains("never shown"), "{text}");
}

async fn a_drained_gateway_is_not_ready_serves_on_and_comes_back(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    let edge = platform.json(&["status"])["edge"].clone();
    let (gateway, process) = (edge["gateway"].as_str().unwrap(), edge["node"].as_str().unwrap());
    assert_eq!(gateway, "gateway", "its name in `tollhouse node list`");
    let name = format!("{gateway}/{process}");
    assert_eq!(platform.json(&["drain"])["draining"], true);
    assert!(platform.admin("/readyz").await.contains("\"ready\":false"));
    assert_eq!(shop.list(platform, &client).await.len(), 40, "a draining gateway still serves requests");
    let trouble = platform.json(&["status"])["trouble"].to_string();
    assert!(trouble.contains(&format!("gateway {name} (")) && trouble.contains("out of rotation"), "{trouble}");
    for named in [gateway, process, &name] {
        assert_eq!(platform.json(&["drain", named])["draining"], true, "{named}");
        assert_eq!(platform.json(&["drain", named, "--resume"])["draining"], false, "{named}");
    }
    assert!(platform.admin("/readyz").await.contains("\"ready\":true"));
    let output = platform.command(&["drain", "gw-missing"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(&name), "it lists the gateways");
    let shown = String::from_utf8(platform.command(&["status"]).stdout).unwrap();
    assert!(shown.lines().any(|line| line.starts_with(&format!("{gateway}  ")) && line.contains(process)), "{shown}");
}

/// The commands that docs/operator/on-call.md gives for the five questions, run unchanged.
async fn the_five_questions_are_answered_by_the_documented_commands(platform: &Platform) {
    traffic(platform, &platform.client()).await;
    let page = include_str!("../../docs/operator/on-call.md");
    let section = page.split("\n## Five questions\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let commands: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("    target/release/tollhouse ")).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = platform.command(&words);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.lines().count() > 2, "{command}: {out}{err}");
        platform.json(&words);
    }
    // The fifth is a table, of commands that exist.
    let rows = section.lines().filter(|line| line.starts_with("| "));
    for named in rows.flat_map(|row| row.split('`')).filter_map(|code| code.strip_prefix("tollhouse ")) {
        let words = named.split(' ').filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
        let words: Vec<&str> = words.chain(["--help"]).collect();
        assert!(platform.command(&words).status.success(), "tollhouse {named}");
    }
}
