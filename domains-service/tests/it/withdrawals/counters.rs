//! Withdrawals while a number of the change log, or of the gateways' keys, is damaged: the results are the same.

use contract::feed::Frame;
use serde_json::{Value, json};

use crate::stores;
use crate::world::{Platform, eventually};

/// Damage to the database.
const DAMAGES: [&str; 13] = [
    "UPDATE revision_counter SET current = current - 3",
    "UPDATE revision_counter SET current = 0",
    "UPDATE revision_counter SET current = 9223372036854775807",
    "UPDATE revision_counter SET current = 4611686018427387903",
    "UPDATE revision_counter SET current = 2305843009213693952",
    "UPDATE revision_counter SET oldest = current + 1000000000",
    "UPDATE revision_counter SET oldest = 9223372036854775807",
    "INSERT INTO settings (name, value) VALUES ('replaced_below', '9223372036854775807')
     ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    // While a row is quarantined, the lost row is unknown and gateways are refused, so this comes first.
    "DELETE FROM changes WHERE revision = (SELECT current FROM revision_counter)",
    "UPDATE changes SET revision = 9223372036854775807 WHERE revision = (SELECT current FROM revision_counter)",
    "UPDATE changes SET revision = revision + 1000000000 WHERE revision = (SELECT current FROM revision_counter)",
    "UPDATE gateway_keys SET number = 9223372036854775807",
    "UPDATE gateway_keys SET number = 1099511627776",
];

/// Follows from the former newest revision until the control plane has sent everything, with at most one snapshot.
async fn follows(platform: &Platform, query: &str, case: &str) -> u64 {
    let token = platform.gateway().await;
    let mut stream = platform.follow_with(&token, &format!("node=test&{query}")).await;
    let mut snapshots = 0;
    loop {
        match stream.next().await.unwrap_or_else(|| panic!("{case}: the stream ended")) {
            Frame::Heartbeat { revision, .. } => return revision.0,
            Frame::SnapshotEnd { .. } => {
                snapshots += 1;
                assert_eq!(snapshots, 1, "{case}: one snapshot after the other");
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_counter_stops_neither_changes_nor_followers_nor_withdrawals() {
    let platform = Platform::start().await;
    let directory = platform.directory.path();
    platform.project("demo", "pro").await;
    for damage in DAMAGES {
        let key = platform.operator("POST", "/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await;
        let key = key.body["id"].as_str().unwrap().to_owned();
        let before = platform.newest_revision().await;
        let mark = stores::mark_of(directory, before).await.unwrap();
        platform.report("edge-1", before).await;
        stores::execute(directory, damage).await;
        let applied = follows(&platform, &format!("after={before}&mark={mark}"), damage).await;
        assert!(applied >= before, "{damage}: {applied}");
        let revoked = async || platform.operator("DELETE", &format!("/projects/demo/keys/{key}"), Value::Null).await;
        let first = revoked().await;
        assert_eq!(first.status, 202, "{damage}: the gateway has the key still: {first:?}");
        platform.report("edge-1", platform.newest_revision().await).await;
        eventually(async || {
            let again = revoked().await;
            if again.status == 204 { Ok(()) } else { Err(format!("{damage}: {again:?}")) }
        })
        .await;
    }
    // Gateways sign with keys that services know: generations with damaged numbers are replaced.
    eventually(async || {
        let highest = stores::value(directory, "gateway_keys", "CAST(MAX(number) AS TEXT)", "TRUE").await;
        let is_good = highest.as_ref().is_some_and(|number| number.len() <= 10);
        if is_good { Ok(()) } else { Err(format!("{highest:?}")) }
    })
    .await;
    let owner = platform.owner("demo").get("/v1/projects/demo").await;
    assert_eq!(owner.status, 200, "{owner:?}");
}
