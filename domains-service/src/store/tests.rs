//! Races between two replicas over one PostgreSQL, below the API.

mod bounds;
mod counters;
mod deliveries;
mod history;
mod limits;
mod maximum;
mod queue;
mod records;
mod removals;
#[path = "../../../chassis/tests/support/postgres.rs"]
mod server;

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::ManualClock;
use chassis::secret::Secret;
use chassis::sql::{PostgresSettings, query_scalar};
use contract::key::{Environment, KeyId, PresentedKey, Scopes};
use contract::time::UnixMillis;
use serde_json::json;

use self::server::{Server, name_in};
use super::credentials::{COMMAND_LINE, Enrolment, GOOD_OF_A_KIND_MAX, Kind, NotEnrolled, Origin};
use super::keys::KeyRecord;
use super::*;
use crate::actor::{self, Actor};
use crate::project::ProjectRef;

const NOW: UnixMillis = UnixMillis(1_000_000);

async fn replica(url: &str) -> Store {
    let settings = PostgresSettings::new(Secret::parse_password(url).unwrap(), 5).unwrap();
    Store::open(&settings.into(), Arc::new(ManualClock::at(NOW))).await.unwrap()
}

/// Two replicas and a domain.
async fn with_domain() -> ([Store; 2], crate::domain::Domain) {
    let server = Server::shared();
    let url = server.database();
    let stores = [replica(&url).await, replica(&url).await];
    let certificate = to_json(&crate::domain::CertificateState::default());
    let text = format!(
        "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at, updated_at)
         VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1);
         INSERT INTO domains (name, project, status, status_since, is_primary, primary_wanted, problems, certificate,
             watched_since, due_at, lease_until, lease_fence, rev, created_at, updated_at)
         VALUES ('shop.example', 'demo', 'pending_dns', 1, FALSE, FALSE, '[]', '{certificate}', 1, 1, 0, 0, 1, 1, 1)",
    );
    server.sql(name_in(&url), &text);
    let due = stores[0].due_domains(NOW, 8, 8).await.unwrap();
    (stores, due.into_iter().next().unwrap())
}

#[tokio::test]
async fn a_commit_to_a_file_waits_for_the_disk() {
    const FULL: i64 = 2;
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("domains.sqlite").into();
    let store = Store::open(&place, Arc::new(ManualClock::at(NOW))).await.unwrap();
    let writer = &store.database.write;
    let synchronous: i64 = query_scalar("PRAGMA synchronous").fetch_one(writer).await.unwrap();
    let journal: String = query_scalar("PRAGMA journal_mode").fetch_one(writer).await.unwrap();
    assert_eq!((synchronous, journal.as_str()), (FULL, "wal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_workers_gets_the_lease() {
    let (stores, domain) = with_domain().await;
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (store, domain) = (stores[number % 2].clone(), domain.clone());
        workers.spawn(async move { store.lease_domain(&domain, NOW, NOW.plus(1_000)).await.unwrap() });
    }
    let fences: Vec<i64> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(fences, [1]);
    assert_eq!(stores[1].lease_domain(&domain, NOW.plus(1_000), NOW.plus(2_000)).await.unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_read_a_fence_keeps_other_workers_from_the_lease() {
    let (stores, domain) = with_domain().await;
    stores[0].lease_domain(&domain, NOW, NOW.plus(10)).await.unwrap().unwrap();
    let mut write = stores[0].write().await.unwrap();
    let seen = domains::find_domain(write.connection(), &domain.project, &domain.name).await.unwrap().unwrap();
    assert_eq!(seen.lease_fence, 1);
    // The lease is over, and another replica wants it just now.
    let taking = {
        let (store, domain) = (stores[1].clone(), domain.clone());
        tokio::spawn(async move { store.lease_domain(&domain, NOW.plus(20), NOW.plus(1_000)).await })
    };
    let waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND pid IN \
                   (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while query_scalar::<i64>(waiting).fetch_one(stores[0].reader()).await.unwrap() == 0 {
        assert!(std::time::Instant::now() < deadline, "no transaction waits for the row");
    }
    domains::release_lease(write.connection(), &seen).await.unwrap();
    write.commit().await.unwrap();
    assert_eq!(taking.await.unwrap().unwrap(), Some(2));
    // The release came before the other's lease and did not end it.
    assert_eq!(stores[0].lease_domain(&domain, NOW.plus(30), NOW.plus(40)).await.unwrap(), None);
}

/// A store in a file and one on a server, each with the project `demo`.
async fn both() -> [(Store, Option<tempfile::TempDir>); 2] {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::shared());
    let place = directory.path().join("domains.sqlite").into();
    let file = Store::open(&place, Arc::new(ManualClock::at(NOW))).await.unwrap();
    let stores = [(file, Some(directory)), (replica(&server.database()).await, None)];
    for (store, _) in &stores {
        query(
            "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at, updated_at)
             VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1)",
        )
        .execute(store.writer())
        .await
        .unwrap();
    }
    stores
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_noted_by_a_wrong_clock_is_noted_again_by_a_right_one() {
    for (store, _directory) in both().await {
        let enrolled = "INSERT INTO credentials (digest, kind, name, created_at) VALUES ('d', 'gateway', 'edge', 1)";
        query(enrolled).execute(store.writer()).await.unwrap();
        let day = 86_400_000;
        for (seen, on_record) in [(365 * day, 365 * day), (0, 0), (-1_000, 0), (2_000, 2_000), (1_000, 2_000)] {
            let report = contract::feed::NodeReport { node: "edge/a".to_owned(), ..Default::default() };
            let last_seen = NOW.plus(seen);
            store.record_process(&processes::Process { report, first_seen: NOW, last_seen }).await.unwrap();
            assert_eq!(store.last_seen().await.unwrap(), Some(NOW.plus(on_record)), "{seen}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_that_cannot_be_end_no_tidying_and_hide_no_others() {
    for (store, _directory) in both().await {
        let demo = "demo".parse().unwrap();
        let row = "INSERT INTO usage_days (project, day, node, admitted, refused, banned, minute, in_minute)
                   VALUES ('demo', $1, $2, $3, 2, 3, $1 * 1440, $3)";
        for (day, node, admitted) in [(1_i64, "a", i64::MAX), (1, "b", 5), (2, "", i64::MAX), (2, "b", 6), (3, "a", 7)]
        {
            query(row).bind((day, node, admitted)).execute(store.writer()).await.unwrap();
        }
        let figures = async || {
            let days = store.usage(&demo, 0).await.unwrap();
            days.iter().map(|day| (day.day, day.admitted, day.refused)).collect::<Vec<_>>()
        };
        let expected = [(1, 5, 4), (2, 6, 4), (3, 7, 2)];
        assert_eq!(figures().await, expected);
        assert_eq!(store.usage_of_minute(&demo, 1_440).await.unwrap(), 5);
        for _ in 0..2 {
            let mut write = store.write().await.unwrap();
            write.tidy_usage(0, 3).await.unwrap();
            write.commit().await.unwrap();
            assert_eq!(figures().await, expected, "tidied, and once more");
        }
        // What a gateway says next replaces what it cannot have said.
        for column in ["admitted", "refused", "banned"] {
            let damage = format!("UPDATE usage_days SET {column} = 9223372036854775807 WHERE node = 'a'");
            query(sqlx::AssertSqlSafe(damage)).execute(store.writer()).await.unwrap();
            let (project, day, minute) = ("demo".parse().unwrap(), 1, 0);
            let said = contract::usage::UsageOfProject {
                project,
                day,
                admitted: 8,
                refused: 0,
                banned: 0,
                minute,
                in_minute: 0,
            };
            let mut write = store.write().await.unwrap();
            write.record_usage("a", &said).await.unwrap();
            write.commit().await.unwrap();
            assert_eq!(figures().await[0], (1, 13, 4), "{column}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_reports_of_usage_and_bans_are_bounded() {
    for (store, _directory) in both().await {
        let rows =
            async |statement: &'static str| query_scalar::<i64>(statement).fetch_one(store.reader()).await.unwrap();
        let of = |day, admitted| contract::usage::UsageOfProject {
            project: "demo".parse().unwrap(),
            day,
            admitted,
            refused: u64::MAX,
            banned: u64::MAX,
            minute: i64::MAX,
            in_minute: u64::MAX,
        };
        // Days of no project, which no cleanup by project would ever delete.
        let mut write = store.write().await.unwrap();
        for day in [i64::MIN, -63, 2, 1_000, i64::MAX] {
            write.record_usage("thief/a", &of(day, 1)).await.unwrap();
        }
        write.commit().await.unwrap();
        assert_eq!(rows("SELECT COUNT(*) FROM usage_days").await, 0);
        // Very many names, and figures with a sum beyond the database's numbers, which would stop all cleanup.
        let mut write = store.write().await.unwrap();
        let mut taken = 0;
        for (thief, node) in (0..5).flat_map(|thief| (0..520).map(move |node| (thief, node))) {
            taken += i64::from(write.record_usage(&format!("thief-{thief}/{node}"), &of(0, u64::MAX)).await.unwrap());
        }
        assert_eq!(taken, 2_048);
        assert!(write.record_usage("thief-0/7", &of(0, u64::MAX)).await.unwrap());
        write.commit().await.unwrap();
        assert_eq!(rows("SELECT COUNT(*) FROM usage_days").await, 2_048);
        assert!(store.usage_of_minute(&"demo".parse().unwrap(), i64::MAX).await.is_ok());
        let mut write = store.write().await.unwrap();
        write.tidy_usage(-60, 1).await.unwrap();
        for (thief, node) in (0..5).flat_map(|thief| (0..260).map(move |node| (thief, node))) {
            let report = contract::usage::KeyReport {
                node: format!("thief-{thief}/{node}"),
                used: Vec::new(),
                bans: Vec::new(),
                bans_total: u64::MAX,
            };
            assert_eq!(write.record_bans(&report).await.unwrap(), thief < 4 && node < 256, "{}", report.node);
        }
        write.commit().await.unwrap();
        assert_eq!(rows("SELECT COUNT(*) FROM usage_days").await, 1);
        assert_eq!(rows("SELECT COUNT(*) FROM edge_bans").await, 1_024);
        assert!(store.usage(&"demo".parse().unwrap(), 0).await.is_ok());
    }
}

fn enrolment<'a>(kind: Kind, name: &'a str, digest: &'a str, from: Origin<'a>) -> Enrolment<'a> {
    Enrolment { kind, name, digest, expires_at: None, from }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_bounded_and_none_is_accepted_again_after_its_end() {
    for (store, _directory) in both().await {
        let mut write = store.write().await.unwrap();
        for (kind, max) in [
            (Kind::Gateway, contract::keyring::GATEWAYS_WITH_KEYS_MAX),
            (Kind::Service, GOOD_OF_A_KIND_MAX),
            (Kind::Operator, GOOD_OF_A_KIND_MAX),
        ] {
            let named = |number: i64| (format!("{}-{number}", kind.as_str()), format!("{} {number}", kind.as_str()));
            for number in 0..max {
                let (name, digest) = named(number);
                let new = enrolment(kind, &name, &digest, Origin::File("file"));
                assert_eq!(write.enrol(&new).await.unwrap(), Ok(true));
            }
            let (name, digest) = named(max);
            let one_more = enrolment(kind, &name, &digest, Origin::File("file"));
            assert_eq!(write.enrol(&one_more).await.unwrap(), Err(NotEnrolled::TooMany));
            let (gone, gone_digest) = named(1);
            let credential = write.last_credential(kind, &gone).await.unwrap().unwrap().credential;
            write.revoke(&credential).await.unwrap();
            assert_eq!(write.enrol(&one_more).await.unwrap(), Ok(true));
            let again = enrolment(kind, "again", &gone_digest, Origin::File("file"));
            assert_eq!(write.enrol(&again).await.unwrap(), Err(NotEnrolled::Revoked));
        }
        write.commit().await.unwrap();
        assert_eq!(store.good_credentials(None).await.unwrap().len(), 256 + 2 * 1_024);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_credential_are_found_by_its_digest_after_its_name_is_reused() {
    for (store, _directory) in both().await {
        let mut write = store.write().await.unwrap();
        for (kind, name, digest, from) in [
            (Kind::Operator, COMMAND_LINE, "root", Origin::File("the platform's secret")),
            (Kind::Operator, "ada", "ada-1", Origin::Maker("root")),
            (Kind::Operator, "eve", "eve-1", Origin::Maker("ada-1")),
            (Kind::Gateway, "edge-1", "edge-1", Origin::Maker("eve-1")),
            (Kind::Service, "files", "files", Origin::Maker("root")),
        ] {
            assert_eq!(write.enrol(&enrolment(kind, name, digest, from)).await.unwrap(), Ok(true));
        }
        // Another operator, not made by ada, takes the name eve.
        let eve = write.last_credential(Kind::Operator, "eve").await.unwrap().unwrap();
        assert_eq!(eve.made_by.as_deref(), Some("ada"));
        write.revoke(&eve.credential).await.unwrap();
        let refused = write.confirm(&eve.credential).await;
        assert!(matches!(refused, Err(StoreError::ActorRevoked)), "she makes nothing more: {refused:?}");
        for (kind, name, digest, from) in [
            (Kind::Operator, "eve", "eve-2", Origin::Maker("root")),
            (Kind::Gateway, "edge-2", "edge-2", Origin::Maker("eve-2")),
        ] {
            assert_eq!(write.enrol(&enrolment(kind, name, digest, from)).await.unwrap(), Ok(true));
        }
        let made = async |write: &mut Write, name: &str| {
            let made = write.made_by(Kind::Operator, name, false).await.unwrap();
            made.into_iter().map(|one| one.credential.name).collect::<Vec<_>>()
        };
        assert_eq!(made(&mut write, "ada").await, ["edge-1"]);
        assert_eq!(made(&mut write, "eve").await, ["edge-1", "edge-2"]);
        assert_eq!(made(&mut write, COMMAND_LINE).await, ["edge-1", "edge-2", "ada", "eve", "files"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_of_one_kind_and_has_one_name() {
    for (store, _directory) in both().await {
        let mut write = store.write().await.unwrap();
        for (kind, name, enrolled) in [
            (Kind::Gateway, "one", Ok(true)),
            (Kind::Gateway, "one", Ok(false)),
            (Kind::Service, "one", Err(NotEnrolled::OtherKind)),
            (Kind::Operator, "one", Err(NotEnrolled::OtherKind)),
            (Kind::Gateway, "two", Err(NotEnrolled::Doubled("one".to_owned()))),
        ] {
            let new = enrolment(kind, name, "the same", Origin::File("file"));
            assert_eq!(write.enrol(&new).await.unwrap(), enrolled, "{kind:?} {name}");
        }
        for (kind, enrolled) in
            [(Kind::Service, Err(NotEnrolled::OtherKind)), (Kind::Operator, Ok(true)), (Kind::Gateway, Ok(true))]
        {
            let (name, digest) = ("one", format!("another {kind:?}"));
            let new = enrolment(kind, name, &digest, Origin::File("file"));
            assert_eq!(write.enrol(&new).await.unwrap(), enrolled, "{kind:?} {name}");
        }
    }
}

/// A key of the project with this number.
fn key(project: &ProjectRef, number: u8, revoked_at: Option<UnixMillis>) -> KeyRecord {
    let presented = PresentedKey::generate(Environment::Live, &[number; 30]);
    KeyRecord {
        id: KeyId::from_random([number; 10]),
        project: project.clone(),
        digest: presented.digest(),
        label: String::new(),
        scopes: Scopes::all(),
        last4: String::new(),
        environment: Environment::Live,
        created_at: NOW,
        expires_at: None,
        revoked_at,
        last_used_at: None,
        unreadable: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_refused_if_its_actor_was_revoked_meanwhile() {
    let project: ProjectRef = "demo".parse().unwrap();
    let (good, gone) = (key(&project, 1, None), key(&project, 2, Some(NOW.plus(-1))));
    let through = |gateway: &str| actor::Origin { client: [192, 0, 2, 1].into(), gateway: gateway.to_owned() };
    let holder = |key: &KeyRecord, gateway| Actor::holder(&key.id, project.clone(), Scopes::all(), through(gateway));
    for (store, _directory) in both().await {
        let mut write = store.write().await.unwrap();
        for name in ["ada", "eve", "edge-1", "edge-2"] {
            let kind = if name.starts_with("edge") { Kind::Gateway } else { Kind::Operator };
            assert_eq!(write.enrol(&enrolment(kind, name, name, Origin::File("file"))).await.unwrap(), Ok(true));
            if matches!(name, "eve" | "edge-2") {
                let credential = write.last_credential(kind, name).await.unwrap().unwrap().credential;
                write.revoke(&credential).await.unwrap();
            }
        }
        for key in [&good, &gone] {
            keys::save_key(write.connection(), key).await.unwrap();
        }
        for (what, actor, may) in [
            ("the service", Actor::system(), true),
            ("an operator", Actor::operator_named("ada"), true),
            ("a revoked operator", Actor::operator_named("eve"), false),
            ("an operator at the dashboard", Actor::operator_at(through("edge-1"), "ada"), true),
            ("an operator through a revoked gateway", Actor::operator_at(through("edge-2"), "ada"), false),
            ("a key", holder(&good, "edge-1"), true),
            ("a revoked key", holder(&gone, "edge-1"), false),
            ("a key through a revoked gateway", holder(&good, "edge-2"), false),
        ] {
            match write.record(&project, None, "key.created", &actor, json!({})).await {
                Ok(()) => assert!(may, "{what}"),
                Err(error) => assert!(!may && matches!(error, StoreError::ActorRevoked), "{what}: {error}"),
            }
        }
    }
}

#[test]
fn every_migration_is_in_the_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    assert!(migrations().are_all_of(&folder).unwrap(), "list the files of migrations/ in store.rs");
}
