//! Withdrawals in a database that went back to an earlier state: a gateway's confirmation of the former history does
//! not count, whether the gateway reports it, a row holds it, or another replica received it.

use std::sync::Arc;

use chassis::clock::Clock as _;
use serde_json::{Value, json};

use super::{ends, is_202, listed, waits, with_a_silent_gateway};
use crate::stores;
use crate::world::{Answer, Bend, Platform, eventually};

/// The gateways that the status names as ahead of the database.
async fn elsewhere(platform: &Platform) -> Value {
    platform.operator("GET", "/status", Value::Null).await.body["gateways_of_another_history"].clone()
}

async fn remove(platform: &Platform) -> Answer {
    platform.operator("DELETE", "/projects/demo/domains/b.localhost", Value::Null).await
}

/// Sets the database back by this number of revisions, as a lagging standby does that takes over.
async fn goes_back(platform: &Platform, revisions: u64) {
    let back = format!(
        "UPDATE revision_counter SET current = current - {revisions};
         DELETE FROM changes WHERE revision > (SELECT current FROM revision_counter)"
    );
    stores::execute(platform.directory.path(), &back).await;
}

/// Writes changes until the database gives this revision out again.
async fn is_written_on(platform: &Platform, revision: u64) {
    let mut number = 0;
    while platform.newest_revision().await < revision {
        number += 1;
        platform.operator("POST", "/projects", json!({ "id": format!("p{number}") })).await;
    }
}

#[tokio::test]
async fn confirmations_from_before_a_database_restore_do_not_count() {
    let platform = with_a_silent_gateway().await;
    for lost in ["c.localhost", "d.localhost"] {
        platform.local_domain("demo", json!({ "name": lost })).await;
    }
    platform.report("silent", platform.newest_revision().await).await;
    platform.clock.advance(std::time::Duration::from_secs(6));
    goes_back(&platform, 2).await;
    let removed = remove(&platform).await;
    is_202(&removed);
    // It follows this history again.
    ends(&platform).await;
}

#[tokio::test]
async fn a_report_of_another_history_confirms_nothing() {
    let platform = with_a_silent_gateway().await;
    let applied = platform.newest_revision().await;
    let mark = stores::mark_of(platform.directory.path(), applied).await;
    goes_back(&platform, 2).await;
    is_202(&remove(&platform).await);
    is_written_on(&platform, applied).await;
    // The number is given out again. This gateway applied another change under it, not the removal.
    for mark in [mark.as_deref(), None] {
        let report = json!({ "node": "silent", "applied": applied, "mark": mark, "version": "1" });
        let refused = platform.edge("nodes", report).await;
        assert_eq!(refused.code(), (409, "history"), "{refused:?}");
        is_202(&remove(&platform).await);
        assert_eq!(elsewhere(&platform).await, json!(["tests"]));
    }
    waits(&platform, "name", "b.localhost").await;
    platform.clock.advance(std::time::Duration::from_secs(61));
    assert_eq!(elsewhere(&platform).await, json!([]));
    ends(&platform).await;
}

#[tokio::test]
async fn a_report_of_a_revision_without_a_mark_in_the_log_confirms_nothing() {
    let platform = with_a_silent_gateway().await;
    is_202(&remove(&platform).await);
    let applied = platform.newest_revision().await;
    let forgotten = format!("DELETE FROM changes WHERE revision = {applied}");
    stores::execute(platform.directory.path(), &forgotten).await;
    let report = json!({ "node": "silent", "applied": applied, "version": "1" });
    assert_eq!(platform.edge("nodes", report).await.status, 204);
    is_202(&remove(&platform).await);
    waits(&platform, "name", "b.localhost").await;
}

#[tokio::test]
async fn a_withdrawal_waits_while_the_record_of_processes_cannot_be_read() {
    let platform = with_a_silent_gateway().await;
    let directory = platform.directory.path();
    stores::execute(directory, "ALTER TABLE processes RENAME TO away").await;
    let removed = remove(&platform).await;
    assert_eq!(removed.status, 202, "{removed:?}");
    assert!(removed.body.to_string().contains("processes on record, which could not be read"), "{removed:?}");
    stores::execute(directory, "ALTER TABLE away RENAME TO processes").await;
    is_202(&remove(&platform).await);
    ends(&platform).await;
}

#[tokio::test]
async fn a_recorded_position_of_another_history_confirms_nothing() {
    let mut platform = with_a_silent_gateway().await;
    // Its row is written again after a minute.
    platform.clock.advance(std::time::Duration::from_mins(1));
    let applied = platform.newest_revision().await;
    platform.report("silent", applied).await;
    platform.stop().await;
    goes_back(&platform, 2).await;
    let (directory, start) = (platform.directory.clone(), platform.clock.now());
    let platform = Platform::bent(Bend { directory: Some(directory), start, ..Bend::default() }).await;
    is_202(&remove(&platform).await);
    is_written_on(&platform, applied).await;
    is_202(&remove(&platform).await);
    waits(&platform, "name", "b.localhost").await;
    ends(&platform).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replicas_report_of_another_history_confirms_nothing() {
    if !stores::over_postgres() {
        return; // one process has one database
    }
    let directory = Arc::new(stores::in_postgres(&stores::postgres::Server::shared().database()));
    let start = || Platform::bent(Bend { directory: Some(directory.clone()), ..Bend::default() });
    let (left, right) = (start().await, start().await);
    left.project("demo", "pro").await;
    left.local_domain("demo", json!({ "name": "b.localhost" })).await;
    let applied = left.newest_revision().await;
    left.report("silent", applied).await;
    eventually(async || {
        let nodes = right.operator("GET", "/nodes", Value::Null).await.body;
        if nodes["nodes"][0]["applied"] == applied { Ok(()) } else { Err(nodes.to_string()) }
    })
    .await;
    for replica in [&left, &right] {
        replica.clock.advance(std::time::Duration::from_secs(6));
    }
    goes_back(&left, 2).await;
    is_202(&remove(&left).await);
    is_written_on(&left, applied).await;
    // The other one has not seen that the database went back.
    for replica in [&right, &left] {
        is_202(&remove(replica).await);
        assert_eq!(listed(replica).await["withdrawals"][0]["lagging"], json!(["tests/silent"]));
    }
    ends(&left).await;
}

#[tokio::test]
async fn a_database_that_went_back_is_detected_after_a_restart_while_a_gateway_is_ahead() {
    let mut platform = with_a_silent_gateway().await;
    let ahead = platform.newest_revision().await;
    let mark = stores::mark_of(platform.directory.path(), ahead).await.unwrap();
    platform.stop().await;
    goes_back(&platform, 2).await;
    let (directory, start) = (platform.directory.clone(), platform.clock.now());
    let platform = Platform::bent(Bend { directory: Some(directory), start, ..Bend::default() }).await;
    assert_eq!(elsewhere(&platform).await, json!([]), "nothing can be known before");
    // A gateway with an empty data directory starts over, and cannot know.
    assert!(!platform.snapshot().await.is_empty());
    let (token, url) = (platform.gateway().await, format!("{}/internal/edge/feed", platform.internal));
    let ask = async |query: &str| {
        Answer::of(platform.client.get(format!("{url}?node=a&{query}")).bearer_auth(&token).send().await.unwrap()).await
    };
    let refused = ask(&format!("after={ahead}&mark={mark}")).await;
    assert_eq!(refused.code(), (409, "history"), "{refused:?}");
    assert_eq!(elsewhere(&platform).await, json!(["tests"]));
    // The refusal names its history, and only that can be accepted.
    let newest = platform.newest_revision().await;
    let here = stores::mark_of(platform.directory.path(), newest).await;
    assert_eq!(refused.body["details"], json!({ "revision": newest, "mark": here }));
    let place = format!("after={newest}&mark={}", here.unwrap());
    let mut stream = platform.follow_with(&token, &format!("node=a&{place}&whole=1")).await;
    assert_eq!(stream.snapshot().await.1, newest);
    let other = ask(&format!("after={newest}&mark={mark}&whole=1")).await;
    assert_eq!(other.code(), (409, "history"), "{other:?}");
}
