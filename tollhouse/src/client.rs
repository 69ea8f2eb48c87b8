//! Talking to a running platform: its internal listeners, with the operator's token.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use chassis::guard::{gateway_operator_token, operator_token};
use chassis::secret::Secret;
use contract::error::ErrorBody;
use contract::project::ProjectUid;
use reqwest::{Method, Response};
use serde_json::Value;

use crate::directory::{Address, Directory, RunFile};

/// How long an answer may take, imports and exports aside.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Gateways that are asked at once.
const EDGES_MAX: usize = 256;

/// A client of one running platform.
pub struct Client {
    http: reqwest::Client,
    token: Secret,
    /// For the gateways: one that is in wrong hands learns what it is asked with.
    gateways: Secret,
    /// Where it listens.
    pub run: RunFile,
}

impl Client {
    /// A client of the platform that runs on `directory`.
    ///
    /// # Errors
    /// When none runs there.
    pub fn of(directory: &Directory) -> anyhow::Result<Self> {
        Self::new(directory.running()?, &directory.platform_secret()?)
    }

    /// A client of a platform whose addresses and secret are known.
    ///
    /// # Errors
    /// When the HTTP client cannot be made.
    pub fn new(run: RunFile, secret: &Secret) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(2)).no_proxy().build()?;
        Ok(Self { http, token: operator_token(secret), gateways: gateway_operator_token(secret), run })
    }

    /// Calls the control plane. `Value::Null` is no body, in both directions.
    ///
    /// # Errors
    /// When it cannot be reached, or says no: the message is its own.
    pub async fn control(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.json(&self.run.control, &self.token, method, path, body).await
    }

    /// Calls the edge's admin listener.
    ///
    /// # Errors
    /// As [`Client::control`].
    pub async fn edge(&self, method: Method, path: &str) -> anyhow::Result<Value> {
        self.json(&self.run.admin, &self.gateways, method, path, &Value::Null).await
    }

    /// Calls the admin listener of one gateway.
    ///
    /// # Errors
    /// As [`Client::control`].
    pub async fn edge_at(&self, address: &Address, method: Method, path: &str) -> anyhow::Result<Value> {
        self.json(address, &self.gateways, method, path, &Value::Null).await
    }

    /// Asks every gateway: a name may stand for several, and there may be more addresses. Whoever does not answer has
    /// its reason in place of an answer.
    pub async fn every_edge(&self, method: &Method, path: &str) -> Vec<(String, anyhow::Result<Value>)> {
        let mut addresses = BTreeSet::new();
        for address in std::iter::once(&self.run.admin).chain(&self.run.more_admins) {
            match tokio::net::lookup_host(address.to_string()).await {
                Ok(found) => addresses.extend(found.map(|found| found.to_string())),
                // Asked by its name, it says what is wrong with it.
                Err(_) => drop(addresses.insert(address.to_string())),
            }
        }
        let asked = addresses.into_iter().take(EDGES_MAX).map(|address| async move {
            let answer = match address.parse() {
                Ok(place) => self.json(&place, &self.gateways, method.clone(), path, &Value::Null).await,
                Err(reason) => Err(anyhow::Error::msg::<String>(reason)),
            };
            (address, answer)
        });
        futures_util::future::join_all(asked).await
    }

    /// Asks the orders-service's internal listener for something short.
    ///
    /// # Errors
    /// As [`Client::control`].
    pub async fn orders_json(&self, path: &str) -> anyhow::Result<Value> {
        self.json(&self.run.orders, &self.token, Method::GET, path, &Value::Null).await
    }

    /// The identity of a project, under which services keep what is its.
    ///
    /// # Errors
    /// As [`Client::control`], and when there is no such project.
    pub async fn identity_of(&self, project: &str) -> anyhow::Result<ProjectUid> {
        let project = self.control(Method::GET, &format!("/internal/projects/{project}"), &Value::Null).await?;
        Ok(serde_json::from_value(project.get("uid").cloned().unwrap_or_default())?)
    }

    /// Calls the orders-service's internal listener with a body that may be long.
    ///
    /// # Errors
    /// As [`Client::control`].
    pub async fn orders(&self, method: Method, path: &str, body: reqwest::Body) -> anyhow::Result<Response> {
        let request =
            self.http.request(method, url(&self.run.orders, path)).bearer_auth(&*self.token.to_token()).body(body);
        checked(request.send().await.context("the orders-service does not answer; is the platform running?")?).await
    }

    async fn json(
        &self,
        address: &Address,
        token: &Secret,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let mut request =
            self.http.request(method, url(address, path)).bearer_auth(&*token.to_token()).timeout(ANSWER_MAX);
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.context("the platform does not answer; is it running?")?;
        let text = checked(response).await?.text().await?;
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }
}

fn url(address: &Address, path: &str) -> String {
    format!("http://{address}{path}")
}

/// A service that answered, and said no.
#[derive(Debug)]
pub struct Refused {
    /// The code of its refusal.
    pub code: String,
    words: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Refused {}

/// The response, or the service's own words for why not: a [`Refused`].
async fn checked(response: Response) -> anyhow::Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    match serde_json::from_str::<ErrorBody>(&text) {
        Ok(body) => {
            let details = body.details.map(|details| format!(" {details}")).unwrap_or_default();
            let words = format!("{} ({}){details}", body.message, body.code);
            Err(Refused { code: body.code, words }.into())
        }
        Err(_) => anyhow::bail!("unexpected answer {status}: {text}"),
    }
}
