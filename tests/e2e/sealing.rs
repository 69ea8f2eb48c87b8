//! Rotation of the sealing secret with the commands of docs/operator/secrets.md, while a domain has visitors.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::deployment::Deployment;
use crate::world::until;

const DOMAIN: &str = "shop.localhost";
const GATEWAYS: usize = 2;

/// The page's commands for the file of the sealing secret: add a line, move the last line to the top, remove the last
/// line.
fn commands() -> [String; 3] {
    let page = include_str!("../../docs/operator/secrets.md");
    let found = page.lines().map(str::trim).filter(|line| line.ends_with(" data/secrets/sealing.key"));
    found.map(str::to_owned).collect::<Vec<_>>().try_into().unwrap()
}

fn carry_out(deployment: &Deployment, command: &str) {
    let here = command.replace("data/", "");
    let done = Command::new("sh").args(["-c", &here]).current_dir(deployment.directory.path()).status().unwrap();
    assert!(done.success(), "{command}");
}

/// A client with a new connection per request: each has a handshake with the domain's certificate.
fn visitor(deployment: &Deployment) -> Client {
    let root = std::fs::read(deployment.directory.path().join("ca/ca.pem")).unwrap();
    let root = reqwest::Certificate::from_pem(&root).unwrap();
    let client = Client::builder().tls_certs_only([root]).no_proxy().pool_max_idle_per_host(0);
    client.resolve(DOMAIN, ([127, 0, 0, 1], 0).into()).build().unwrap()
}

async fn is_served(client: &Client, port: u16, key: &str) -> bool {
    let request = client.get(format!("https://{DOMAIN}:{port}/v1/store/orders")).bearer_auth(key);
    request.send().await.is_ok_and(|answer| answer.status() == 200)
}

/// Sends visitors to a gateway while `job` runs; returns the number of failed requests.
fn visitors(deployment: &Deployment, gateway: usize, key: &str) -> (Arc<AtomicBool>, JoinHandle<(u32, u32)>) {
    let enough = Arc::new(AtomicBool::new(false));
    let (client, port, key, done) = (visitor(deployment), deployment.port(gateway), key.to_owned(), enough.clone());
    let coming = tokio::spawn(async move {
        let (mut served, mut refused) = (0, 0);
        while !done.load(Ordering::Relaxed) || served + refused == 0 {
            if is_served(&client, port, &key).await { served += 1 } else { refused += 1 }
        }
        (served, refused)
    });
    (enough, coming)
}

/// Restarts each gateway while the other one has visitors.
async fn restart_gateways(deployment: &mut Deployment, key: &str) {
    for gateway in 0..GATEWAYS {
        let (enough, coming) = visitors(deployment, 1 - gateway, key);
        deployment.restart_gateway(gateway).await;
        let (client, port) = (visitor(deployment), deployment.port(gateway));
        until("the gateway serves the domain again", async || is_served(&client, port, key).await).await;
        enough.store(true, Ordering::Relaxed);
        let (served, refused) = coming.await.unwrap();
        assert!(served > 0 && refused == 0, "{served} visitors were served and {refused} were not");
    }
}

async fn status(deployment: &Deployment) -> Value {
    deployment.control(0, Method::GET, "/status").send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sealing_secret_is_changed_while_visitors_are_served() {
    let mut deployment = Deployment::start("live", GATEWAYS).await;
    let key = deployment.project("shop", "{\"id\":1}\n".to_owned()).await;
    let added = deployment.control(0, Method::POST, "/projects/shop/domains").json(&json!({ "name": DOMAIN }));
    assert!(added.send().await.unwrap().status().is_success());
    for gateway in 0..GATEWAYS {
        let (client, port) = (visitor(&deployment), deployment.port(gateway));
        until("the domain is served", async || is_served(&client, port, &key).await).await;
    }
    let file = deployment.directory.path().join("secrets/sealing.key");
    let lines = || std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let old = lines();
    let [add, swap, remove] = commands();

    carry_out(&deployment, &add);
    restart_gateways(&mut deployment, &key).await;
    deployment.while_services_are_down(async |_| {}).await;
    carry_out(&deployment, &swap);
    let both = lines();
    assert_eq!((both.len(), both.last()), (2, old.first()));
    // The services alone: the gateways have both.
    deployment.while_services_are_down(async |_| {}).await;
    until("everything is sealed with the new secret and every gateway has it", async || {
        let status = status(&deployment).await;
        let lagging = status["nodes_lagging"].as_array().unwrap().len();
        status["sealed_with_older"] == 0 && lagging == 0 && status["nodes_live"] == GATEWAYS
    })
    .await;
    carry_out(&deployment, &remove);
    assert_eq!(lines(), both[..1]);
    deployment.while_services_are_down(async |_| {}).await;
    restart_gateways(&mut deployment, &key).await;
    let status = status(&deployment).await;
    assert_eq!((&status["sealed_with_older"], &status["sealed_with_missing"]), (&json!(0), &json!(0)));
}
