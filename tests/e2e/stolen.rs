//! The abilities of a thief with all data of a gateway or a service, before and after `tollhouse node revoke`.
//! The tables of SECURITY.md have the same rows: each row has an attempt here.

mod redis;
mod rows;

use std::process::Command;

use chassis::clock::{Clock as _, SystemClock};
use chassis::guard::{pass, pass_key};
use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::certificate::CertificateBundle;
use contract::feed::{Entity, Frame};
use contract::identity::Caller;
use contract::key::{Environment, KeyId, Scopes};
use contract::keyring::{KEYRING_PLACE, Keyring};
use contract::plan::Plan;
use contract::token::{Claims, IDENTITY_TOKEN_HEADER, SigningKey};
use contract::trust::PassFor;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

use self::redis::Redis;
use self::rows::{GATEWAY, Row, SERVICE, Try};
use crate::deployment::Deployment;
use crate::world::until;

/// Frames of the change stream, as they come.
struct Stream {
    answer: Response,
    read: Vec<u8>,
}

impl Stream {
    /// The next frame; `None` after the end of the stream.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            self.read.extend(self.answer.chunk().await.ok()??);
        }
    }

    async fn keyring(&mut self, sealing: &SealingKey) -> Keyring {
        loop {
            if let Frame::Keyring { sealed } = self.next().await.expect("the stream continues") {
                return serde_json::from_slice(&sealing.open(&sealed, KEYRING_PLACE).unwrap()).unwrap();
            }
        }
    }
}

/// A platform of two gateways; the first one and the orders-service are stolen.
struct Scene {
    deployment: Deployment,
    redis: Redis,
    sealing: SealingKey,
    /// The API key that passes through the stolen process, its name, and its project's identity.
    key: String,
    key_id: KeyId,
    project: String,
}

/// The thief's copies.
struct Stolen {
    stream: Stream,
    keyring: Keyring,
    certificate: CertificateBundle,
    /// Passes that an operator sent to the gateway.
    pass: String,
    /// The credentials of the gateway and of the service.
    gateway: String,
    service: String,
}

impl Scene {
    async fn set() -> Self {
        let redis = Redis::start();
        let deployment = Deployment::start_with("live", 2, &redis.settings()).await;
        deployment.project("shop", "{\"id\":1}\n".to_owned()).await;
        let wanted = json!({ "label": "thief", "scopes": ["orders:read", "domains:read"] });
        let made = deployment.control(0, Method::POST, "/projects/shop/keys").json(&wanted).send().await.unwrap();
        let made: Value = made.json().await.unwrap();
        let (key, key_id) = (made["key"].as_str().unwrap().to_owned(), made["id"].as_str().unwrap().parse().unwrap());
        let projects: Value =
            deployment.control(0, Method::GET, "/projects").send().await.unwrap().json().await.unwrap();
        let project = projects["projects"][0]["uid"].as_str().unwrap().to_owned();
        let domain = json!({ "name": "shop.localhost" });
        let added = deployment.control(0, Method::POST, "/projects/shop/domains").json(&domain).send().await.unwrap();
        assert!(added.status().is_success(), "{}", added.text().await.unwrap());
        let secret = Secret::load_or_create(&deployment.directory.path().join("secrets/sealing.key")).unwrap();
        Self { deployment, redis, sealing: SealingKey::new(&secret).unwrap(), key, key_id, project }
    }

    /// The token of a credential in a file.
    fn credential(&self, path: &str) -> String {
        let path = self.deployment.directory.path().join("secrets").join(path);
        Secret::load_or_create(&path).unwrap().to_token().to_string()
    }

    async fn follow(&self, credential: &str) -> Stream {
        let answer = self.internal(Method::GET, "/edge/feed?node=thief&after=0&keyring=1", credential);
        Stream { answer: answer.send().await.unwrap(), read: Vec::new() }
    }

    async fn steal(&self) -> Stolen {
        let gateway = self.credential("gateways/gateway-1.key");
        let mut stream = self.follow(&gateway).await;
        let keyring = stream.keyring(&self.sealing).await;
        let mut certificates = self.follow(&gateway).await;
        let certificate = loop {
            match certificates.next().await.expect("the stream continues") {
                Frame::Entity(Entity::Certificate(found)) => break found,
                Frame::Change(change) => {
                    if let contract::feed::Effect::Put(Entity::Certificate(found)) = change.effect {
                        break found;
                    }
                }
                _ => {}
            }
        };
        let pass = self.deployment.pass(&PassFor::gateway("gateway-1"));
        Stolen { stream, keyring, certificate, pass, gateway, service: self.credential("services/orders-service.key") }
    }

    fn internal(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        let with_operators_token = self.deployment.control(0, method, path).build().unwrap();
        Client::new()
            .request(with_operators_token.method().clone(), with_operators_token.url().clone())
            .bearer_auth(token)
    }

    async fn opens(&self, method: Method, path: &str, token: &str, body: Value) -> bool {
        let request = self.internal(method, path, token);
        let request = if body.is_null() { request } else { request.json(&body) };
        let status = request.send().await.unwrap().status();
        assert!(status.is_success() || status == 401, "{path}: {status}");
        status.is_success()
    }

    /// A caller's identity for a service, signed with the stolen gateway's key.
    fn identity(&self, stolen: &Stolen, audience: &str) -> String {
        let claims = Claims {
            audience: audience.to_owned(),
            site_project: None,
            caller: Some(Caller {
                key: self.key_id.clone(),
                project: "shop".parse().unwrap(),
                project_uid: self.project.parse().unwrap(),
                plan: Plan::Enterprise,
                scopes: Scopes::all(),
                environment: Environment::Live,
            }),
            issued_at: SystemClock::new().now_seconds(),
        };
        SigningKey::from_seed(&stolen.keyring.generations[0].identity).unwrap().sign(&claims)
    }

    /// Whether a service takes a request with an identity for this audience, and perhaps an API key.
    async fn takes(&self, url: String, identity: String, key: Option<&str>) -> bool {
        let mut request = Client::new().get(url).header(IDENTITY_TOKEN_HEADER, identity);
        request = request.header("x-request-id", "r1").header("x-forwarded-for", "203.0.113.5");
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let status = request.send().await.unwrap().status();
        assert!(status == 200 || status == 401, "{status}");
        status == 200
    }

    fn orders_api(&self) -> String {
        format!("http://{}/v1/store/orders", self.deployment.service("orders", "http"))
    }

    fn control_api(&self) -> String {
        format!("http://{}/v1/projects/shop", self.deployment.service("domains", "http"))
    }

    /// Whether an attempt works now, with the stolen credential.
    async fn works(&self, what: Try, stolen: &mut Stolen, credential: &str) -> bool {
        let shop = format!("/known-projects/{}", self.project);
        let none = Value::Null;
        match what {
            Try::Follow | Try::GatewaysApi => {
                self.opens(Method::GET, "/edge/feed?node=thief&after=0", credential, none).await
            }
            Try::GoOnFollowing => stolen.stream.next().await.is_some(),
            Try::Report("nodes") => {
                let report = json!({ "node": "thief", "applied": 0, "version": "1" });
                self.opens(Method::POST, "/edge/nodes", credential, report).await
            }
            Try::Report("usage") => {
                self.opens(Method::POST, "/edge/usage", credential, json!({ "node": "thief", "projects": [] })).await
            }
            Try::Report(_) => {
                let report = json!({ "node": "thief", "used": [], "bans": [], "bans_total": 0 });
                self.opens(Method::POST, "/edge/keys", credential, report).await
            }
            Try::OperatorsApi => self.opens(Method::GET, "/projects", credential, none).await,
            Try::ServicesApi | Try::KnownProject => self.opens(Method::GET, &shop, credential, none).await,
            Try::Erasures => self.opens(Method::GET, "/erasures", credential, none).await,
            Try::HandInEvents => {
                let events = json!({ "source": "thief", "events": [] });
                self.opens(Method::POST, "/events/orders", credential, events).await
            }
            Try::SignToOrders => self.takes(self.orders_api(), self.identity(stolen, "orders"), None).await,
            Try::SignToControlPlane => self.takes(self.control_api(), self.identity(stolen, "domains"), None).await,
            Try::SignWithPresentedKey => {
                self.takes(self.control_api(), self.identity(stolen, "domains"), Some(&self.key)).await
            }
            Try::SeenTokenAtControlPlane => {
                self.takes(self.control_api(), self.identity(stolen, "orders"), Some(&self.key)).await
            }
            _ => self.works_elsewhere(what, stolen).await,
        }
    }

    /// The same for attempts without the credential.
    async fn works_elsewhere(&self, what: Try, stolen: &Stolen) -> bool {
        match what {
            Try::PresentedKeyAtAnotherGateway => {
                let client = self.deployment.client();
                let request = self.deployment.request(&client, 1, Method::GET, "shop", "/v1/store/orders");
                request.bearer_auth(&self.key).send().await.unwrap().status() == 200
            }
            Try::TicketKeysOfAnotherGateway => {
                let honest = self.credential("gateways/gateway-2.key");
                let honest = self.follow(&honest).await.keyring(&self.sealing).await;
                honest.generations[0].tickets == stolen.keyring.generations[0].tickets
            }
            Try::OpenPrivateKey => {
                let CertificateBundle { hostname, key, .. } = &stolen.certificate;
                let opened = self.sealing.open(&key.0, hostname.as_str());
                opened.is_ok_and(|pem| String::from_utf8_lossy(&pem).contains("PRIVATE KEY"))
            }
            Try::Redis => {
                let until_counted = async || self.redis.deletes_a_count();
                let request =
                    self.deployment.request(&self.deployment.client(), 1, Method::GET, "shop", "/v1/store/orders");
                assert_eq!(request.bearer_auth(&self.key).send().await.unwrap().status(), 200);
                until("a count is in Redis", until_counted).await;
                true
            }
            Try::PassAtItsOwnAdmin => self.deployment.admin_opens(0, &stolen.pass).await,
            Try::PassAtAnotherAdmin => self.deployment.admin_opens(1, &stolen.pass).await,
            Try::MakePass => {
                // It has only its own secrets and the public key.
                let own = Secret::new(stolen.keyring.generations[0].identity.to_vec());
                let to = PassFor::gateway("gateway-2");
                let made = pass(&pass_key(&own).unwrap(), &to, SystemClock::new().now_seconds());
                self.deployment.admin_opens(1, &made).await
            }
            Try::OrdersDatabase => {
                let file = self.deployment.directory.path().join("orders.sqlite");
                let sql = "UPDATE orders SET status = status WHERE id = 1; SELECT changes();";
                let asked = Command::new("sqlite3").arg("-cmd").arg(".timeout 5000").arg(file).arg(sql).output();
                let asked = asked.expect("sqlite3 is needed: install the package sqlite3 (./check does)");
                String::from_utf8_lossy(&asked.stdout).trim() == "1"
            }
            other => unreachable!("{other:?} is tried with a credential"),
        }
    }
}

/// Makes all attempts; returns those with an unexpected result, before or after the revocation.
async fn surprises(
    scene: &Scene,
    stolen: &mut Stolen,
    rows: &[Row],
    credential: &str,
    is_revoked: bool,
) -> Vec<String> {
    let mut surprises = Vec::new();
    for row in rows {
        for (what, before, afterwards) in row.tried {
            let said = if is_revoked { *afterwards } else { *before };
            if scene.works(*what, stolen, credential).await != said {
                surprises.push(format!("{what:?} works: {}", !said));
            }
        }
    }
    surprises
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_gateway_has_exactly_the_abilities_in_the_security_policy() {
    let scene = Scene::set().await;
    let mut stolen = scene.steal().await;
    let credential = stolen.gateway.clone();
    assert_eq!(surprises(&scene, &mut stolen, GATEWAY, &credential, false).await, Vec::<String>::new());
    let revoked = scene.deployment.control(0, Method::DELETE, "/credentials/gateway/gateway-1").send().await.unwrap();
    assert_eq!(revoked.status(), 200);
    // The stream is read to its end; services and the other gateway learn of the revocation within two seconds.
    while stolen.stream.next().await.is_some() {}
    until("services refuse the gateway's signatures", async || {
        !scene.works(Try::SignToOrders, &mut stolen, &credential).await
            && !scene.works(Try::TicketKeysOfAnotherGateway, &mut stolen, &credential).await
    })
    .await;
    assert_eq!(surprises(&scene, &mut stolen, GATEWAY, &credential, true).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_service_has_exactly_the_abilities_in_the_security_policy() {
    let scene = Scene::set().await;
    let mut stolen = scene.steal().await;
    let credential = stolen.service.clone();
    assert_eq!(surprises(&scene, &mut stolen, SERVICE, &credential, false).await, Vec::<String>::new());
    let revoked =
        scene.deployment.control(0, Method::DELETE, "/credentials/service/orders-service").send().await.unwrap();
    assert_eq!(revoked.status(), 200);
    assert_eq!(surprises(&scene, &mut stolen, SERVICE, &credential, true).await, Vec::<String>::new());
}
