//! An attacker with all secrets of one gateway (credential, change stream, identity keys) at the control plane's public
//! API.

use std::fmt::Write as _;

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::feed::Frame;
use contract::identity::Caller;
use contract::key::{Environment, KeyId, PresentedKey, Scope, Scopes};
use contract::keyring::{KEYRING_PLACE, Keyring};
use contract::plan::Plan;
use contract::token::{Claims, IDENTITY_TOKEN_HEADER, SigningKey};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::dashboard::{Browser, origin};
use crate::stores::{execute, over_postgres};
use crate::world::{Answer, Platform};

/// A gateway, honest or stolen, with the key that it signs identities with.
struct Gateway<'a> {
    platform: &'a Platform,
    signing: SigningKey,
}

/// A gateway's claims about a caller, and the key that it passes on.
struct Said<'a> {
    project: &'a str,
    key: KeyId,
    scopes: Scopes,
    presented: Option<&'a str>,
}

impl<'a> Gateway<'a> {
    async fn enrolled(platform: &'a Platform, name: &str) -> Self {
        let made = platform.operator("POST", "/credentials", json!({ "kind": "gateway", "name": name })).await;
        let credential = Secret::parse(made.body["credential"].as_str().unwrap()).unwrap();
        let mut stream = platform.follow_with(&credential.to_token(), "node=a&after=0&keyring=1").await;
        let sealing = SealingKey::new(&Secret::new(vec![8; 32])).unwrap();
        loop {
            if let Frame::Keyring { sealed } = stream.next().await.expect("the stream goes on") {
                let ring: Keyring = serde_json::from_slice(&sealing.open(&sealed, KEYRING_PLACE).unwrap()).unwrap();
                let signing = SigningKey::from_seed(&ring.generations[0].identity).unwrap();
                return Self { platform, signing };
            }
        }
    }

    async fn send(&self, said: &Said<'_>, method: &str, path: &str, body: Value) -> Answer {
        Answer::of(self.request(said, method, path, body).await.send().await.unwrap()).await
    }

    async fn request(&self, said: &Said<'_>, method: &str, path: &str, body: Value) -> reqwest::RequestBuilder {
        let project = said.project.parse().unwrap();
        let claims = Claims {
            audience: "domains".to_owned(),
            site_project: None,
            caller: Some(Caller {
                key: said.key.clone(),
                project_uid: self.platform.identity(&project).await,
                project,
                plan: Plan::Enterprise,
                scopes: said.scopes.clone(),
                environment: Environment::Live,
            }),
            issued_at: chassis::clock::Clock::now(self.platform.clock.as_ref()).to_seconds(),
        };
        let url = format!("{}{path}", self.platform.http);
        let mut request = self.platform.client.request(method.parse().unwrap(), url);
        request = request.header("x-request-id", "r1").header("x-forwarded-for", "203.0.113.5");
        request = request.header(IDENTITY_TOKEN_HEADER, self.signing.sign(&claims));
        if let Some(presented) = said.presented {
            request = request.bearer_auth(presented);
        }
        if body.is_null() { request } else { request.json(&body) }
    }

    /// The answers to the requests by which a thief would stay.
    async fn tries(&self, said: &Said<'_>, victim: &str) -> Vec<u16> {
        let at = |rest: &str| format!("/v1/projects/{}/{rest}", said.project);
        let mut statuses = Vec::new();
        for (method, path, body) in [
            ("POST", at("keys"), json!({ "scopes": ["orders:read", "keys:write"] })),
            ("DELETE", at(&format!("keys/{victim}")), Value::Null),
            ("POST", at("domains"), json!({ "name": "thief.localhost" })),
            ("POST", at("webhooks"), json!({ "url": "http://127.0.0.1:9/", "events": ["order.*"] })),
        ] {
            statuses.push(self.send(said, method, &path, body).await.status);
        }
        statuses
    }
}

/// Makes a key by an operator: its id and its text.
async fn key(platform: &Platform, project: &str, scopes: &[&str]) -> (KeyId, String) {
    let made = platform.operator("POST", &format!("/projects/{project}/keys"), json!({ "scopes": scopes })).await;
    assert_eq!(made.status, 201, "{made:?}");
    (made.body["id"].as_str().unwrap().parse().unwrap(), made.body["key"].as_str().unwrap().to_owned())
}

/// A request with only its head and the first byte of its body sent.
struct Unfinished {
    stream: BufReader<TcpStream>,
    rest: Vec<u8>,
}

impl Unfinished {
    async fn begin(request: reqwest::RequestBuilder) -> Self {
        let request = request.build().unwrap();
        let at = request.url();
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {}\r\n", request.method(), at.path(), at.authority());
        for (name, value) in request.headers() {
            write!(head, "{name}: {}\r\n", value.to_str().unwrap()).unwrap();
        }
        let body = request.body().unwrap().as_bytes().unwrap();
        write!(head, "content-length: {}\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n", body.len()).unwrap();
        let stream = TcpStream::connect(at.authority()).await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.write_all(&[head.as_bytes(), &body[..1]].concat()).await.unwrap();
        Self { stream, rest: body[1..].to_vec() }
    }

    /// The same, once the service has let the head in: it asks for the body.
    async fn let_in(mut self) -> Self {
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            self.stream.read_line(line).await.unwrap();
        }
        assert_eq!(lines, ["HTTP/1.1 100 Continue\r\n", "\r\n"]);
        self
    }

    /// The status and the text of the answer, once the rest of the body is sent.
    async fn finish(mut self) -> (u16, String) {
        self.stream.write_all(&self.rest).await.unwrap();
        self.answer().await
    }

    /// The status and the text of the answer, while the rest of the body is missing.
    async fn answer(mut self) -> (u16, String) {
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

const ALL: [&str; 5] = ["orders:read", "orders:write", "domains:read", "domains:write", "keys:write"];

#[tokio::test]
async fn a_stolen_gateway_acts_only_as_keys_that_pass_through_it() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.project("other", "pro").await;
    let thief = Gateway::enrolled(&platform, "edge-1").await;
    let (victim, _) = key(&platform, "demo", &ALL).await;
    let (revoked, revoked_text) = key(&platform, "demo", &ALL).await;
    let gone = platform.operator("DELETE", &format!("/projects/demo/keys/{revoked}"), Value::Null).await;
    assert_eq!(gone.status, 204);
    let (foreign, foreign_text) = key(&platform, "other", &ALL).await;
    let (weak, weak_text) = key(&platform, "demo", &["orders:read"]).await;
    let invented = PresentedKey::generate(Environment::Live, &[3; 30]).reveal().to_owned();
    let staging = PresentedKey::generate(Environment::Test, &[3; 30]).reveal().to_owned();
    let unknown = KeyId::from_random([1; 10]);
    let said = |key: &KeyId, presented| Said { project: "demo", key: key.clone(), scopes: Scopes::all(), presented };
    for (what, said) in [
        ("a key that does not exist", said(&unknown, None)),
        ("an invented key", said(&unknown, Some(&invented))),
        ("a key of staging", said(&unknown, Some(&staging))),
        ("an owner's key that was not presented", said(&victim, None)),
        ("an owner's key, and another one presented", said(&victim, Some(&weak_text))),
        ("a revoked key", said(&revoked, Some(&revoked_text))),
        ("another project's key, as the owner's", said(&victim, Some(&foreign_text))),
        ("another project's key, as this project's", said(&foreign, Some(&foreign_text))),
    ] {
        assert_eq!(thief.tries(&said, victim.as_str()).await, [401; 4], "{what}");
    }
    // A key that passed through it keeps its own scopes, whatever the gateway claims.
    assert_eq!(thief.tries(&said(&weak, Some(&weak_text)), victim.as_str()).await, [403; 4], "scopes it lacks");
    let listed = platform.operator("GET", "/projects/demo/keys", Value::Null).await.body;
    let usable = listed["keys"].as_array().unwrap().iter().filter(|key| key["revoked_at"].is_null());
    assert_eq!(usable.count(), 2, "{listed}");
}

#[tokio::test]
async fn a_key_works_through_a_gateway_and_every_change_names_that_gateway() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let (one, two) = (Gateway::enrolled(&platform, "edge-1").await, Gateway::enrolled(&platform, "edge-2").await);
    let (id, text) = key(&platform, "demo", &ALL).await;
    let said = Said { project: "demo", key: id.clone(), scopes: Scopes::all(), presented: Some(&text) };
    let make = json!({ "scopes": ["orders:read"] });
    assert_eq!(one.send(&said, "POST", "/v1/projects/demo/keys", make.clone()).await.status, 201);
    let name = json!({ "name": "shop.localhost" });
    assert_eq!(two.send(&said, "POST", "/v1/projects/demo/domains", name).await.status, 201);
    let events = platform.operator("GET", "/projects/demo/events", Value::Null).await.body;
    let through = |kind: &str| {
        let all = events["events"].as_array().unwrap().iter();
        all.filter(|event| event["type"] == kind).map(|event| event["gateway"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(through("key.created"), [json!("edge-1"), Value::Null], "an operator's change came through none");
    assert_eq!(through("domain.created"), [json!("edge-2")]);
    // An operator can list the changes made through one gateway.
    let changes = async |gateway: &str, since: &str| {
        let path = format!("/credentials/gateway/{gateway}/changes?since={since}");
        platform.operator("GET", &path, Value::Null).await.body["changes"].as_array().unwrap().clone()
    };
    let found = changes("edge-1", "2026-01-01T00:00:00Z").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        [&found[0]["type"], &found[0]["project"], &found[0]["actor"], &found[0]["client"], &found[0]["gateway"]],
        [&json!("key.created"), &json!("demo"), &json!(id.as_str()), &json!("203.0.113.5"), &json!("edge-1")]
    );
    assert!(changes("edge-1", "2027-01-01T00:00:00Z").await.is_empty());
    let wrong = platform.operator("GET", "/credentials/gateway/edge-1/changes?since=lately", Value::Null).await;
    assert_eq!(wrong.code(), (400, "invalid_query"));
    // The project's owner does not see which gateways the platform has.
    let owners = one.send(&said, "GET", "/v1/projects/demo/events", Value::Null).await.body;
    assert!(owners["events"][0].get("gateway").is_none() && owners["events"][0]["type"].is_string(), "{owners}");
}

#[tokio::test]
async fn identities_of_a_revoked_gateway_are_refused_and_those_of_another_are_not() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let (thief, honest) = (Gateway::enrolled(&platform, "edge-1").await, Gateway::enrolled(&platform, "edge-2").await);
    let (id, text) = key(&platform, "demo", &ALL).await;
    let said = Said { project: "demo", key: id, scopes: Scopes::all(), presented: Some(&text) };
    for gateway in [&thief, &honest] {
        assert_eq!(gateway.send(&said, "GET", "/v1/projects/demo", Value::Null).await.status, 200);
    }
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200);
    let refused = thief.send(&said, "GET", "/v1/projects/demo", Value::Null).await;
    assert_eq!(refused.code(), (401, "identity_required"), "also a token that was found good before");
    assert_eq!(honest.send(&said, "GET", "/v1/projects/demo", Value::Null).await.status, 200);
    // A new gateway under the same name has another key.
    let again = Gateway::enrolled(&platform, "edge-1").await;
    assert_ne!(again.signing.public(), thief.signing.public());
    assert_eq!(again.send(&said, "GET", "/v1/projects/demo", Value::Null).await.status, 200);
    assert_eq!(thief.send(&said, "GET", "/v1/projects/demo", Value::Null).await.status, 401);
}

#[tokio::test]
async fn identities_of_keys_that_were_replaced_are_refused_at_once() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let before = Gateway::enrolled(&platform, "edge-1").await;
    let (id, text) = key(&platform, "demo", &ALL).await;
    let said = Said { project: "demo", key: id, scopes: Scopes::all(), presented: Some(&text) };
    assert_eq!(before.send(&said, "GET", "/v1/projects/demo", Value::Null).await.status, 200);
    assert_eq!(platform.operator("POST", "/gateway-keys", Value::Null).await.status, 204);
    let refused = before.send(&said, "GET", "/v1/projects/demo", Value::Null).await;
    assert_eq!(refused.code(), (401, "identity_required"));
    let after = Gateway::enrolled(&platform, "edge-2").await;
    assert_eq!(after.send(&said, "GET", "/v1/projects/demo", Value::Null).await.status, 200);
}

#[tokio::test]
async fn the_control_plane_refuses_a_revoked_or_expired_key_before_gateways_do() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let gateway = Gateway::enrolled(&platform, "edge-1").await;
    let body = json!({ "scopes": ["domains:read"], "expires_at": "2026-06-15T00:00:30Z" });
    let made = platform.operator("POST", "/projects/demo/keys", body).await.body;
    let (id, text) = (made["id"].as_str().unwrap().parse().unwrap(), made["key"].as_str().unwrap().to_owned());
    let scopes = [Scope::DomainsRead].into_iter().collect();
    let said = Said { project: "demo", key: id, scopes, presented: Some(&text) };
    assert_eq!(gateway.send(&said, "GET", "/v1/projects/demo", Value::Null).await.status, 200);
    platform.clock.advance(std::time::Duration::from_secs(30));
    let ended = gateway.send(&said, "GET", "/v1/projects/demo", Value::Null).await;
    assert_eq!(ended.code(), (401, "expired_api_key"));
    assert_eq!(ended.header("www-authenticate"), "Bearer realm=\"tollhouse\"");
}

#[tokio::test]
async fn a_request_is_refused_if_its_credential_is_revoked_before_its_body_arrives() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let (stolen, honest) = (Gateway::enrolled(&platform, "edge-1").await, Gateway::enrolled(&platform, "edge-2").await);
    let (revoked, revoked_text) = key(&platform, "demo", &ALL).await;
    let (good, good_text) = key(&platform, "demo", &ALL).await;
    let said =
        |key: &KeyId, text| Said { project: "demo", key: key.clone(), scopes: Scopes::all(), presented: Some(text) };
    let make = json!({ "scopes": ["orders:read", "keys:write"] });
    let path = "/v1/projects/demo/keys";
    let with_the_key = honest.request(&said(&revoked, &revoked_text), "POST", path, make.clone()).await;
    let with_the_key = Unfinished::begin(with_the_key).await.let_in().await;
    let through_the_gateway = stolen.request(&said(&good, &good_text), "POST", path, make.clone()).await;
    let through_the_gateway = Unfinished::begin(through_the_gateway).await.let_in().await;
    let as_an_operator = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "ada" })).await;
    let token = as_an_operator.body["token"].as_str().unwrap();
    let url = format!("{}/internal/credentials", platform.internal);
    let by_the_operator =
        platform.client.post(url).bearer_auth(token).json(&json!({ "kind": "operator", "name": "eve" }));
    let by_the_operator = Unfinished::begin(by_the_operator).await.let_in().await;
    let key = format!("/projects/demo/keys/{revoked}");
    assert_eq!(platform.operator("DELETE", &key, Value::Null).await.status, 204);
    assert_eq!(platform.operator("DELETE", "/credentials/operator/ada", Value::Null).await.status, 200);
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200);
    for (code, unfinished) in [
        ("invalid_api_key", with_the_key),
        ("identity_required", through_the_gateway),
        ("token_required", by_the_operator),
    ] {
        let (status, answer) = unfinished.finish().await;
        assert!(status == 401 && answer.contains(code), "{code}: {answer}");
    }
    let keys = platform.operator("GET", "/projects/demo/keys", Value::Null).await.body;
    assert_eq!(keys["keys"].as_array().unwrap().len(), 2, "{keys}");
    let tokens = platform.operator("GET", "/credentials?kind=operator", Value::Null).await.body;
    assert!(!tokens.to_string().contains("eve"), "{tokens}");
}

#[tokio::test]
async fn a_stranger_is_refused_before_the_body_arrives() {
    let platform = Platform::start().await;
    let stranger = Gateway { platform: &platform, signing: SigningKey::from_seed(&[3; 32]).unwrap() };
    let body = json!({ "name": "eve" });
    let said = Said { project: "demo", key: KeyId::from_random([1; 10]), scopes: Scopes::all(), presented: None };
    platform.project("demo", "pro").await;
    let through_a_gateway = stranger.request(&said, "POST", "/v1/projects/demo/keys", body.clone()).await;
    let mut refused = vec![("identity_required", through_a_gateway)];
    for path in ["credentials", "edge/nodes", "edge/usage", "edge/keys", "events/orders", "nowhere"] {
        let request = platform.client.post(format!("{}/internal/{path}", platform.internal));
        refused.push(("token_required", request.bearer_auth("a stranger's").json(&body)));
    }
    for (code, request) in refused {
        let (status, answer) = Unfinished::begin(request).await.answer().await;
        assert!(status == 401 && answer.contains(code), "{code}: {answer}");
    }
}

#[tokio::test]
async fn the_end_of_a_gateway_ends_the_sessions_that_passed_through_it() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    Gateway::enrolled(&platform, "edge-1").await;
    let mut browser = Browser::signed_in(&platform, "demo", &["domains:read"]).await;
    assert_eq!(browser.get("/projects/demo/domains").await.status, 200);
    let link = platform.operator("POST", "/dashboard-links", Value::Null).await.body;
    let link = link["path"].as_str().unwrap().strip_prefix("/enter?link=").unwrap();
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200);
    assert_eq!(browser.get("/projects/demo/domains").await.location(), "/sign-in");
    let (ours, mut seen) = (origin(), Browser::new(&platform));
    let entered = seen.send("POST", "/enter", &[("link", link)], &[("origin", ours.as_str())]).await;
    assert_eq!(entered.status, 403, "a link that may have passed through it");
}

#[tokio::test]
async fn a_key_comes_once_and_with_an_identity_of_its_own_and_is_of_this_deployment() {
    const PLACE: &str = "/v1/projects/demo";
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let gateway = Gateway::enrolled(&platform, "edge-1").await;
    let (id, text) = key(&platform, "demo", &ALL).await;
    let said = Said { project: "demo", key: id, scopes: Scopes::all(), presented: Some(&text) };
    let request = async || gateway.request(&said, "GET", PLACE, Value::Null).await;
    let code = async |request: reqwest::RequestBuilder| {
        let answer = Answer::of(request.send().await.unwrap()).await;
        (answer.status, answer.code().1.to_owned())
    };
    assert_eq!(request().await.send().await.unwrap().status(), 200);
    assert_eq!(code(request().await.bearer_auth(&text)).await, (401, "invalid_api_key".to_owned()), "twice");
    let claims = Claims {
        audience: "domains".to_owned(),
        site_project: None,
        caller: None,
        issued_at: chassis::clock::Clock::now_seconds(platform.clock.as_ref()),
    };
    let visitor = platform.client.get(format!("{}{PLACE}", platform.http)).bearer_auth(&text);
    let visitor = visitor.header("x-request-id", "r1").header("x-forwarded-for", "203.0.113.5");
    let visitor = visitor.header(IDENTITY_TOKEN_HEADER, gateway.signing.sign(&claims));
    assert_eq!(code(visitor).await, (401, "invalid_api_key".to_owned()), "an identity without a caller");
    execute(platform.directory.path(), "UPDATE api_keys SET environment = 'test'").await;
    assert_eq!(code(request().await).await, (401, "invalid_api_key".to_owned()), "a key of staging");
    execute(platform.directory.path(), "UPDATE api_keys SET environment = 'live'").await;
    assert_eq!(request().await.send().await.unwrap().status(), 200);
    if !over_postgres() {
        // Its end may have been there: a column that cannot be read.
        execute(platform.directory.path(), "UPDATE api_keys SET expires_at = 'never'").await;
        assert_eq!(code(request().await).await, (401, "invalid_api_key".to_owned()), "a key that cannot be read");
        assert_eq!(Browser::new(&platform).sign_in(&text).await.status, 401);
        execute(platform.directory.path(), "UPDATE api_keys SET expires_at = NULL").await;
        assert_eq!(request().await.send().await.unwrap().status(), 200);
    }
    assert_eq!(platform.operator("DELETE", "/projects/demo", Value::Null).await.status, 204);
    assert_eq!(code(request().await).await, (401, "invalid_api_key".to_owned()), "a key of a removed project");
}
