//! Every scope against every operation of the router: an operation that is not in the table fails.

use std::collections::BTreeSet;

use contract::key::Scope;
use serde_json::{Value, json};

use crate::webhooks::{endpoint, receiver::Receiver};
use crate::world::Platform;

use Scope::{DomainsRead, DomainsWrite, KeysWrite, OrdersRead, OrdersWrite};

/// The required scopes of each operation, by method and path; all of the list. The webhook has order events, and the
/// key in the path may write domains.
const TABLE: &[(&str, &str, &[Scope])] = &[
    ("GET", "/openapi.json", &[]),
    ("GET", "/v1/openapi.json", &[]),
    ("GET", "/reference", &[]),
    ("GET", "/v1/acme-account", &[]),
    ("GET", "/v1/projects/{project}", &[]),
    ("GET", "/v1/projects/{project}/usage", &[]),
    ("GET", "/v1/projects/{project}/keys", &[KeysWrite]),
    ("POST", "/v1/projects/{project}/keys", &[KeysWrite, OrdersRead]),
    ("DELETE", "/v1/projects/{project}/keys/{key}", &[KeysWrite, DomainsWrite]),
    ("POST", "/v1/projects/{project}/keys/{key}/rotate", &[KeysWrite, DomainsWrite]),
    ("GET", "/v1/projects/{project}/domains", &[DomainsRead]),
    ("POST", "/v1/projects/{project}/domains", &[DomainsWrite]),
    ("GET", "/v1/projects/{project}/domains/{domain}", &[DomainsRead]),
    ("PATCH", "/v1/projects/{project}/domains/{domain}", &[DomainsWrite]),
    ("DELETE", "/v1/projects/{project}/domains/{domain}", &[DomainsWrite]),
    ("POST", "/v1/projects/{project}/domains/{domain}/verify", &[DomainsWrite]),
    ("GET", "/v1/projects/{project}/domains/{domain}/events", &[DomainsRead]),
    ("GET", "/v1/projects/{project}/domain-check", &[DomainsRead]),
    ("GET", "/v1/projects/{project}/events", &[DomainsRead]),
    ("GET", "/v1/projects/{project}/webhooks", &[DomainsRead]),
    ("POST", "/v1/projects/{project}/webhooks", &[DomainsWrite, OrdersRead]),
    ("GET", "/v1/projects/{project}/webhooks/{webhook}", &[DomainsRead, OrdersRead]),
    ("PATCH", "/v1/projects/{project}/webhooks/{webhook}", &[DomainsWrite, OrdersRead]),
    ("DELETE", "/v1/projects/{project}/webhooks/{webhook}", &[DomainsWrite, OrdersRead]),
    ("POST", "/v1/projects/{project}/webhooks/{webhook}/rotate", &[DomainsWrite, OrdersRead]),
    ("POST", "/v1/projects/{project}/webhooks/{webhook}/test", &[DomainsWrite, OrdersRead]),
    ("GET", "/v1/projects/{project}/webhooks/{webhook}/deliveries", &[DomainsRead, OrdersRead]),
    ("POST", "/v1/projects/{project}/webhooks/{webhook}/deliveries/{delivery}/repeat", &[DomainsWrite, OrdersRead]),
];

/// A body with which an operation needs the table's scopes.
fn body(method: &str, path: &str) -> Value {
    match (method, path.rsplit_once('/').map_or("", |(_, last)| last)) {
        ("POST", "keys") => json!({ "scopes": ["orders:read"] }),
        ("POST", "domains") => json!({ "name": "other.localhost" }),
        ("POST", "webhooks") => json!({ "url": "http://127.0.0.1:9/", "events": ["order.*"] }),
        ("PATCH", _) if path.ends_with("{webhook}") => json!({ "events": ["domain.*"] }),
        ("PATCH", _) => json!({ "redirect": null }),
        _ => Value::Null,
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
async fn every_operation_needs_exactly_the_scopes_of_the_table() {
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
    for (method, path) in &operations {
        let entry = TABLE.iter().find(|(of, at, _)| of == method && at == path);
        let (_, _, needed) = entry.unwrap_or_else(|| panic!("{method} {path} is not in the table"));
        // Requirements that depend on the request, such as a webhook's events, are only in the table.
        assert!(
            declared.contains(&(method.as_str(), *path, needed.first().copied())),
            "{method} {path} has another scope"
        );
        // Without any one of the scopes it is refused, even with all others.
        for missing in *needed {
            let others: Vec<Scope> = [OrdersRead, OrdersWrite, DomainsRead, DomainsWrite, KeysWrite]
                .into_iter()
                .filter(|scope| scope != missing)
                .collect();
            let refused = platform.caller("demo", &others).send(method, &place(path), body(method, path)).await;
            assert!(
                matches!(refused.code(), (403, "insufficient_scope" | "scope_not_grantable")),
                "{method} {path} without {missing}: {refused:?}"
            );
        }
    }
    assert_eq!(operations.len(), TABLE.len(), "the table has operations that are gone");
    // With exactly these scopes it succeeds. Removals come last, so that every record still exists.
    let (removals, others): (Vec<_>, Vec<_>) = TABLE.iter().partition(|(method, _, _)| *method == "DELETE");
    for (method, path, needed) in others.into_iter().chain(removals.into_iter().rev()) {
        let answer = platform.caller("demo", needed).send(method, &place(path), body(method, path)).await;
        assert!((200..300).contains(&answer.status), "{method} {path} with {needed:?}: {answer:?}");
    }
}
