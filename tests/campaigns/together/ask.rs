//! Requests of clients at one gateway, and of operators at the control plane.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use chassis::guard::operator_token;
use chassis::secret::Secret;
use reqwest::{Client, Method, Response};
use serde_json::Value;

use crate::broken::{Broken, broken};
use crate::model::{Acknowledged, Answer};
use crate::said;

/// A gateway's own waits are shorter; the machine may be busy.
const CLIENT_PATIENCE: Duration = Duration::from_secs(45);

/// After this long, an operator does not know whether a change was made: on a platform without faults of what makes
/// changes, where only a busy machine takes so long; and with such faults, where it is longer than the wait for gateways.
pub(crate) const CALM: Duration = Duration::from_secs(30);
pub(crate) const HASTE: Duration = Duration::from_secs(3);

/// Every name is at this machine.
struct ThisMachine;

impl reqwest::dns::Resolve for ThisMachine {
    fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let addresses: reqwest::dns::Addrs = Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0))));
        Box::pin(async move { Ok(addresses) })
    }
}

/// What clients ask gateways with.
pub(crate) struct Clients {
    /// With connections that stay open.
    old: [Client; 2],
    ports: [u16; 2],
}

impl Clients {
    pub(crate) fn new(ports: [u16; 2]) -> Self {
        Self { old: [client(), client()], ports }
    }

    /// A request with an open connection, and one with a new connection if the first did not get a response.
    pub(crate) async fn ask(
        &self,
        gateway: usize,
        host: &str,
        key: Option<&str>,
    ) -> Result<(Answer, Option<i64>), Broken> {
        match self.send(&self.old[gateway], gateway, host, key).await? {
            // The connection may be one to a process that was killed.
            (Answer::Closed(_), _) => self.ask_newly(gateway, host, key).await,
            answer => Ok(answer),
        }
    }

    /// The same with a new connection.
    pub(crate) async fn ask_newly(
        &self,
        gateway: usize,
        host: &str,
        key: Option<&str>,
    ) -> Result<(Answer, Option<i64>), Broken> {
        self.send(&client(), gateway, host, key).await
    }

    /// The answer; if admitted, also the minute in which the request counts, unless its headers describe the day.
    async fn send(
        &self,
        client: &Client,
        gateway: usize,
        host: &str,
        key: Option<&str>,
    ) -> Result<(Answer, Option<i64>), Broken> {
        let mut request = client.get(format!("https://{host}:{}/", self.ports[gateway]));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_timeout() => return Ok((Answer::Silent, None)),
            Err(error) => return Ok((Answer::Closed(format!("{:#}", anyhow::Error::from(error))), None)),
        };
        let reset =
            response.headers().get("x-ratelimit-reset").and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
        let minute = reset.filter(|reset| reset % 86_400 != 0).map(|reset| reset / 60 - 1);
        Ok((answer(response).await?, minute))
    }
}

/// Any certificate will do: who gets which is seen by the response.
fn client() -> Client {
    Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .redirect(reqwest::redirect::Policy::none())
        .timeout(CLIENT_PATIENCE)
        .no_proxy()
        .dns_resolver(ThisMachine)
        .build()
        .unwrap()
}

async fn answer(response: Response) -> Result<Answer, Broken> {
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(Answer::Served);
    }
    let body: Value = response.json().await.unwrap_or_default();
    let code = body["code"].as_str().unwrap_or("no code").to_owned();
    said::is_in_the_catalogue(status, &code)?;
    Ok(Answer::Refused { status, code })
}

/// An operator with the control plane's internal API.
pub(crate) struct Operator {
    client: Client,
    url: String,
    token: String,
    pub(crate) patience: Duration,
}

impl Operator {
    pub(crate) fn new(directory: &Path, control: u16) -> Self {
        let secret = Secret::load(&directory.join("secrets/platform.key")).unwrap();
        let client = Client::builder().no_proxy().build().unwrap();
        let token = operator_token(&secret).to_token().to_string();
        Self { client, url: format!("http://127.0.0.1:{control}/internal"), token, patience: CALM }
    }

    /// The body of a success; `None` if the outcome is unknown. Other refusals than those of a database are errors.
    pub(crate) async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Option<Value>, Broken> {
        let request = self.client.request(method.clone(), format!("{}{path}", self.url)).timeout(self.patience);
        let mut request = request.bearer_auth(&self.token);
        if !body.is_null() {
            request = request.json(body);
        }
        let Ok(response) = request.send().await else { return Ok(None) };
        let status = response.status().as_u16();
        let Ok(text) = response.text().await else { return Ok(None) };
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        if (200..300).contains(&status) {
            return Ok(Some(body));
        }
        let code = body["code"].as_str().unwrap_or("no code");
        said::is_in_the_catalogue(status, code)?;
        if status == 503 {
            return Ok(None);
        }
        broken(
            "an operation is carried out, or the database is in trouble",
            format!("{method} {path}: {status}: {text}"),
        )
    }

    /// The acknowledgement of a withdrawal.
    pub(crate) async fn withdraw(&self, method: Method, path: &str, body: &Value) -> Result<Acknowledged, Broken> {
        let Some(body) = self.call(method, path, body).await? else { return Ok(Acknowledged::Unknown) };
        let lagging = body.get("lagging").or(body.pointer("/withdrawal/lagging")).and_then(Value::as_array);
        let names = lagging.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Ok(Acknowledged::Except(names.collect()))
    }
}
