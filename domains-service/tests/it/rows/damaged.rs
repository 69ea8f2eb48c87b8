//! Values that no type allows and SQLite stores all the same: invalid UTF-8, and text in place of a number. Every
//! column of every table, found from the schema.
//!
//! PostgreSQL cannot store any of them. Over PostgreSQL the test is that it refuses.

use std::time::Duration;

use chassis::clock::Clock as _;
use contract::feed::Entity;
use serde_json::{Value, json};

use super::{
    COLUMNS, Holds, RENEWAL, by_hand, entities, everything_else_goes_on, look_at_all, platform, rows_unreadable, sites,
    stores,
};
use crate::world::{Platform, eventually};

/// In a column of text: text with a byte that is no UTF-8, and bytes.
const NO_TEXT: [&str; 2] = ["CAST(x'7bff7d' AS TEXT)", "x'ff'"];

/// In a column of numbers or flags.
const NO_NUMBER: &str = "'garbage'";

/// Who reads the row of a table that is damaged.
enum Read {
    /// A worker, a list or the stream reads all of its columns but these: it is named, or written anew.
    But(&'static [&'static str]),
    /// A reader that these tests do not call, or only the database.
    Elsewhere,
    /// Everybody, and it is compared with the log: `withdrawals::counters` damages it.
    Everybody,
}

use Read::{But, Elsewhere, Everybody};

/// Every table, and the row of it that is damaged. A table that is missing here fails the test.
const ROWS: &[(&str, &str, Read)] = &[
    ("acme_limits", "name = 'bad'", Elsewhere),
    ("acme_orders", "url = 'https://ca.test/bad'", But(&["abandoned_at"])),
    ("api_keys", "label = 'bad'", But(&[])),
    ("certificate_queue", "queue = 'bad'", Elsewhere),
    ("changes", "revision = (SELECT current FROM revision_counter)", But(&[])),
    ("credentials", "name = 'bad'", But(&[])),
    ("dashboard_links", "digest = 'bad'", Elsewhere),
    ("dashboard_sessions", "digest = 'abcdefghijkl'", Elsewhere),
    ("domains", "name = 'bad.localhost'", But(&["lease_until"])),
    ("edge_bans", "node = 'edge'", Elsewhere),
    ("entities", "kind = 'site' AND name = 'bad.localhost'", But(&["seal"])),
    ("erased_by", "service = 'bad'", Elsewhere),
    ("erasures", "TRUE", Elsewhere),
    ("events", "kind = 'project.deployed'", But(&[])),
    ("gateway_keys", "TRUE", But(&[])),
    ("holders", "name = 'bad.localhost'", Elsewhere),
    ("kept_rows", "owner LIKE 'events %'", Elsewhere),
    ("processes", "process = 'bad'", But(&[])),
    ("projects", "name = 'broken'", But(&[])),
    ("revision_counter", "TRUE", Everybody),
    ("settings", "name = 'bad'", Elsewhere),
    ("taken_events", "source = 'bad'", Elsewhere),
    ("tombstones", "name = 'bad.test'", Elsewhere),
    ("usage_days", "node = 'bad'", Elsewhere),
    ("webhook_deliveries", "message = 'bad'", But(&[])),
    ("webhook_endpoints", "description = 'bad'", But(&[])),
    ("withdrawals", "which = 'bad'", But(&[])),
];

/// Rows that nothing makes here, and that go while the clock is moved. The good process is seen for ever, and the
/// withdrawal waits for it.
async fn more_by_hand(platform: &Platform) {
    by_hand(platform).await;
    let now = platform.clock.now().0;
    let rows = format!(
        "DELETE FROM processes WHERE process = 'bad';
         INSERT INTO processes (gateway, process, place, version, applied, first_seen_at, last_seen_at)
             VALUES ('good', 'bad', '', '1', 8000000000000000, {now}, {now});
         INSERT INTO processes (gateway, process, place, version, applied, first_seen_at, last_seen_at)
             VALUES ('good', 'good', '', '1', 8000000000000000, {now}, {later}) ON CONFLICT DO NOTHING;
         INSERT INTO withdrawals (what, which, project, project_name, revision, since)
             SELECT 'key', 'bad', id, name, 9000000000000000, {now} FROM projects WHERE name = 'demo'
             ON CONFLICT DO NOTHING;
         INSERT INTO acme_limits (name, free_at) VALUES ('bad', {later}) ON CONFLICT DO NOTHING;
         INSERT INTO certificate_queue (authority, hostname, project, kind, queue, since, offered_at, admitted_at)
             SELECT 'bad', name, project, 'orders', 'bad', {now}, 0, 0 FROM domains WHERE name = 'bad.localhost'
             ON CONFLICT DO NOTHING;
         INSERT INTO dashboard_links (digest, operator, expires_at) VALUES ('bad', 'ada', {later}) ON CONFLICT DO NOTHING;
         INSERT INTO erased_by (project, service) SELECT project, 'bad' FROM erasures WHERE TRUE ON CONFLICT DO NOTHING;
         INSERT INTO credentials (name, kind, digest, created_at)
             VALUES ('good', 'gateway', 'good', {now}) ON CONFLICT DO NOTHING;
         INSERT INTO settings (name, value) VALUES ('bad', 'x') ON CONFLICT DO NOTHING;
         INSERT INTO taken_events (source, number, taken_at) VALUES ('bad', 1, {now}) ON CONFLICT DO NOTHING;
         INSERT INTO tombstones (name, lineage, removed_at, is_apex) VALUES ('bad.test', 'x', {now}, TRUE)
             ON CONFLICT DO NOTHING;
         INSERT INTO usage_days (project, day, node, admitted, refused, banned, minute, in_minute)
             SELECT id, {day}, 'bad', 1, 1, 1, 1, 1 FROM projects WHERE name = 'demo' ON CONFLICT DO NOTHING;
         INSERT INTO webhook_deliveries (endpoint, message, kind, body, state, attempts, created_at)
             SELECT id, 'bad', 'webhook.test', 'x', 'failed', 1, {now} FROM webhook_endpoints
             WHERE description = 'bad' AND NOT EXISTS (SELECT 1 FROM webhook_deliveries WHERE message = 'bad');
         UPDATE events SET at_ms = {now} WHERE kind = 'project.deployed';",
        later = now + 1_000_000_000_000,
        day = now / 86_400_000,
    );
    stores::execute(platform.directory.path(), &rows).await;
}

/// What is put into the columns of a table, one after the other; nothing into the key by which SQLite itself finds a
/// row, which can be nothing else than a number.
fn damages(columns: &[stores::Column], table: &str) -> Vec<(String, &'static str)> {
    let of_table = columns.iter().filter(|column| column.table == table && column.kind != "INTEGER");
    let damages = of_table.flat_map(|column| {
        let garbage: &[&'static str] = if column.kind == "TEXT" { &NO_TEXT } else { &[NO_NUMBER] };
        garbage.iter().map(|garbage| (column.name.clone(), *garbage))
    });
    damages.collect()
}

/// A damaged column.
struct Damage {
    table: &'static str,
    column: String,
    garbage: &'static str,
    /// SQLite's number of the row.
    row: i64,
    /// The value that was there, as SQL.
    before: String,
    /// Whether it is reported, or repaired.
    is_read: bool,
}

impl Damage {
    /// Whether the damage is still there.
    async fn is_there(&self, platform: &Platform) -> bool {
        let now = stores::quoted(platform.directory.path(), self.table, &self.column, self.row).await;
        let garbage = stores::quoted_value(platform.directory.path(), self.garbage).await;
        now.as_ref() == Some(&garbage)
    }
}

/// Damages a column of one row in each table.
async fn damage(platform: &Platform, all: &[stores::Column], round: usize) -> Vec<Damage> {
    let directory = platform.directory.path();
    let mut damaged = Vec::new();
    for (table, row, read) in ROWS {
        if matches!(read, Everybody) {
            continue;
        }
        let Some((column, garbage)) = damages(all, table).into_iter().nth(round) else { continue };
        let is_key = COLUMNS
            .iter()
            .any(|(of, name, holds)| (*of, *name) == (*table, column.as_str()) && matches!(holds, Holds::Key));
        let is_read = matches!(read, But(but) if !is_key && !but.contains(&column.as_str()));
        let put = async || put(directory, table, row, column.clone(), garbage, is_read).await;
        let one = eventually(async || {
            if let Some(one) = put().await {
                return Ok(one);
            }
            // A worker that read the row in the round before deleted it only now.
            more_by_hand(platform).await;
            Err(format!("{table} has no row where {row}"))
        });
        damaged.push(one.await);
    }
    damaged
}

async fn put(
    directory: &std::path::Path,
    table: &'static str,
    row: &str,
    column: String,
    garbage: &'static str,
    is_read: bool,
) -> Option<Damage> {
    let row = stores::row_number(directory, table, row).await?;
    let before = stores::quoted(directory, table, &column, row).await?;
    stores::put(directory, table, &column, row, garbage).await.unwrap();
    Some(Damage { table, column, garbage, row, before, is_read })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_no_type_allows_stops_nothing_but_its_row() {
    let platform = platform().await;
    more_by_hand(&platform).await;
    let directory = platform.directory.path();
    let all = stores::columns(directory).await;
    let mut tables: Vec<&str> = all.iter().map(|column| column.table.as_str()).collect();
    tables.dedup();
    let known: Vec<&str> = ROWS.iter().map(|(table, _, _)| *table).collect();
    assert_eq!(tables, known, "say in ROWS which row of each table is damaged, in order of their names");
    if stores::over_postgres() {
        for (table, _, _) in ROWS {
            for (column, _) in damages(&all, table) {
                for garbage in ["E'\\xff'", "'garbage'::text || E'\\xff'"] {
                    let put = format!("UPDATE {table} SET {column} = {garbage}");
                    assert!(stores::try_execute(directory, &put).await.is_err(), "{table}.{column} takes {garbage}");
                }
            }
        }
        return;
    }
    for round in 0.. {
        more_by_hand(&platform).await;
        let damaged = damage(&platform, &all, round).await;
        if damaged.is_empty() {
            break;
        }
        let names: Vec<String> =
            damaged.iter().map(|one| format!("{}.{}={}", one.table, one.column, one.garbage)).collect();
        let case = names.join(" ");
        stores::execute(
            directory,
            "UPDATE acme_orders SET abandoned_at = 1 WHERE abandoned_at > 1 AND abandoned_at < 'a'",
        )
        .await;
        // Deliveries are read with their webhook.
        let is_hidden = |one: &Damage| {
            let of_webhook =
                |other: &Damage| other.table == "webhook_endpoints" && ["id", "project"].contains(&&*other.column);
            one.table == "webhook_deliveries" && damaged.iter().any(of_webhook)
        };
        for one in damaged.iter().filter(|one| one.is_read && !is_hidden(one)) {
            eventually(async || {
                look_at_all(&platform).await;
                let rows = rows_unreadable(&platform).await;
                let is_named = rows.iter().any(|(table, _, _)| table == one.table);
                if is_named || !one.is_there(&platform).await {
                    return Ok(());
                }
                Err(format!("{}.{}={} is not in {rows:?}", one.table, one.column, one.garbage))
            })
            .await;
            if one.table == "domains" {
                let bad = platform.operator("GET", "/projects/demo/domains/bad.localhost", Value::Null).await;
                // A worker that had read the row before may have written all of it.
                if one.is_there(&platform).await {
                    assert_eq!(bad.body["problems"][0]["code"], "RECORD_UNREADABLE", "{}: {bad:?}", one.column);
                }
            }
        }
        platform.clock.advance(RENEWAL);
        everything_else_goes_on(&platform, &case, 1_000 + round).await;
        for one in &damaged {
            stores::put(directory, one.table, &one.column, one.row, &one.before).await.unwrap();
        }
        more_by_hand(&platform).await;
        platform.clock.advance(Duration::from_mins(61));
        eventually(async || {
            more_by_hand(&platform).await;
            look_at_all(&platform).await;
            // A past change is not read again, and a row with its name again is another one.
            let mut left = rows_unreadable(&platform).await;
            // A row with a number that was not one was recorded under 0.
            left.retain(|(table, row, of)| table != "changes" && row != "0" && !format!("{row}{of}").contains("\\x"));
            if left.is_empty() { Ok(()) } else { Err(format!("{case} are repaired, and still: {left:?}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_can_be_removed() {
    if stores::over_postgres() {
        return;
    }
    let platform = platform().await;
    let directory = platform.directory.path();
    let all = stores::columns(directory).await;
    let demo =
        async |method: &str, path: &str| platform.operator(method, &format!("/projects/demo{path}"), Value::Null).await;
    let damage = async |table: &'static str, row: &str, column: &str, garbage: &'static str| {
        put(directory, table, row, column.to_owned(), garbage, true).await.expect("a row");
    };
    for (column, garbage) in damages(&all, "domains") {
        if column == "name" || column == "project" {
            continue;
        }
        damage("domains", "name = 'bad.localhost'", &column, garbage).await;
        let removed = demo("DELETE", "/domains/bad.localhost").await;
        assert_eq!(removed.status, 204, "{column}={garbage}: {removed:?}");
        assert!(!sites(&platform).await.unwrap().contains(&"bad.localhost".to_owned()), "{column}");
        platform.local_domain("demo", json!({ "name": "bad.localhost" })).await;
    }
    // A gateway process on record with an unknown revision is waited for and named.
    platform.gateway().await;
    let now = platform.clock.now().0;
    let process = format!(
        "INSERT INTO processes (gateway, process, place, version, applied, first_seen_at, last_seen_at)
         VALUES ('tests', 'edge-9', '', '1', 'garbage', {now}, {now})"
    );
    stores::execute(directory, &process).await;
    let key = demo("GET", "/keys").await.body["keys"][0]["id"].as_str().unwrap().to_owned();
    damage("api_keys", "label = 'bad'", "label", "x'ff41'").await;
    let listed = demo("GET", "/keys").await;
    assert_eq!((listed.status, &listed.body["keys"][0]["label"]), (200, &json!("\\xffA")));
    let revoked = demo("DELETE", &format!("/keys/{key}")).await;
    assert_eq!((revoked.status, &revoked.body["lagging"]), (202, &json!(["tests/edge-9"])), "{revoked:?}");
    // When it reports, its record is valid again.
    let revision = platform.newest_revision().await;
    platform.report("edge-9", revision).await;
    eventually(async || {
        let rows = rows_unreadable(&platform).await;
        platform.operator("GET", "/nodes", Value::Null).await;
        if rows.iter().any(|(table, _, _)| table == "processes") { Err(format!("{rows:?}")) } else { Ok(()) }
    })
    .await;
    assert_eq!(demo("DELETE", &format!("/keys/{key}")).await.status, 204);
    platform.goodbye("edge-9", revision).await;
    let webhook = demo("GET", "/webhooks").await.body["webhooks"][0]["id"].as_str().unwrap().to_owned();
    damage("webhook_endpoints", "description = 'bad'", "created_at", NO_NUMBER).await;
    assert_eq!(demo("DELETE", &format!("/webhooks/{webhook}")).await.status, 204);
    // The project, with damaged rows in it.
    damage("domains", "name = 'bad.localhost'", "certificate", NO_TEXT[0]).await;
    damage("api_keys", "label = x'ff41'", "created_at", NO_NUMBER).await;
    damage("projects", "name = 'demo'", "deployed_at", NO_NUMBER).await;
    assert_eq!(demo("DELETE", "").await.status, 204);
    assert_eq!(platform.operator("DELETE", "/projects/demo?now=true", Value::Null).await.status, 204);
    assert_eq!(rows_unreadable(&platform).await, Vec::new());
}

/// Damage by which a project is not found, in either database; the second part only where a column accepts any value.
const PROJECT_DAMAGES: [(&str, &str); 6] = [
    ("name", "'{garbage'"),
    ("removed_at", "5"),
    ("name", "x'ff'"),
    ("id", "x'ff'"),
    ("id", "'{garbage'"),
    ("removed_at", NO_NUMBER),
];

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_domains_of_a_project_whose_record_is_damaged_can_be_withdrawn() {
    let platform = platform().await;
    let directory = platform.directory.path();
    let demo =
        async |method: &str, path: &str| platform.operator(method, &format!("/projects/demo{path}"), Value::Null).await;
    for (column, garbage) in PROJECT_DAMAGES.into_iter().take(if stores::over_postgres() { 2 } else { 6 }) {
        let case = format!("{column}={garbage}");
        let new =
            platform.operator("POST", "/projects/demo/keys", json!({ "label": "x", "scopes": ["orders:read"] })).await;
        let key = new.body["id"].as_str().unwrap_or_else(|| panic!("{case}: {new:?}")).to_owned();
        platform.local_domain("demo", json!({ "name": "gone.localhost" })).await;
        let damage = async || {
            let put = format!("UPDATE projects SET {column} = {garbage} WHERE name = 'demo'");
            let text = if stores::over_postgres() { put } else { format!("PRAGMA foreign_keys = OFF; {put}") };
            stores::execute(directory, &text).await;
        };
        damage().await;
        let revoked = demo("DELETE", &format!("/keys/{key}")).await;
        assert_eq!(revoked.status, 204, "{case}: {revoked:?}");
        damage().await;
        let removed = demo("DELETE", "/domains/gone.localhost").await;
        assert_eq!(removed.status, 204, "{case}: {removed:?}");
        damage().await;
        // Its name is not free.
        let again = platform.operator("POST", "/projects", json!({ "id": "demo" })).await;
        assert_eq!(again.code(), (409, "project_exists"), "{case}");
        let edge = entities(&platform).await.unwrap();
        let is_there = |entity: &Entity| match entity {
            Entity::Key(known) => known.id.as_str() == key,
            Entity::Site(site) => site.hostname.as_str() == "gone.localhost",
            _ => false,
        };
        assert!(!edge.iter().any(is_there), "{case}");
    }
    assert_eq!(demo("DELETE", "").await.status, 204);
}
