//! A platform with a PostgreSQL server, backed up and restored with the commands of docs/operator/backup.md.
#![allow(clippy::disallowed_methods, reason = "the server's programs are looked for before those of the environment")]

use std::path::Path;
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use super::refused;
use crate::deployment::Deployment;
use crate::deployment::postgres::Server;
use crate::world::until;

/// The commands of docs/operator/backup.md below this heading, as they run here: `tollhouse` is the program under test,
/// backups and files of URLs are below `directory`.
fn documented(heading: &str, directory: &Path) -> String {
    let page = include_str!("../../../docs/operator/backup.md");
    let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    let block: Vec<&str> = lines.take_while(|line| line.starts_with("    ")).collect();
    let program = env!("CARGO_BIN_EXE_tollhouse");
    let here = directory.to_str().unwrap();
    let block = block.join("\n").replace("target/release/tollhouse", program);
    block.replace("/backups/monday", here).replace("/run/secrets", here)
}

/// Runs commands as the administrator of this server; returns their output.
fn as_administrator(server: &Server, script: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .env("PATH", format!("{}:{path}", server.programs().display()))
        .envs([("PGHOST", "127.0.0.1"), ("PGPORT", &server.port.to_string()), ("PGUSER", "tollhouse")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_with_postgresql_is_restored_with_the_documented_commands_after_a_total_loss() {
    // Databases named as documented, each with its own user, as in containers.
    let server = Server::start(&[]);
    let urls = ["domains", "orders"].map(|name| {
        server.sql("postgres", &format!("CREATE ROLE {name} LOGIN"));
        server.sql("postgres", &format!("CREATE DATABASE {name} OWNER {name}"));
        server.url(name).replace("tollhouse@", &format!("{name}@"))
    });
    let mut deployment = Deployment::over_databases(&urls[0], &urls[1]).await;
    let client = deployment.client();
    let key = deployment.project("shop", "{\"id\":1}\n{\"id\":2}\n".to_owned()).await;
    let leaked = deployment.key("shop").await;
    let domain = json!({ "name": "shop.localhost" });
    let added = deployment.control(0, Method::POST, "/projects/shop/domains").json(&domain).send().await.unwrap();
    assert!(added.status().is_success(), "{}", added.text().await.unwrap());
    let domain_works = async |deployment: &Deployment| {
        let request = deployment.request_to(&deployment.client(), 0, Method::GET, "shop.localhost", "/v1/store/orders");
        request.bearer_auth(&key).send().await.is_ok_and(|answer| answer.status() == 200)
    };
    until("the domain has its certificate", async || domain_works(&deployment).await).await;
    let list = async |deployment: &Deployment, key: &str| {
        let request = deployment.request(&client, 0, Method::GET, "shop", "/v1/store/orders");
        let answer = request.bearer_auth(key).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let before = list(&deployment, &key).await;
    assert_eq!(list(&deployment, &leaked).await, before);

    let place = tempfile::tempdir().unwrap();
    for (name, url) in ["domains", "orders"].iter().zip(&urls) {
        chassis::secret::write_private(&place.path().join(format!("{name}.url")), url.as_bytes()).unwrap();
    }
    as_administrator(&server, &documented("### Backup of PostgreSQL", place.path()));
    let restore = documented("### Restore of PostgreSQL", place.path());

    // Afterwards an order is cancelled, a key revoked and a project published.
    let cancel = async |deployment: &Deployment| {
        let request = deployment.request(&client, 0, Method::DELETE, "shop", "/v1/store/orders/1");
        request.bearer_auth(&key).send().await.unwrap().status().as_u16()
    };
    assert_eq!(cancel(&deployment).await, 204);
    let keys: Value =
        deployment.control(0, Method::GET, "/projects/shop/keys").send().await.unwrap().json().await.unwrap();
    let id = keys["keys"][1]["id"].as_str().unwrap().to_owned();
    let path = format!("/projects/shop/keys/{id}");
    assert!(deployment.control(0, Method::DELETE, &path).send().await.unwrap().status().is_success());
    assert_eq!(list(&deployment, &leaked).await.0, 401);
    // Each check uses a separate key, because a 401 counts as a failed authentication of this address.
    let late_key = deployment.project("late", "{\"id\":1}\n".to_owned()).await;
    let knows_late = async |deployment: &Deployment| {
        let request = deployment.request(&deployment.client(), 0, Method::GET, "late", "/v1/store/orders");
        request.bearer_auth(&late_key).send().await.is_ok_and(|answer| answer.status() != 404)
    };
    assert!(knows_late(&deployment).await);

    let finish = restore.lines().last().unwrap();
    let early = Command::new("bash").args(["-c", finish]).output().unwrap();
    refused(&early, "a service still uses");
    deployment
        .while_services_are_down(async |_| {
            let said = as_administrator(&server, &restore);
            assert!(said.contains("Withdrawn again") && said.contains(&format!("shop {id}")), "{said}");
        })
        .await;
    until("the gateway has applied the older state", async || !knows_late(&deployment).await).await;
    assert_eq!(list(&deployment, &key).await, before, "the same answers");
    assert_eq!(list(&deployment, &leaked).await.0, 401, "a key that leaked stays revoked");
    assert!(domain_works(&deployment).await, "with the certificate of before");
    assert_eq!(cancel(&deployment).await, 204, "it is pending again");

    // Without the lost database, nothing can be compared.
    deployment
        .while_services_are_down(async |_| {
            for name in ["domains", "orders"] {
                server.sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
                server.sql("postgres", &format!("DROP DATABASE {name}_lost WITH (FORCE)"));
            }
            let all: Vec<&str> = restore.lines().filter(|line| !line.contains("RENAME TO")).collect();
            let all = all.join("\n").replace(" --lost domains_lost", "");
            let said = as_administrator(&server, &all);
            assert!(said.contains("--lost was not given") && said.contains(&format!("shop {id}")), "{said}");
        })
        .await;
    until("the key is good again", async || list(&deployment, &leaked).await.0 == 200).await;
    assert_eq!(list(&deployment, &key).await, before, "the same answers");
    // New changes reach the gateways.
    let suspended = deployment.control(0, Method::PATCH, "/projects/shop").json(&json!({ "suspended": true }));
    assert!(suspended.send().await.unwrap().status().is_success());
    until("the gateway knows of the suspension", async || cancel(&deployment).await == 403).await;
}
