//! The outbox relay: the control plane gets each event at least once and in order, also after crashes. Requests do not
//! wait for it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use chassis::secret::Secret;
use contract::event::{ORDER_EVENTS_PATH, OrderEvent, OrderEvents};
use parking_lot::Mutex;
use reqwest::Method;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::crash::Process;
use crate::world::{CREDENTIAL, World, answers, caller, lines, signed, stored, until};

/// A control plane that accepts, refuses or stalls, by its mood.
#[derive(Clone)]
struct ControlPlane {
    taken: Arc<Mutex<Vec<OrderEvents>>>,
    mood: watch::Sender<Mood>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    /// Accepts events.
    Well,
    /// Answers 503.
    Ill,
    /// Does not answer.
    Hangs,
}

impl ControlPlane {
    /// Starts listening; returns the address as well.
    async fn start(mood: Mood) -> (Self, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let plane = Self { taken: Arc::default(), mood: watch::channel(mood).0 };
        let router = Router::new().route(ORDER_EVENTS_PATH, post(take)).merge(answers()).with_state(plane.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (plane, address)
    }

    fn events(&self) -> Vec<OrderEvent> {
        self.taken.lock().iter().flat_map(|batch| batch.events.clone()).collect()
    }

    async fn has(&self, count: usize) -> Vec<OrderEvent> {
        until(&format!("{count} events came"), async || self.events().len() >= count).await;
        self.events()
    }
}

async fn take(State(plane): State<ControlPlane>, headers: HeaderMap, Json(events): Json<OrderEvents>) -> StatusCode {
    let token = Secret::parse(CREDENTIAL).unwrap().to_token();
    assert_eq!(headers["authorization"], format!("Bearer {}", token.as_str()));
    assert!(events.is_sound());
    let mut mood = plane.mood.subscribe();
    let mood = *mood.wait_for(|mood| *mood != Mood::Hangs).await.unwrap();
    if mood == Mood::Ill {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    plane.taken.lock().push(events);
    StatusCode::NO_CONTENT
}

fn settings(control_plane: SocketAddr) -> String {
    format!("[events]\nurl = \"http://{control_plane}\"\n")
}

// promise: orders.23
#[tokio::test]
async fn events_of_orders_are_delivered_in_order() {
    let (plane, address) = ControlPlane::start(Mood::Well).await;
    let world = World::with(&settings(address)).await;
    world.given(&lines(1..3)).await;
    let new = serde_json::json!({ "petId": 4, "quantity": 2 });
    let created = world.request(Method::POST, "/v2/store/orders").json(&new).send().await.unwrap();
    assert_eq!(created.status(), 201);
    assert_eq!(world.delete("/v1/store/orders/1").await.status(), 204);
    assert_eq!(world.request(Method::POST, "/v2/store/orders/3/ship").send().await.unwrap().status(), 200);
    let events = plane.has(3).await;
    let delivered: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.order["id"].as_i64())).collect();
    assert_eq!(delivered, [("order.created", Some(3)), ("order.cancelled", Some(1)), ("order.shipped", Some(3))]);
    assert_eq!(events[0].order["status"], "pending");
    assert!(events.iter().all(|event| event.project.as_str() == "demo" && event.at == crate::world::NOW));
    assert!(events.windows(2).all(|pair| pair[0].number < pair[1].number));
    let counted = "orders_events_total{result=\"relayed\"} 3";
    until(counted, async || world.metrics().await.contains(counted)).await;
    world.stop().await;
}

// promise: orders.24
#[tokio::test]
async fn a_failing_or_stalled_control_plane_delays_no_request_and_gets_every_event() {
    let (plane, address) = ControlPlane::start(Mood::Hangs).await;
    let world = World::with(&settings(address)).await;
    world.given(&lines(0..500)).await;
    // While it stalls, more cancellations are acknowledged than one batch of the relay holds.
    for id in 0..250 {
        assert_eq!(world.delete(&format!("/v1/store/orders/{id}")).await.status(), 204);
    }
    assert_eq!(plane.events(), []);
    assert!(
        world.metrics().await.contains("orders_events_oldest_timestamp_seconds 1795176000"),
        "the metric reports the waiting event"
    );
    plane.mood.send_replace(Mood::Ill);
    for id in 250..300 {
        assert_eq!(world.delete(&format!("/v1/store/orders/{id}")).await.status(), 204);
    }
    plane.mood.send_replace(Mood::Well);
    let events = plane.has(300).await;
    let delivered: Vec<_> = events.iter().filter_map(|event| event.order["id"].as_i64()).collect();
    assert_eq!(delivered, (0..300).collect::<Vec<_>>(), "each, once, in order");
    until("nothing waits", async || world.metrics().await.contains("orders_events_oldest_timestamp_seconds 0\n")).await;
}

fn start(database: &Path, control_plane: SocketAddr) -> Process {
    Process::start_with(database, &[("TOLLHOUSE_ORDERS_EVENTS_URL", &format!("http://{control_plane}"))])
}

// promise: orders.23
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_change_and_delivery_loses_no_event() {
    const ROUNDS: i64 = 4;
    const CANCELLED: i64 = 20;
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    stored(&database, ROUNDS * CANCELLED).await;
    let (plane, address) = ControlPlane::start(Mood::Hangs).await;
    let client = reqwest::Client::new();
    for round in 0..ROUNDS {
        // In even rounds the kill comes before any delivery of the round, in odd rounds at any time.
        plane.mood.send_replace(if round % 2 == 0 { Mood::Hangs } else { Mood::Well });
        let process = start(&database, address);
        for id in round * CANCELLED..(round + 1) * CANCELLED {
            let target = format!("/v1/store/orders/{id}");
            let request = client.delete(format!("http://{}{target}", process.http));
            let now = chassis::clock::Clock::now(&chassis::clock::SystemClock::new());
            let answer = signed(request, Some(caller()), now).send().await.unwrap();
            assert_eq!(answer.status(), 204);
        }
        process.kill();
    }
    plane.mood.send_replace(Mood::Well);
    let process = start(&database, address);
    let everything: Vec<i64> = (0..ROUNDS * CANCELLED).collect();
    let delivered = || {
        let mut delivered: Vec<(i64, i64)> =
            plane.events().iter().map(|event| (event.number, event.order["id"].as_i64().unwrap())).collect();
        delivered.sort_unstable();
        delivered.dedup(); // an event that was in delivery during the kill is delivered again, with the same number
        delivered.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
    };
    until("every event came", async || delivered() == everything).await;
    process.kill();
}

#[test]
fn an_invalid_address_of_the_control_plane_is_reported() {
    let output = Command::new(env!("CARGO_BIN_EXE_orders-service"))
        .env("TOLLHOUSE_ORDERS_CREDENTIAL", CREDENTIAL)
        .env("TOLLHOUSE_ORDERS_EVENTS_URL", "127.0.0.1:7003")
        .arg("--check-config")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("events.url") && said.contains("http://127.0.0.1:7003"), "{said}");
}
