//! A running service, a gateway to sign for it, and an operator.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::get;
use axum::{Json, Router};
use chassis::clock::{Clock, ManualClock};
use chassis::config::Source;
use chassis::guard::{bearer, pass, token_required};
use chassis::refusal::Refusal;
use chassis::running::Running;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use chassis::sqlite::Sqlite;
use contract::identity::Caller;
use contract::key::{Environment, Scopes};
use contract::plan::Plan;
use contract::time::UnixMillis;
use contract::token::{Claims, IDENTITY_TOKEN_HEADER, SigningKey};
use contract::trust::{ORDERS_SERVICE, PassFor, TRUST_PATH, Trust};
use orders_service::{Config, ENVIRONMENT_PREFIX, Orders};
use reqwest::{Client, Method, RequestBuilder, Response};
use sqlx::Executor as _;

/// The service's credential.
pub(crate) const CREDENTIAL: &str = "the credential of the service of orders";

/// 2026-11-20T12:00:00Z.
pub(crate) const NOW: UnixMillis = UnixMillis(1_795_176_000_000);

/// Deadline of every wait; the test then fails and names the condition.
const PATIENCE: Duration = Duration::from_mins(1);

/// A service in this process, with a manual clock.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) orders: Orders,
    pub(crate) client: Client,
    pub(crate) caller: Caller,
    running: Running,
    shutdown: Shutdown,
    directory: tempfile::TempDir,
}

/// The gateway's signing key.
pub(crate) fn gateway() -> SigningKey {
    SigningKey::from_seed(&[101; 32]).unwrap()
}

/// The control plane's key for operators' passes.
pub(crate) fn operators() -> SigningKey {
    SigningKey::from_seed(&[102; 32]).unwrap()
}

/// The trusted keys that the control plane publishes.
pub(crate) fn trust() -> Trust {
    let set = |key: SigningKey| [key.public().clone()].into_iter().collect();
    Trust { gateways: set(gateway()), operators: set(operators()) }
}

/// An operator's pass for this service.
pub(crate) fn operator_pass(now: UnixMillis) -> String {
    pass(&operators(), &PassFor::service(ORDERS_SERVICE), now.to_seconds())
}

/// A caller with a live key and all scopes on project `demo`.
pub(crate) fn caller() -> Caller {
    Caller {
        key: "key_aaaaaaaaaaaaaaaa".parse().unwrap(),
        project: "demo".parse().unwrap(),
        project_uid: "demo".parse().unwrap(),
        plan: Plan::Pro,
        scopes: Scopes::all(),
        environment: Environment::Live,
    }
}

/// A request as the gateway forwards it to the upstream `audience`.
pub(crate) fn signed_for(
    audience: &str,
    request: RequestBuilder,
    caller: Option<Caller>,
    now: UnixMillis,
) -> RequestBuilder {
    let claims = Claims {
        audience: audience.to_owned(),
        site_project: caller.as_ref().map(|caller| caller.project.clone()),
        caller,
        issued_at: now.to_seconds(),
    };
    let request = request.header("x-request-id", "r1").header("x-forwarded-for", "192.0.2.1");
    request.header(IDENTITY_TOKEN_HEADER, gateway().sign(&claims))
}

/// A request as the gateway forwards it to the orders-service.
pub(crate) fn signed(request: RequestBuilder, caller: Option<Caller>, now: UnixMillis) -> RequestBuilder {
    signed_for("orders", request, caller, now)
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// Starts the service with further settings besides addresses, database and credential.
    pub(crate) async fn with(settings: &str) -> Self {
        Self::over(tempfile::tempdir().unwrap(), settings).await
    }

    /// Starts the service with the `orders.db` of a directory, if it has one.
    pub(crate) async fn over(directory: tempfile::TempDir, settings: &str) -> Self {
        let config = config(&directory.path().join("orders.db"), settings);
        let orders = Orders::open(&config.database).await.unwrap();
        let clock = Arc::new(ManualClock::at(NOW));
        let shutdown = Shutdown::new();
        let running =
            orders_service::start_with(config, orders.clone(), clock.clone(), shutdown.clone()).await.unwrap();
        Self { clock, orders, client: Client::new(), caller: caller(), running, shutdown, directory }
    }

    /// Every byte of the database's files.
    pub(crate) fn at_rest(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        files.flat_map(|file| std::fs::read(file).unwrap()).collect()
    }

    /// Changes the database behind the service's back.
    pub(crate) async fn sql(&self, statement: &'static str) {
        let other = Sqlite::open(&self.directory.path().join("orders.db")).await.unwrap();
        other.write.execute(statement).await.unwrap();
        other.close().await;
    }

    /// A request as the gateway forwards it for the world's caller.
    pub(crate) fn request(&self, method: Method, target: &str) -> RequestBuilder {
        let caller = Some(self.caller.clone());
        signed(self.unsigned(method, target), caller, self.clock.now())
    }

    /// A request that did not come through the gateway.
    pub(crate) fn unsigned(&self, method: Method, target: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{target}", self.running.address("http").unwrap()))
    }

    pub(crate) async fn get(&self, target: &str) -> Response {
        self.request(Method::GET, target).send().await.unwrap()
    }

    pub(crate) async fn delete(&self, target: &str) -> Response {
        self.request(Method::DELETE, target).send().await.unwrap()
    }

    /// A request of an operator to the internal listener.
    pub(crate) fn operator(&self, method: Method, path: &str) -> RequestBuilder {
        self.outsider(method, path).bearer_auth(operator_pass(self.clock.now()))
    }

    /// A request to the internal listener without a token.
    pub(crate) fn outsider(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.running.address("internal").unwrap()))
    }

    /// Imports JSON lines into a project.
    pub(crate) async fn import(&self, project: &str, lines: impl Into<reqwest::Body>) -> Response {
        self.operator(Method::POST, &format!("/internal/orders/{project}/import")).body(lines).send().await.unwrap()
    }

    /// Imports lines into `demo`; they must be valid.
    pub(crate) async fn given(&self, lines: &str) {
        let response = self.import("demo", lines.to_owned()).await;
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    }

    pub(crate) async fn metrics(&self) -> String {
        let address = self.running.address("admin").unwrap();
        self.client.get(format!("http://{address}/metrics")).send().await.unwrap().text().await.unwrap()
    }

    /// The status of `/readyz`.
    pub(crate) async fn ready(&self) -> u16 {
        let address = self.running.address("admin").unwrap();
        self.client.get(format!("http://{address}/readyz")).send().await.unwrap().status().as_u16()
    }

    /// Ends the service, waits for its end and returns the directory of `orders.db`.
    pub(crate) async fn stop(self) -> tempfile::TempDir {
        self.shutdown.begin();
        drop(self.client);
        self.running.stopped().await.unwrap();
        self.directory
    }
}

/// Settings for tests: free ports and a separate database.
pub(crate) fn config(database: &std::path::Path, settings: &str) -> Config {
    let events = format!("[events]\nurl = \"http://{}\"\n", control_plane());
    let events = if settings.contains("[events]") { "" } else { &events };
    let text = format!(
        "listen = \"127.0.0.1:0\"\ninternal_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
         create_database = true\ndatabase = {database:?}\ncredential = \"{CREDENTIAL}\"\n{settings}\n{events}"
    );
    let config = Config::read(&Source::from_text("test", &text, ENVIRONMENT_PREFIX, BTreeMap::new())).unwrap();
    // Each test has its own file, also with PostgreSQL.
    Config { trust_file: database.with_file_name("trust.json"), ..config }
}

/// The responses of a control plane to a service with [`CREDENTIAL`]: the trusted keys, and that every project but
/// `missing` exists.
pub(crate) fn answers<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let known = get(|Path(uid): Path<String>| async move {
        if uid == "missing" {
            Refusal::new(404, "project_not_found", "Unknown project.").into_response()
        } else {
            StatusCode::NO_CONTENT.into_response()
        }
    });
    let keys = get(|| async { Json(trust()) });
    let router = Router::new().route("/internal/known-projects/{uid}", known).route(TRUST_PATH, keys);
    router.layer(from_fn(|request: Request, next: Next| async move {
        let token = Secret::parse(CREDENTIAL).unwrap().to_token();
        if bearer(request.headers()) == Some(token.as_str()) { next.run(request).await } else { token_required() }
    }))
}

/// The address of a running control plane with [`answers`].
pub(crate) fn control_plane() -> SocketAddr {
    static PLACE: OnceLock<SocketAddr> = OnceLock::new();
    *PLACE.get_or_init(|| {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        // A thread of its own: the runtime of the first test ends before other tests.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, answers::<()>()).await.unwrap();
            });
        });
        address
    })
}

/// Writes a database with this number of pending orders of `demo`.
pub(crate) async fn stored(database: &std::path::Path, orders: i64) {
    let store = Orders::open(&database.to_owned().into()).await.unwrap();
    let given = futures_util::stream::iter([Ok::<_, std::io::Error>(lines(0..orders).into())]);
    let imported = store.import(&"demo".parse().unwrap(), given).await.unwrap();
    assert_eq!(imported, u64::try_from(orders).unwrap());
    store.close().await;
}

/// Pending orders as JSON lines, with the same fields.
pub(crate) fn lines(ids: std::ops::Range<i64>) -> String {
    let line = |id: i64| format!("{{\"id\":{id},\"petId\":{},\"quantity\":1,\"complete\":false}}\n", id % 100);
    ids.map(line).collect::<Vec<_>>().concat()
}

/// Status and `code`. Checks that the body is the Error of the specification, with exactly its three fields.
pub(crate) async fn refusal(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: serde_json::Value = response.json().await.unwrap();
    let fields: Vec<_> = body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["code", "message", "status"]);
    assert_eq!(body["status"], status);
    assert!(!body["message"].as_str().unwrap().is_empty());
    let code = body["code"].as_str().unwrap().to_owned();
    assert!(
        orders_service::catalogue().any(|known| (known.code, known.status) == (code.as_str(), status)),
        "{code} with {status} is not in the catalogue"
    );
    (status, code)
}

/// Polls a condition until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !holds().await {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        pause.tick().await;
    }
}

/// The size of a run, from the environment; the default is smaller than in the commands of `bench/`.
#[expect(clippy::disallowed_methods, reason = "the length of a test run is not a setting of the product")]
pub(crate) fn extent(variable: &str, usual: i64) -> i64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a whole number"))
}
