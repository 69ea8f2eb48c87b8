//! Every scope against every operation of the router.

use std::collections::BTreeSet;

use contract::key::Scope;
use serde_json::{Value, json};

use crate::webhooks::{endpoint, receiver::Receiver};
use crate::world::Platform;

use Scope::{DomainsRead, DomainsWrite, KeysWrite, OrdersRead, OrdersWrite};

/// The scopes that an operation needs: those of its noun, and more where the request names what is behind another
/// scope. The webhook has order events, and the key in the path may write domains. It is said here again, so that an
/// operation that declares another scope fails.
fn needed(method: &str, path: &str) -> Vec<Scope> {
    let reads = method == "GET";
    let Some(rest) = path.strip_prefix("/v1/projects/{project}/") else { return Vec::new() };
    let mut all = match rest.split('/').next().unwrap_or_default() {
        "usage" => Vec::new(),
        "keys" => vec![KeysWrite],
        "domains" | "domain-check" | "webhooks" | "events" if reads => vec![DomainsRead],
        "domains" | "webhooks" => vec![DomainsWrite],
        other => panic!("say here what {method} {other} needs"),
    };
    all.extend(match (method, rest) {
        ("POST", "keys" | "webhooks") => Some(OrdersRead),
        (_, rest) if rest.starts_with("keys/") => Some(DomainsWrite),
        (_, rest) if rest.starts_with("webhooks/") => Some(OrdersRead),
        _ => None,
    });
    all
}

/// A body with which an operation needs these scopes: what the request must have, as the description says.
fn body(description: &Value, method: &str, path: &str) -> Value {
    match (method, path.rsplit_once('/').map_or("", |(_, last)| last)) {
        ("POST", "keys") => json!({ "scopes": ["orders:read"] }),
        ("POST", "domains") => json!({ "name": "other.localhost" }),
        ("POST", "webhooks") => json!({ "url": "http://127.0.0.1:9/", "events": ["order.*"] }),
        ("PATCH", _) if path.ends_with("{webhook}") => json!({ "events": ["domain.*"] }),
        ("PATCH", _) => json!({ "redirect": null }),
        _ => {
            let described = &description["paths"][path.trim_start_matches("/v1")][method.to_lowercase()];
            let schema = &described["requestBody"]["content"]["application/json"]["schema"];
            let schema = schema["$ref"].as_str().and_then(|place| description.pointer(place.trim_start_matches('#')));
            let required = schema.and_then(|schema| schema["required"].as_array());
            let members =
                required.map(|names| names.iter().map(|name| (name.as_str().unwrap().to_owned(), json!("x"))));
            members.map_or(Value::Null, |members| Value::Object(members.collect()))
        }
    }
}

/// The methods that a router allows at a path, read from its answer to a method that no path has.
async fn offered(platform: &Platform, place: &str) -> Vec<String> {
    let refused = platform.owner("demo").send("PUT", place, Value::Null).await;
    assert_eq!(refused.status, 405, "{place}: {refused:?}");
    let allowed = refused.header("allow").split(',').map(|method| method.trim().to_owned());
    allowed.filter(|method| method != "HEAD").collect()
}

// rule: 5.4
#[tokio::test]
async fn every_operation_needs_exactly_its_scopes() {
    let (platform, receiver) = (Platform::start().await, Receiver::start().await);
    platform.project("demo", "pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    let (webhook, _) = endpoint(&platform, &receiver, json!(["order.*"])).await;
    let owner = platform.owner("demo");
    let key = owner.send("POST", "/v1/projects/demo/keys", json!({ "scopes": ["domains:write"] })).await.body;
    let place = |path: &str| {
        // A check of a name has its parameter in the query.
        let path =
            if path.ends_with("/domain-check") { format!("{path}?name=other.localhost") } else { path.to_owned() };
        path.replace("{project}", "demo")
            .replace("{domain}", "shop.localhost")
            .replace("{webhook}", &webhook)
            .replace("{key}", key["id"].as_str().unwrap())
            .replace("{delivery}", "1")
    };
    let mut operations = Vec::new();
    let declared: Vec<_> = domains_service::operations().collect();
    for path in declared.iter().map(|(_, path, _)| *path).collect::<BTreeSet<_>>() {
        for method in offered(&platform, &place(path)).await {
            operations.push((method, path));
        }
    }
    let description = owner.get("/v1/openapi.json").await.body;
    for (method, path) in &operations {
        let needed = needed(method, path);
        // Requirements that depend on the request, such as a webhook's events, come after the declared one.
        assert!(
            declared.contains(&(method.as_str(), *path, needed.first().copied())),
            "{method} {path} has another scope"
        );
        // Without any one of the scopes it is refused, even with all others.
        for missing in &needed {
            let others: Vec<Scope> = [OrdersRead, OrdersWrite, DomainsRead, DomainsWrite, KeysWrite]
                .into_iter()
                .filter(|scope| scope != missing)
                .collect();
            let refused =
                platform.caller("demo", &others).send(method, &place(path), body(&description, method, path)).await;
            assert!(
                matches!(refused.code(), (403, "insufficient_scope" | "scope_not_grantable")),
                "{method} {path} without {missing}: {refused:?}"
            );
        }
    }
    // With exactly these scopes it succeeds. A test message makes the delivery that is repeated. Removals come last, so
    // that every record still exists.
    operations.sort_by_key(|(_, path)| path.ends_with("/repeat"));
    let (removals, others): (Vec<_>, Vec<_>) = operations.iter().partition(|(method, _)| method == "DELETE");
    for (method, path) in others.into_iter().chain(removals.into_iter().rev()) {
        let needed = needed(method, path);
        let answer =
            platform.caller("demo", &needed).send(method, &place(path), body(&description, method, path)).await;
        assert!((200..300).contains(&answer.status), "{method} {path} with {needed:?}: {answer:?}");
    }
}
