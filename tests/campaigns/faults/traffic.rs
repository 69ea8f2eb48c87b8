//! What customers do meanwhile: lists and new orders through both gateways, and changes of projects by an operator.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::fleet::Fleet;

/// The shop's hostname.
pub(crate) const HOST: &str = "shop.tollhouse.localhost";

/// Between two requests to a gateway.
const PACE: Duration = Duration::from_millis(50);

/// Every so many requests, one makes an order.
const ORDER_EVERY: u64 = 5;

/// How long a customer waits.
const PATIENCE: Duration = Duration::from_secs(15);

/// Between two changes of an operator.
const CHANGES: Duration = Duration::from_millis(500);

/// Running traffic; it ends with its owner.
pub(crate) struct Traffic {
    answers: Arc<Mutex<BTreeMap<String, u64>>>,
    _tasks: JoinSet<()>,
}

impl Traffic {
    /// Publishes a project and begins to use it.
    pub(crate) fn start(fleet: &Fleet) -> anyhow::Result<Self> {
        let key = publish_shop(fleet)?;
        let answers: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let mut tasks = JoinSet::new();
        for port in fleet.ports.https {
            tasks.spawn(customer(client(fleet, port, PATIENCE)?, port, key.clone(), answers.clone()));
        }
        let operator = chassis::guard::operator_token(&chassis::secret::Secret::load(
            &fleet.directory.join("secrets/platform.key"),
        )?);
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build()?;
        let url = format!("http://127.0.0.1:{}/internal/projects/shop", fleet.ports.control);
        tasks.spawn(changes(client, url, operator));
        Ok(Self { answers, _tasks: tasks })
    }

    /// Answers since this was last asked, by status and code.
    pub(crate) async fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.answers.lock().await)
    }
}

/// What a customer asks a gateway with, on its port.
pub(crate) fn client(fleet: &Fleet, port: u16, patience: Duration) -> anyhow::Result<reqwest::Client> {
    let ca = std::fs::read(fleet.directory.join("ca/ca.pem"))?;
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca)?])
        .resolve(HOST, SocketAddr::from(([127, 0, 0, 1], port)))
        .timeout(patience)
        .no_proxy();
    Ok(client.build()?)
}

/// Makes the project; a key of it.
pub(crate) fn publish_shop(fleet: &Fleet) -> anyhow::Result<String> {
    let limits = ["--plan", "enterprise", "--per-minute", "100000", "--per-day", "10000000"];
    fleet.tollhouse(&[&["project", "create", "shop"], &limits[..]].concat())?;
    let key = fleet.tollhouse(&["key", "create", "shop"])?;
    Ok(key.get("key").and_then(Value::as_str).context("a key")?.to_owned())
}

async fn customer(client: reqwest::Client, port: u16, key: String, answers: Arc<Mutex<BTreeMap<String, u64>>>) {
    let base = format!("https://{HOST}:{port}");
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 0_u64.. {
        pace.tick().await;
        let request = if count % ORDER_EVERY == 0 {
            let order = json!({ "petId": 1, "quantity": 1, "shipDate": "2030-01-01T00:00:00Z" });
            client.post(format!("{base}/v2/store/orders")).json(&order)
        } else {
            client.get(format!("{base}/v2/store/orders?limit=1"))
        };
        let answer = match request.bearer_auth(&key).send().await {
            Ok(answer) if answer.status().is_success() => "good".to_owned(),
            Ok(answer) => {
                let status = answer.status().as_u16();
                let body: Value = answer.json().await.unwrap_or_default();
                format!("{status} {}", body.get("code").and_then(Value::as_str).unwrap_or("?"))
            }
            Err(error) if error.is_timeout() => "no answer in time".to_owned(),
            Err(_) => "no connection".to_owned(),
        };
        *answers.lock().await.entry(answer).or_default() += 1;
    }
}

/// The label of nothing in particular: what is changed must reach every gateway.
async fn changes(client: reqwest::Client, url: String, token: chassis::secret::Secret) {
    let mut pace = tokio::time::interval(CHANGES);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 0_u64.. {
        pace.tick().await;
        let body = json!({ "limits": { "per_minute": 100_000 + count % 2, "per_day": 10_000_000 } });
        // Whether it works is seen by what is watched.
        let _ = client.patch(&url).bearer_auth(&*token.to_token()).json(&body).send().await;
    }
}
