//! Damaged numbers of the change log, in a file and on a server: writes go on, followers stay, and the numbers are repaired.

use chassis::sql::{query, query_as, query_scalar};
use contract::feed::{Change, Position};

use super::super::log::Next;
use super::super::log::claim::Claim;
use super::super::{Store, kept, numbers};
use super::both;
use super::history::{change, is_refused, next, with_another_mark};

async fn counters(store: &Store) -> (i64, i64) {
    let found = query_as("SELECT current, oldest FROM revision_counter WHERE id = 1");
    found.fetch_one(store.reader()).await.unwrap()
}

async fn damage(store: &Store, statement: &'static str, number: i64) {
    query(statement).bind(number).execute(store.writer()).await.unwrap();
}

/// How the log judges a process that says it is at this position.
async fn claim(store: &Store, Position { revision, mark }: Position) -> Claim {
    let report = contract::feed::NodeReport {
        node: "edge/a".to_owned(),
        place: None,
        applied: revision,
        mark: Some(mark),
        version: "1".to_owned(),
        goodbye: false,
    };
    store.claim(&report).await.unwrap()
}

/// What a follower at this position is told next, which is no snapshot.
async fn told(store: &Store, position: Position) -> Vec<Position> {
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
            assert_eq!(told(&store, newest).await, [], "before a write, too");
            assert!(matches!(next(&store, positions[3]).await, Next::Snapshot), "the rows above may be another damage");
            assert_eq!(claim(&store, newest).await, Claim::Held);
            assert_eq!(store.snapshot().await.unwrap().1, newest);
            let after = change(&store, 9).await;
            assert_eq!(after.revision, newest.revision.next(), "{lower}");
            assert_eq!(told(&store, newest).await, [after]);
            assert_eq!(counters(&store).await, (current + 1, current));
            assert!(is_refused(&store, with_another_mark(newest)).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_above_all_numbers_counts_on_from_the_log() {
    for (store, _directory) in both().await {
        change(&store, 0).await;
        let newest = change(&store, 1).await;
        damage(&store, "UPDATE revision_counter SET current = $1", i64::MAX).await;
        assert_eq!(told(&store, newest).await, []);
        let after = change(&store, 2).await;
        assert_eq!(after.revision, newest.revision.next());
        assert_eq!(told(&store, newest).await, [after]);
        // One that can be is jumped to: followers are sent a snapshot.
        let jumped = after.revision.0.cast_signed() + 1_000;
        damage(&store, "UPDATE revision_counter SET current = $1", jumped).await;
        assert!(matches!(next(&store, after).await, Next::Snapshot));
        let (_, snapshot, _) = store.snapshot().await.unwrap();
        assert_eq!(snapshot.revision.0.cast_signed(), jumped);
        assert_eq!(told(&store, snapshot).await, []);
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
            assert_eq!(told(&store, newest).await, [], "{number}: no snapshot behind the snapshot");
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
async fn the_newest_row_with_another_number_is_set_aside() {
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
            // Its follower follows this history, and acknowledges nothing until it has the snapshot.
            assert!(matches!(next(&store, newest).await, Next::Snapshot), "{wrong}");
            assert_eq!(claim(&store, newest).await, Claim::Unproven, "{wrong}");
            assert!(is_refused(&store, with_another_mark(newest)).await, "{wrong}");
            let noted = store.reader().unreadable().noted(5);
            let is_noted = noted.iter().any(|(place, _)| place.table == "changes" && place.row == wrong.to_string());
            assert_eq!(is_noted, wrong > 0, "{noted:?}");
            let (_, mended, _) = store.snapshot().await.unwrap();
            assert_eq!(mended.revision, newest.revision, "{wrong}");
            let after = change(&store, 2).await;
            assert_eq!(after.revision, newest.revision.next(), "{wrong}");
            assert_eq!(told(&store, mended).await, [after], "{wrong}");
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
async fn a_withdrawal_of_a_revision_that_was_never_given_out_waits_for_the_newest() {
    for (store, _directory) in both().await {
        let newest = change(&store, 0).await.revision;
        let mut write = store.write().await.unwrap();
        write.withdrawn(crate::store::withdrawals::What::Key, "key", &"demo".parse().unwrap()).await.unwrap();
        write.commit().await.unwrap();
        damage(&store, "UPDATE withdrawals SET revision = $1", i64::MAX).await;
        let mut write = store.write().await.unwrap();
        numbers::put_right(&mut write).await.unwrap();
        write.commit().await.unwrap();
        assert_eq!(store.oldest_withdrawal().await.unwrap(), Some(newest));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_with_a_number_that_was_never_given_makes_room() {
    for (store, _directory) in both().await {
        let generation = |number| crate::store::gateways::SealedGeneration {
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
            assert_eq!(store.generations().await.unwrap(), []);
            let noted = store.reader().unreadable().noted(5);
            assert!(
                noted.iter().any(|(place, bad)| place.table == "gateway_keys" && bad.column == "number"),
                "{noted:?}"
            );
            let mut write = store.write().await.unwrap();
            write.add_generation(&generation(300), false).await.unwrap();
            write.commit().await.unwrap();
            assert_eq!(store.generations().await.unwrap(), [generation(300)]);
            let rows =
                query_scalar::<i64>("SELECT COUNT(*) FROM gateway_keys").fetch_one(store.reader()).await.unwrap();
            assert_eq!(rows, 1, "{number}");
            assert_eq!(store.reader().unreadable().count("gateway_keys"), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_is_no_number_is_read_from_the_log() {
    let [(store, _directory), _] = both().await;
    change(&store, 0).await;
    let newest = change(&store, 1).await;
    query("UPDATE revision_counter SET current = 'garbage', oldest = 'x'").execute(store.writer()).await.unwrap();
    assert_eq!(store.newest_revision().await.unwrap(), newest.revision);
    assert_eq!(change(&store, 2).await.revision, newest.revision.next());
    assert_eq!(counters(&store).await.1, newest.revision.0.cast_signed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_row_with_the_same_wrong_number_twice_is_set_aside_twice() {
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
