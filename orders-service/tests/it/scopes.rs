//! Every scope against every operation of the router. The test fails for an operation that is missing in the table.

use std::collections::BTreeSet;

use contract::key::{Scope, Scopes};
use reqwest::Method;

use crate::world::{World, refusal};

/// Method, path, required scope and the status with that scope. The first operation that can cancel the order does so;
/// later ones conflict.
const TABLE: &[(&str, &str, Option<Scope>, u16)] = &[
    ("GET", "/v1/store/orders", Some(Scope::OrdersRead), 200),
    ("DELETE", "/v1/store/orders/{orderId}", Some(Scope::OrdersWrite), 204),
    ("GET", "/v1/pets/{petId}", Some(Scope::OrdersRead), 200),
    ("GET", "/v2/store/orders", Some(Scope::OrdersRead), 200),
    ("POST", "/v2/store/orders", Some(Scope::OrdersWrite), 201),
    ("GET", "/v2/store/orders/{orderId}", Some(Scope::OrdersRead), 200),
    ("DELETE", "/v2/store/orders/{orderId}", Some(Scope::OrdersWrite), 409),
    ("POST", "/v2/store/orders/{orderId}/ship", Some(Scope::OrdersWrite), 409),
    ("GET", "/v2/store/orders/{orderId}/history", Some(Scope::OrdersRead), 200),
    ("GET", "/openapi.json", None, 200),
    ("GET", "/v1/openapi.json", None, 200),
    ("GET", "/v2/openapi.json", None, 200),
    ("GET", "/reference", None, 200),
];

// rule: 5.4
#[tokio::test]
async fn every_operation_needs_exactly_the_scope_of_the_table() {
    let mut world = World::new().await;
    world.given("{\"id\":1,\"petId\":1}").await;
    let place = |path: &str| path.replace("{orderId}", "1").replace("{petId}", "1");
    let mut count = 0;
    let declared: Vec<_> = orders_service::operations().collect();
    for path in declared.iter().map(|(_, path, _)| *path).collect::<BTreeSet<_>>() {
        world.caller.scopes = Scopes::all();
        let refused = world.request(Method::PUT, &place(path)).send().await.unwrap();
        assert_eq!(refused.status(), 405, "{path}");
        let allowed = refused.headers()["allow"].to_str().unwrap().to_owned();
        for method in allowed.split(',').map(str::trim).filter(|method| *method != "HEAD") {
            let entry = TABLE.iter().find(|(of, at, ..)| *of == method && *at == path);
            let (_, _, needed, status) = entry.unwrap_or_else(|| panic!("{method} {path} is not in the table"));
            assert!(declared.contains(&(method, path, *needed)), "{method} {path} is described with another scope");
            for scope in Scopes::all().iter() {
                world.caller.scopes = [scope].into_iter().collect();
                let method: Method = method.parse().unwrap();
                let mut request = world.request(method.clone(), &place(path));
                if method == Method::POST && path == "/v2/store/orders" {
                    request = request.json(&serde_json::json!({ "petId": 1, "quantity": 1 }));
                }
                let answer = request.send().await.unwrap();
                if needed.is_none_or(|needed| needed == scope) {
                    assert_eq!(answer.status().as_u16(), *status, "{method} {path} with {scope}");
                } else {
                    let expected = (403, "insufficient_scope".to_owned());
                    assert_eq!(refusal(answer).await, expected, "{method} {path} with {scope}");
                }
            }
            count += 1;
        }
    }
    assert_eq!(count, TABLE.len(), "the table has operations that no longer exist");
}
