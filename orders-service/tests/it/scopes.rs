//! Every scope against every operation of the router: an operation that is not in the table fails.

use contract::key::{Scope, Scopes};
use reqwest::Method;

use crate::world::{World, refusal};

/// What one operation needs, by method and path.
const TABLE: &[(&str, &str, Option<Scope>)] = &[
    ("GET", "/v1/store/orders", Some(Scope::OrdersRead)),
    ("DELETE", "/v1/store/orders/{orderId}", Some(Scope::OrdersWrite)),
    ("GET", "/v1/pets/{petId}", Some(Scope::OrdersRead)),
    ("GET", "/v2/store/orders", Some(Scope::OrdersRead)),
    ("POST", "/v2/store/orders", Some(Scope::OrdersWrite)),
    ("GET", "/v2/store/orders/{orderId}", Some(Scope::OrdersRead)),
    ("DELETE", "/v2/store/orders/{orderId}", Some(Scope::OrdersWrite)),
    ("POST", "/v2/store/orders/{orderId}/ship", Some(Scope::OrdersWrite)),
    ("GET", "/v2/store/orders/{orderId}/history", Some(Scope::OrdersRead)),
    ("GET", "/openapi.json", None),
    ("GET", "/v1/openapi.json", None),
    ("GET", "/v2/openapi.json", None),
    ("GET", "/reference", None),
];

// rule: 5.4
#[tokio::test]
async fn every_operation_needs_exactly_the_scope_of_the_table() {
    let mut world = World::new().await;
    world.given("{\"id\":1}").await;
    let place = |path: &str| path.replace("{orderId}", "1").replace("{petId}", "1");
    let mut count = 0;
    for path in orders_service::paths() {
        world.caller.scopes = Scopes::all();
        let refused = world.request(Method::PUT, &place(path)).send().await.unwrap();
        assert_eq!(refused.status(), 405, "{path}");
        let allowed = refused.headers()["allow"].to_str().unwrap().to_owned();
        for method in allowed.split(',').map(str::trim).filter(|method| *method != "HEAD") {
            let entry = TABLE.iter().find(|(of, at, _)| *of == method && *at == path);
            let (_, _, needed) = entry.unwrap_or_else(|| panic!("{method} {path} is not in the table"));
            for scope in Scopes::all().iter() {
                world.caller.scopes = [scope].into_iter().collect();
                let method: Method = method.parse().unwrap();
                let answer = world.request(method.clone(), &place(path)).send().await.unwrap();
                if needed.is_none_or(|needed| needed == scope) {
                    assert_ne!(answer.status(), 403, "{method} {path} with {scope}");
                } else {
                    let expected = (403, "insufficient_scope".to_owned());
                    assert_eq!(refusal(answer).await, expected, "{method} {path} with {scope}");
                }
            }
            count += 1;
        }
    }
    assert_eq!(count, TABLE.len(), "the table has operations that are gone");
}
