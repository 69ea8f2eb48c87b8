//! `tollhouse domain`: every action, for people and for programs.

use serde_json::{Value, json};

use crate::world::{Platform, until};

/// The output of a command that must succeed.
pub(crate) fn says(platform: &Platform, arguments: &[&str]) -> String {
    let output = platform.command(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a command that must fail.
pub(crate) fn refuses(platform: &Platform, arguments: &[&str]) -> String {
    let output = platform.command(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

/// One platform for all steps; each step uses different names.
#[tokio::test]
async fn domains_are_managed_from_the_command_line() {
    let platform = Platform::start();
    a_domain_is_checked_added_shown_changed_and_removed(&platform).await;
    what_happened_is_listed_for_a_domain_and_for_a_project(&platform).await;
    adding_an_internet_name_prints_the_record_to_create(&platform);
}

async fn a_domain_is_checked_added_shown_changed_and_removed(platform: &Platform) {
    let shop = platform.project("pro").id;
    let name = "till.localhost";
    let checked = platform.json(&["domain", "check", &shop, name]);
    assert_eq!((&checked["name"], &checked["local"]), (&json!(name), &json!(true)));
    assert!(refuses(platform, &["domain", "show", &shop, name]).contains("domain_not_found"), "nothing is attached");

    let added = platform.json(&["domain", "add", &shop, name]);
    assert_eq!(added["name"], name);
    let shown = async || platform.json(&["domain", "show", &shop, name]);
    until("the domain is active", async || shown().await["status"] == "active").await;
    let second = ["domain", "add", &shop, "old.localhost", "--redirect-to", name, "--status", "307"];
    assert_eq!(platform.json(&second)["redirect"], json!({ "to": name, "status": 307 }));
    let listed = platform.json(&["domain", "list", &shop]);
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|domain| &domain["name"]).collect();
    assert!(names.contains(&&json!(name)) && names.contains(&&json!("old.localhost")));
    let table = says(platform, &["domain", "list", &shop]);
    assert!(table.starts_with("DOMAIN") && table.lines().any(|line| line.starts_with("old.localhost")), "{table}");

    let refused = refuses(platform, &["domain", "remove", &shop, name]);
    assert!(refused.contains("primary_in_use") && refused.contains("old.localhost"), "{refused}");
    let off = platform.json(&["domain", "redirect", &shop, "old.localhost", "--off"]);
    assert_eq!(off["redirect"], Value::Null);
    let on = platform.json(&["domain", "redirect", &shop, "old.localhost", "--to", name]);
    assert_eq!(on["redirect"], json!({ "to": name, "status": null }));
    let primary = platform.json(&["domain", "primary", &shop, name]);
    assert_eq!(primary["primary"], true);
    let back = platform.json(&["domain", "redirect", &shop, "old.localhost", "--status", "301"]);
    assert_eq!(back["redirect"], json!({ "to": "primary", "status": 301 }));
    until("the other one is active", async || {
        platform.json(&["domain", "show", &shop, "old.localhost"])["status"] == "active"
    })
    .await;
    let verified = says(platform, &["domain", "verify", &shop, "old.localhost"]);
    assert!(verified.starts_with("old.localhost: active"), "{verified}");

    let removed = platform.json(&["domain", "remove", &shop, name, "--with-redirects"]);
    assert_eq!(removed, json!({ "name": name, "removed": true, "lagging": [] }));
    assert!(refuses(platform, &["domain", "show", &shop, "old.localhost"]).contains("domain_not_found"));
}

async fn what_happened_is_listed_for_a_domain_and_for_a_project(platform: &Platform) {
    let shop = platform.project("pro").id;
    platform.json(&["domain", "add", &shop, "bell.localhost"]);
    let kinds = |events: &Value| -> Vec<String> {
        events.as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    let of_domain = || kinds(&platform.json(&["domain", "events", &shop, "bell.localhost"]));
    until("it is active", async || of_domain().contains(&"domain.active".to_owned())).await;
    assert_eq!(of_domain().last().unwrap(), "domain.created", "newest first");
    let of_project = kinds(&platform.json(&["domain", "events", &shop]));
    assert!(of_project.contains(&"project.created".to_owned()) && of_project.contains(&"domain.created".to_owned()));
    assert_eq!(platform.json(&["domain", "events", &shop, "--limit", "2"]).as_array().unwrap().len(), 2);
    let table = says(platform, &["domain", "events", &shop, "bell.localhost"]);
    assert!(table.starts_with("AT") && table.contains("domain.created"), "{table}");
}

fn adding_an_internet_name_prints_the_record_to_create(platform: &Platform) {
    let shop = platform.project("pro").id;
    let said = says(platform, &["domain", "add", &shop, "shop.tollhouse-petshop.com"]);
    assert!(said.starts_with("shop.tollhouse-petshop.com: pending_dns"), "{said}");
    assert!(said.contains("Create at your DNS provider:") && said.contains("CNAME") && said.contains("3600"), "{said}");
    assert!(refuses(platform, &["domain", "add", &shop, "not a name"]).contains("invalid_domain"));
    assert!(refuses(platform, &["domain", "show", &shop, "../keys"]).contains("domain_not_found"));
}
