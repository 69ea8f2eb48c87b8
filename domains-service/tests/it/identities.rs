//! A project's identity is not its name: a new project of the same name inherits nothing from the removed one.

use std::collections::BTreeMap;
use std::time::Duration;

use chassis::clock::Clock as _;
use chassis::secret::Secret;
use contract::erasure::Erasures;
use contract::feed::Entity;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use serde_json::{Value, json};
use verification::RecordData;

use crate::dashboard::Browser;
use crate::stores::{self, rows_with};
use crate::world::{Answer, Bend, Client, Platform, START, eventually};

pub(crate) const PROJECT: &str = "/v1/projects/acme";

const HOUR_MILLIS: i64 = 3_600_000;

/// Thirty days and a minute.
const AFTER: Duration = Duration::from_mins(30 * 24 * 60 + 1);

/// A project `acme` in which something has happened: its identity.
pub(crate) async fn busy(platform: &Platform) -> ProjectUid {
    platform.project("acme", "pro").await;
    let uid = platform.identity(&"acme".parse().unwrap()).await;
    let key = platform.operator("POST", "/projects/acme/keys", json!({ "scopes": ["orders:read"] })).await;
    assert_eq!(key.status, 201);
    let webhook = json!({ "url": "http://127.0.0.1:9/hook", "events": ["order.*", "domain.*"] });
    assert_eq!(platform.operator("POST", "/projects/acme/webhooks", webhook).await.status, 201);
    platform.local_domain("acme", json!({ "name": "shop.localhost", "primary": true })).await;
    report_usage(platform, &uid, 7).await;
    let waits = format!(
        "INSERT INTO certificate_queue (authority, hostname, project, kind, queue, since, offered_at, admitted_at)
         VALUES ('one', 'shop.localhost', '{}', 'orders', 'one orders ', 1, 0, 0)",
        uid.as_str()
    );
    stores::execute(platform.directory.path(), &waits).await;
    uid
}

/// A gateway counts requests of a project.
async fn report_usage(platform: &Platform, uid: &ProjectUid, admitted: u64) {
    let day = platform.clock.now().to_seconds().0 / 86_400;
    let usage = json!({ "project": uid, "day": day, "admitted": admitted, "refused": 0, "banned": 0, "minute": 0,
        "in_minute": 0 });
    let request = platform.client.post(format!("{}/internal/edge/usage", platform.internal));
    let request = request.bearer_auth(platform.gateway().await);
    let answer = request.json(&json!({ "node": "edge-1", "projects": [usage] })).send().await.unwrap();
    assert_eq!(answer.status(), 204);
}

/// The erasures that services are asked for.
async fn erasures(platform: &Platform) -> Vec<ProjectUid> {
    let request = platform.client.get(format!("{}/internal/erasures", platform.internal));
    let request = request.bearer_auth(platform.orders_service().await);
    request.send().await.unwrap().json::<Erasures>().await.unwrap().projects
}

/// Reports that a service has erased these.
async fn erased(platform: &Platform, projects: Vec<ProjectUid>) {
    let request = platform.client.post(format!("{}/internal/erasures", platform.internal));
    let request = request.bearer_auth(platform.orders_service().await);
    let answer = request.json(&Erasures { projects }).send().await.unwrap();
    assert_eq!(answer.status(), 204);
}

/// The kinds of the project's events, the newest first.
async fn kinds(client: &Client<'_>) -> Vec<String> {
    let events = client.get(&format!("{PROJECT}/events")).await.body;
    events["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

pub(crate) async fn remove(platform: &Platform, query: &str) -> Answer {
    platform.operator("DELETE", &format!("/projects/acme{query}"), Value::Null).await
}

fn keys_in(entities: &[Entity]) -> usize {
    entities.iter().filter(|entity| matches!(entity, Entity::Key(_))).count()
}

#[tokio::test]
async fn a_new_project_under_a_freed_name_inherits_nothing() {
    let platform = Platform::start().await;
    let first = busy(&platform).await;
    assert_eq!(platform.owner("acme").get(PROJECT).await.status, 200);
    assert_eq!(remove(&platform, "").await.status, 204);
    platform.project("acme", "pro").await;
    let second = platform.identity(&"acme".parse().unwrap()).await;
    assert_ne!(first, second);
    for uid in [&first, &second] {
        assert!(uid.as_str().starts_with("prj_") && uid.as_str().len() == 30, "{uid}");
    }
    let owner = platform.owner("acme");
    assert_eq!(
        kinds(&owner).await,
        ["key.created", "project.deployed", "project.created"],
        "the key is the caller's own"
    );
    assert_eq!(owner.get(&format!("{PROJECT}/keys")).await.body["keys"].as_array().unwrap().len(), 1);
    for (path, list) in [("webhooks", "webhooks"), ("domains", "domains")] {
        assert_eq!(owner.get(&format!("{PROJECT}/{path}")).await.body[list], json!([]), "{path}");
    }
    // A gateway's late report about the first project is not counted for the second.
    report_usage(&platform, &first, 8).await;
    let told = platform.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Project(project) => Some(project.uid),
        _ => None,
    });
    assert_eq!(told, Some(second.clone()));
    // A key of the first project opens nothing of the second, also through a gateway that is behind.
    let stale = platform.owner("acme").of(&first);
    for path in ["", "/keys", "/events", "/domains", "/webhooks"] {
        assert_eq!(stale.get(&format!("{PROJECT}{path}")).await.code(), (401, "invalid_api_key"), "{path}");
    }
    let key = stale.send("POST", &format!("{PROJECT}/keys"), json!({ "scopes": ["orders:read"] })).await;
    assert_eq!(key.code(), (401, "invalid_api_key"));
}

pub(crate) const RESTORE: &str = "/projects/acme/restore";

#[tokio::test]
async fn a_removed_project_can_be_restored_while_it_is_kept() {
    let platform = Platform::start().await;
    let uid = busy(&platform).await;
    let target = platform.operator("GET", "/projects/acme", Value::Null).await.body["cname_target"].clone();
    let before = kinds(&platform.owner("acme")).await;
    assert_eq!(keys_in(&platform.snapshot().await), 2, "one of them is the caller's");
    assert_eq!(remove(&platform, "").await.status, 204);
    assert_eq!(keys_in(&platform.snapshot().await), 0, "keys stop at once");
    assert_eq!(platform.operator("GET", "/projects", Value::Null).await.body["projects"], json!([]));
    let kept = platform.operator("GET", "/removed-projects", Value::Null).await.body["projects"][0].clone();
    assert_eq!((&kept["id"], &kept["uid"]), (&json!("acme"), &json!(uid)));
    let moments = (&kept["removed_at"], &kept["erase_at"]);
    assert_eq!(moments, (&json!("2026-06-15T00:00:00Z"), &json!("2026-07-15T00:00:00Z")));
    assert_eq!(erasures(&platform).await, [], "nothing is erased while it may come back");
    let back = platform.operator("POST", RESTORE, Value::Null).await;
    assert_eq!((back.status, &back.body["uid"], &back.body["cname_target"]), (200, &json!(uid), &target));
    assert_eq!(keys_in(&platform.snapshot().await), 2);
    let owner = platform.owner("acme");
    assert_eq!(owner.get(&format!("{PROJECT}/webhooks")).await.body["webhooks"].as_array().unwrap().len(), 1);
    let domain = platform.domain_in("acme", "shop.localhost", "active").await;
    assert_eq!(domain["primary"], true, "a domain is verified anew and has its place again");
    let after = kinds(&owner).await;
    assert!(after.ends_with(&before), "what happened before is there: {after:?}");
    assert!(after.contains(&"project.restored".to_owned()) && after.contains(&"project.deleted".to_owned()));
}

#[tokio::test]
async fn a_removed_project_does_not_come_back_where_another_has_its_name() {
    let platform = Platform::start().await;
    platform.project("acme", "pro").await;
    assert_eq!(remove(&platform, "").await.status, 204);
    platform.project("acme", "free").await;
    assert_eq!(platform.operator("POST", RESTORE, Value::Null).await.code(), (409, "project_exists"));
    platform.clock.advance(Duration::from_secs(1));
    assert_eq!(remove(&platform, "").await.status, 204);
    let back = platform.operator("POST", RESTORE, Value::Null).await;
    assert_eq!((back.status, &back.body["plan"]), (200, &json!("free")), "the one that was removed last");
}

/// All identifiers that mark rows of the project: its own, and those of its records.
async fn known_by(platform: &Platform, uid: &ProjectUid) -> Vec<String> {
    let owner = platform.owner("acme");
    let mut ids = vec![uid.to_string()];
    for list in ["keys", "webhooks"] {
        let listed = owner.get(&format!("{PROJECT}/{list}")).await.body;
        ids.extend(listed[list].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
    }
    assert!(ids.len() >= 3, "{ids:?}");
    ids
}

#[tokio::test]
async fn a_removed_project_is_erased_after_its_restore_period_and_services_are_asked_until_done() {
    let mut platform = Platform::start().await;
    let uid = busy(&platform).await;
    Browser::signed_in(&platform, "acme", &["domains:read"]).await;
    let ids = known_by(&platform, &uid).await;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let directory = platform.directory.clone();
    // The project has a row in every table that can have one; otherwise the test would prove nothing about that table.
    let before = rows_with(directory.path(), &ids).await;
    for (table, columns) in stores::schema(directory.path()).await {
        let is_of_projects = columns.iter().any(|column| column == "project" || column == "endpoint");
        // A withdrawal outlives its project, until every gateway has acknowledged it:
        // `withdrawals::an_erased_project…`.
        let is_of_erasures = ["erasures", "erased_by", "withdrawals"].contains(&table.as_str());
        assert!(
            !is_of_projects || is_of_erasures || before.contains_key(&table),
            "fill {table} in this test: {before:?}"
        );
    }
    assert_eq!(remove(&platform, "").await.status, 204);
    platform.stop().await;
    let start = START.plus(i64::try_from(AFTER.as_millis()).unwrap());
    let bend = || Bend { directory: Some(platform.directory.clone()), start, ..Bend::default() };
    let mut later = Platform::bent(bend()).await;
    let told = eventually(async || {
        let told = erasures(&later).await;
        if told.is_empty() { Err("nothing is erased".to_owned()) } else { Ok(told) }
    });
    assert_eq!(told.await, std::slice::from_ref(&uid));
    assert_eq!(later.operator("POST", "/projects/acme/restore", Value::Null).await.status, 404);
    // The control plane and the service may restart in between: the erasure is requested again.
    later.stop().await;
    let mut left = rows_with(directory.path(), &ids).await;
    // The change log contains it for an hour.
    assert!(left.remove("changes").is_some_and(|rows| rows >= 2), "{left:?}");
    assert_eq!(left, BTreeMap::from([("erasures".to_owned(), 1)]));
    let mut again = Platform::bent(Bend { start: start.plus(HOUR_MILLIS), ..bend() }).await;
    assert_eq!(erasures(&again).await, std::slice::from_ref(&uid));
    erased(&again, vec![uid]).await;
    assert_eq!(erasures(&again).await, []);
    eventually(async || {
        let left = rows_with(directory.path(), &ids).await;
        if left.is_empty() { Ok(()) } else { Err(format!("rows of the project are left: {left:?}")) }
    })
    .await;
    again.stop().await;
}

/// All texts that identify the project `acme`: its name, host and identity, and those of its keys, webhooks and
/// certificates.
async fn told_of(platform: &Platform, uid: &ProjectUid) -> Vec<String> {
    let mut told = known_by(platform, uid).await;
    for (table, column) in [("api_keys", "digest"), ("webhook_endpoints", "url")] {
        told.extend(stores::value(platform.directory.path(), table, column, "TRUE").await);
    }
    let certificate =
        stores::value(platform.directory.path(), "entities", "body", "kind = 'certificate'").await.unwrap();
    let certificate: Value = serde_json::from_str(&certificate).unwrap();
    told.push(certificate["certificate"]["key"].as_str().unwrap_or_else(|| panic!("{certificate}")).to_owned());
    told.extend(["\"acme\"", "\"shop.localhost\""].map(str::to_owned));
    told
}

/// The texts that occur in the bytes of the database, whether or not a statement finds them.
fn at_rest<'a>(directory: &std::path::Path, texts: &'a [String]) -> Vec<&'a String> {
    let bytes = stores::at_rest(directory);
    let all = String::from_utf8_lossy(&bytes);
    texts.iter().filter(|text| all.contains(text.as_str())).collect()
}

#[tokio::test]
async fn an_erased_project_leaves_no_byte_in_the_database_an_hour_later() {
    let mut platform = Platform::start().await;
    let uid = busy(&platform).await;
    let told = told_of(&platform, &uid).await;
    let directory = platform.directory.clone();
    assert_eq!(at_rest(directory.path(), &told), told.iter().collect::<Vec<_>>());
    assert_eq!(remove(&platform, "?now=true").await.status, 204);
    erased(&platform, vec![uid]).await;
    platform.stop().await;
    let start = START.plus(HOUR_MILLIS + 60_000);
    let mut later = Platform::bent(Bend { directory: Some(directory.clone()), start, ..Bend::default() }).await;
    eventually(async || {
        let left = at_rest(directory.path(), &told);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} can still be read")) }
    })
    .await;
    later.stop().await;
    // Only that the name was in use, not by which project: its next owner must prove it.
    assert_eq!(rows_with(directory.path(), &["shop.localhost"]).await, BTreeMap::from([("tombstones".to_owned(), 1)]));
}

#[tokio::test]
async fn erasing_now_also_erases_removed_projects_of_the_name() {
    let platform = Platform::start().await;
    let first = busy(&platform).await;
    assert_eq!(platform.owner("acme").get(PROJECT).await.status, 200);
    assert_eq!(remove(&platform, "").await.status, 204);
    platform.project("acme", "pro").await;
    let second = platform.identity(&"acme".parse().unwrap()).await;
    assert_eq!(remove(&platform, "?now=true").await.status, 204);
    let mut told = erasures(&platform).await;
    told.sort();
    let mut both = vec![first, second];
    both.sort();
    assert_eq!(told, both);
    assert_eq!(platform.operator("GET", "/removed-projects", Value::Null).await.body["projects"], json!([]));
    assert_eq!(remove(&platform, "?now=true").await.code(), (404, "project_not_found"));
}

/// The number of published rows does not grow with the number of changes.
#[tokio::test]
async fn a_projects_published_entities_end_with_it() {
    let platform = Platform::start().await;
    let published = async || platform.follow(0).await.snapshot().await.0.len();
    let before = published().await;
    busy(&platform).await;
    let filled = published().await;
    assert!(filled >= before + 4, "a project, its sites, a key, a certificate: {filled}");
    for _ in 0..20 {
        for suspended in [true, false] {
            platform.operator("PATCH", "/projects/acme", json!({ "suspended": suspended })).await;
        }
    }
    assert_eq!(published().await, filled);
    assert_eq!(remove(&platform, "?now=true").await.status, 204);
    assert_eq!(published().await, before);
}

/// Verifies `shop.customer.test`, again while another worker has the domain's lease.
async fn verify(platform: &Platform) -> Answer {
    for _ in 0..100 {
        platform.clock.advance(Duration::from_secs(11));
        let path = format!("{PROJECT}/domains/shop.customer.test/verify");
        let answer = platform.owner("acme").send("POST", &path, Value::Null).await;
        if answer.status != 202 {
            return answer;
        }
    }
    panic!("another worker always has the lease");
}

#[tokio::test]
async fn a_new_platform_secret_breaks_no_domain() {
    let mut before = Platform::start().await;
    before.project("acme", "pro").await;
    before.dns.zone("customer.test", &["192.31.196.1"]);
    let target = before.operator("GET", "/projects/acme", Value::Null).await.body["cname_target"].clone();
    before.dns.set("shop.customer.test", RecordData::Cname(target.as_str().unwrap().to_owned()));
    let body = json!({ "name": "shop.customer.test" });
    assert_eq!(before.operator("POST", "/projects/acme/domains", body).await.status, 201);
    before.domain_in("acme", "shop.customer.test", "active").await;
    before.stop().await;
    // The worker checks the domain and renews its certificate with the secret that was unknown before.
    let directory = Some(before.directory.clone());
    let start = UnixMillis(START.0 + 65 * 86_400_000);
    let secret = Secret::new(vec![9; 32]);
    let after = Platform::bent(Bend { directory, start, secret, ..Bend::default() }).await;
    after.dns.take_over(&before.dns);
    let answer = verify(&after).await;
    assert_eq!((&answer.body["status"], &answer.body["problems"]), (&json!("active"), &json!([])), "{answer:?}");
    assert_eq!(answer.body["records"][0]["value"], target);
    let renewed = after
        .domain_when("acme", "shop.customer.test", |domain| {
            domain["certificate"]["not_before"].as_str().is_some_and(|at| at > "2026-08-01")
        })
        .await;
    assert_eq!(renewed["status"], "active");
}
