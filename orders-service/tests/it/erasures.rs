//! Orders belong to a project's identity: a new project with the same name sees no old orders, and erased data is gone.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use contract::erasure::{ERASURES_PATH, Erasures};
use contract::identity::Caller;
use contract::project::ProjectUid;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::json;

use crate::world::{NOW, World, answers, caller, lines, refusal, signed, until};

/// A caller of the project `demo` with this identity.
fn of(uid: &ProjectUid) -> Caller {
    Caller { project_uid: uid.clone(), ..caller() }
}

/// The body of a caller's GET.
async fn get_as(world: &World, caller: Caller, target: &str) -> String {
    let request = world.unsigned(Method::GET, target);
    signed(request, Some(caller), NOW).send().await.unwrap().text().await.unwrap()
}

/// Places an order with an idempotency key; returns status and id.
async fn place(world: &World, caller: Caller, key: &str) -> (u16, i64) {
    let target = "/v2/store/orders";
    let request =
        world.unsigned(Method::POST, target).header("idempotency-key", key).json(&json!({ "petId": 5, "quantity": 1 }));
    let answer = signed(request, Some(caller), NOW).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json::<serde_json::Value>().await.unwrap()["id"].as_i64().unwrap_or_default())
}

#[tokio::test]
async fn a_new_project_with_a_used_name_sees_no_orders_or_idempotency_keys_of_the_old_one() {
    let world = World::new().await;
    let (first, second) = (ProjectUid::from_random([1; 16]), ProjectUid::from_random([2; 16]));
    assert_eq!(world.import(first.as_str(), lines(1..4)).await.status(), 200);
    assert_eq!(place(&world, of(&first), "once").await, (201, 4));
    assert_eq!(place(&world, of(&first), "once").await, (201, 4), "the stored answer");
    assert_eq!(get_as(&world, of(&second), "/v1/store/orders").await, "[]");
    assert_eq!(place(&world, of(&second), "once").await, (201, 1), "its keys are separate and its ids start at one");
    let path = format!("/internal/orders/{second}/export");
    let exported = world.operator(Method::GET, &path).send().await.unwrap().text().await.unwrap();
    assert_eq!(exported.lines().count(), 1);
    world.stop().await;
}

/// A control plane that repeats erasures until they are reported as done; it can be down.
#[derive(Clone)]
struct ControlPlane {
    waiting: Arc<Mutex<Vec<ProjectUid>>>,
    ill: Arc<Mutex<bool>>,
}

impl ControlPlane {
    async fn start(ill: bool) -> (Self, SocketAddr) {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let plane = Self { waiting: Arc::default(), ill: Arc::new(Mutex::new(ill)) };
        let router = Router::new().route(ERASURES_PATH, get(tell).post(take)).merge(answers());
        let router = router.with_state(plane.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (plane, address)
    }
}

async fn tell(State(plane): State<ControlPlane>) -> Response {
    if *plane.ill.lock() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    Json(Erasures { projects: plane.waiting.lock().clone() }).into_response()
}

async fn take(State(plane): State<ControlPlane>, Json(done): Json<Erasures>) -> StatusCode {
    plane.waiting.lock().retain(|project| !done.projects.contains(project));
    StatusCode::NO_CONTENT
}

#[tokio::test]
async fn a_removed_project_is_erased_as_soon_as_both_processes_run() {
    let (plane, address) = ControlPlane::start(true).await;
    let (gone, other) = (ProjectUid::from_random([1; 16]), ProjectUid::from_random([2; 16]));
    plane.waiting.lock().push(gone.clone());
    let world = World::with(&format!("[events]\nurl = \"http://{address}\"\n")).await;
    for project in [&gone, &other] {
        assert_eq!(world.import(project.as_str(), lines(1..4)).await.status(), 200);
    }
    assert_eq!(place(&world, of(&gone), "key-of-the-one-that-goes").await.0, 201);
    assert_eq!(place(&world, of(&other), "key-of-the-one-that-stays").await.0, 201);
    let at_rest = |text: &str| world.at_rest().windows(text.len()).any(|window| window == text.as_bytes());
    assert!(at_rest("key-of-the-one-that-goes"));
    *plane.ill.lock() = false;
    until("the service confirms the erasure", async || plane.waiting.lock().is_empty()).await;
    assert!(!at_rest("key-of-the-one-that-goes"), "no file contains erased data");
    assert!(at_rest("key-of-the-one-that-stays"));
    assert_eq!(get_as(&world, of(&gone), "/v1/store/orders").await, "[]");
    assert!(get_as(&world, of(&other), "/v1/store/orders").await.len() > 2);
    // A late request, and an operator's import.
    assert_eq!(place(&world, of(&gone), "late").await.0, 403);
    assert_eq!(refusal(world.import(gone.as_str(), lines(1..2)).await).await, (404, "not_found".to_owned()));
    world.stop().await;
}
