//! Projects: created, published, changed, deleted.

use contract::feed::{Effect, Entity, EntityName};
use contract::key::Scope;
use contract::site::Serves;
use serde_json::{Value, json};

use crate::world::{PLATFORM, Platform};

// rule: 1.6
#[tokio::test]
async fn a_deployed_project_is_served_on_a_subdomain_of_the_platform() {
    let platform = Platform::start().await;
    let created = platform.operator("POST", "/projects", json!({ "id": "demo" })).await;
    assert_eq!(created.status, 201);
    assert_eq!((&created.body["plan"], &created.body["access"]), (&json!("free"), &json!("key")));
    assert_eq!(created.body["limits"], json!({ "per_minute": 60, "per_day": 1000 }));
    assert_eq!(created.body["deployed"], json!(false));
    let host = format!("demo.{PLATFORM}");
    let site = |entity: &Entity| matches!(entity, Entity::Site(site) if site.hostname.as_str() == host);
    assert!(!platform.snapshot().await.iter().any(site), "not before it is deployed");
    let deployed = platform.operator("POST", "/projects/demo/deploy", Value::Null).await;
    assert_eq!((deployed.status, &deployed.body["host"]), (200, &json!(host)));
    assert!(platform.snapshot().await.iter().any(site));
}

#[tokio::test]
async fn the_platforms_own_api_is_published_at_start() {
    let platform = Platform::start().await;
    let api = platform.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Site(site) if site.hostname.as_str() == format!("api.{PLATFORM}") => Some(site),
        _ => None,
    });
    let Serves::Platform { upstream, access } = api.unwrap().serves else { panic!("not the platform's") };
    assert_eq!((upstream.as_str(), access.as_str()), ("domains", "key"));
}

#[tokio::test]
async fn wrong_projects_are_refused() {
    let platform = Platform::start().await;
    for (body, status, code) in [
        (json!({ "id": "Demo" }), 400, "invalid_project"),
        (json!({ "id": "a.b" }), 400, "invalid_project"),
        (json!({ "id": "demo", "upstream": "" }), 400, "invalid_project"),
        (json!({ "id": "api" }), 409, "project_reserved"),
        (json!({ "id": "edge" }), 409, "project_reserved"),
        (json!({ "id": "demo", "plan": "platinum" }), 400, "invalid_body"),
        (json!({ "id": "demo", "limits": { "per_minute": 0, "per_day": 1 } }), 400, "invalid_body"),
        (json!({ "id": "demo", "colour": "red" }), 400, "invalid_body"),
        (json!([]), 400, "invalid_body"),
    ] {
        let answer = platform.operator("POST", "/projects", body.clone()).await;
        assert_eq!(answer.code(), (status, code), "{body}");
    }
    platform.project("demo", "pro").await;
    let again = platform.operator("POST", "/projects", json!({ "id": "demo" })).await;
    assert_eq!(again.code(), (409, "project_exists"));
    let missing = platform.operator("GET", "/projects/unknown", Value::Null).await;
    assert_eq!(missing.code(), (404, "project_not_found"));
}

// rule: 8.4, 8.6.4
#[tokio::test]
async fn a_higher_plan_brings_higher_limits_and_enterprise_has_its_own() {
    let platform = Platform::start().await;
    platform.project("demo", "free").await;
    let change = |body: Value| platform.operator("PATCH", "/projects/demo", body);
    let pro = change(json!({ "plan": "pro" })).await;
    assert_eq!(pro.body["limits"], json!({ "per_minute": 300, "per_day": 10000 }));
    let own = json!({ "per_minute": 5000, "per_day": 2_000_000 });
    let enterprise = change(json!({ "plan": "enterprise", "limits": own })).await;
    assert_eq!((&enterprise.body["limits"], &enterprise.body["limits_override"]), (&own, &own));
    let unchanged = change(json!({ "suspended": true })).await;
    assert_eq!((&unchanged.body["limits"], &unchanged.body["suspended"]), (&own, &json!(true)));
    let back = change(json!({ "limits": null })).await;
    assert_eq!(back.body["limits"], json!({ "per_minute": 1000, "per_day": 100_000 }));
    let published = platform.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Project(project) => Some(project),
        _ => None,
    });
    assert!(published.unwrap().suspended);
}

#[tokio::test]
async fn a_deleted_project_leaves_nothing_and_its_name_can_be_used_again() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let before = platform.operator("GET", "/projects/demo", Value::Null).await.body["cname_target"].clone();
    platform.operator("POST", "/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    let (_, revision) = platform.follow(0).await.snapshot().await;
    let mut stream = platform.follow(revision).await;
    let deleted = platform.operator("DELETE", "/projects/demo", Value::Null).await;
    assert_eq!((deleted.status, deleted.header("x-edge-ack").split(';').next()), (204, Some("0/0")));
    let mut removed = Vec::new();
    while !matches!(removed.last(), Some(EntityName::Project(_))) {
        match stream.change().await.effect {
            Effect::Remove(name) => removed.push(name),
            Effect::Put(entity) => panic!("nothing is put: {entity:?}"),
        }
    }
    assert_eq!(removed.len(), 5, "site and certificate of the domain, key, site, project: {removed:?}");
    assert_eq!(platform.snapshot().await.len(), 2, "the platform's own sites are left: API and dashboard");
    platform.project("demo", "pro").await;
    let after = platform.operator("GET", "/projects/demo", Value::Null).await.body["cname_target"].clone();
    assert_ne!(before, after, "a dangling CNAME does not lead to a new project of the same name");
}

#[tokio::test]
async fn projects_are_listed_in_pages() {
    let platform = Platform::start().await;
    for index in 0..5 {
        platform.project(&format!("p{index}"), "pro").await;
    }
    let first = platform.operator("GET", "/projects?limit=3", Value::Null).await.body;
    assert_eq!((first["projects"].as_array().unwrap().len(), &first["next_cursor"]), (3, &json!("p2")));
    let second = platform.operator("GET", "/projects?limit=3&cursor=p2", Value::Null).await.body;
    assert_eq!((second["projects"].as_array().unwrap().len(), &second["next_cursor"]), (2, &Value::Null));
    let wrong = platform.operator("GET", "/projects?limit=0", Value::Null).await;
    assert_eq!(wrong.code(), (400, "invalid_query"));
}

#[tokio::test]
async fn a_caller_sees_only_its_own_project() {
    let platform = Platform::start().await;
    platform.project("mine", "pro").await;
    platform.project("theirs", "pro").await;
    let caller = platform.caller("mine", &[Scope::OrdersRead]);
    assert_eq!(caller.get("/v1/projects/mine").await.body["id"], "mine");
    let theirs = caller.get("/v1/projects/theirs").await;
    let unknown = caller.get("/v1/projects/unknown").await;
    assert_eq!(theirs.code(), (404, "project_not_found"));
    assert_eq!(theirs.body, unknown.body, "whether it exists cannot be told");
}

#[tokio::test]
async fn events_are_on_record() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.owner("demo").send("POST", "/v1/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await;
    let events = platform.owner("demo").get("/v1/projects/demo/events").await.body;
    let seen: Vec<(&str, &str)> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), event["actor"].as_str().unwrap()))
        .collect();
    let kinds: Vec<&str> = seen.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["key.created", "key.created", "project.deployed", "project.created"], "newest first");
    assert!(seen[0].1.starts_with("key_"), "the key that asked: {}", seen[0].1);
    assert_eq!(seen[1].1, "operator:command-line");
    assert_eq!(events["events"][0]["client"], "192.0.2.1");
}

#[tokio::test]
async fn the_operator_sees_every_project() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    platform.report("node-a", 1).await;
    let status = platform.operator("GET", "/status", Value::Null).await.body;
    assert_eq!((&status["projects"], &status["nodes_live"]), (&json!(1), &json!(1)));
    assert_eq!((&status["domains"], &status["nodes_lagging"]), (&json!({ "active": 1 }), &json!(["tests/node-a"])));
    let nodes = platform.operator("GET", "/nodes", Value::Null).await.body;
    assert_eq!((&nodes["nodes"][0]["node"], &nodes["nodes"][0]["live"]), (&json!("tests/node-a"), &json!(true)));
    assert_eq!(nodes["nodes"][0]["gateway"], "tests");
    assert_eq!(nodes["revision"], status["revision"]);
}
