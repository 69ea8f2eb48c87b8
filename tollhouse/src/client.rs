//! Talking to a running platform: its internal listeners, with the operator's token.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::{Clock as _, SystemClock};
use chassis::guard::{operator_token, pass, pass_key};
use chassis::secret::Secret;
use contract::error::ErrorBody;
use contract::project::ProjectUid;
use contract::token::SigningKey;
use contract::trust::{GATEWAYS, ORDERS_SERVICE};
use reqwest::{Method, Response};
use serde_json::Value;

use crate::directory::{Address, Directory, INTERNAL_AUTHORITY, RunFile};

/// How long an answer may take, imports and exports aside.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Gateways that are asked at once.
const EDGES_MAX: usize = 256;

/// A client of one running platform.
pub struct Client {
    http: reqwest::Client,
    token: Secret,
    /// Signs what services and gateways are asked with: what each is shown opens its own kind alone, for less than a
    /// minute.
    passes: SigningKey,
    /// Where it listens.
    pub run: RunFile,
}

impl Client {
    /// A client of the platform that runs on `directory`.
    ///
    /// # Errors
    /// When none runs there.
    pub fn of(directory: &Directory) -> anyhow::Result<Self> {
        let run = directory.running()?;
        let authority = if run.tls { Some(directory.path(INTERNAL_AUTHORITY)) } else { None };
        let authority =
            authority.map(std::fs::read).transpose().context("reading the authority of internal listeners")?;
        Self::new(run, &directory.platform_secret()?, authority.as_deref())
    }

    /// A client of a platform whose addresses, secret and authority of internal listeners (PEM) are known.
    ///
    /// # Errors
    /// When the HTTP client cannot be made.
    pub fn new(run: RunFile, secret: &Secret, authority: Option<&[u8]>) -> anyhow::Result<Self> {
        let mut http = reqwest::Client::builder().connect_timeout(Duration::from_secs(2)).no_proxy();
        if let Some(pem) = authority {
            http = http.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
        }
        Ok(Self { http: http.build()?, token: operator_token(secret), passes: pass_key(secret)?, run })
    }

    /// Calls the control plane. `Value::Null` is no body, in both directions.
    ///
    /// # Errors
    /// When it cannot be reached, or says no: the message is its own.
    pub async fn control(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.json(&self.internal(&self.run.control, path), &self.token.to_token(), method, body).await
    }

    /// Calls the admin listener of a gateway: the first that can be reached, for what one of them can do for all.
    pub async fn edge(&self, method: Method, path: &str) -> anyhow::Result<Value> {
        let mut answer = self.edge_at(&self.run.admin, method.clone(), path).await;
        for address in self.edges().await {
            let silent = answer.as_ref().err().and_then(|error| error.downcast_ref::<reqwest::Error>());
            if !silent.is_some_and(reqwest::Error::is_connect) {
                break;
            }
            if let Ok(place) = address.parse() {
                answer = self.edge_at(&place, method.clone(), path).await;
            }
        }
        answer
    }

    /// Calls the admin listener of one gateway.
    pub async fn edge_at(&self, address: &Address, method: Method, path: &str) -> anyhow::Result<Value> {
        self.json(&format!("http://{address}{path}"), &self.pass(GATEWAYS), method, &Value::Null).await
    }

    /// Asks every gateway: a name may stand for several, and there may be more addresses. Whoever does not answer has
    /// its reason in place of an answer.
    pub async fn every_edge(&self, method: &Method, path: &str) -> Vec<(String, anyhow::Result<Value>)> {
        let asked = self.edges().await.into_iter().map(|address| async move {
            let answer = match address.parse() {
                Ok(place) => self.edge_at(&place, method.clone(), path).await,
                Err(reason) => Err(anyhow::Error::msg::<String>(reason)),
            };
            (address, answer)
        });
        futures_util::future::join_all(asked).await
    }

    /// The addresses of the gateways' admin listeners: a name may stand for several.
    async fn edges(&self) -> BTreeSet<String> {
        let mut addresses = BTreeSet::new();
        for address in std::iter::once(&self.run.admin).chain(&self.run.more_admins) {
            match tokio::net::lookup_host(address.to_string()).await {
                Ok(found) => addresses.extend(found.map(|found| found.to_string())),
                // Asked by its name, it says what is wrong with it.
                Err(_) => drop(addresses.insert(address.to_string())),
            }
        }
        addresses.into_iter().take(EDGES_MAX).collect()
    }

    /// Asks the orders-service's internal listener for something short.
    pub async fn orders_json(&self, path: &str) -> anyhow::Result<Value> {
        self.json(&self.internal(&self.run.orders, path), &self.pass(ORDERS_SERVICE), Method::GET, &Value::Null).await
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
    pub async fn orders(&self, method: Method, path: &str, body: reqwest::Body) -> anyhow::Result<Response> {
        let request = self
            .http
            .request(method, self.internal(&self.run.orders, path))
            .bearer_auth(self.pass(ORDERS_SERVICE))
            .body(body);
        checked(request.send().await.context("the orders-service does not answer; is the platform running?")?).await
    }

    /// A way into a service, or into the gateways.
    fn pass(&self, service: &str) -> String {
        pass(&self.passes, service, SystemClock::new().now_seconds())
    }

    /// What is at a path of an internal listener.
    fn internal(&self, address: &Address, path: &str) -> String {
        let scheme = if self.run.tls { "https" } else { "http" };
        format!("{scheme}://{address}{path}")
    }

    async fn json(&self, url: &str, token: &str, method: Method, body: &Value) -> anyhow::Result<Value> {
        let mut request = self.http.request(method, url).bearer_auth(token).timeout(ANSWER_MAX);
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.context("the platform does not answer; is it running?")?;
        let text = checked(response).await?.text().await?;
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }
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
            let said = |value: &Value| value.as_str().is_some_and(|text| body.message.contains(text));
            let repeats = |details: &Value| details.get("reason").is_some_and(said);
            let details = body.details.as_ref().filter(|details| !repeats(details));
            let details = details.map(|details| format!(" {details}")).unwrap_or_default();
            let words = format!("{} ({}){details}", body.message, body.code);
            Err(Refused { code: body.code, words }.into())
        }
        Err(_) => anyhow::bail!("unexpected answer {status}: {text}"),
    }
}
