//! An unreadable row stops nothing but itself, in every table and column, over either database.

mod damaged;
mod wrong;

use chassis::clock::Clock as _;
use contract::feed::{Entity, Frame};
use serde_json::{Value, json};

use crate::stores;
use crate::world::{Bend, Platform, eventually};

/// The content of a text column, and so the effect of garbage in it.
enum Holds {
    /// It is parsed. The row is made by hand with these statements, or is one that the test has; `where` finds it.
    Parsed { row: &'static str, detection: Detection },
    /// Text for people, a secret, a digest, or a value that only the database compares: every value is readable.
    Opaque,
    /// The row's key: another value is another row.
    Key,
}

/// How an unreadable row is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detection {
    /// The worker, a list or the stream reads it without a request.
    InStatus,
    /// It is read on a request of its owner, or by a service.
    WhenAsked,
}

use Holds::{Key, Opaque, Parsed};

const DOMAIN: &str = "name = 'bad.localhost'";
const PROJECT: &str = "name = 'broken'";
const ALL: &str = "TRUE";

const fn parsed(row: &'static str) -> Holds {
    Parsed { row, detection: Detection::InStatus }
}

const fn asked(row: &'static str) -> Holds {
    Parsed { row, detection: Detection::WhenAsked }
}

/// Every text column of every table. A missing one fails the test: describe its content here.
const COLUMNS: &[(&str, &str, Holds)] = &[
    ("acme_limits", "name", Key),
    ("acme_orders", "authority", Key),
    ("acme_orders", "hostname", parsed("url = 'https://ca.test/bad'")),
    ("acme_orders", "sealed_key", Opaque),
    ("acme_orders", "url", Opaque),
    ("api_keys", "digest", parsed("label = 'bad'")),
    ("api_keys", "environment", parsed("label = 'bad'")),
    ("api_keys", "id", Key),
    ("api_keys", "label", Opaque),
    ("api_keys", "last4", Opaque),
    ("api_keys", "project", Key),
    ("api_keys", "scopes", parsed("label = 'bad'")),
    ("certificate_queue", "authority", Key),
    ("certificate_queue", "hostname", Key),
    ("certificate_queue", "kind", Opaque),
    ("certificate_queue", "project", Key),
    ("certificate_queue", "queue", Opaque),
    ("changes", "effect", parsed("revision = (SELECT current FROM revision_counter)")),
    ("credentials", "digest", Key),
    ("credentials", "file", Opaque),
    ("credentials", "kind", parsed("name = 'bad'")),
    ("credentials", "made_by", Opaque),
    ("credentials", "name", Key),
    ("dashboard_links", "digest", Key),
    ("dashboard_links", "operator", Opaque),
    ("dashboard_sessions", "client", Opaque),
    ("dashboard_sessions", "digest", Key),
    ("dashboard_sessions", "key_id", asked(ALL)),
    ("dashboard_sessions", "operator", Opaque),
    ("dashboard_sessions", "project", Key),
    ("domains", "certificate", parsed(DOMAIN)),
    ("domains", "checks", parsed(DOMAIN)),
    ("domains", "name", Key),
    ("domains", "problems", parsed(DOMAIN)),
    ("domains", "project", Key),
    ("domains", "redirect_to", parsed(DOMAIN)),
    ("domains", "status", parsed(DOMAIN)),
    ("edge_bans", "bans", asked(ALL)),
    ("edge_bans", "node", Key),
    ("entities", "body", parsed("kind = 'site' AND name = 'bad.localhost'")),
    ("entities", "kind", Key),
    ("entities", "name", Key),
    ("entities", "seal", Opaque),
    ("erased_by", "project", Key),
    ("erased_by", "service", Key),
    ("erasures", "project", asked(ALL)),
    ("events", "actor", Opaque),
    ("events", "client", Opaque),
    ("events", "detail", parsed("kind = 'project.deployed'")),
    ("events", "domain", Opaque),
    ("events", "gateway", Opaque),
    ("events", "kind", Opaque),
    ("events", "project", Key),
    ("gateway_keys", "sealed", Opaque),
    ("holders", "name", Key),
    ("holders", "project", Key),
    ("kept_rows", "owner", Key),
    ("processes", "gateway", Key),
    ("processes", "place", Opaque),
    ("processes", "process", Key),
    ("processes", "version", Opaque),
    ("projects", "access", parsed(PROJECT)),
    ("projects", "browsers", parsed(PROJECT)),
    ("projects", "id", Key),
    ("projects", "kept_domains", parsed(PROJECT)),
    // Put back from what the gateways were told as soon as an operator names it.
    ("projects", "name", asked(PROJECT)),
    ("projects", "plan", parsed(PROJECT)),
    ("projects", "proof_key", parsed(PROJECT)),
    ("projects", "salt", Opaque),
    ("projects", "upstream", parsed(PROJECT)),
    ("settings", "name", Key),
    ("settings", "value", Opaque),
    ("taken_events", "source", Key),
    ("tombstones", "lineage", Opaque),
    ("tombstones", "name", Key),
    ("usage_days", "node", Key),
    ("usage_days", "project", Key),
    ("webhook_deliveries", "body", Opaque),
    ("webhook_deliveries", "endpoint", Key),
    ("webhook_deliveries", "kind", Opaque),
    ("webhook_deliveries", "last_error", Opaque),
    ("webhook_deliveries", "last_result", Opaque),
    ("webhook_deliveries", "message", Opaque),
    ("webhook_deliveries", "state", Opaque),
    ("webhook_endpoints", "description", Opaque),
    ("webhook_endpoints", "disabled_reason", parsed("description = 'bad'")),
    ("webhook_endpoints", "events", parsed("description = 'bad'")),
    ("webhook_endpoints", "id", Key),
    ("webhook_endpoints", "previous_secret", Opaque),
    ("webhook_endpoints", "project", Key),
    ("webhook_endpoints", "sealed_secret", Opaque),
    ("webhook_endpoints", "url", Opaque),
    ("withdrawals", "project", Key),
    ("withdrawals", "project_name", Opaque),
    ("withdrawals", "what", Opaque),
    ("withdrawals", "which", Key),
];

/// Longer than a certificate of the local authority has until it is renewed, and shorter than it is valid.
const RENEWAL: std::time::Duration = std::time::Duration::from_hours(70 * 24);

#[tokio::test(flavor = "multi_thread")]
async fn every_column_of_text_is_known_here() {
    let platform = Platform::start().await;
    let known: Vec<(String, String)> =
        COLUMNS.iter().map(|(table, column, _)| ((*table).to_owned(), (*column).to_owned())).collect();
    let found = stores::text_columns(platform.directory.path()).await;
    assert_eq!(found, known, "say in COLUMNS what each column of text holds, in order of their names");
}

/// A project with a row of every table that is to be damaged, and neighbours.
async fn platform() -> Platform {
    let platform = Platform::bent(Bend::default()).await;
    for project in ["other", "demo", "broken"] {
        platform.project(project, "business").await;
    }
    platform.local_domain("other", json!({ "name": "good.localhost" })).await;
    platform.local_domain("demo", json!({ "name": "good-too.localhost" })).await;
    platform.local_domain("demo", json!({ "name": "bad.localhost" })).await;
    let key = json!({ "label": "bad", "scopes": ["orders:read"] });
    assert_eq!(platform.operator("POST", "/projects/demo/keys", key).await.status, 201);
    let webhook = json!({ "url": "http://127.0.0.1:9/", "description": "bad", "events": ["domain.degraded"] });
    assert_eq!(platform.operator("POST", "/projects/demo/webhooks", webhook).await.status, 201);
    by_hand(&platform).await;
    platform
}

/// Rows that nothing makes here; the service deletes some of them in time.
async fn by_hand(platform: &Platform) {
    let now = platform.clock.now().0;
    let rows = format!(
        "INSERT INTO acme_orders (authority, hostname, url, created_at, abandoned_at)
             VALUES ('gone', 'bad.test', 'https://ca.test/bad', {now}, {now_and_more}) ON CONFLICT DO NOTHING;
         INSERT INTO credentials (name, kind, digest, created_at) VALUES ('bad', 'gateway', 'bad', {now})
             ON CONFLICT DO NOTHING;
         INSERT INTO edge_bans (node, bans, total, reported_at) VALUES ('edge', '[]', 1, {now}) ON CONFLICT DO NOTHING;
         INSERT INTO erasures (project, erased_at) VALUES ('prj_00000000000000000000000001', {now}) ON CONFLICT DO NOTHING;
         INSERT INTO dashboard_sessions (digest, project, key_id, client, created_at, seen_at)
             SELECT 'abcdefghijkl', project, id, '192.0.2.1', {now}, {now} FROM api_keys WHERE label = 'bad' ON CONFLICT DO NOTHING;",
        now_and_more = now + 1_000_000_000_000,
    );
    stores::execute(platform.directory.path(), &rows).await;
}

/// Everything that goes on, whichever row is bad: `demo` too, unless its own record is the bad one.
async fn everything_else_goes_on(platform: &Platform, case: &str, number: usize) {
    for (project, domain) in [("other", "good.localhost"), ("demo", "good-too.localhost")] {
        let path = format!("/projects/{project}/domains/{domain}");
        let ends = async || {
            let shown = platform.operator("GET", &path, Value::Null).await;
            assert_eq!(shown.status, 200, "{case}: {shown:?}");
            shown.body["certificate"]["not_after"].clone()
        };
        let before = ends().await;
        let now = platform.clock.now().0;
        eventually(async || {
            let ends = ends().await;
            // Renewed since the clock was moved: it ends later than a certificate of before can.
            let until = platform.seconds_until(&ends);
            if until > 85 * 86_400 {
                Ok(())
            } else {
                Err(format!("{case}: {domain} ends in {until} s, at {now}: {before}"))
            }
        })
        .await;
        let fresh = format!("new-{number}.localhost");
        platform.local_domain(project, json!({ "name": format!("{project}-{fresh}") })).await;
        for list in ["domains", "keys", "webhooks", "events"] {
            let list = platform.operator("GET", &format!("/projects/{project}/{list}?limit=200"), Value::Null).await;
            assert_eq!(list.status, 200, "{case}: {list:?}");
        }
        let removed = format!("/projects/{project}/domains/{project}-{fresh}");
        // It waits for none but the processes that were put on record by hand and never report.
        let removed = platform.operator("DELETE", &removed, Value::Null).await;
        let lagging = removed.body["lagging"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let waits_for_others = lagging.clone().any(|node| !node.starts_with("good/"));
        assert!(removed.status == 204 || (removed.status == 202 && !waits_for_others), "{case}: {removed:?}");
    }
    for list in ["/projects", "/removed-projects", "/nodes", "/status"] {
        assert_eq!(platform.operator("GET", list, Value::Null).await.status, 200, "{case}");
    }
    eventually(async || {
        let names = sites(platform).await?;
        if names.iter().any(|name| name == "good.localhost") { Ok(()) } else { Err(format!("{case}: {names:?}")) }
    })
    .await;
}

/// The hosts in a snapshot.
async fn sites(platform: &Platform) -> Result<Vec<String>, String> {
    let site = |entity| if let Entity::Site(site) = entity { Some(site.hostname.to_string()) } else { None };
    Ok(entities(platform).await?.into_iter().filter_map(site).collect())
}

/// A snapshot; an error when the stream ends before that is whole, as for a gateway that comes again.
async fn entities(platform: &Platform) -> Result<Vec<Entity>, String> {
    let (mut stream, mut entities) = (platform.follow(0).await, Vec::new());
    loop {
        match stream.next().await {
            Some(Frame::Entity(entity)) => entities.push(entity),
            Some(Frame::SnapshotEnd { .. }) => return Ok(entities),
            Some(_) => {}
            None => return Err("the stream ended".to_owned()),
        }
    }
}

/// The rows that the platform says it cannot read, each as `table column`.
async fn unreadable(platform: &Platform) -> Vec<String> {
    rows(platform, |row| format!("{} {}", text(row, "table"), text(row, "column"))).await
}

/// The same rows: table, row, and what it belongs to.
async fn rows_unreadable(platform: &Platform) -> Vec<(String, String, String)> {
    rows(platform, |row| (text(row, "table"), text(row, "row"), text(row, "of"))).await
}

async fn rows<T>(platform: &Platform, shown: impl Fn(&Value) -> T) -> Vec<T> {
    let status = platform.operator("GET", "/status", Value::Null).await.body;
    status["unreadable_rows"]["rows"].as_array().unwrap().iter().map(shown).collect()
}

fn text(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap().to_owned()
}

/// Has everything read that is read when somebody looks.
async fn look_at_all(platform: &Platform) {
    // Of a gateway that lacks the last change.
    let before = stores::revision_before(platform.directory.path(), platform.newest_revision().await).await;
    let mut stream = platform.follow(before).await;
    let _ = stream.next().await;
    let _ = sites(platform).await;
    for list in ["keys", "webhooks", "events", "domains"] {
        for project in ["demo", "broken", "other"] {
            platform.operator("GET", &format!("/projects/{project}/{list}?limit=200"), Value::Null).await;
        }
    }
    let webhooks = platform.operator("GET", "/projects/demo/webhooks", Value::Null).await.body;
    let webhook = webhooks["webhooks"][0]["id"].as_str().unwrap_or("none");
    platform.operator("GET", &format!("/projects/demo/webhooks/{webhook}/deliveries"), Value::Null).await;
    for list in ["/projects?limit=200", "/removed-projects", "/nodes", "/credentials", "/withdrawals"] {
        assert_eq!(platform.operator("GET", list, Value::Null).await.status, 200, "{list}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_any_column_stops_nothing_but_its_row() {
    let platform = platform().await;
    let directory = platform.directory.path();
    for (number, (table, column, holds)) in COLUMNS.iter().enumerate() {
        let Parsed { row, detection } = holds else { continue };
        let case = format!("{table}.{column}");
        by_hand(&platform).await;
        // The last change is another one after each round.
        let row = &stores::pinned(directory, table, row).await;
        let before = stores::value(directory, table, column, row).await;
        let garbage = if *column == "hostname" { "not a name" } else { "{garbage" };
        stores::set(directory, table, column, row, Some(garbage)).await;
        stores::execute(directory, "UPDATE acme_orders SET abandoned_at = 1").await;
        look_at_all(&platform).await;
        if *detection == Detection::InStatus {
            eventually(async || {
                let rows = unreadable(&platform).await;
                let is_named = rows.iter().any(|row| row.starts_with(&format!("{table} ")));
                if is_named { Ok(()) } else { Err(format!("{case} is not in {rows:?}")) }
            })
            .await;
        }
        platform.clock.advance(RENEWAL);
        everything_else_goes_on(&platform, &case, number).await;
        if *table == "domains" {
            let bad = platform.operator("GET", "/projects/demo/domains/bad.localhost", Value::Null).await.body;
            let problem = (&bad["problems"][0]["code"], &bad["problems"][0]["who"]);
            assert_eq!(problem, (&json!("RECORD_UNREADABLE"), &json!("us")), "{case}: {bad}");
            let list = platform.operator("GET", "/projects/demo/domains?limit=200", Value::Null).await.body;
            assert!(list.to_string().contains("RECORD_UNREADABLE"), "{case}: {list}");
            let change = platform.operator("PATCH", "/projects/demo/domains/bad.localhost", json!({ "primary": true }));
            assert_eq!(change.await.code(), (500, "record_unreadable"), "{case}");
        }
        // Repaired, it is read again.
        stores::set(directory, table, column, row, before.as_deref()).await;
        platform.clock.advance(std::time::Duration::from_mins(61));
        eventually(async || {
            look_at_all(&platform).await;
            let rows = unreadable(&platform).await;
            // A change that is past is not read again until it is compacted.
            let left = rows.iter().filter(|row| !row.starts_with("changes ")).count();
            if left == 0 { Ok(()) } else { Err(format!("{case} is repaired, and still: {rows:?}")) }
        })
        .await;
        if *table == "domains" {
            platform
                .domain_when("demo", "bad.localhost", |domain| {
                    domain["problems"] == json!([])
                        && platform.seconds_until(&domain["certificate"]["not_after"]) > 85 * 86_400
                })
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_record_can_be_removed() {
    let platform = platform().await;
    let directory = platform.directory.path();
    let demo =
        async |method: &str, path: &str| platform.operator(method, &format!("/projects/demo{path}"), Value::Null).await;
    for column in ["status", "redirect_to", "checks", "problems", "certificate"] {
        stores::set(directory, "domains", column, DOMAIN, Some("{garbage")).await;
        assert_eq!(demo("DELETE", "/domains/bad.localhost").await.status, 204, "{column}");
        assert_eq!(demo("GET", "/domains/bad.localhost").await.status, 404, "{column}");
        assert!(!sites(&platform).await.unwrap().contains(&"bad.localhost".to_owned()), "{column}");
        platform.local_domain("demo", json!({ "name": "bad.localhost" })).await;
    }
    let key = demo("GET", "/keys").await.body["keys"][0]["id"].as_str().unwrap().to_owned();
    let is_at_the_edge = async || {
        let found = platform.snapshot().await.into_iter();
        found.filter(|entity| matches!(entity, Entity::Key(known) if known.id.as_str() == key)).count()
    };
    assert_eq!(is_at_the_edge().await, 1);
    stores::set(directory, "api_keys", "scopes", "label = 'bad'", Some("{garbage")).await;
    stores::set(directory, "api_keys", "digest", "label = 'bad'", Some("garbage")).await;
    let rotated = platform.operator("POST", &format!("/projects/demo/keys/{key}/rotate"), json!({})).await;
    assert_eq!(rotated.code(), (500, "record_unreadable"));
    assert_eq!(demo("DELETE", &format!("/keys/{key}")).await.status, 204);
    assert_eq!(is_at_the_edge().await, 0, "the key is gone from the edge although its digest cannot be read");
    let webhook = demo("GET", "/webhooks").await.body["webhooks"][0]["id"].as_str().unwrap().to_owned();
    stores::set(directory, "webhook_endpoints", "events", "description = 'bad'", Some("{garbage")).await;
    assert_eq!(demo("DELETE", &format!("/webhooks/{webhook}")).await.status, 204);
    // The project, with bad rows in it and a bad row of its own.
    stores::set(directory, "domains", "certificate", DOMAIN, Some("{garbage")).await;
    stores::set(directory, "projects", "browsers", "name = 'demo'", Some("{garbage")).await;
    assert_eq!(demo("GET", "").await.code(), (500, "record_unreadable"));
    assert_eq!(demo("DELETE", "").await.status, 204);
    assert_eq!(demo("GET", "").await.status, 404);
    assert!(!sites(&platform).await.unwrap().contains(&"bad.localhost".to_owned()));
    let erased = platform.operator("DELETE", "/projects/demo?now=true", Value::Null).await;
    assert_eq!(erased.status, 204);
    assert_eq!(unreadable(&platform).await, Vec::<String>::new());
}
