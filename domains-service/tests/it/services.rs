//! Services with their own credentials: what a credential opens, which events they receive, and which services an
//! erasure waits for.

use chassis::guard::pass_key;
use chassis::secret::{Secret, write_private};
use contract::erasure::Erasures;
use contract::project::ProjectUid;
use contract::trust::{Pass, PassFor, Trust};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::world::{Bend, Platform};

/// Puts one on record; its token.
async fn enrolled(platform: &Platform, name: &str, kind: &str) -> String {
    let made = platform.operator("POST", "/credentials", json!({ "name": name, "kind": kind })).await;
    assert_eq!((made.status, &made.body["kind"]), (201, &json!(kind)), "{made:?}");
    Secret::parse(made.body["credential"].as_str().unwrap()).unwrap().to_token().to_string()
}

async fn ask(platform: &Platform, token: &str, method: &str, path: &str, body: Value) -> Response {
    let url = format!("{}/internal{path}", platform.internal);
    let mut request = platform.client.request(method.parse::<Method>().unwrap(), url).bearer_auth(token);
    if !body.is_null() {
        request = request.json(&body);
    }
    request.send().await.unwrap()
}

/// The erasures that a service is asked for.
async fn delivered(platform: &Platform, token: &str) -> Vec<ProjectUid> {
    ask(platform, token, "GET", "/erasures", Value::Null).await.json::<Erasures>().await.unwrap().projects
}

async fn done(platform: &Platform, token: &str, project: &ProjectUid) {
    let answer = ask(platform, token, "POST", "/erasures", json!({ "projects": [project] })).await;
    assert_eq!(answer.status(), 204);
}

async fn erased_project(platform: &Platform, name: &str) -> ProjectUid {
    platform.project(name, "pro").await;
    let uid = platform.identity(&name.parse().unwrap()).await;
    assert_eq!(platform.operator("DELETE", &format!("/projects/{name}?now=true"), Value::Null).await.status, 204);
    uid
}

#[tokio::test]
async fn an_erasure_ends_when_every_service_on_record_has_carried_it_out() {
    let platform = Platform::start().await;
    let orders = platform.orders_service().await;
    let files = enrolled(&platform, "files", "service").await;
    let mail = enrolled(&platform, "mail", "service").await;
    let gone = erased_project(&platform, "gone").await;
    for service in [&orders, &files, &mail] {
        assert_eq!(delivered(&platform, service).await, std::slice::from_ref(&gone));
    }
    done(&platform, &orders, &gone).await;
    done(&platform, &files, &gone).await;
    assert_eq!((delivered(&platform, &orders).await, delivered(&platform, &files).await), (Vec::new(), Vec::new()));
    // One service's work does not count for another.
    assert_eq!(delivered(&platform, &mail).await, std::slice::from_ref(&gone));
    done(&platform, &mail, &gone).await;
    assert_eq!(delivered(&platform, &mail).await, []);
    // A new service has no data of it, and is not waited for.
    let late = enrolled(&platform, "late", "service").await;
    assert_eq!(delivered(&platform, &late).await, []);
    // A revoked service is not waited for any more.
    let second = erased_project(&platform, "second").await;
    for service in [&orders, &files, &mail] {
        done(&platform, service, &second).await;
    }
    assert_eq!(delivered(&platform, &late).await, [second]);
    assert_eq!(platform.operator("DELETE", "/credentials/service/late", Value::Null).await.status, 200);
    let newest = enrolled(&platform, "newest", "service").await;
    assert_eq!(delivered(&platform, &newest).await, []);
    assert_eq!(ask(&platform, &late, "GET", "/erasures", Value::Null).await.status(), 401);
}

#[tokio::test]
async fn events_of_orders_come_from_one_service() {
    let platform = Platform::start().await;
    let (service, files) = (platform.orders_service().await, enrolled(&platform, "files", "service").await);
    let events = json!({ "source": "ab12", "events": [] });
    for (token, status) in [(&service, 204), (&files, 403)] {
        assert_eq!(ask(&platform, token, "POST", "/events/orders", events.clone()).await.status(), status);
    }
}

#[tokio::test]
async fn services_can_ask_which_projects_exist() {
    let platform = Platform::start().await;
    let service = enrolled(&platform, "orders-service", "service").await;
    platform.project("demo", "pro").await;
    let uid = platform.identity(&"demo".parse().unwrap()).await;
    let known = async |uid: &str| {
        let answer = ask(&platform, &service, "GET", &format!("/known-projects/{uid}"), Value::Null).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(known(uid.as_str()).await.0, 204);
    for unknown in ["demo", "prj_aaaaaaaaaaaaaaaaaaaaaaaaaa", "NOT-ONE"] {
        let (status, body) = known(unknown).await;
        assert!(status == 404 && body.contains("project_not_found"), "{unknown}: {status} {body}");
    }
    platform.operator("DELETE", "/projects/demo", Value::Null).await;
    assert_eq!(known(uid.as_str()).await.0, 404, "nothing is added to what is removed");
}

#[tokio::test]
async fn credentials_in_files_are_on_record_from_the_start() {
    let directory = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let credential = Secret::generate().unwrap();
    let services = directory.path().join("services");
    write_private(&services.join("orders-service.key"), credential.to_text().as_bytes()).unwrap();
    let bend = Bend { directory: Some(directory.clone()), services_directory: Some(services), ..Bend::default() };
    let platform = Platform::bent(bend).await;
    let token = credential.to_token();
    let trust: Trust = ask(&platform, &token, "GET", "/trust", Value::Null).await.json().await.unwrap();
    assert_eq!(trust.gateways.keys(), [], "no gateway is on record");
    assert_eq!(trust.operators.keys(), [pass_key(&platform.secret).unwrap().public().clone()]);
}

#[tokio::test]
async fn an_operator_with_a_token_gets_a_pass_for_one_service_or_gateway() {
    let platform = Platform::start().await;
    let credential = enrolled(&platform, "orders-service", "service").await;
    let made = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "ada" })).await;
    let ada = made.body["token"].as_str().unwrap();
    let given = async |to: Value| {
        let asked = ask(&platform, ada, "POST", "/passes", to).await;
        assert_eq!(asked.status(), 201);
        asked.json::<Pass>().await.unwrap().pass
    };
    let for_orders = given(json!({ "service": "orders-service" })).await;
    let for_edge = given(json!({ "gateway": "edge-1" })).await;
    let trust: Trust = ask(&platform, &credential, "GET", "/trust", Value::Null).await.json().await.unwrap();
    let now = chassis::clock::Clock::now(platform.clock.as_ref()).to_seconds();
    let good =
        |pass: &str, audience: &str, seconds| trust.operators.verify(pass, &[audience], now.plus(seconds)).is_ok();
    let service = |name: &str| PassFor::service(name).audience();
    let edge = |name: &str| PassFor::gateway(name).audience();
    for (pass, audience) in [(&for_orders, service("orders-service")), (&for_edge, edge("edge-1"))] {
        assert!(good(pass, &audience, 0) && good(pass, &audience, 59) && !good(pass, &audience, 60));
        assert!(trust.gateways.verify(pass, &[&audience], now).is_err(), "no gateway can make one");
    }
    for (pass, audience) in [
        (&for_orders, service("files")),
        (&for_orders, "orders".to_owned()),
        (&for_orders, edge("orders-service")),
        (&for_edge, edge("edge-2")),
        (&for_edge, service("edge-1")),
    ] {
        assert!(!good(pass, &audience, 0), "{audience}");
    }
    for wrong in [
        json!({}),
        json!({ "gateway": "edge 1" }),
        json!({ "service": "gateway/edge-1" }),
        json!({ "service": "orders-service", "gateway": "edge-1" }),
    ] {
        assert_eq!(platform.operator("POST", "/passes", wrong).await.code(), (400, "invalid_body"));
    }
    for (token, status) in [(ada, 200), (credential.as_str(), 401)] {
        assert_eq!(ask(&platform, token, "GET", "/settings", Value::Null).await.status(), status);
    }
}
