//! A control plane's database that was restored without `tollhouse restore`: gateways keep the lost changes
//! until an operator accepts it.

use std::path::Path;

use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::deployment::Deployment;
use crate::deployment::postgres::{Server, name_in};
use crate::world::{Platform, Project, until};

const DOMAIN: &str = "till.localhost";

/// The database of the domains and its write-ahead log.
fn copy_database(from: &Path, to: &Path) {
    for name in ["domains.sqlite", "domains.sqlite-wal", "domains.sqlite-shm"] {
        let _ = std::fs::remove_file(to.join(name));
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

/// The statuses of a key, a domain and a project; 0 without a connection.
async fn answers(platform: &Platform, shop: &Project, suspended: &Project) -> [u16; 3] {
    // A new client, because old connections would not show the result for a new visitor.
    let client = platform.client();
    let status =
        async |request: reqwest::RequestBuilder| request.send().await.map_or(0, |answer| answer.status().as_u16());
    let path = "/v1/store/orders";
    let of_domain = client.get(format!("https://{DOMAIN}:{}{path}", platform.https_port()));
    [
        status(shop.request(platform, &client, Method::GET, path)).await,
        status(of_domain.bearer_auth(&shop.read_only_key)).await,
        status(suspended.request(platform, &client, Method::GET, path)).await,
    ]
}

/// How often the gateway has refused the control plane's data.
async fn refusals(platform: &Platform) -> u64 {
    let metrics = platform.admin("/metrics").await;
    let line = metrics.lines().find(|line| line.starts_with("edge_replica_refused_total{reason=\"history\"}"));
    line.and_then(|line| line.split(' ').next_back()?.parse().ok()).unwrap()
}

async fn is_refused_again(platform: &Platform) {
    let before = refusals(platform).await;
    until("the control plane is refused again", async || refusals(platform).await > before).await;
}

const WITHDRAWN: [u16; 3] = [401, 0, 403];
const SERVED: [u16; 3] = [200; 3];

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_stay_in_force_with_an_old_database_file_until_an_operator_accepts_it() {
    let mut platform = Platform::start();
    let (shop, other) = (platform.project("pro"), platform.project("business"));
    platform.json(&["domain", "add", &shop.id, DOMAIN]);
    until("all are served", async || answers(&platform, &shop, &other).await == SERVED).await;
    let (kept, database) = (tempfile::tempdir().unwrap(), platform.path("domains"));
    platform.stop();
    copy_database(&database, kept.path());
    platform.up();

    let keys = platform.json(&["key", "list", &shop.id]);
    let key = keys.as_array().unwrap().iter().find(|key| key["label"] == "demo, everything").unwrap();
    let key = key["id"].as_str().unwrap().to_owned();
    platform.json(&["key", "revoke", &shop.id, &key]);
    platform.json(&["domain", "remove", &shop.id, DOMAIN]);
    platform.json(&["project", "suspend", &other.id]);
    until("all are withdrawn", async || answers(&platform, &shop, &other).await == WITHDRAWN).await;
    // The gateway is killed: its replica and the replica's history are on its disk.
    platform.kill();
    copy_database(kept.path(), &database);
    platform.up();

    is_refused_again(&platform).await;
    let status = platform.json(&["status"]);
    let why = status["edge"]["replica_refuses"].as_str().unwrap();
    assert!(why.contains("went back to an earlier state"), "{why}");
    let trouble = status["trouble"].to_string();
    assert!(trouble.contains("serves its previous replica") && trouble.contains("tollhouse node accept"), "{trouble}");
    assert_eq!(answers(&platform, &shop, &other).await, WITHDRAWN);
    // New changes get the numbers of the lost ones.
    until("the numbers are assigned again", async || {
        platform.json(&["key", "create", &shop.id, "--label", "another"]);
        let status = platform.json(&["status"]);
        status["control"]["revision"].as_u64().unwrap() > status["edge"]["revision"].as_u64().unwrap()
    })
    .await;
    is_refused_again(&platform).await;
    assert_eq!(answers(&platform, &shop, &other).await, WITHDRAWN);

    let accepted = platform.json(&["node", "accept"]);
    let changed = accepted["gateways"].as_object().unwrap().values().next().unwrap();
    let names = |kind: &str, change: &str| changed[kind][change]["names"].as_array().unwrap().clone();
    assert!(names("keys", "added").contains(&json!(key)), "{accepted}");
    assert!(names("hostnames", "added").contains(&json!(DOMAIN)), "{accepted}");
    assert!(names("projects", "changed").contains(&json!(other.id)), "{accepted}");
    until("the accepted state is served", async || answers(&platform, &shop, &other).await == SERVED).await;
    assert_eq!(platform.json(&["status"])["edge"]["replica_refuses"], Value::Null);
    platform.json(&["key", "revoke", &shop.id, &key]);
    until("changes arrive again", async || answers(&platform, &shop, &other).await[0] == 401).await;
}

/// The statuses of a key and a domain at a deployment's gateway.
async fn answers_of(deployment: &Deployment, key: &str) -> [u16; 2] {
    let client: Client = deployment.client();
    let status = async |request: reqwest::RequestBuilder| {
        request.bearer_auth(key).send().await.map_or(0, |answer| answer.status().as_u16())
    };
    let path = "/v1/store/orders";
    [
        status(deployment.request(&client, 0, Method::GET, "shop", path)).await,
        status(deployment.request_to(&client, 0, Method::GET, DOMAIN, path)).await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_stay_in_force_with_an_old_database_server_until_an_operator_accepts_it() {
    let server = Server::shared();
    let (domains, orders) = (server.database(), server.database());
    let mut deployment = Deployment::over_databases(&domains, &orders).await;
    let key = deployment.project("shop", "{\"id\":1}\n".to_owned()).await;
    let added = deployment.control(0, Method::POST, "/projects/shop/domains").json(&json!({ "name": DOMAIN }));
    assert!(added.send().await.unwrap().status().is_success());
    until("both are served", async || answers_of(&deployment, &key).await == [200; 2]).await;
    let copy = tokio::task::block_in_place(|| server.copy(name_in(&domains)));

    let keys: Value =
        deployment.control(0, Method::GET, "/projects/shop/keys").send().await.unwrap().json().await.unwrap();
    let id = keys["keys"][0]["id"].as_str().unwrap_or_else(|| panic!("{keys}")).to_owned();
    for path in [format!("/projects/shop/keys/{id}"), format!("/projects/shop/domains/{DOMAIN}")] {
        let removed = deployment.control(0, Method::DELETE, &path).send().await.unwrap();
        assert!(removed.status().is_success(), "{path}: {}", removed.status());
    }
    until("both are withdrawn", async || answers_of(&deployment, &key).await == [401, 0]).await;
    deployment
        .while_services_are_down(async |_| {
            let (name, copy) = (name_in(&domains), name_in(&copy));
            tokio::task::block_in_place(|| {
                server.sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
                server.sql("postgres", &format!("ALTER DATABASE {copy} RENAME TO {name}"));
            });
        })
        .await;

    let revision = async |deployment: &Deployment| deployment.admin(0, "/status").await["revision"].as_u64().unwrap();
    let refuses = async |deployment: &Deployment| {
        deployment.admin(0, "/status").await["replica_remedy"].as_str().is_some_and(|step| step.contains("node accept"))
    };
    until("the gateway refuses the database", async || refuses(&deployment).await).await;
    let known = revision(&deployment).await;
    for number in 0.. {
        let project = json!({ "id": format!("later-{number}"), "plan": "pro", "upstream": "orders" });
        let made = deployment.control(0, Method::POST, "/projects").json(&project).send().await.unwrap();
        assert_eq!(made.status(), 201);
        let status: Value = deployment.control(0, Method::GET, "/status").send().await.unwrap().json().await.unwrap();
        if status["revision"].as_u64().unwrap() > known {
            break;
        }
    }
    // Asked again, after a restart from its disk.
    deployment.restart_gateway(0).await;
    until("the gateway refuses the database still", async || refuses(&deployment).await).await;
    assert_eq!(answers_of(&deployment, &key).await, [401, 0]);
    assert_eq!(revision(&deployment).await, known);

    let changed = deployment.accept(0).await;
    assert!(changed["keys"]["added"]["names"].as_array().unwrap().contains(&json!(id)), "{changed}");
    assert!(changed["hostnames"]["added"]["names"].as_array().unwrap().contains(&json!(DOMAIN)), "{changed}");
    until("the accepted state is served", async || answers_of(&deployment, &key).await == [200; 2]).await;
    assert!(!refuses(&deployment).await);
}
