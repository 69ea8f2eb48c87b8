//! A scripted ACME authority with the parts of the protocol that no packaged authority has (renewal information,
//! limits, refusals on demand), and a way to stop at any request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domains_service::{AcmeSettings, ChallengeKind};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use super::requested::requested;

/// A refusal: status, kind, and for how many seconds to stay away.
pub(crate) type Refusal = (u16, &'static str, Option<u64>);

#[derive(Default)]
struct Book {
    url: String,
    requests: u32,
    /// The request from which on nothing is answered, and whether it is still executed.
    stops_at: Option<(u32, bool)>,
    nonces: u64,
    orders: Vec<Order>,
    accounts: u32,
    certificates: u32,
    /// The results of the next new orders.
    refusals: Vec<Refusal>,
    /// Maximum of new orders; it refuses further ones, and counts them.
    orders_max: Option<usize>,
    refused: u32,
    /// The error of a name's proof; other names are proven.
    failing: HashMap<String, (&'static str, &'static str)>,
    replaced: Vec<String>,
    /// Certificates that have a successor already.
    already_replaced: bool,
    /// The window of renewal: seconds from the epoch.
    window: Option<(i64, i64)>,
    deactivated: HashSet<usize>,
    /// Issues for this name instead.
    confused: Option<&'static str>,
}

struct Order {
    name: String,
    status: &'static str,
    chain: Option<String>,
    replaces: Option<String>,
    error: Option<(&'static str, &'static str)>,
}

/// A scripted authority on loopback. It ends with the test's runtime.
#[derive(Clone)]
pub(crate) struct FakeCa {
    book: Arc<Mutex<Book>>,
    signer: Arc<(String, Issuer<'static, KeyPair>)>,
}

impl FakeCa {
    pub(crate) async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let book = Arc::new(Mutex::new(Book { url, ..Book::default() }));
        let ca = Self { book, signer: Arc::new((pem, Issuer::new(params, key))) };
        let router = Router::new()
            .route("/dir", get(directory))
            .route("/nonce", any(nonce))
            .route("/ari/{certificate}", get(renewal_information))
            .route("/{kind}/{number}", post(call))
            .with_state(ca.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        ca
    }

    pub(crate) fn settings(&self, name: &str) -> AcmeSettings {
        AcmeSettings {
            name: name.to_owned(),
            directory_url: format!("{}/dir", self.book.lock().url),
            contact: vec!["mailto:operator@example.com".to_owned()],
            ca_certificate: None,
            caa_identity: format!("{name}.example"),
            external_account: None,
            challenges: vec![ChallengeKind::Http01, ChallengeKind::TlsAlpn01],
            profile: None,
            mirror_limits: true,
            limits: domains_service::Limits::default(),
        }
    }

    /// Stops answering at request number `at`, after carrying it out or before.
    pub(crate) fn stop_at(&self, at: u32, carried_out: bool) {
        self.book.lock().stops_at = Some((at, carried_out));
    }

    /// Answers again.
    pub(crate) fn go_on(&self) {
        self.book.lock().stops_at = None;
    }

    pub(crate) fn has_stopped(&self) -> bool {
        let book = self.book.lock();
        book.stops_at.is_some_and(|(at, _)| book.requests >= at)
    }

    pub(crate) fn requests(&self) -> u32 {
        self.book.lock().requests
    }

    pub(crate) fn orders(&self) -> usize {
        self.book.lock().orders.len()
    }

    pub(crate) fn certificates(&self) -> u32 {
        self.book.lock().certificates
    }

    pub(crate) fn refuse(&self, refusals: &[Refusal]) {
        self.book.lock().refusals = refusals.iter().rev().copied().collect();
    }

    /// Sets the maximum of orders.
    pub(crate) fn orders_max(&self, most: usize) {
        self.book.lock().orders_max = Some(most);
    }

    /// How often it had to refuse an order because of its limit.
    pub(crate) fn refused(&self) -> u32 {
        self.book.lock().refused
    }

    /// Proofs of this name fail with a problem of this kind and with these words, or succeed again.
    pub(crate) fn fail(&self, name: &str, error: Option<(&'static str, &'static str)>) {
        let failing = &mut self.book.lock().failing;
        failing.remove(name);
        failing.extend(error.map(|error| (name.to_owned(), error)));
    }

    pub(crate) fn window(&self, window: Option<(i64, i64)>) {
        self.book.lock().window = window;
    }

    pub(crate) fn already_replaced(&self) {
        self.book.lock().already_replaced = true;
    }

    /// The certificates that new orders named as replaced.
    pub(crate) fn replaced(&self) -> Vec<String> {
        self.book.lock().replaced.clone()
    }

    pub(crate) fn confuse(&self, name: Option<&'static str>) {
        self.book.lock().confused = name;
    }

    pub(crate) fn deactivated(&self) -> usize {
        self.book.lock().deactivated.len()
    }

    /// Counts a request; `true` for the one from which on nothing is answered.
    fn count(&self) -> Option<bool> {
        let mut book = self.book.lock();
        book.requests += 1;
        match book.stops_at {
            Some((at, carried_out)) if book.requests >= at => Some(carried_out),
            _ => None,
        }
    }

    async fn silent(&self) -> Response {
        std::future::pending().await
    }

    fn answer(&self, status: u16, body: &Value, location: Option<String>) -> Response {
        let mut book = self.book.lock();
        book.nonces += 1;
        let mut response = (StatusCode::from_u16(status).unwrap(), Json(body)).into_response();
        response.headers_mut().insert("replay-nonce", format!("nonce-{}", book.nonces).parse().unwrap());
        if let Some(location) = location {
            response.headers_mut().insert(header::LOCATION, location.parse().unwrap());
        }
        response
    }

    fn problem(&self, (status, kind, pause): Refusal) -> Response {
        let kind = format!("urn:ietf:params:acme:error:{kind}");
        let body = json!({ "type": kind, "detail": "the authority says no", "status": status });
        let mut response = self.answer(status, &body, None);
        if let Some(pause) = pause {
            response.headers_mut().insert(header::RETRY_AFTER, pause.into());
        }
        response
    }

    fn order(&self, number: usize) -> Value {
        let book = self.book.lock();
        let (order, url) = (&book.orders[number], &book.url);
        let mut body = json!({
            "status": order.status,
            "identifiers": [{ "type": "dns", "value": order.name }],
            "authorizations": [format!("{url}/authorization/{number}")],
            "finalize": format!("{url}/finalize/{number}"),
        });
        if let Some(replaces) = &order.replaces {
            body["replaces"] = json!(replaces);
        }
        if order.chain.is_some() {
            body["certificate"] = json!(format!("{url}/certificate/{number}"));
        }
        body
    }

    fn authorization(&self, number: usize) -> Value {
        let book = self.book.lock();
        let (order, url) = (&book.orders[number], &book.url);
        let status = match order.status {
            "pending" | "invalid" => order.status,
            _ if book.deactivated.contains(&number) => "deactivated",
            _ => "valid",
        };
        let challenge = |kind: &str| {
            let mut challenge = json!({
                "type": kind, "status": status, "url": format!("{url}/challenge/{number}"),
                "token": format!("token-{number}-{kind}"),
            });
            if let Some((kind, detail)) = order.error {
                let kind = format!("urn:ietf:params:acme:error:{kind}");
                challenge["error"] = json!({ "type": kind, "detail": detail, "status": 400 });
            }
            challenge
        };
        json!({
            "status": status,
            "identifier": { "type": "dns", "value": order.name },
            "challenges": [challenge("http-01"), challenge("tls-alpn-01")],
        })
    }

    fn new_order(&self, payload: &Value) -> Response {
        let refusal = self.book.lock().refusals.pop();
        if let Some(refusal) = refusal {
            return self.problem(refusal);
        }
        {
            let mut book = self.book.lock();
            if book.orders_max.is_some_and(|most| book.orders.len() >= most) {
                book.refused += 1;
                drop(book);
                return self.problem((429, "rateLimited", Some(36)));
            }
        }
        let name = payload["identifiers"][0]["value"].as_str().unwrap().to_owned();
        let replaces = payload["replaces"].as_str().map(str::to_owned);
        let (number, url) = {
            let mut book = self.book.lock();
            if let Some(replaces) = &replaces {
                book.replaced.push(replaces.clone());
                if book.already_replaced {
                    drop(book);
                    return self.problem((409, "alreadyReplaced", None));
                }
            }
            let open = |order: &Order| order.name == name && matches!(order.status, "pending" | "ready");
            let number = book.orders.iter().position(open).unwrap_or_else(|| {
                book.orders.push(Order { name, status: "pending", chain: None, replaces, error: None });
                book.orders.len() - 1
            });
            (number, book.url.clone())
        };
        self.answer(201, &self.order(number), Some(format!("{url}/order/{number}")))
    }

    fn prove(&self, number: usize) -> Response {
        let mut book = self.book.lock();
        let failing = book.failing.get(&book.orders[number].name).copied();
        let order = &mut book.orders[number];
        if order.status == "pending" {
            order.error = failing;
            order.status = if failing.is_some() { "invalid" } else { "ready" };
        }
        drop(book);
        let mut challenge = self.authorization(number)["challenges"][0].clone();
        challenge["status"] = json!("processing");
        challenge.as_object_mut().unwrap().remove("error");
        self.answer(200, &challenge, None)
    }

    fn finalize(&self, number: usize, payload: &Value) -> Response {
        let (name, key) = requested(&URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap()).unwrap());
        let mut params = CertificateParams::new([name]).unwrap();
        {
            let mut book = self.book.lock();
            if book.orders[number].status != "ready" {
                drop(book);
                return self.problem((403, "orderNotReady", None));
            }
            if let Some(name) = book.confused {
                params.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into().unwrap())];
            }
            let start = crate::world::START.to_seconds().0;
            let begin = rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(start.unsigned_abs() - 3_600);
            book.certificates += 1;
            params.not_before = begin;
            // Each ends later than the one before: a successor is never worse.
            params.not_after = begin + std::time::Duration::from_hours(90 * 24 + u64::from(book.certificates));
            params.serial_number = Some(rcgen::SerialNumber::from(u64::from(book.certificates)));
            params.use_authority_key_identifier_extension = true;
            let leaf = params.signed_by(&key, &self.signer.1).unwrap();
            book.orders[number].chain = Some(format!("{}{}", leaf.pem(), self.signer.0));
            book.orders[number].status = "valid";
        }
        self.answer(200, &self.order(number), None)
    }
}

async fn directory(State(ca): State<FakeCa>) -> Response {
    if ca.count().is_some() {
        return ca.silent().await;
    }
    let url = ca.book.lock().url.clone();
    let with_window = ca.book.lock().window.is_some();
    let mut body = json!({
        "newNonce": format!("{url}/nonce"), "newAccount": format!("{url}/account/new"),
        "newOrder": format!("{url}/order/new"), "revokeCert": format!("{url}/revoke/new"),
        "keyChange": format!("{url}/key/new"), "meta": {},
    });
    if with_window {
        body["renewalInfo"] = json!(format!("{url}/ari"));
    }
    ca.answer(200, &body, None)
}

async fn nonce(State(ca): State<FakeCa>) -> Response {
    if ca.count().is_some() {
        return ca.silent().await;
    }
    ca.answer(200, &json!({}), None)
}

async fn renewal_information(State(ca): State<FakeCa>) -> Response {
    let Some((start, end)) = ca.book.lock().window else { return ca.problem((404, "malformed", None)) };
    let date = |seconds| jiff::Timestamp::from_second(seconds).unwrap().to_string();
    let body = json!({ "suggestedWindow": { "start": date(start), "end": date(end) } });
    let mut response = ca.answer(200, &body, None);
    response.headers_mut().insert(header::RETRY_AFTER, 21_600.into());
    response
}

async fn call(State(ca): State<FakeCa>, Path((kind, number)): Path<(String, String)>, body: Bytes) -> Response {
    let stop = ca.count();
    if stop == Some(false) {
        return ca.silent().await;
    }
    let envelope: Value = serde_json::from_slice(&body).unwrap();
    let payload = URL_SAFE_NO_PAD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap_or(Value::Null);
    let place = number.parse::<usize>().ok();
    let response = match (kind.as_str(), place) {
        ("account", _) => {
            let (url, accounts) = {
                let mut book = ca.book.lock();
                book.accounts += 1;
                (book.url.clone(), book.accounts)
            };
            ca.answer(201, &json!({ "status": "valid" }), Some(format!("{url}/account/{accounts}")))
        }
        ("order", None) => ca.new_order(&payload),
        ("order", Some(number)) => ca.answer(200, &ca.order(number), None),
        ("authorization", Some(number)) => {
            if payload["status"] == "deactivated" {
                ca.book.lock().deactivated.insert(number);
            }
            ca.answer(200, &ca.authorization(number), None)
        }
        ("challenge", Some(number)) => ca.prove(number),
        ("finalize", Some(number)) => ca.finalize(number, &payload),
        ("certificate", Some(number)) => {
            let chain = ca.book.lock().orders[number].chain.clone().unwrap();
            let mut response = ca.answer(200, &json!({}), None);
            *response.body_mut() = chain.into();
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response
        }
        _ => ca.problem((404, "malformed", None)),
    };
    if stop == Some(true) { ca.silent().await } else { response }
}
