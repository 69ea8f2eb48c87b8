//! Backups of a platform that runs, and what becomes of it when one is restored.

use std::path::Path;
use std::process::{Command, Output};

use chassis::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use crate::deployment::Deployment;
use crate::deployment::postgres::{Server, name_in};
use crate::world::{Platform, tollhouse, until};

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
    refused("orders.sqlite is not what was backed up");
    std::fs::write(&orders, &whole).unwrap();
    // Somebody who may write to the backup plants a trigger, and makes the digest and the manifest agree with it.
    let list = place.join("backup.json");
    let (signed, domains) = (std::fs::read_to_string(&list).unwrap(), place.join("domains.sqlite"));
    let sound = std::fs::read(&domains).unwrap();
    let planted = "CREATE TRIGGER planted AFTER DELETE ON changes BEGIN UPDATE projects SET plan = 'enterprise'; END";
    assert!(Command::new("sqlite3").arg(&domains).arg(planted).status().unwrap().success());
    refused("domains.sqlite is not what was backed up");
    let mut manifest: Value = serde_json::from_str(&signed).unwrap();
    let (bytes, sha256) = chassis::backup::digest(&domains).unwrap();
    manifest["databases"]["domains"]["bytes"] = bytes.into();
    manifest["databases"]["domains"]["sha256"] = sha256.into();
    std::fs::write(&list, manifest.to_string()).unwrap();
    refused("is not what this platform signed");
    let trusted = platform.command(&["restore", place.to_str().unwrap(), "--accept-unsigned"]);
    let said = String::from_utf8_lossy(&trusted.stderr).into_owned();
    assert!(!trusted.status.success() && said.contains("has a trigger (\"planted\")"), "{said}");
    std::fs::write(&list, &signed).unwrap();
    std::fs::write(&domains, &sound).unwrap();
    std::fs::rename(place.join("backup.json.sig"), place.join("aside")).unwrap();
    refused("is not what this platform signed");
    std::fs::rename(place.join("aside"), place.join("backup.json.sig")).unwrap();
    std::fs::remove_file(place.join("backup.json")).unwrap();
    refused("is no complete backup");
}

/// `tollhouse backup` or `restore` of a deployment over these databases of a server.
fn over_server(deployment: &Deployment, verb: &str, place: &Path, urls: &[String; 2]) -> Output {
    let mut command = tollhouse();
    command.arg(verb).arg(place).arg("--json").arg("--data-dir").arg(deployment.directory.path());
    for (name, url) in ["domains", "orders"].iter().zip(urls) {
        let file = deployment.directory.path().join(format!("{name}.url"));
        chassis::secret::write_private(&file, url.as_bytes()).unwrap();
        command.arg(format!("--{name}-url-file")).arg(file);
    }
    command.output().unwrap()
}

/// A database as containers have it: its user owns it, and nothing else of the server. Its URL.
fn owned_database(server: &Server) -> String {
    let url = server.database();
    let name = name_in(&url);
    server.sql("postgres", &format!("CREATE ROLE {name} LOGIN"));
    server.sql("postgres", &format!("ALTER DATABASE {name} OWNER TO {name}"));
    url.replace("tollhouse@", &format!("{name}@"))
}

fn refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(words), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_over_postgresql_is_restored_after_everything_is_lost_and_gateways_believe_it() {
    let server = Server::shared();
    let urls = [owned_database(server), owned_database(server)];
    let mut deployment = Deployment::over_databases(&urls[0], &urls[1]).await;
    let client = deployment.client();
    let key = deployment.project("shop", "{\"id\":1}\n{\"id\":2}\n".to_owned()).await;
    let domain = json!({ "name": "shop.localhost" });
    let added = deployment.control(0, Method::POST, "/projects/shop/domains").json(&domain).send().await.unwrap();
    assert!(added.status().is_success(), "{}", added.text().await.unwrap());
    let domain_works = async |deployment: &Deployment| {
        let request = deployment.request_to(&deployment.client(), 0, Method::GET, "shop.localhost", "/v1/store/orders");
        request.bearer_auth(&key).send().await.is_ok_and(|answer| answer.status() == 200)
    };
    until("the domain has its certificate", async || domain_works(&deployment).await).await;
    let list = async |deployment: &Deployment| {
        let request = deployment.request(&client, 0, Method::GET, "shop", "/v1/store/orders");
        let answer = request.bearer_auth(&key).send().await.ok()?;
        answer.json::<Vec<Value>>().await.ok()
    };
    let before = list(&deployment).await.unwrap();
    assert_eq!(before.len(), 2);

    let place = tempfile::tempdir().unwrap();
    let place = place.path().join("backup");
    let made = over_server(&deployment, "backup", &place, &urls);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let manifest: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(manifest["databases"]["orders"]["rows"]["orders"], 2, "{manifest:#}");
    assert_eq!(manifest["databases"]["domains"]["rows"]["projects"], 1, "{manifest:#}");

    // Afterwards an order is cancelled and a project published. Neither is in the backup.
    let cancel = async |deployment: &Deployment| {
        let request = deployment.request(&client, 0, Method::DELETE, "shop", "/v1/store/orders/1");
        request.bearer_auth(&key).send().await.unwrap().status().as_u16()
    };
    assert_eq!(cancel(&deployment).await, 204);
    deployment.project("late", "{\"id\":1}\n".to_owned()).await;
    let knows_late = async |deployment: &Deployment| {
        let request = deployment.request(&deployment.client(), 0, Method::GET, "late", "/v1/store/orders");
        request.send().await.is_ok_and(|answer| answer.status() != 404)
    };
    assert!(knows_late(&deployment).await);

    refused(&over_server(&deployment, "restore", &place, &urls), "a process still uses");
    let orders = |schema: &str| {
        server.sql(
            name_in(&urls[1]),
            &format!("SELECT string_agg(status, ' ' ORDER BY id) FROM {schema}.orders WHERE id IN (1, 2)"),
        )
    };
    deployment
        .while_services_are_down(async |deployment| {
            let lost = orders("public");
            let dump = place.join("orders.dump");
            let whole = std::fs::read(&dump).unwrap();
            std::fs::write(&dump, whole.get(..whole.len() - 100).unwrap()).unwrap();
            refused(&over_server(deployment, "restore", &place, &urls), "orders.dump");
            std::fs::write(&dump, &whole).unwrap();
            let list = place.join("backup.json");
            let text = std::fs::read_to_string(&list).unwrap();
            std::fs::write(&list, text.replace("\"schema\": ", "\"schema\": 99")).unwrap();
            refused(&over_server(deployment, "restore", &place, &urls), "is not what this platform signed");
            // One of a newer version of ours.
            let (signature, newer) = (place.join("backup.json.sig"), std::fs::read_to_string(&list).unwrap());
            let secret = Secret::load(&deployment.directory.path().join("secrets/platform.key")).unwrap();
            let signed = std::fs::read(&signature).unwrap();
            std::fs::write(&signature, &*secret.derive("backup manifest").derive(&newer).to_token()).unwrap();
            refused(&over_server(deployment, "restore", &place, &urls), "newer than this program");
            // One that fails at the second database: the first is what it was, too.
            let wrong = text.replace("\"orders\": 2", "\"orders\": 3");
            assert_ne!(wrong, text);
            std::fs::write(&list, &wrong).unwrap();
            std::fs::write(&signature, &*secret.derive("backup manifest").derive(&wrong).to_token()).unwrap();
            refused(&over_server(deployment, "restore", &place, &urls), "its rows are not those of the backup");
            let projects =
                |schema: &str| server.sql(name_in(&urls[0]), &format!("SELECT COUNT(*) FROM {schema}.projects"));
            assert_eq!((projects("public"), orders("public")), ("2".to_owned(), lost.clone()));
            std::fs::write(&list, text).unwrap();
            std::fs::write(&signature, signed).unwrap();
            for aside in ["before_restore", "before_restore_2"] {
                let restored = over_server(deployment, "restore", &place, &urls);
                assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
                assert_ne!(orders("public"), lost);
                assert_eq!(projects("public"), "1");
                let kept = if aside == "before_restore" { &lost } else { &orders("public") };
                assert_eq!(&orders(aside), kept, "what was there is kept");
            }
            assert!(!domain_works(deployment).await, "the services are down");
        })
        .await;

    until("the gateway has taken what is older", async || !knows_late(&deployment).await).await;
    assert_eq!(list(&deployment).await, Some(before), "the same answers");
    assert!(domain_works(&deployment).await, "with the certificate of before");
    assert_eq!(cancel(&deployment).await, 204, "it is pending again");
    // And what is changed now arrives.
    let suspended = deployment.control(0, Method::PATCH, "/projects/shop").json(&json!({ "suspended": true }));
    assert!(suspended.send().await.unwrap().status().is_success());
    until("the gateway has heard of the suspension", async || cancel(&deployment).await == 403).await;
}
