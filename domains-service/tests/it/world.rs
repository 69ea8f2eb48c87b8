//! A service on loopback with a scripted DNS, a clock under the test's control, and a gateway's signing key.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chassis::clock::{Clock as _, ManualClock};
use chassis::guard::operator_token;
use chassis::running::Running;
use chassis::seal::{SealingKey, SealingSecrets};
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::feed::Frame;
use contract::identity::Caller;
use contract::key::{Environment, KeyId, PresentedKey, Scope, Scopes};
use contract::keyring::{KEYRING_PLACE, Keyring};
use contract::plan::Plan;
use contract::project::{ProjectId, ProjectUid};
use contract::time::{UnixMillis, UnixSeconds};
use contract::token::{Claims, IDENTITY_TOKEN_HEADER, SigningKey};
use contract::trust::ORDERS_SERVICE;
use domains_service::config::WebhookConfig;
use domains_service::{AcmeSettings, Authorities, Config, Issuer, LocalAuthority, Plans, World, start_in};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

mod dns;
mod living;
mod stream;

pub(crate) use dns::{Behaviour, FakeDns};
pub(crate) use stream::Stream;

pub(crate) const PLATFORM: &str = "apps.tollhouse.dev";

/// 2026-06-15T00:00:00Z.
pub(crate) const START: UnixMillis = UnixMillis(1_781_481_600_000);

/// Longest time of a request, and of a change stream that a test reads.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The longest wait for a condition.
const PATIENCE: Duration = Duration::from_mins(1);

/// The gateway in whose name tests send reports. Its node NODE is `tests/NODE` on record.
const GATEWAY: &str = "tests";

/// The tokens of gateways and services that operators have put on record, by database and name: several services may
/// run over one database.
static ON_RECORD: tokio::sync::Mutex<BTreeMap<(String, String), String>> =
    tokio::sync::Mutex::const_new(BTreeMap::new());

/// The identity of no project.
fn unknown_uid() -> ProjectUid {
    ProjectUid::from_random([0; 16])
}

/// A key's id, and the key.
type Presented = (KeyId, String);

/// A service in a world of our own.
pub(crate) struct Platform {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) dns: Arc<FakeDns>,
    pub(crate) directory: Arc<TempDir>,
    pub(crate) http: String,
    pub(crate) internal: String,
    pub(crate) admin: String,
    pub(crate) client: reqwest::Client,
    pub(crate) secret: Secret,
    /// Identities of projects by name, as created or read.
    identities: Mutex<HashMap<String, ProjectUid>>,
    /// Keys that callers present, by project and scopes.
    presented: Mutex<HashMap<(ProjectUid, Vec<Scope>), Presented>>,
    sealing: SealingKey,
    /// The gateway's signing key, and when it received it.
    signing: Mutex<Option<(UnixSeconds, [u8; 32])>>,
    shutdown: Shutdown,
    running: Option<Running>,
    /// Gateways that follow and report, by name.
    living: Mutex<HashMap<String, JoinHandle<()>>>,
}

/// An answer with its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(json!(text)) };
        Self { status, headers, body }
    }

    pub(crate) fn code(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().unwrap_or_default())
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Settings a test may bend.
pub(crate) struct Bend {
    pub(crate) directory: Option<Arc<TempDir>>,
    pub(crate) authorities: Option<Authorities>,
    pub(crate) acme: Vec<AcmeSettings>,
    /// The clock's time at the start.
    pub(crate) start: UnixMillis,
    pub(crate) change_log_rows: u64,
    pub(crate) plans: Plans,
    pub(crate) webhooks: WebhookConfig,
    pub(crate) sealing: SealingSecrets,
    pub(crate) sealing_secret_lost: bool,
    /// The platform's secret.
    pub(crate) secret: Secret,
    pub(crate) gateways_directory: Option<std::path::PathBuf>,
    pub(crate) services_directory: Option<std::path::PathBuf>,
    pub(crate) revocations_file: Option<std::path::PathBuf>,
}

impl Default for Bend {
    fn default() -> Self {
        Self {
            directory: None,
            authorities: None,
            acme: Vec::new(),
            start: START,
            change_log_rows: 100_000,
            plans: Plans::stated(),
            webhooks: WebhookConfig { allow_http: true, allow_private_addresses: true, ..Default::default() },
            sealing: Secret::new(vec![8; 32]).into(),
            sealing_secret_lost: false,
            secret: Secret::new(vec![7; 32]),
            gateways_directory: None,
            services_directory: None,
            revocations_file: None,
        }
    }
}

pub(crate) fn local_authority() -> Arc<dyn Issuer> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().pem();
    Arc::new(LocalAuthority::from_pem(certificate, &key.serialize_pem()).unwrap())
}

impl Platform {
    pub(crate) async fn start() -> Self {
        Self::bent(Bend::default()).await
    }

    pub(crate) async fn bent(bend: Bend) -> Self {
        Box::pin(Self::try_bent(bend)).await.unwrap()
    }

    /// A service that may refuse to start.
    pub(crate) async fn try_bent(bend: Bend) -> anyhow::Result<Self> {
        let directory = bend.directory.unwrap_or_else(|| Arc::new(tempfile::tempdir().unwrap()));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (secret, sealing) = (bend.secret, SealingKey::of(&bend.sealing)?);
        let config = Config {
            listen: any,
            internal_listen: any,
            admin_listen: any,
            admin_hosts: Vec::new(),
            tls: None,
            internal_tls: None,
            database: crate::stores::place(directory.path()),
            create_database: true,
            platform_domain: PLATFORM.parse().unwrap(),
            environment: Environment::Live,
            secret: secret.clone(),
            sealing_secret: bend.sealing,
            gateways_directory: bend.gateways_directory,
            services_directory: bend.services_directory,
            revocations_file: bend.revocations_file.unwrap_or_else(|| directory.path().join("revoked")),
            sealing_secret_lost: bend.sealing_secret_lost,
            plans: bend.plans,
            removed_projects_kept_days: 30,
            change_log_rows: bend.change_log_rows,
            edge_addresses: vec!["203.0.113.10".parse().unwrap()],
            names: domains_service::config::NameRules { allow_local: true, allow_test: true },
            dns: verification::DnsConfig { allow_private_nameservers: false, ..Default::default() },
            authorities: bend.acme,
            local_authority: None,
            webhooks: bend.webhooks,
            log_format: chassis::logs::Format::Text,
            log_filter: "info".to_owned(),
            tracing: chassis::trace::TraceConfig::default(),
            effective: chassis::config::EffectiveSettings::default(),
        };
        let clock = Arc::new(ManualClock::at(bend.start));
        let dns = Arc::new(FakeDns::default());
        let authorities =
            bend.authorities.unwrap_or_else(|| Authorities { local: Some(local_authority()), public: Vec::new() });
        let shutdown = Shutdown::new();
        let world = World { dns: dns.clone(), authorities };
        let running = start_in(config, world, clock.clone(), shutdown.clone()).await?;
        let url = |listener: &str| format!("http://{}", running.address(listener).unwrap());
        Ok(Self {
            clock,
            dns,
            directory,
            http: url("http"),
            internal: url("internal"),
            admin: url("admin"),
            client: reqwest::Client::builder().timeout(ANSWER_MAX).build().unwrap(),
            secret,
            identities: Mutex::default(),
            presented: Mutex::default(),
            sealing,
            signing: Mutex::default(),
            shutdown,
            running: Some(running),
            living: Mutex::default(),
        })
    }

    /// Ends the service and waits until it has.
    pub(crate) async fn stop(&mut self) {
        self.shutdown.begin();
        if let Some(running) = self.running.take() {
            running.stopped().await.unwrap();
        }
    }

    /// A request of an operator.
    pub(crate) async fn operator(&self, method: &str, path: &str, body: Value) -> Answer {
        let method = method.parse().unwrap();
        let token = operator_token(&self.secret).to_token();
        let mut request = self.client.request(method, format!("{}/internal{path}", self.internal)).bearer_auth(&*token);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = Answer::of(request.send().await.unwrap()).await;
        if let (Some(name), Some(uid)) = (answer.body["id"].as_str(), answer.body["uid"].as_str()) {
            self.identities.lock().insert(name.to_owned(), uid.parse().unwrap());
        }
        answer
    }

    /// The token of the gateway that tests speak as.
    pub(crate) async fn gateway(&self) -> String {
        self.on_record(GATEWAY, "gateway").await
    }

    /// The token of the orders-service.
    pub(crate) async fn orders_service(&self) -> String {
        self.on_record(ORDERS_SERVICE, "service").await
    }

    /// The token of this name, recorded at the first use.
    async fn on_record(&self, name: &str, kind: &str) -> String {
        let mut known = ON_RECORD.lock().await;
        let of = (crate::stores::database(self.directory.path()), name.to_owned());
        if let Some(token) = known.get(&of) {
            return token.clone();
        }
        let wanted = json!({ "name": name, "kind": kind });
        let mut made = self.operator("POST", "/credentials", wanted.clone()).await;
        if made.code() == (409, "credential_exists") {
            // This database is a copy of one with the token.
            assert_eq!(self.operator("DELETE", &format!("/credentials/{kind}/{name}"), Value::Null).await.status, 200);
            made = self.operator("POST", "/credentials", wanted).await;
        }
        let credential = Secret::parse(made.body["credential"].as_str().expect("a credential")).unwrap();
        let token = credential.to_token().to_string();
        known.insert(of, token.clone());
        token
    }

    /// The gateway's present signing key, as sent to it.
    pub(crate) async fn signing(&self) -> SigningKey {
        let now = self.clock.now_seconds();
        let known = self.signing.lock().filter(|(told_at, _)| *told_at == now);
        let seed = match known {
            Some((_, seed)) => seed,
            None => self.signing_seed(now).await,
        };
        SigningKey::from_seed(&seed).unwrap()
    }

    async fn signing_seed(&self, now: UnixSeconds) -> [u8; 32] {
        let mut stream = self.follow_with(&self.gateway().await, "node=signs&after=0&keyring=1").await;
        loop {
            if let Frame::Keyring { sealed } = stream.next().await.expect("the stream goes on") {
                let keyring = self.sealing.open(&sealed, KEYRING_PLACE).unwrap();
                let keyring: Keyring = serde_json::from_slice(&keyring).unwrap();
                let signs = keyring.generations.iter().find(|generation| generation.signs_from <= now);
                let seed = signs.expect("a key that signs").identity;
                self.believes(&SigningKey::from_seed(&seed).unwrap()).await;
                *self.signing.lock() = Some((now, seed));
                return seed;
            }
        }
    }

    /// Waits until identities signed with this key are accepted: a replica learns within a second of a gateway that
    /// another replica has put on record.
    async fn believes(&self, key: &SigningKey) {
        let no_caller = Claims {
            audience: "domains".to_owned(),
            caller: None,
            site_project: None,
            issued_at: self.clock.now_seconds(),
        };
        eventually(async || {
            let request = self.client.get(format!("{}/v1/acme-account", self.http)).header("x-request-id", "r1");
            let request =
                request.header("x-forwarded-for", "192.0.2.1").header(IDENTITY_TOKEN_HEADER, key.sign(&no_caller));
            let answer = Answer::of(request.send().await.unwrap()).await;
            if answer.code().1 == "identity_required" { Err(format!("{answer:?}")) } else { Ok(()) }
        })
        .await;
    }

    /// The identity of the project of this name, or an unknown one.
    pub(crate) async fn identity(&self, project: &ProjectId) -> ProjectUid {
        if let Some(known) = self.identities.lock().get(project.as_str()) {
            return known.clone();
        }
        self.operator("GET", &format!("/projects/{project}"), Value::Null).await;
        self.identities.lock().get(project.as_str()).cloned().unwrap_or_else(unknown_uid)
    }

    /// A request as the gateway would forward it.
    pub(crate) async fn signed(
        &self,
        request: reqwest::RequestBuilder,
        claims: Claims,
        client: &str,
    ) -> reqwest::RequestBuilder {
        let claims = Claims { issued_at: self.clock.now_seconds(), ..claims };
        let token = self.signing().await.sign(&claims);
        let request = request.header("x-request-id", "r1").header("x-forwarded-for", client);
        request.header(IDENTITY_TOKEN_HEADER, token)
    }

    /// A key of the project that has this identity, with these scopes: its id, and the key. It is made once, by an
    /// operator. Without such a project it is a key that was never issued.
    pub(crate) async fn presented(&self, name: &ProjectId, uid: &ProjectUid, scopes: &Scopes) -> (KeyId, String) {
        let of = (uid.clone(), scopes.iter().collect::<Vec<_>>());
        if let Some(known) = self.presented.lock().get(&of) {
            return known.clone();
        }
        // A key has at least one scope.
        let wanted = if of.1.is_empty() { vec![Scope::OrdersWrite] } else { of.1.clone() };
        let body = json!({ "label": "caller", "scopes": wanted });
        let made = self.operator("POST", &format!("/projects/{name}/keys"), body).await;
        if made.status != 201 {
            let unissued = PresentedKey::generate(Environment::Live, &[9; 30]).reveal().to_owned();
            return (KeyId::from_random([1; 10]), unissued);
        }
        let text = |field: &str| made.body[field].as_str().unwrap();
        let made = (text("id").parse::<KeyId>().unwrap(), text("key").to_owned());
        self.presented.lock().insert(of, made.clone());
        made
    }

    /// A caller of a project with these scopes.
    pub(crate) fn caller<'a>(&'a self, project: &str, scopes: &[Scope]) -> Client<'a> {
        let claims = Claims {
            audience: "domains".to_owned(),
            site_project: None,
            caller: Some(Caller {
                key: KeyId::from_random([1; 10]),
                project: project.parse().unwrap(),
                project_uid: unknown_uid(),
                plan: Plan::Pro,
                scopes: scopes.iter().copied().collect(),
                environment: Environment::Live,
            }),
            issued_at: self.clock.now_seconds(),
        };
        Client { platform: self, claims }
    }

    /// A caller with every scope in a project.
    pub(crate) fn owner<'a>(&'a self, project: &str) -> Client<'a> {
        let scopes: Vec<Scope> = Scopes::all().iter().collect();
        self.caller(project, &scopes)
    }

    /// A deployed project.
    pub(crate) async fn project(&self, id: &str, plan: &str) {
        assert_eq!(self.operator("POST", "/projects", json!({ "id": id, "plan": plan })).await.status, 201);
        assert_eq!(self.operator("POST", &format!("/projects/{id}/deploy"), Value::Null).await.status, 200);
    }

    /// Adds a local name and waits until it is active.
    pub(crate) async fn local_domain(&self, project: &str, body: Value) -> Value {
        let name = body["name"].as_str().unwrap().to_owned();
        let added = self.operator("POST", &format!("/projects/{project}/domains"), body).await;
        assert_eq!(added.status, 201, "{added:?}");
        self.domain_in(project, &name, "active").await
    }

    /// Waits until a domain is in a state, and returns it.
    pub(crate) async fn domain_in(&self, project: &str, name: &str, status: &str) -> Value {
        self.domain_when(project, name, |domain| domain["status"] == status).await
    }

    /// Waits until a domain is as expected, and returns it.
    pub(crate) async fn domain_when(&self, project: &str, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/projects/{project}/domains/{name}");
        eventually(async || {
            let domain = self.operator("GET", &path, Value::Null).await.body;
            if is(&domain) { Ok(domain) } else { Err(format!("the domain is {domain:#}")) }
        })
        .await
    }

    /// Seconds from now to a time in an answer.
    pub(crate) fn seconds_until(&self, moment: &Value) -> i64 {
        let moment: jiff::Timestamp = moment.as_str().unwrap().parse().unwrap();
        moment.as_second() - self.clock.now_seconds().0
    }

    /// Follows the change stream.
    pub(crate) async fn follow(&self, after: u64) -> Stream {
        let token = self.gateway().await;
        let mark = crate::stores::mark_of(self.directory.path(), after).await;
        let mark = mark.map_or_else(String::new, |mark| format!("&mark={mark}"));
        self.follow_with(&token, &format!("node=test&after={after}{mark}")).await
    }

    /// Follows the change stream with this token.
    pub(crate) async fn follow_with(&self, token: &str, query: &str) -> Stream {
        self.follow_for(ANSWER_MAX, token, query).await
    }

    /// The same, for at most this time.
    pub(crate) async fn follow_for(&self, time: Duration, token: &str, query: &str) -> Stream {
        let url = format!("{}/internal/edge/feed?{query}", self.internal);
        let response = self.client.get(url).timeout(time).bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Stream { response, buffer: Vec::new() }
    }

    /// A gateway's report.
    pub(crate) async fn report(&self, node: &str, applied: u64) {
        self.report_of(node, applied, false).await;
    }

    /// A gateway's last report.
    pub(crate) async fn goodbye(&self, node: &str, applied: u64) {
        self.report_of(node, applied, true).await;
    }

    async fn report_of(&self, node: &str, applied: u64, goodbye: bool) {
        let mark = crate::stores::mark_of(self.directory.path(), applied).await;
        let body = json!({ "node": node, "applied": applied, "mark": mark, "version": "1", "goodbye": goodbye });
        let answer = self.edge("nodes", body).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }

    /// A gateway's report to `/internal/edge/`.
    pub(crate) async fn edge(&self, path: &str, body: Value) -> Answer {
        let url = format!("{}/internal/edge/{path}", self.internal);
        let request = self.client.post(url).bearer_auth(self.gateway().await).json(&body);
        Answer::of(request.send().await.unwrap()).await
    }

    /// The newest revision.
    pub(crate) async fn newest_revision(&self) -> u64 {
        self.operator("GET", "/nodes", Value::Null).await.body["revision"].as_u64().unwrap()
    }

    /// Does this while a gateway reports the newest revision again and again, as one does that follows.
    pub(crate) async fn while_following<T>(&self, node: &str, work: impl Future<Output = T>) -> T {
        while_reporting(async || self.report(node, self.newest_revision().await).await, work).await
    }

    /// All published entities.
    pub(crate) async fn snapshot(&self) -> Vec<contract::feed::Entity> {
        self.follow(0).await.snapshot().await.0
    }

    pub(crate) async fn metrics(&self) -> String {
        self.client.get(format!("{}/metrics", self.admin)).send().await.unwrap().text().await.unwrap()
    }
}

/// A caller with requests that the gateway signs.
pub(crate) struct Client<'a> {
    platform: &'a Platform,
    claims: Claims,
}

impl Client<'_> {
    /// The same key, of the project that has this identity.
    pub(crate) fn of(mut self, uid: &ProjectUid) -> Self {
        if let Some(caller) = self.claims.caller.as_mut() {
            caller.project_uid = uid.clone();
        }
        self
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        self.send_with(method, path, body, &[]).await
    }

    pub(crate) async fn send_with(&self, method: &str, path: &str, body: Value, headers: &[(&str, &str)]) -> Answer {
        let mut claims = self.claims.clone();
        if let Some(caller) = claims.caller.as_mut().filter(|caller| caller.project_uid == unknown_uid()) {
            caller.project_uid = self.platform.identity(&caller.project).await;
        }
        let mut presented = None;
        if let Some(caller) = claims.caller.as_mut() {
            let uid = caller.project_uid.clone();
            let (id, key) = self.platform.presented(&caller.project, &uid, &caller.scopes).await;
            caller.key = id;
            presented = Some(key);
        }
        let url = format!("{}{path}", self.platform.http);
        let request = self.platform.client.request(method.parse().unwrap(), url);
        let mut request = self.platform.signed(request, claims, "192.0.2.1").await;
        if let Some(key) = presented {
            request = request.bearer_auth(key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        Answer::of(request.send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, Value::Null).await
    }
}

/// Runs `work` during repeated reports, the first of which comes before it.
pub(crate) async fn while_reporting<T>(mut report: impl AsyncFnMut(), work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut pause = tokio::time::interval(Duration::from_millis(25));
    loop {
        report().await;
        tokio::select! {
            done = &mut work => return done,
            _ = pause.tick() => {}
        }
    }
}

/// Polls until there is a result, at most [`PATIENCE`], and then fails with the last error. The first looks follow each other
/// quickly; later ones are rarer, because they take processor time from what they wait for.
pub(crate) async fn eventually<T>(mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let (began, mut pause) = (Instant::now(), Duration::from_millis(10));
    loop {
        let last = match look().await {
            Ok(found) => return found,
            Err(instead) => instead,
        };
        assert!(began.elapsed() < PATIENCE, "waited in vain: {last}");
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_millis(200));
    }
}
