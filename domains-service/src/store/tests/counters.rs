//! Damaged numbers of the change log, in a file and on a server: writes continue, followers stay, and the numbers are
//! repaired.

use chassis::sql::{query, query_as, query_scalar};
use contract::feed::{Change, EntityName, Position, Revision};

use super::super::log::Next;
use super::super::log::claim::Claim;
use super::super::log::counters::{COUNTER_MAX, REVISION_MAX};
use super::super::withdrawals::Kind;
use super::super::{Store, gateways, kept, numbers};
use super::both;
use super::history::{change, is_refused, next, with_another_mark};

async fn counters(store: &Store) -> (i64, i64) {
    let found = query_as("SELECT current, oldest FROM revision_counter WHERE id = 1");
    found.fetch_one(store.reader()).await.unwrap()
}

async fn damage(store: &Store, statement: &'static str, number: i64) {
    query(statement).bind(number).execute(store.writer()).await.unwrap();
}

/// The log's check of a process at this position.
async fn claim(store: &Store, Position { revision, mark }: Position) -> Claim {
    let report = contract::feed::NodeReport {
        node: "edge/a".to_owned(),
        applied: revision,
        mark: Some(mark),
        version: "1".to_owned(),
        ..Default::default()
    };
    store.claim(&report).await.unwrap()
}

/// The changes for a follower at this position; fails on a snapshot.
async fn delivered(store: &Store, position: Position) -> Vec<Position> {
    let next = next(store, position).await;
    let Next::Changes(changes) = next else { panic!("{position:?}: {next:?}") };
    changes.iter().map(Change::position).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_below_the_log_counts_on_above_it() {
    for number in [0, -1, i64::MIN, 2] {
        for (store, _directory) in both().await {
            let mut positions = vec![store.snapshot().await.unwrap().1];
            for number in 0..5 {
                positions.push(change(&store, number).await);
            }
            let newest = positions[5];
            let current = newest.revision.0.cast_signed();
            // As damaged by a flipped bit, or by a few.
            let lower = if number == 2 { current - 2 } else { number };
            damage(&store, "UPDATE revision_counter SET current = $1", lower).await;
            assert_eq!(store.newest_revision().await.unwrap(), newest.revision);
            assert!(!store.has_gone_back());
            assert_eq!(delivered(&store, newest).await, [], "before a write, too");
            assert!(matches!(next(&store, positions[3]).await, Next::Snapshot), "the rows above may be another damage");
            assert_eq!(claim(&store, newest).await, Claim::Held);
            assert_eq!(store.snapshot().await.unwrap().1, newest);
            let after = change(&store, 9).await;
            assert_eq!(after.revision, newest.revision.next(), "{lower}");
            assert_eq!(delivered(&store, newest).await, [after]);
            assert_eq!(counters(&store).await, (current + 1, current));
            assert!(is_refused(&store, with_another_mark(newest)).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_above_all_numbers_counts_on_from_the_log() {
    for number in [i64::MAX, REVISION_MAX + 1, REVISION_MAX, REVISION_MAX - 1, COUNTER_MAX + 1] {
        for (store, _directory) in both().await {
            change(&store, 0).await;
            let newest = change(&store, 1).await;
            damage(&store, "UPDATE revision_counter SET current = $1", number).await;
            assert_eq!(delivered(&store, newest).await, [], "{number}");
            let after = change(&store, 2).await;
            assert_eq!(after.revision, newest.revision.next(), "{number}");
            assert_eq!(delivered(&store, newest).await, [after], "{number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_can_be_true_is_counted_on_from() {
    for jump in [1_000, COUNTER_MAX] {
        for (store, _directory) in both().await {
            let before = change(&store, 0).await;
            let jumped = if jump == COUNTER_MAX { jump } else { before.revision.0.cast_signed() + jump };
            damage(&store, "UPDATE revision_counter SET current = $1", jumped).await;
            assert!(matches!(next(&store, before).await, Next::Snapshot), "{jump}");
            let (_, snapshot, _) = store.snapshot().await.unwrap();
            assert_eq!(snapshot.revision.0.cast_signed(), jumped + 1);
            assert_eq!(delivered(&store, snapshot).await, []);
            let mut newest = snapshot;
            for number in 1..4 {
                let after = change(&store, number).await;
                assert_eq!(delivered(&store, newest).await, [after], "{jump}");
                newest = after;
            }
        }
    }
}

/// Withdraws the entity of [`change`].
async fn withdraw(store: &Store, number: u64) -> Revision {
    let mut write = store.write().await.unwrap();
    write.remove(EntityName::Site(format!("{number}.example").parse().unwrap())).await.unwrap();
    write.record_withdrawal(Kind::Name, "0.example", &"demo".parse().unwrap()).await.unwrap();
    write.commit().await.unwrap()
}

pub(super) async fn put_right(store: &Store) {
    let mut write = store.write().await.unwrap();
    numbers::put_right(&mut write).await.unwrap();
    write.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_waits_for_a_gateway_that_never_got_it_with_any_damaged_counter() {
    for number in [COUNTER_MAX - 1, COUNTER_MAX, COUNTER_MAX + 1, REVISION_MAX - 1, REVISION_MAX, i64::MAX] {
        for (store, _directory) in both().await {
            let served = change(&store, 0).await;
            damage(&store, "UPDATE revision_counter SET current = $1", number).await;
            let withdrawn = withdraw(&store, 0).await;
            for _ in 0..2 {
                put_right(&store).await;
                assert_eq!(store.oldest_withdrawal().await.unwrap(), Some(withdrawn), "{number}");
                assert!(served.revision < withdrawn, "{number}");
                let next = next(&store, served).await;
                let is_sent = match &next {
                    Next::Changes(changes) => changes.iter().any(|change| change.revision == withdrawn),
                    Next::Snapshot => store.snapshot().await.unwrap().1.revision >= withdrawn,
                    Next::OtherHistory(_) => false,
                };
                assert!(is_sent, "{number}: {next:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_whose_change_was_quarantined_waits_for_a_snapshot() {
    for (store, _directory) in both().await {
        let served = change(&store, 0).await;
        let withdrawn = withdraw(&store, 0).await;
        // As if its number were above all others.
        for statement in [
            "UPDATE revision_counter SET current = $1",
            "UPDATE changes SET revision = $1 WHERE revision = (SELECT MAX(revision) FROM changes)",
            "UPDATE withdrawals SET revision = $1",
        ] {
            damage(&store, statement, REVISION_MAX + 1).await;
        }
        drop(store.write().await.unwrap());
        assert!(store.oldest_withdrawal().await.unwrap() >= Some(withdrawn), "it waits before it is put right, too");
        put_right(&store).await;
        let waits_for = store.oldest_withdrawal().await.unwrap().unwrap();
        assert!(waits_for > served.revision, "gateways that have {served:?} serve it still");
        assert!(matches!(next(&store, served).await, Next::Snapshot));
        let snapshot = store.snapshot().await.unwrap().1;
        assert!(snapshot.revision >= waits_for);
        assert_eq!(delivered(&store, snapshot).await, []);
        assert_eq!(claim(&store, snapshot).await, Claim::Held);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_were_quarantined_are_sent_in_a_snapshot() {
    for (store, _directory) in both().await {
        let known = change(&store, 0).await;
        change(&store, 1).await;
        change(&store, 2).await;
        // No number follows another one.
        let known_number = known.revision.0.cast_signed();
        damage(&store, "UPDATE changes SET revision = revision * 2 WHERE revision > $1", known_number).await;
        damage(&store, "UPDATE revision_counter SET current = $1", i64::MAX).await;
        drop(store.write().await.unwrap());
        assert!(matches!(next(&store, known).await, Next::Snapshot), "entities have both changes");
        assert_eq!(store.snapshot().await.unwrap().1.revision, known.revision.next());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_from_a_row_that_is_lost_is_sent_a_snapshot_and_is_not_refused() {
    for (store, _directory) in both().await {
        let mut positions = Vec::new();
        for number in 0..4 {
            positions.push(change(&store, number).await);
        }
        let revision = |position: &Position| position.revision.0.cast_signed();
        for lost in [&positions[1], &positions[3]] {
            damage(&store, "DELETE FROM changes WHERE revision = $1", revision(lost)).await;
            assert!(matches!(next(&store, *lost).await, Next::Snapshot));
            assert_eq!(claim(&store, *lost).await, Claim::Unproven, "and proves nothing until it has the snapshot");
            let listed = store.reader().unreadable().entries(5);
            assert!(listed.iter().any(|(key, _)| key.row == lost.revision.0.to_string()), "{listed:?}");
        }
        // Two gateways had that position: the snapshot of one takes nothing from the other.
        let snapshot = store.snapshot().await.unwrap().1;
        assert_eq!(snapshot.revision, positions[3].revision.next());
        assert_eq!(delivered(&store, snapshot).await, []);
        assert!(matches!(next(&store, positions[3]).await, Next::Snapshot));
        change(&store, 9).await;
        assert!(matches!(next(&store, positions[3]).await, Next::Snapshot));
        assert!(is_refused(&store, with_another_mark(snapshot)).await);
        assert!(is_refused(&store, with_another_mark(positions[2])).await, "its row is there");
        let first = Position { revision: Revision(2), ..positions[0] };
        assert!(is_refused(&store, first).await, "before the log's beginning");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_above_the_newest_revision_are_not_used() {
    for (store, _directory) in both().await {
        let first = change(&store, 0).await;
        let newest = change(&store, 1).await;
        let sound = counters(&store).await;
        let current = newest.revision.0.cast_signed();
        for number in [current + 1, current + 1_000_000_000, i64::MAX, -1] {
            damage(&store, "UPDATE revision_counter SET oldest = $1", number).await;
            damage(
                &store,
                "INSERT INTO settings (name, value) VALUES ('replaced_below', CAST($1 AS TEXT))
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                number,
            )
            .await;
            assert_eq!(delivered(&store, newest).await, [], "{number}: no snapshot behind the snapshot");
            assert!(is_refused(&store, with_another_mark(newest)).await, "{number}");
            assert_eq!(claim(&store, newest).await, Claim::Held, "{number}");
            assert!(matches!(claim(&store, with_another_mark(first)).await, Claim::OtherHistory(_)), "{number}");
            drop(store.write().await.unwrap());
            assert_eq!(counters(&store).await, (sound.0, current), "{number}: repaired although nothing was written");
            assert_eq!(store.setting("replaced_below").await.unwrap(), None, "{number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_row_with_another_number_is_quarantined() {
    for number in [i64::MAX, 1_000_000_000, -5] {
        for (store, _directory) in both().await {
            change(&store, 0).await;
            let newest = change(&store, 1).await;
            let current = newest.revision.0.cast_signed();
            let wrong = if number == 1_000_000_000 { current + number } else { number };
            damage(
                &store,
                "UPDATE changes SET revision = $1 WHERE revision = (SELECT current FROM revision_counter)",
                wrong,
            )
            .await;
            // Its follower follows this history, and confirms nothing until it has the snapshot.
            assert!(matches!(next(&store, newest).await, Next::Snapshot), "{wrong}");
            assert_eq!(claim(&store, newest).await, Claim::Unproven, "{wrong}");
            assert!(is_refused(&store, with_another_mark(newest)).await, "{wrong}");
            let listed = store.reader().unreadable().entries(5);
            let is_listed = listed.iter().any(|(key, _)| key.table == "changes" && key.row == wrong.to_string());
            assert_eq!(is_listed, wrong > 0, "{listed:?}");
            let (_, repaired, _) = store.snapshot().await.unwrap();
            assert_eq!(repaired.revision, newest.revision.next(), "{wrong}");
            let after = change(&store, 2).await;
            assert_eq!(after.revision, repaired.revision.next(), "{wrong}");
            assert_eq!(delivered(&store, repaired).await, [after], "{wrong}");
            assert!(matches!(next(&store, newest).await, Next::Snapshot), "{wrong}: the mark is known still");
            assert_eq!(claim(&store, newest).await, Claim::Unproven, "{wrong}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_restored_database_is_known_without_its_counter() {
    for (store, _directory) in both().await {
        let lost = change(&store, 0).await;
        let mut write = store.write().await.unwrap();
        // A lost database with a damaged counter leaves room to count on.
        write.replace_earlier(i64::MAX).await.unwrap();
        let restored = write.commit().await.unwrap();
        damage(&store, "UPDATE revision_counter SET current = $1", lost.revision.0.cast_signed()).await;
        assert_eq!(store.newest_revision().await.unwrap(), restored);
        assert_eq!(change(&store, 1).await.revision, restored.next());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_with_an_impossible_revision_waits_for_a_snapshot() {
    for (store, _directory) in both().await {
        let newest = change(&store, 0).await;
        let mut write = store.write().await.unwrap();
        write.record_withdrawal(Kind::Key, "key", &"demo".parse().unwrap()).await.unwrap();
        write.commit().await.unwrap();
        damage(&store, "UPDATE withdrawals SET revision = $1", i64::MAX).await;
        for _ in 0..2 {
            put_right(&store).await;
            assert_eq!(store.oldest_withdrawal().await.unwrap(), Some(newest.revision.next()), "it is put right once");
        }
        assert!(matches!(next(&store, newest).await, Next::Snapshot));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_with_an_impossible_number_is_displaced() {
    for (store, _directory) in both().await {
        let generation = |number| gateways::SealedGeneration {
            number,
            sealed: format!("sealed {number}"),
            signs_from: contract::time::UnixSeconds(number),
        };
        for number in [i64::MAX, -1] {
            for number in [100, 200] {
                let mut write = store.write().await.unwrap();
                write.add_generation(&generation(number), true).await.unwrap();
                write.commit().await.unwrap();
            }
            damage(&store, "UPDATE gateway_keys SET number = $1 WHERE number = 200", number).await;
            assert_eq!(gateways::generations(store.reader()).await.unwrap(), []);
            let listed = store.reader().unreadable().entries(5);
            assert!(
                listed.iter().any(|(key, bad)| key.table == "gateway_keys" && bad.column == "number"),
                "{listed:?}"
            );
            let mut write = store.write().await.unwrap();
            write.add_generation(&generation(300), false).await.unwrap();
            write.commit().await.unwrap();
            assert_eq!(gateways::generations(store.reader()).await.unwrap(), [generation(300)]);
            let rows =
                query_scalar::<i64>("SELECT COUNT(*) FROM gateway_keys").fetch_one(store.reader()).await.unwrap();
            assert_eq!(rows, 1, "{number}");
            assert_eq!(store.reader().unreadable().count("gateway_keys"), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_is_not_a_number_is_repaired_from_the_log() {
    let [(store, _directory), _] = both().await;
    change(&store, 0).await;
    let newest = change(&store, 1).await;
    query("UPDATE revision_counter SET current = 'garbage', oldest = 'x'").execute(store.writer()).await.unwrap();
    assert_eq!(store.newest_revision().await.unwrap(), newest.revision);
    assert_eq!(change(&store, 2).await.revision, newest.revision.next());
    assert_eq!(counters(&store).await.1, newest.revision.0.cast_signed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_row_with_the_same_wrong_number_twice_is_quarantined_twice() {
    for (store, _directory) in both().await {
        for round in 0..3 {
            let newest = change(&store, round).await;
            damage(
                &store,
                "UPDATE changes SET revision = $1 WHERE revision = (SELECT current FROM revision_counter)",
                i64::MAX,
            )
            .await;
            assert_eq!(change(&store, round + 10).await.revision, newest.revision.next(), "{round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_of_kept_rows_that_cannot_be_is_taken_as_too_high() {
    for (store, _directory) in both().await {
        for number in [i64::MAX, i64::MIN, -1] {
            let mut write = store.write().await.unwrap();
            kept::one_more(write.connection(), "owner").await.unwrap();
            query("UPDATE kept_rows SET kept = $1").bind(number).execute(write.connection()).await.unwrap();
            assert_eq!(kept::one_more(write.connection(), "owner").await.unwrap(), 1_000_000_000, "{number}");
            kept::put_right(write.connection(), "owner", 3).await.unwrap();
            assert_eq!(kept::one_more(write.connection(), "owner").await.unwrap(), 4, "{number}");
            write.commit().await.unwrap();
        }
    }
}
