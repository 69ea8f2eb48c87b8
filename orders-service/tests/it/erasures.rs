//! Orders belong to a project's identity: a name that is used again shows nothing, and what is erased is gone.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use chassis::clock::ManualClock;
use chassis::shutdown::Shutdown;
use contract::erasure::{ERASURES_PATH, Erasures};
use contract::identity::Caller;
use contract::project::ProjectUid;
use orders_service::Orders;
use parking_lot::Mutex;
use reqwest::{Client, Method};
use serde_json::json;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::world::{NOW, World, answers, caller, config, lines, refusal, signed, until};

/// A caller of a project `demo` that has this identity.
fn of(uid: &ProjectUid) -> Caller {
    Caller { project_uid: Some(uid.clone()), ..caller() }
}

/// What a caller gets at a path.
async fn get_as(world: &World, caller: Caller, target: &str) -> String {
    let request = world.unsigned(Method::GET, target);
    signed(request, Some(caller), NOW).send().await.unwrap().text().await.unwrap()
}

/// Places an order under an idempotency key; its status and id.
async fn place(world: &World, caller: Caller, key: &str) -> (u16, i64) {
    let target = "/v2/store/orders";
    let request =
        world.unsigned(Method::POST, target).header("idempotency-key", key).json(&json!({ "petId": 5, "quantity": 1 }));
    let answer = signed(request, Some(caller), NOW).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json::<serde_json::Value>().await.unwrap()["id"].as_i64().unwrap_or_default())
}

#[tokio::test]
async fn a_project_of_the_same_name_sees_no_orders_and_no_idempotent_answers_of_another() {
    let world = World::new().await;
    let (first, second) = (ProjectUid::from_random([1; 16]), ProjectUid::from_random([2; 16]));
    assert_eq!(world.import(first.as_str(), lines(1..4)).await.status(), 200);
    assert_eq!(place(&world, of(&first), "once").await, (201, 4));
    assert_eq!(place(&world, of(&first), "once").await, (201, 4), "the stored answer");
    assert_eq!(get_as(&world, of(&second), "/v1/store/orders").await, "[]");
    assert_eq!(place(&world, of(&second), "once").await, (201, 1), "a key of its own, and ids from one");
    let path = format!("/internal/orders/{second}/export");
    let exported = world.operator(Method::GET, &path).send().await.unwrap().text().await.unwrap();
    assert_eq!(exported.lines().count(), 1);
    world.stop().await;
}

/// A control plane that tells of erasures until they are done, when it is there.
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
async fn what_the_control_plane_has_erased_is_erased_here_as_soon_as_both_are_up() {
    let (plane, address) = ControlPlane::start(true).await;
    let (gone, other) = (ProjectUid::from_random([1; 16]), ProjectUid::from_random([2; 16]));
    plane.waiting.lock().push(gone.clone());
    let world = World::with(&format!("[events]\nurl = \"http://{address}\"\n")).await;
    for project in [&gone, &other] {
        assert_eq!(world.import(project.as_str(), lines(1..4)).await.status(), 200);
    }
    *plane.ill.lock() = false;
    until("the service says that it is done", async || plane.waiting.lock().is_empty()).await;
    assert_eq!(get_as(&world, of(&gone), "/v1/store/orders").await, "[]");
    assert!(get_as(&world, of(&other), "/v1/store/orders").await.len() > 2);
    // A request that was on its way, and an operator's import.
    assert_eq!(place(&world, of(&gone), "late").await.0, 403);
    assert_eq!(refusal(world.import(gone.as_str(), lines(1..2)).await).await, (404, "not_found".to_owned()));
    world.stop().await;
}

#[tokio::test]
async fn a_database_of_0c0be3e_is_migrated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let file = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&file).await.unwrap();
    sqlx::raw_sql(include_str!("old/0c0be3e.sqlite.sql")).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let config = config(&path, "");
    let orders = Orders::open(&config.database).await.unwrap();
    let (clock, shutdown) = (Arc::new(ManualClock::at(NOW)), Shutdown::new());
    let running = orders_service::start_with(config, orders, clock, shutdown.clone()).await.unwrap();
    let list = async |caller: Caller| {
        let target = "/v1/store/orders";
        let request = Client::new().get(format!("http://{}{target}", running.address("http").unwrap()));
        let answer = signed(request, Some(caller), NOW).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json::<Vec<serde_json::Value>>().await.unwrap().len()
    };
    let named = |name: &str| Caller { project: name.parse().unwrap(), ..caller() };
    // An old project is known by its name, also where nobody sends identities yet.
    assert_eq!(list(named("acme")).await, 2);
    assert_eq!(list(Caller { project_uid: Some("acme".parse().unwrap()), ..named("acme") }).await, 2);
    // A new one of the name has another identity, and nothing of the old.
    assert_eq!(list(Caller { project_uid: Some(ProjectUid::from_random([3; 16])), ..named("acme") }).await, 0);
    shutdown.begin();
    running.stopped().await.unwrap();
}
