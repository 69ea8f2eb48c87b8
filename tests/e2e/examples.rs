//! The example clients, unchanged: against a live platform, and against a server that answers with Retry-After.

use std::net::Ipv4Addr;
use std::process::Output;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::process::Command;

use crate::world::{Platform, Project};

/// Runs an example with a key.
async fn run(example: &str, key: &str, authority: Option<&str>, arguments: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/");
    let mut command = Command::new(format!("{root}{example}"));
    command.args(arguments).env("API_KEY", key).env_remove("CA_FILE");
    if let Some(authority) = authority {
        command.env("CA_FILE", authority);
    }
    command
        .output()
        .await
        .unwrap_or_else(|error| panic!("{example} does not run ({error}): install bash, curl, python3"))
}

async fn on(platform: &Platform, shop: &Project, example: &str, arguments: &[&str]) -> (bool, String, String) {
    let base = format!("https://{}:{}", shop.host, platform.https_port());
    let arguments = [&[base.as_str()], arguments].concat();
    let output = run(example, &shop.key, platform.demo["ca_certificate"].as_str(), &arguments).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// One platform for both steps; each step uses a different project.
#[tokio::test]
async fn the_examples_run_unchanged() {
    let platform = Platform::start();
    the_example_for_curl_runs_as_it_is(&platform).await;
    the_example_for_python_runs_as_it_is(&platform).await;
}

// promise: orders.26
async fn the_example_for_curl_runs_as_it_is(platform: &Platform) {
    let shop = platform.project("pro");
    let (good, out, err) = on(platform, &shop, "orders.sh", &[]).await;
    assert!(good, "{out}\n{err}");
    for expected in [
        "again: 304",
        "sent again: idempotency-replayed: true",
        r#""event":"created""#,
        "  204\n",
        r#""code":"order_already_cancelled""#,
        r#""status":"pending""#,
    ] {
        assert!(out.contains(expected), "{expected} is not in\n{out}\n{err}");
    }
    assert_eq!(out.matches(r#"{"orders":[{"id""#).count(), 3, "three pages, by their links: {out}");
    assert!(!out.contains(&shop.key));
}

// promise: orders.26
async fn the_example_for_python_runs_as_it_is(platform: &Platform) {
    let shop = platform.project("business");
    let python = async |arguments: &[&str]| on(platform, &shop, "orders.py", arguments).await;
    let (good, out, err) = python(&["place", "7", "2"]).await;
    assert!(good, "{err}");
    let placed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&placed["petId"], &placed["quantity"]), (&Value::from(7), &Value::from(2)));
    let (_, out, err) = python(&["list"]).await;
    let listed: Vec<Value> = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert!(listed.iter().any(|order| order["id"] == placed["id"]));
    let id = placed["id"].to_string();
    assert_eq!(python(&["cancel", &id]).await.1, "cancelled\n");
    assert_eq!(python(&["cancel", &id]).await.1, "cancelled already\n");
    let (good, _, err) = python(&["cancel", &shop.shipped[0].to_string()]).await;
    assert!(!good && err.contains("order_already_shipped"), "{err}");
}

/// Status, `Retry-After` and body.
type Scene = (u16, Option<&'static str>, &'static str);

/// A server with scripted responses that records the time and the Idempotency-Key of each request.
#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<Vec<Scene>>>,
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Scripted {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        base
    }
}

async fn answer(State(server): State<Scripted>, headers: HeaderMap) -> Response {
    let once = headers.get("idempotency-key").map_or("", |value| value.to_str().unwrap()).to_owned();
    server.asked.lock().push((Instant::now(), once));
    let (status, retry_after, body) = server.answers.lock().remove(0);
    let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.parse().unwrap());
    }
    response
}

// rule: 8.2
// promise: orders.26
#[tokio::test]
async fn the_python_example_honours_retry_after_and_otherwise_backs_off() {
    let server = Scripted::default();
    let limited = r#"{"code":"rate_limit_exceeded","message":"Wait.","status":429}"#;
    *server.answers.lock() = vec![
        (429, Some("2"), limited),
        (503, None, r#"{"code":"overloaded","message":"Wait.","status":503}"#),
        (201, None, r#"{"id":1,"status":"pending"}"#),
        (429, Some("86400"), limited),
        (400, None, r#"{"code":"invalid_body","message":"No.","status":400}"#),
    ];
    let base = server.start().await;
    let placed = run("orders.py", "th_live_x", None, &[&base, "place", "1", "1"]).await;
    assert!(placed.status.success(), "{}", String::from_utf8_lossy(&placed.stderr));
    let asked = server.asked.lock().clone();
    let [first, second, third] = asked.as_slice() else { panic!("{asked:?}") };
    assert!((second.0 - first.0).as_secs_f64() >= 2.0, "never before Retry-After");
    assert!((third.0 - second.0).as_secs_f64() >= 1.0, "half of two seconds at least");
    assert!(!first.1.is_empty() && first.1 == second.1 && second.1 == third.1, "one key for one order: {asked:?}");
    // The example does not wait a day, and does not repeat an invalid request.
    for (expected, count) in [("the API asks for 86400 seconds", 4), ("400 invalid_body", 5)] {
        let refused = run("orders.py", "th_live_x", None, &[&base, "place", "1", "1"]).await;
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(expected), "{said}");
        assert_eq!(server.asked.lock().len(), count, "{said}");
    }
}
