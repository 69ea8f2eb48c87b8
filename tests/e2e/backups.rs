//! Backups of a running platform, and their restore.

mod server;

use std::path::Path;
use std::process::{Command, Output};

use chassis::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::access::{asked, listed};
use crate::world::{Platform, Project, order_file, until};

/// The result of a statement on the control plane's database of a stopped platform.
fn in_domains(platform: &Platform, text: &str) -> String {
    let asked = Command::new("sqlite3").arg(platform.path("domains/domains.sqlite")).arg(text).output();
    let output = asked.expect("sqlite3 is needed: install the package sqlite3 (./check does)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names of one kind that a restore reports.
fn brought<'a>(restored: &'a Value, kind: &str) -> Vec<&'a str> {
    let names = restored["report"]["things"][kind]["names"].as_array();
    names.map(|names| names.iter().map(|name| name.as_str().unwrap()).collect()).unwrap_or_default()
}

// promise: faults.27
#[tokio::test]
async fn a_restored_platform_has_the_backups_state_and_gateways_accept_it() {
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
    platform.json(&["project", "create", "late", "--access", "public"]);
    let late = "late.tollhouse.localhost";
    until("the late project is served", async || platform.command(&["explain", late]).status.success()).await;

    let running = platform.command(&["restore", place]);
    assert!(!running.status.success(), "a platform that runs is not replaced");
    assert!(String::from_utf8_lossy(&running.stderr).contains("another tollhouse runs"));
    platform.stop();
    let keys = in_domains(&platform, "SELECT number, sealed FROM gateway_keys");
    let restored = platform.command(&["restore", place]);
    let said = String::from_utf8_lossy(&restored.stdout).into_owned();
    assert!(restored.status.success() && said.contains("Nothing was revoked or removed since the backup."), "{said}");
    assert!(said.contains(&format!("Restored the backup of {}", &jiff_date(&made)[..10])), "{said}");
    assert_eq!(in_domains(&platform, "SELECT COUNT(*) FROM gateway_keys"), "0\n");
    platform.up();

    let client = platform.client();
    until("the gateway has applied the older state", async || !platform.command(&["explain", late]).status.success())
        .await;
    assert_eq!(shop.cancel(&platform, &client, shop.pending[0]).await.unwrap().status(), 204, "it is pending again");
    assert!(!keys.is_empty() && in_domains(&platform, "SELECT number, sealed FROM gateway_keys") != keys);
    // New changes reach the gateway.
    let key = key_id(&platform, &shop);
    platform.json(&["key", "revoke", &shop.id, &key]);
    until("the key is unknown to the edge", async || !platform.command(&["explain", &key]).status.success()).await;
    let list = shop.bare(&platform, &client, Method::GET, "/v1/store/orders").bearer_auth(&shop.read_only_key);
    assert_eq!(list.send().await.unwrap().status(), 200);
}

/// The time of a backup, as commands print it.
fn jiff_date(manifest: &Value) -> String {
    jiff::Timestamp::from_second(manifest["made_at"].as_i64().unwrap()).unwrap().to_string()
}

/// The id of the project's key with all scopes.
fn key_id(platform: &Platform, project: &Project) -> String {
    let keys = platform.json(&["key", "list", &project.id]);
    let key = keys.as_array().unwrap().iter().find(|key| key["label"] == "demo, everything").unwrap();
    key["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_since_the_backup_are_repeated_or_listed() {
    let mut platform = Platform::start();
    let (shop, other) = (platform.project("pro"), platform.project("business"));
    let edge = platform.json(&["node", "add", "edge-9"])["credential"].as_str().unwrap().to_owned();
    let edge = Secret::parse(&edge).unwrap().to_token();
    let ada = platform.json(&["token", "create", "ada"])["token"].as_str().unwrap().to_owned();
    platform.json(&["domain", "add", &shop.id, "till.localhost"]);
    for name in ["brief", "gone"] {
        platform.json(&["project", "create", name]);
        let file = platform.path("orders.jsonl");
        order_file(&file, 1, 3);
        platform.json(&["orders", "import", file.to_str().unwrap(), "--project", name]);
    }
    let gone = platform.json(&["project", "show", "gone"])["uid"].as_str().unwrap().to_owned();
    platform.json(&["dashboard-link"]);
    let place = tempfile::tempdir().unwrap();
    let place = place.path().join("backup");
    let place = place.to_str().unwrap();
    platform.json(&["backup", place]);

    // The backup knows nothing of this credential, and its file may still exist.
    platform.json(&["node", "add", "edge-10"]);
    let key = key_id(&platform, &other);
    let rotated = platform.json(&["key", "list", &shop.id])[0]["id"].as_str().unwrap().to_owned();
    for command in [
        &["key", "revoke", &other.id, &key][..],
        &["key", "rotate", &shop.id, &rotated],
        &["domain", "remove", &shop.id, "till.localhost"],
        &["project", "remove", "brief", "--yes"],
        &["project", "remove", "gone", "--now", "--yes"],
        &["node", "revoke", "edge-9"],
        &["node", "revoke", "edge-10"],
        &["token", "revoke", "ada"],
    ] {
        platform.json(command);
    }
    platform.stop();
    let restored = platform.json(&["restore", place]);
    let refused = "SELECT COUNT(*) FROM credentials WHERE name = 'edge-10' AND revoked_at IS NOT NULL";
    assert_eq!(in_domains(&platform, refused), "1\n", "a file with it is refused at each start");
    assert_eq!(restored["report"]["outcome"], "withdrawn", "{restored:#}");
    let expected = [
        ("credentials", vec!["edge-9".to_owned()]),
        ("tokens", vec!["ada".to_owned()]),
        ("projects", vec!["brief".to_owned(), "gone".to_owned()]),
        ("keys", vec![format!("{} {key}", other.id)]),
        ("names", vec!["till.localhost".to_owned()]),
    ];
    for (kind, names) in expected {
        assert_eq!(brought(&restored, kind), names, "{kind}: {restored:#}");
    }
    assert_eq!(in_domains(&platform, "SELECT COUNT(*) FROM dashboard_links"), "0\n");
    platform.up();
    let status = async |platform: &Platform, project: &Project| {
        project.request(platform, &platform.client(), Method::GET, "/v1/store/orders").send().await.unwrap().status()
    };
    assert_eq!(status(&platform, &shop).await, 200);
    assert_eq!(status(&platform, &other).await, 401, "its key stays revoked");
    let keys = platform.json(&["key", "list", &shop.id]);
    let ends = keys.as_array().unwrap().iter().find(|key| key["id"] == *rotated).unwrap();
    assert!(ends["expires_at"].is_string(), "a key that was rotated ends: {ends}");
    let domains = platform.json(&["domain", "list", &shop.id]);
    assert!(domains.as_array().unwrap().iter().all(|domain| domain["name"] != "till.localhost"), "{domains}");
    let removed = platform.json(&["project", "removed"]);
    assert_eq!((removed[0]["id"].as_str(), removed.as_array().unwrap().len()), (Some("brief"), 1), "{removed}");
    assert_eq!(asked(&platform, &edge, "/edge/feed?node=a&after=0").await, 401);
    assert!(listed(&platform, "node", "edge-9")["revoked_at"].is_string());
    assert_eq!(asked(&platform, &ada, "/status").await, 401);
    until("the orders of the erased project are erased again", async || {
        let asked = Command::new("sqlite3")
            .arg("-readonly")
            .arg(platform.path("orders/orders.sqlite"))
            .arg(format!("SELECT COUNT(*) FROM orders WHERE project = '{gone}'"))
            .output();
        asked.unwrap().stdout == b"0\n"
    })
    .await;

    // A backup can also restore things that were removed by mistake.
    platform.stop();
    let restored = platform.json(&["restore", place, "--bring-back"]);
    assert_eq!(restored["report"]["outcome"], "back", "{restored:#}");
    assert_eq!(brought(&restored, "projects"), ["brief", "gone"]);
    platform.up();
    assert_eq!(status(&platform, &other).await, 200);
    assert_eq!(asked(&platform, &ada, "/status").await, 401, "a revoked credential is never good again");
    platform.stop();
    for lost in ["is lost", "is damaged"] {
        let file = platform.path("domains/domains.sqlite");
        std::fs::remove_file(&file).unwrap();
        if lost == "is damaged" {
            std::fs::write(&file, "no database at all, but text of some length").unwrap();
        }
        let restored = platform.command(&["restore", place]);
        let said = String::from_utf8_lossy(&restored.stdout).into_owned();
        assert!(restored.status.success() && said.contains("could not be compared"), "{said}");
        for words in ["till.localhost", &key, "tollhouse key revoke PROJECT KEY"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("edge-9") && !said.contains("ada,"), "the file of revoked credentials has them: {said}");
    }
}

/// Signs a manifest with this platform's key.
fn sign(platform: &Platform, backup: &Path, manifest: &Value) {
    let text = manifest.to_string();
    let secret = Secret::load(&platform.path("secrets/platform.key")).unwrap();
    let signature = secret.derive("backup manifest").derive(&text).to_token();
    std::fs::write(backup.join("backup.json"), text).unwrap();
    std::fs::write(backup.join("backup.json.sig"), &*signature).unwrap();
}

#[test]
fn an_older_backup_is_restored_only_with_a_flag() {
    let mut platform = Platform::start();
    let place = tempfile::tempdir().unwrap();
    let [newest, older, tuesday] = ["newest", "older", "tuesday"].map(|name| place.path().join(name));
    let mut manifest = platform.json(&["backup", newest.to_str().unwrap()]);
    platform.stop();
    std::fs::rename(&newest, &older).unwrap();
    let made_at = manifest["made_at"].as_i64().unwrap();
    manifest["made_at"] = json!(made_at - 86_400);
    sign(&platform, &older, &manifest);
    std::fs::rename(&older, &newest).unwrap();
    let restore = |more: &[&str]| platform.command(&[&["restore", newest.to_str().unwrap()], more].concat());
    refused(&restore(&[]), "there is a newer backup");
    refused(&restore(&[]), &jiff_date(&manifest));
    // The data directory is lost, and a newer backup exists beside this one.
    std::fs::remove_file(platform.path("backup.newest")).unwrap();
    std::fs::create_dir(&tuesday).unwrap();
    sign(&platform, &tuesday, &json!({ "made_at": made_at - 3_600 }));
    refused(&restore(&[]), "tuesday");
    std::fs::write(tuesday.join("backup.json"), json!({ "made_at": made_at }).to_string()).unwrap();
    assert!(restore(&[]).status.success(), "an unsigned backup does not count as a newer one");
    sign(&platform, &tuesday, &json!({ "made_at": made_at }));
    assert!(restore(&["--older"]).status.success());
}

#[test]
fn after_an_interrupted_restore_no_process_starts_until_it_is_repeated() {
    let mut platform = Platform::start();
    let place = tempfile::tempdir().unwrap();
    let place = place.path().join("backup");
    let place = place.to_str().unwrap();
    platform.json(&["backup", place]);
    platform.stop();
    // The marker file of the second database cannot be written.
    let in_the_way = platform.path("orders/orders.sqlite.restoring");
    std::fs::create_dir(&in_the_way).unwrap();
    refused(&platform.command(&["restore", place]), "the restore is incomplete");
    refused(&platform.command(&["up", "--http-port", "0", "--https-port", "0", "--admin-port", "0"]), "restore` again");
    std::fs::remove_dir(&in_the_way).unwrap();
    refused(&platform.command(&["up", "--http-port", "0", "--https-port", "0", "--admin-port", "0"]), "restore` again");
    platform.json(&["restore", place]);
    platform.up();
}

#[tokio::test]
async fn an_altered_backup_is_not_restored() {
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
    refused("orders.sqlite differs from the backup");
    std::fs::write(&orders, &whole).unwrap();
    // An attacker with write access to the backup adds a trigger and updates digest and manifest.
    let list = place.join("backup.json");
    let (signed, domains) = (std::fs::read_to_string(&list).unwrap(), place.join("domains.sqlite"));
    let sound = std::fs::read(&domains).unwrap();
    let planted = "CREATE TRIGGER planted AFTER DELETE ON changes BEGIN UPDATE projects SET plan = 'enterprise'; END";
    assert!(Command::new("sqlite3").arg(&domains).arg(planted).status().unwrap().success());
    refused("domains.sqlite differs from the backup");
    let mut manifest: Value = serde_json::from_str(&signed).unwrap();
    let (bytes, sha256) = chassis::backup::digest(&domains).unwrap();
    manifest["databases"]["domains"]["bytes"] = bytes.into();
    manifest["databases"]["domains"]["sha256"] = sha256.into();
    std::fs::write(&list, manifest.to_string()).unwrap();
    refused("does not match its signature");
    let trusted = platform.command(&["restore", place.to_str().unwrap(), "--accept-unsigned"]);
    let said = String::from_utf8_lossy(&trusted.stderr).into_owned();
    assert!(!trusted.status.success() && said.contains("has a trigger (\"planted\")"), "{said}");
    std::fs::write(&list, &signed).unwrap();
    std::fs::write(&domains, &sound).unwrap();
    std::fs::rename(place.join("backup.json.sig"), place.join("aside")).unwrap();
    refused("does not match its signature");
    std::fs::rename(place.join("aside"), place.join("backup.json.sig")).unwrap();
    std::fs::remove_file(place.join("backup.json")).unwrap();
    refused("is not a complete backup");
}

pub(crate) fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(words), "{said}");
}
