//! The client of a running platform: its internal listeners, with the operator's token.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::{Clock as _, SystemClock};
use chassis::guard::{operator_token, pass, pass_key};
use chassis::peer::{TlsName, client_tls};
use chassis::secret::Secret;
use contract::error::ErrorBody;
use contract::project::ProjectUid;
use contract::token::SigningKey;
use contract::trust::{CONTROL_PLANE, ORDERS_SERVICE, PassFor};
use domains_service::Operation;
use reqwest::{Method, Response};
use serde_json::Value;

use crate::directory::{Address, Directory, GatewayAdmin, RunFile};

/// Longest wait for a response, except for imports and exports.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// A gateway that takes longer is passed over while there is another.
const HANGS_AFTER: Duration = Duration::from_secs(3);

/// Most gateways that are called at the same time.
const EDGES_MAX: usize = 256;

/// A client of one running platform.
pub struct Client {
    control: reqwest::Client,
    orders: reqwest::Client,
    /// The CA certificate of internal listeners, PEM.
    authority: Option<Vec<u8>>,
    token: Secret,
    /// Signs passes for services and gateways. A pass is valid for one listener and less than a
    /// minute.
    passes: SigningKey,
    answer_max: Duration,
    /// The platform's addresses.
    pub run: RunFile,
}

impl Client {
    /// A client of the platform that runs on `directory`.
    ///
    /// # Errors
    /// If no platform runs there.
    pub fn of(directory: &Directory) -> anyhow::Result<Self> {
        let run = directory.running()?;
        let listeners = run.gateways.iter().map(|gateway| &gateway.admin).chain([&run.control, &run.orders]);
        let authority = listeners.into_iter().any(|address| run.tls.is_at(address));
        let authority = authority.then(|| directory.internal_authority()).transpose();
        let authority = authority.context("reading the authority of internal listeners")?;
        Self::new(run, &directory.platform_secret()?, authority)
    }

    /// A client of the platform with these addresses, secret and CA certificate of internal listeners (PEM).
    ///
    /// # Errors
    /// If the HTTP client cannot be created.
    pub fn new(run: RunFile, secret: &Secret, authority: Option<Vec<u8>>) -> anyhow::Result<Self> {
        let to = |address: &Address, name| client(name, authority.as_deref().filter(|_| run.tls.is_at(address)));
        Ok(Self {
            control: to(&run.control, CONTROL_PLANE)?,
            orders: to(&run.orders, ORDERS_SERVICE)?,
            token: operator_token(secret),
            passes: pass_key(secret)?,
            answer_max: ANSWER_MAX,
            authority,
            run,
        })
    }

    /// The same with another longest wait for a response.
    #[must_use]
    pub(crate) fn waiting(self, answer_max: Duration) -> Self {
        Self { answer_max, ..self }
    }

    /// Reads from the control plane, or runs an action without a body: `parameters` of the operation's path in order,
    /// and the query. A response without a body is `Value::Null`.
    ///
    /// # Errors
    /// If it cannot be reached, or refuses with its own message.
    pub async fn call(&self, operation: Operation, parameters: &[&str], query: &str) -> anyhow::Result<Value> {
        let (method, path) = method_and_path(operation, parameters)?;
        let mark = if query.is_empty() { "" } else { "?" };
        self.control(method, &format!("{path}{mark}{query}"), &Value::Null).await
    }

    /// Like [`Client::call`], with a body.
    ///
    /// # Errors
    /// Like [`Client::call`].
    pub async fn send(&self, operation: Operation, parameters: &[&str], body: &Value) -> anyhow::Result<Value> {
        let (method, path) = method_and_path(operation, parameters)?;
        self.control(method, &path, body).await
    }

    /// Calls the control plane at a path.
    pub(crate) async fn control(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let url = self.at(&self.run.control, path);
        self.json(&self.control, &url, &self.token.to_token(), (method, body), self.answer_max).await
    }

    /// Calls the admin listener of the first gateway that answers. One that hangs may answer a request later, so the
    /// request must have the same effect at another gateway, and twice.
    pub async fn edge(&self, method: Method, path: &str) -> anyhow::Result<Value> {
        let mut answer = Err(anyhow::anyhow!("the platform has no gateway"));
        let mut edges = self.edges().await.into_iter().peekable();
        while let Some(edge) = edges.next() {
            let within = if edges.peek().is_some() { HANGS_AFTER } else { self.answer_max };
            answer = self.edge_within(&edge, method.clone(), path, within).await;
            let silent = answer.as_ref().err().and_then(|error| error.downcast_ref::<Silent>());
            if !silent.is_some_and(|Silent(error)| error.is_connect() || error.is_timeout()) {
                break;
            }
        }
        answer
    }

    /// Calls the admin listener of a gateway, with a pass for that gateway.
    pub async fn edge_at(&self, edge: &GatewayAdmin, method: Method, path: &str) -> anyhow::Result<Value> {
        self.edge_within(edge, method, path, self.answer_max).await
    }

    async fn edge_within(
        &self,
        edge: &GatewayAdmin,
        method: Method,
        path: &str,
        within: Duration,
    ) -> anyhow::Result<Value> {
        let pass = self.pass(&PassFor::gateway(&edge.gateway));
        let authority = self.authority.as_deref().filter(|_| self.run.tls.is_at(&edge.admin));
        let client = client(&edge.gateway, authority)?;
        self.json(&client, &self.at(&edge.admin, path), &pass, (method, &Value::Null), within).await
    }

    /// Calls every process of every gateway. The result of one that does not answer is the error.
    pub async fn every_edge(&self, method: &Method, path: &str) -> Vec<(GatewayAdmin, anyhow::Result<Value>)> {
        let asked = self.edges().await.into_iter().map(|edge| async move {
            let answer = self.edge_at(&edge, method.clone(), path).await;
            (edge, answer)
        });
        futures_util::future::join_all(asked).await
    }

    /// The processes of the gateways: a host name can have several addresses. A gateway with an unknown host name is
    /// omitted unless the control plane waits for one of its processes: it was never started.
    async fn edges(&self) -> Vec<GatewayAdmin> {
        let (mut found, mut lost) = (BTreeMap::new(), Vec::new());
        for edge in &self.run.gateways {
            match tokio::net::lookup_host(edge.admin.to_string()).await {
                Ok(addresses) => found.extend(addresses.map(|address| (Address::from(address).to_string(), edge))),
                Err(_) => lost.push(edge),
            }
        }
        let on_record = if lost.is_empty() { None } else { self.gateways_on_record().await };
        let is_missed = |edge: &&GatewayAdmin| on_record.as_ref().is_none_or(|names| names.contains(&edge.gateway));
        // Calling it by its name gives an error that names the problem.
        let missed: Vec<_> = lost.into_iter().filter(|edge| found.is_empty() || is_missed(edge)).cloned().collect();
        let found = found.into_iter().filter_map(|(address, edge)| {
            Some(GatewayAdmin { gateway: edge.gateway.clone(), admin: address.parse().ok()? })
        });
        found.chain(missed).take(EDGES_MAX).collect()
    }

    /// The gateways with processes that the control plane waits for; `None` if it does not answer.
    async fn gateways_on_record(&self) -> Option<BTreeSet<String>> {
        let known = self.call(Operation::ListNodes, &[], "").await.ok()?;
        let processes = known.get("nodes")?.as_array()?.iter();
        Some(processes.filter_map(|one| Some(one.get("gateway")?.as_str()?.to_owned())).collect())
    }

    /// Calls the orders-service's internal listener, for short responses.
    pub async fn orders_json(&self, path: &str) -> anyhow::Result<Value> {
        let url = self.at(&self.run.orders, path);
        self.json(&self.orders, &url, &self.pass_for_orders(), (Method::GET, &Value::Null), self.answer_max).await
    }

    /// The identity of a project, under which services store its data.
    ///
    /// # Errors
    /// Like [`Client::call`], and if the project is unknown.
    pub async fn identity_of(&self, project: &str) -> anyhow::Result<ProjectUid> {
        let project = self.call(Operation::ShowProject, &[project], "").await?;
        Ok(serde_json::from_value(project.get("uid").cloned().unwrap_or_default())?)
    }

    /// Calls the orders-service's internal listener, with a body of any length.
    pub async fn orders(&self, method: Method, path: &str, body: reqwest::Body) -> anyhow::Result<Response> {
        let request =
            self.orders.request(method, self.at(&self.run.orders, path)).bearer_auth(self.pass_for_orders()).body(body);
        checked(request.send().await.context("the orders-service does not answer: is the platform running?")?).await
    }

    /// A pass for one service or one gateway.
    fn pass(&self, to: &PassFor) -> String {
        pass(&self.passes, to, SystemClock::new().now_seconds())
    }

    fn pass_for_orders(&self) -> String {
        self.pass(&PassFor::service(ORDERS_SERVICE))
    }

    /// A request for a path of a listener.
    fn at(&self, address: &Address, path: &str) -> String {
        let scheme = if self.run.tls.is_at(address) { "https" } else { "http" };
        format!("{scheme}://{address}{path}")
    }

    async fn json(
        &self,
        client: &reqwest::Client,
        url: &str,
        token: &str,
        (method, body): (Method, &Value),
        within: Duration,
    ) -> anyhow::Result<Value> {
        let mut request = client.request(method, url).bearer_auth(token).timeout(within);
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.map_err(Silent)?;
        let text = checked(response).await?.text().await.map_err(Silent)?;
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }
}

/// The method of an operation, and its path with these parameters.
fn method_and_path(operation: Operation, parameters: &[&str]) -> anyhow::Result<(Method, String)> {
    let place = domains_service::at_operators(operation, parameters);
    let (method, path) = place.with_context(|| format!("unknown operation {}", operation.as_str()))?;
    Ok((method.as_str().parse()?, path))
}

/// A client of the process with this name, verified by its certificate, independent of its address.
pub(crate) fn client(name: &str, authority: Option<&[u8]>) -> anyhow::Result<reqwest::Client> {
    let builder = reqwest::Client::builder().connect_timeout(Duration::from_secs(2)).no_proxy();
    let Some(authority) = authority else { return Ok(builder.build()?) };
    let name: TlsName = name.parse().map_err(|words| anyhow::anyhow!("{name:?}: {words}"))?;
    Ok(builder.https_only(true).tls_backend_preconfigured(client_tls(authority, &name)?).build()?)
}

/// A refusal of a service.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Refused {
    /// The code of its refusal.
    pub code: String,
    words: String,
}

/// No response, or only its head. Of the chain of causes, the innermost says what happened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot connect, or no response in time; check that the process runs: {}",
    anyhow::Chain::new(.0).next_back().map(ToString::to_string).unwrap_or_default()
)]
struct Silent(reqwest::Error);

/// The response, or the service's refusal as [`Refused`].
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_gateway_that_hangs_is_passed_over() {
        let mut gateways = Vec::new();
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            gateways.push((listener.local_addr().unwrap().to_string(), listener));
        }
        // In the order in which they are called. The first accepts nothing: its backlog does.
        gateways.sort_by(|left, right| left.0.cmp(&right.0));
        let [(hanging, _listener), (good, answering)] = <[_; 2]>::try_from(gateways).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = answering.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4_096]).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"here\":\"b\"}").await.unwrap();
        });
        let run = json!({
            "platform_domain": "tollhouse.localhost", "http": good, "https": good, "control": good, "orders": good,
            "tls": "off_loopback",
            "gateways": [{ "gateway": "edge-1", "admin": hanging }, { "gateway": "edge-2", "admin": good }],
        });
        let client = Client::new(serde_json::from_value(run).unwrap(), &Secret::new(vec![7; 32]), None).unwrap();
        assert_eq!(client.edge(Method::GET, "/bans").await.unwrap(), json!({ "here": "b" }));
    }
}
