//! The change stream: snapshot, changes, heartbeats, gaps.

use std::sync::Arc;

use contract::feed::{Entity, Frame, LINE_BYTES_MAX};
use domains_service::{Authorities, Issuer, LocalAuthority};
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::gateways::enrolled;
use crate::stores::{copied, execute, mark_of, over_postgres};
use crate::world::{Bend, Platform, eventually};

/// Maximum length of an accepted chain, in bytes.
const CHAIN_BYTES_MAX: usize = 64 * 1024;

/// An authority with a certificate that is this many bytes longer than necessary, at the end of every chain.
fn authority_with_a_certificate_of(bytes: usize) -> Arc<dyn Issuer> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 55555, 1], vec![0; bytes])];
    let certificate = params.self_signed(&key).unwrap().pem();
    Arc::new(LocalAuthority::from_pem(certificate, &key.serialize_pem()).unwrap())
}

/// The API and the dashboard.
const PLATFORM_SITES: usize = 2;

#[tokio::test]
async fn a_snapshot_is_followed_by_changes_without_gaps() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let mut stream = platform.follow(0).await;
    let (entities, revision) = stream.snapshot().await;
    assert_eq!(entities.len(), PLATFORM_SITES + 2, "the platform's sites, the project and its site: {entities:?}");
    platform.project("other", "free").await;
    let (first, second) = (stream.change().await, stream.change().await);
    assert_eq!((first.revision.0, second.revision.0), (revision + 1, revision + 2));
    // A follower that continues from its revision gets the changes alone.
    let mut again = platform.follow(revision).await;
    assert_eq!(again.change().await, first);
    assert_eq!(again.change().await, second);
}

#[tokio::test]
async fn heartbeats_continue_and_name_the_newest_revision() {
    let platform = Platform::start().await;
    let mut stream = platform.follow(0).await;
    let (_, revision) = stream.snapshot().await;
    for _ in 0..2 {
        match stream.next().await {
            Some(Frame::Heartbeat { revision: newest, at, .. }) => {
                assert_eq!((newest.0, at), (revision, crate::world::START));
            }
            other => panic!("no heartbeat: {other:?}"),
        }
    }
}

/// Asserts that a follower is refused: this database never was where it is.
async fn refused(platform: &Platform, revision: u64, mark: Option<&str>) {
    let mark = mark.map_or_else(String::new, |mark| format!("&mark={mark}"));
    let url = format!("{}/internal/edge/feed?node=lost&after={revision}{mark}", platform.internal);
    let answer = platform.client.get(url).bearer_auth(platform.gateway().await).send().await.unwrap();
    assert_eq!(answer.status(), 409, "after {revision}{mark}");
    assert_eq!(answer.json::<Value>().await.unwrap()["code"], "history");
}

#[tokio::test]
async fn a_follower_of_another_database_is_refused() {
    let (one, other) = (Platform::start().await, Platform::start().await);
    let (_, revision) = one.follow(0).await.snapshot().await;
    for after in [1, revision + 1, u64::MAX] {
        refused(&one, after, None).await;
        refused(&one, after, Some("0123456789abcdef")).await;
    }
    refused(&one, revision, None).await;
    refused(&other, revision, mark_of(one.directory.path(), revision).await.as_deref()).await;
}

#[tokio::test]
async fn a_follower_with_changes_that_the_database_lost_is_refused_at_any_revision() {
    let mut platform = Platform::start().await;
    let (_, copied_at) = platform.follow(0).await.snapshot().await;
    let copy = Arc::new(copied(platform.directory.path()));
    platform.operator("POST", "/projects", json!({ "id": "lost" })).await;
    let (_, known) = platform.follow(0).await.snapshot().await;
    assert!(known > copied_at);
    let mark = mark_of(platform.directory.path(), known).await;
    let mark = mark.as_deref();
    platform.stop().await;
    let mut again = Platform::bent(Bend { directory: Some(copy.clone()), ..Bend::default() }).await;
    refused(&again, known, mark).await;
    for index in 0..6 {
        again.operator("POST", "/projects", json!({ "id": format!("p{index}") })).await;
        refused(&again, known, mark).await;
    }
    assert!(again.follow(0).await.snapshot().await.1 > known);
    assert_eq!(again.follow(copied_at).await.change().await.revision.0, copied_at + 1, "this far they agree");
    // And after the changes are deleted.
    again.stop().await;
    let bend = Bend { directory: Some(copy), change_log_rows: 1, ..Bend::default() };
    let compacted = Platform::bent(bend).await;
    eventually(async || match compacted.follow(copied_at).await.next().await {
        Some(Frame::SnapshotBegin { .. }) => Ok(()),
        other => Err(format!("it goes on with {other:?}")),
    })
    .await;
    refused(&compacted, known, mark).await;
}

#[tokio::test]
async fn a_compacted_log_gives_a_snapshot_to_followers_too_far_behind() {
    let mut platform = Platform::start().await;
    let (_, start) = platform.follow(0).await.snapshot().await;
    for index in 0..6 {
        platform.operator("POST", "/projects", json!({ "id": format!("p{index}") })).await;
    }
    platform.stop().await;
    let bend = Bend { directory: Some(platform.directory.clone()), change_log_rows: 3, ..Bend::default() };
    let again = Platform::bent(bend).await;
    // Cleanup begins with the service; until it is done, the log still has everything.
    eventually(async || match again.follow(start).await.next().await {
        Some(Frame::SnapshotBegin { .. }) => Ok(()),
        other => Err(format!("it goes on with {other:?}")),
    })
    .await;
    let (entities, revision) = again.follow(start).await.snapshot().await;
    assert_eq!((entities.len(), revision), (PLATFORM_SITES + 6, start + 6));
    let mut near = again.follow(revision - 3).await;
    assert_eq!(near.change().await.revision.0, revision - 2);
}

#[tokio::test]
async fn concurrent_writers_give_gapless_revisions() {
    let platform = Platform::start().await;
    let mut stream = platform.follow(0).await;
    let (_, revision) = stream.snapshot().await;
    // So few that none waits for the others beyond its deadline on a busy machine.
    let writers = (0..20).map(|index| {
        let platform = &platform;
        async move {
            let id = format!("p{index}");
            assert_eq!(platform.operator("POST", "/projects", json!({ "id": id })).await.status, 201);
        }
    });
    futures_util::future::join_all(writers).await;
    let mut seen = std::collections::HashSet::new();
    for expected in 1..=20 {
        let change = stream.change().await;
        assert_eq!(change.revision.0, revision + expected);
        assert!(seen.insert(serde_json::to_string(&change.effect).unwrap()));
    }
}

#[tokio::test]
async fn a_change_without_effect_gets_no_revision() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let (_, revision) = platform.follow(0).await.snapshot().await;
    platform.operator("POST", "/projects/demo/deploy", Value::Null).await;
    platform.operator("PATCH", "/projects/demo", json!({ "plan": "pro" })).await;
    assert_eq!(platform.follow(0).await.snapshot().await.1, revision);
}

#[tokio::test]
async fn the_stream_needs_the_gateways_token_and_a_name() {
    let platform = Platform::start().await;
    let url = format!("{}/internal/edge/feed?node=a&after=0", platform.internal);
    let without = platform.client.get(&url).send().await.unwrap();
    assert_eq!(without.status(), 401);
    let operators = chassis::guard::operator_token(&platform.secret).to_token();
    let wrong = platform.client.get(&url).bearer_auth(&*operators).send().await.unwrap();
    assert_eq!(wrong.status(), 401);
    let edge = platform.gateway().await;
    for query in ["after=0", "node=&after=0", "node=a&after=x", "node=a&after=-1", "node=a&after=1&mark=x"] {
        let url = format!("{}/internal/edge/feed?{query}", platform.internal);
        assert_eq!(platform.client.get(url).bearer_auth(&edge).send().await.unwrap().status(), 400, "{query}");
    }
}

#[tokio::test]
async fn the_stream_ends_when_the_service_does() {
    let mut platform = Platform::start().await;
    let mut stream = platform.follow(0).await;
    stream.snapshot().await;
    platform.stop().await;
    while stream.next().await.is_some() {}
}

#[tokio::test]
async fn revisions_continue_after_a_restart() {
    let mut platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let (before, revision) = platform.follow(0).await.snapshot().await;
    platform.stop().await;
    let bend = Bend { directory: Some(platform.directory.clone()), ..Bend::default() };
    let again = Platform::bent(bend).await;
    let (after, same) = again.follow(0).await.snapshot().await;
    assert_eq!((before, revision), (after, same));
    again.operator("POST", "/projects", json!({ "id": "other" })).await;
    assert_eq!(again.follow(revision).await.change().await.revision.0, revision + 1);
}

#[tokio::test]
async fn a_restart_with_other_plans_publishes_their_limits() {
    let mut platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.stop().await;
    let source = chassis::config::Source::from_text(
        "plans.toml",
        "[pro]\nrequests_per_minute = 600\n",
        "T",
        std::collections::BTreeMap::new(),
    );
    let plans = domains_service::Plans::read(&source).unwrap();
    let again = Platform::bent(Bend { directory: Some(platform.directory.clone()), plans, ..Bend::default() }).await;
    let limits = again.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Project(project) => Some(project.limits.per_minute.get()),
        _ => None,
    });
    assert_eq!(limits, Some(600));
}

#[tokio::test]
async fn every_line_fits_the_bound_of_the_protocol() {
    // The longest accepted chain, for the longest possible name.
    let ours = Authorities { local: Some(authority_with_a_certificate_of(46_500)), public: Vec::new() };
    let platform = Platform::bent(Bend { authorities: Some(ours), ..Bend::default() }).await;
    let project = "p".repeat(63);
    platform.project(&project, "enterprise").await;
    let label = "a".repeat(63);
    let name = format!("{label}.{label}.{label}.{}.localhost", &label[..51]);
    assert_eq!(name.len(), 253);
    platform.local_domain(&project, json!({ "name": name })).await;
    let lines: Vec<String> = platform
        .snapshot()
        .await
        .into_iter()
        .map(|entity| serde_json::to_string(&Frame::Entity(entity)).unwrap())
        .collect();
    let longest = lines.iter().map(String::len).max().unwrap();
    assert!((CHAIN_BYTES_MAX * 49 / 50..LINE_BYTES_MAX / 2).contains(&longest), "{longest} bytes");
    // A longer one is refused before it could become a line.
    let ours = Authorities { local: Some(authority_with_a_certificate_of(47_700)), public: Vec::new() };
    let platform = Platform::bent(Bend { authorities: Some(ours), ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    platform.operator("POST", "/projects/demo/domains", json!({ "name": "shop.localhost" })).await;
    let failed = |domain: &Value| domain["certificate"]["status"] == "failed";
    let domain = platform.domain_when("demo", "shop.localhost", failed).await;
    let said = domain["certificate"]["last_error"].as_str().unwrap();
    assert!(said.contains(&format!("longer than {CHAIN_BYTES_MAX} bytes")), "{said}");
}

#[tokio::test]
async fn followers_are_counted_while_they_follow() {
    let platform = Platform::start().await;
    let mut stream = platform.follow(0).await;
    stream.snapshot().await;
    assert!(platform.metrics().await.contains("domains_feed_followers 1"));
    drop(stream);
    eventually(async || {
        let left = platform.metrics().await.contains("domains_feed_followers 0");
        left.then_some(()).ok_or_else(|| "the follower that left is still counted".to_owned())
    })
    .await;
}

/// Publishes so much that no buffer on the way to a follower holds a snapshot: 24 MiB.
async fn publish_much(platform: &Platform) {
    let value = if over_postgres() { "repeat('0', 16384)" } else { "hex(zeroblob(8192))" };
    let fill = format!(
        r#"WITH RECURSIVE numbers(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 1500)
           INSERT INTO entities (kind, name, body, seal)
           SELECT 'challenge', 't' || number,
               '{{"challenge":{{"hostname":"a.example","token":"t' || number || '","key_authorization":"' || {value} || '"}}}}', ''
           FROM numbers"#
    );
    execute(platform.directory.path(), &fill).await;
}

#[tokio::test]
async fn a_revoked_follower_is_cut_in_the_middle_of_a_snapshot() {
    let platform = Platform::start().await;
    publish_much(&platform).await;
    let token = enrolled(&platform, "edge-1").await;
    let mut stream = platform.follow_with(&token, "node=a&after=0").await;
    assert_eq!(stream.next().await, Some(Frame::SnapshotBegin { entities: 1_502 }));
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200);
    while let Some(frame) = stream.next().await {
        assert!(matches!(frame, Frame::Entity(_)), "{frame:?}");
    }
    // Others are sent all of it.
    assert_eq!(platform.snapshot().await.len(), 1_502);
}
