//! A service without the platform's secret: which keys it trusts, and for how long.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use chassis::clock::Clock as _;
use chassis::guard::{operator_token, pass};
use chassis::secret::Secret;
use contract::token::{Claims, IDENTITY_TOKEN_HEADER, KeySet, SigningKey};
use contract::trust::{ORDERS_SERVICE, PassFor, TRUST_PATH, Trust};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use reqwest::{Body, Method, RequestBuilder};
use tokio::sync::oneshot;

use crate::world::{CREDENTIAL, NOW, World, caller, refusal, signed, until};

/// The secret of a platform.
const PLATFORM_SECRET: &str = "the secret of a whole platform";

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn set(key: &SigningKey) -> KeySet {
    [key.public().clone()].into_iter().collect()
}

/// Every operation of the operators' listener.
const ROUTES: &[(&str, &str)] = &[
    ("GET", "/internal/status"),
    ("POST", "/internal/orders/{project}/import"),
    ("GET", "/internal/orders/{project}/export"),
    ("GET", "/internal/orders/{project}/summary"),
    ("POST", "/internal/orders/{project}/{id}/ship"),
    ("GET", "/internal/settings"),
    ("GET", "/nowhere"),
];

/// The source of the listener, so that an operation that is not tried fails the test.
const SOURCE: &str = include_str!("../../src/internal.rs");

/// A control plane that publishes trusted keys; with `None` it answers 503.
#[derive(Clone)]
struct ControlPlane(Arc<Mutex<Option<Trust>>>);

impl ControlPlane {
    async fn start(trust: Trust) -> (Self, SocketAddr) {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let plane = Self(Arc::new(Mutex::new(Some(trust))));
        let router = Router::new().route(TRUST_PATH, get(publish)).with_state(plane.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (plane, address)
    }
}

async fn publish(State(plane): State<ControlPlane>, headers: HeaderMap) -> Response {
    let token = Secret::parse(CREDENTIAL).unwrap().to_token();
    assert_eq!(headers["authorization"], format!("Bearer {}", &*token));
    match &*plane.0.lock() {
        Some(trust) => Json(trust).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn settings(control: SocketAddr) -> String {
    format!("[events]\nurl = \"http://{control}\"\n")
}

/// A request with the identity that a gateway with this key signs.
fn from_gateway(world: &World, key: &SigningKey, method: Method, path: &str) -> RequestBuilder {
    let claims = Claims {
        audience: "orders".to_owned(),
        caller: Some(caller()),
        site_project: None,
        issued_at: world.clock.now_seconds(),
    };
    let request = world.unsigned(method, path).header("x-forwarded-for", "192.0.2.1");
    request.header("x-request-id", "r1").header(IDENTITY_TOKEN_HEADER, key.sign(&claims))
}

/// The status of a request through a gateway with this key.
async fn listed(world: &World, key: &SigningKey) -> u16 {
    from_gateway(world, key, Method::GET, "/v1/store/orders").send().await.unwrap().status().as_u16()
}

/// A body that sends its first byte now and the rest after a message on the channel.
fn unfinished() -> (oneshot::Sender<()>, Body) {
    let (rest, arrives) = oneshot::channel::<()>();
    let rest_of_it = stream::once(async move {
        arrives.await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(&br#""petId":7,"quantity":1}"#[..])
    });
    (rest, Body::wrap_stream(stream::iter([Ok(&b"{"[..])]).chain(rest_of_it)))
}

/// The status of an operator's request with this token.
async fn asked(world: &World, token: &str) -> u16 {
    world.outsider(Method::GET, "/internal/status").bearer_auth(token).send().await.unwrap().status().as_u16()
}

/// The operations of the operators' listener that this token, or none, opens.
async fn opened(world: &World, token: Option<&str>) -> Vec<&'static str> {
    let mut opened = Vec::new();
    for (method, path) in ROUTES {
        let mut request = world.outsider(method.parse().unwrap(), &path.replace(['{', '}'], ""));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        if answer.status() == 401 {
            assert_eq!(refusal(answer).await.1, "token_required", "{method} {path}");
        } else {
            opened.push(*path);
        }
    }
    opened
}

#[tokio::test]
async fn saved_keys_are_trusted_after_a_start_without_the_control_plane() {
    let (gateways, operators) = (key(1), key(9));
    let trust = Trust { gateways: set(&gateways), operators: set(&operators) };
    let (plane, address) = ControlPlane::start(trust).await;
    let world = World::with(&settings(address)).await;
    until("the gateways are trusted", async || listed(&world, &gateways).await == 200).await;
    let place = world.stop().await;
    let kept = std::fs::read_to_string(place.path().join("trust.json")).unwrap();
    assert!(!kept.contains("\"d\""), "public keys and nothing else: {kept}");
    *plane.0.lock() = None;
    let world = World::over(place, &settings(address)).await;
    assert_eq!(listed(&world, &gateways).await, 200);
    assert_eq!(listed(&world, &key(2)).await, 401);
    assert_eq!(asked(&world, &pass(&operators, &PassFor::service(ORDERS_SERVICE), NOW.to_seconds())).await, 200);
    // When the control plane returns, a gateway revoked in the meantime is refused.
    *plane.0.lock() = Some(Trust { gateways: set(&key(2)), operators: set(&key(8)) });
    until("the new keys are known", async || listed(&world, &key(2)).await == 200).await;
    assert_eq!(listed(&world, &gateways).await, 401);
    let asked_with = async |operators: &SigningKey| {
        asked(&world, &pass(operators, &PassFor::service(ORDERS_SERVICE), NOW.to_seconds())).await
    };
    assert_eq!((asked_with(&key(8)).await, asked_with(&operators).await), (200, 401));
    world.stop().await;
}

/// The age of the trusted keys in the operators' status, in seconds.
async fn trust_seconds_old(world: &World, operators: &SigningKey) -> serde_json::Value {
    let pass = pass(operators, &PassFor::service(ORDERS_SERVICE), world.clock.now_seconds());
    let status = world.outsider(Method::GET, "/internal/status").bearer_auth(&pass).send().await.unwrap();
    status.json::<serde_json::Value>().await.unwrap()["trust_seconds_old"].clone()
}

#[tokio::test]
async fn the_status_reports_the_age_of_the_keys_while_the_control_plane_is_down() {
    let (gateways, operators) = (key(1), key(9));
    let (plane, address) = ControlPlane::start(Trust { gateways: set(&gateways), operators: set(&operators) }).await;
    let world = World::with(&settings(address)).await;
    until("the keys are confirmed", async || trust_seconds_old(&world, &operators).await == 0).await;
    *plane.0.lock() = None;
    // Repeated, in case a response was in progress.
    until("the keys are ten minutes old", async || {
        world.clock.advance(Duration::from_mins(10));
        trust_seconds_old(&world, &operators).await == 600
    })
    .await;
    let metrics = world.metrics().await;
    let confirmed = format!("orders_trust_confirmed_timestamp_seconds {}", world.clock.now_seconds().0 - 600);
    assert!(metrics.contains(&confirmed), "{confirmed}: {metrics}");
    assert_eq!(listed(&world, &gateways).await, 200, "the old keys are still trusted");
    *plane.0.lock() = Some(Trust { gateways: set(&key(2)), operators: set(&operators) });
    until("the keys are confirmed", async || trust_seconds_old(&world, &operators).await == 0).await;
    assert_eq!(listed(&world, &gateways).await, 401);
}

#[tokio::test]
async fn a_key_file_that_other_users_can_write_is_ignored() {
    let place = tempfile::tempdir().unwrap();
    let forged = serde_json::to_string(&Trust { gateways: set(&key(1)), operators: set(&key(1)) }).unwrap();
    let file = place.path().join("trust.json");
    std::fs::write(&file, forged).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let world = World::over(place, &settings(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)))).await;
    assert_eq!(listed(&world, &key(1)).await, 401);
    assert_eq!(asked(&world, &pass(&key(1), &PassFor::service(ORDERS_SERVICE), NOW.to_seconds())).await, 401);
}

#[tokio::test]
async fn a_pass_is_valid_for_one_service_and_less_than_a_minute() {
    let (gateways, operators) = (key(1), key(9));
    let trust = Trust { gateways: set(&gateways), operators: set(&operators) };
    let (_plane, address) = ControlPlane::start(trust).await;
    let world = World::with(&settings(address)).await;
    let now = NOW.to_seconds();
    let good = pass(&operators, &PassFor::service(ORDERS_SERVICE), now);
    until("passes are accepted", async || asked(&world, &good).await == 200).await;
    let declared = SOURCE.split('"').filter(|text| text.starts_with("/internal/"));
    assert_eq!(
        declared.clone().count(),
        ROUTES.len() - 1,
        "an operation is not tried: {:?}",
        declared.collect::<Vec<_>>()
    );
    assert_eq!(opened(&world, Some(&good)).await.len(), ROUTES.len());
    assert_eq!(opened(&world, None).await, Vec::<&str>::new());
    let claims = Claims { audience: "orders".to_owned(), caller: Some(caller()), site_project: None, issued_at: now };
    for (bad, why) in [
        (gateways.sign(&claims), "an identity"),
        (pass(&operators, &PassFor::service("another-service"), now), "for another service"),
        (pass(&operators, &PassFor::service(ORDERS_SERVICE), now.plus(-60)), "a minute old"),
        (pass(&gateways, &PassFor::service(ORDERS_SERVICE), now), "of a stolen gateway"),
        (pass(&operators, &PassFor::gateway(ORDERS_SERVICE), now), "for a gateway of this name"),
        (Secret::parse(CREDENTIAL).unwrap().to_token().to_string(), "the service's own credential"),
        (operator_token(&Secret::parse(PLATFORM_SECRET).unwrap()).to_token().to_string(), "of the platform's secret"),
    ] {
        assert_eq!(opened(&world, Some(&bad)).await, Vec::<&str>::new(), "{why}");
    }
    let settings = world.outsider(Method::GET, "/internal/settings");
    let settings = settings.bearer_auth(&good).send().await.unwrap().text().await.unwrap();
    assert!(!settings.contains(CREDENTIAL), "{settings}");
    // A pass is not an identity, and an identity signed by another platform's gateway is refused.
    let request = world.unsigned(Method::GET, "/v1/store/orders").header(IDENTITY_TOKEN_HEADER, &good);
    let request = request.header("x-request-id", "r1").header("x-forwarded-for", "192.0.2.1");
    assert_eq!(refusal(request.send().await.unwrap()).await, (401, "identity_required".to_owned()));
    let foreign = signed(world.unsigned(Method::GET, "/v1/store/orders"), Some(caller()), NOW).send().await.unwrap();
    assert_eq!(refusal(foreign).await, (401, "identity_required".to_owned()));
    world.stop().await;
}

#[tokio::test]
async fn an_order_whose_body_arrives_after_its_gateway_was_revoked_is_refused() {
    let (stolen, honest) = (key(1), key(2));
    let both = [stolen.public().clone(), honest.public().clone()].into_iter().collect();
    let (plane, address) = ControlPlane::start(Trust { gateways: both, operators: set(&key(9)) }).await;
    let world = World::with(&settings(address)).await;
    until("the gateways are trusted", async || listed(&world, &stolen).await == 200).await;
    let place = |gateway: &SigningKey| {
        let (rest, body) = unfinished();
        let request = from_gateway(&world, gateway, Method::POST, "/v2/store/orders").body(body);
        (rest, tokio::spawn(request.header("content-type", "application/json").send()))
    };
    let [(rest_of_stolen, of_stolen), (rest_of_honest, of_honest)] = [place(&stolen), place(&honest)];
    *plane.0.lock() = Some(Trust { gateways: set(&honest), operators: set(&key(9)) });
    until("the stolen gateway is revoked", async || listed(&world, &stolen).await == 401).await;
    rest_of_stolen.send(()).unwrap();
    rest_of_honest.send(()).unwrap();
    let refused = refusal(of_stolen.await.unwrap().unwrap()).await;
    assert_eq!(refused, (401, "identity_required".to_owned()));
    assert_eq!(of_honest.await.unwrap().unwrap().status(), 201);
    world.stop().await;
}

#[tokio::test]
async fn a_request_without_a_trusted_signature_is_refused_before_its_body_arrives() {
    let world = World::new().await;
    let (_rest, body) = unfinished();
    let request = from_gateway(&world, &key(3), Method::POST, "/v2/store/orders").body(body);
    assert_eq!(refusal(request.send().await.unwrap()).await, (401, "identity_required".to_owned()));
    let (_rest, body) = unfinished();
    let import = world.outsider(Method::POST, "/internal/orders/demo/import").bearer_auth(CREDENTIAL).body(body);
    assert_eq!(refusal(import.send().await.unwrap()).await, (401, "token_required".to_owned()));
    world.stop().await;
}
