//! The followers that a database accepts, in a file and on a server: new, compacted and restored.

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use chassis::sql::query;
use contract::feed::{Entity, Mark, Position, Revision};

use super::super::Store;
use super::super::log::Next;
use super::both;

fn sealing() -> SealingKey {
    SealingKey::new(&Secret::new(vec![8; 32])).unwrap()
}

/// The next data for a follower at this position.
pub(super) async fn next(store: &Store, Position { revision, mark }: Position) -> Next {
    store.changes_after(&sealing(), (revision, Some(mark)), 100).await.unwrap()
}

pub(super) async fn is_refused(store: &Store, position: Position) -> bool {
    matches!(next(store, position).await, Next::OtherHistory(_))
}

pub(super) fn with_another_mark(position: Position) -> Position {
    Position { mark: Mark(!position.mark.0), ..position }
}

/// The position after a change.
pub(super) async fn change(store: &Store, number: u64) -> Position {
    let site = contract::site::Site {
        hostname: format!("{number}.example").parse().unwrap(),
        serves: contract::site::Serves::Project("demo".parse().unwrap()),
        redirect: None,
    };
    let mut write = store.write().await.unwrap();
    write.put(Entity::Site(site)).await.unwrap();
    write.commit().await.unwrap();
    store.snapshot().await.unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_accepts_its_own_followers() {
    for (store, _directory) in both().await {
        let (_, first, _) = store.snapshot().await.unwrap();
        assert!(matches!(next(&store, first).await, Next::Changes(changes) if changes.is_empty()));
        assert!(is_refused(&store, with_another_mark(first)).await);
        assert!(is_refused(&store, Position { revision: first.revision.next(), ..first }).await);
        assert!(is_refused(&store, Position { revision: Revision(1), ..first }).await);
        assert!(matches!(store.changes_after(&sealing(), (Revision(0), None), 100).await.unwrap(), Next::Snapshot));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_outlive_their_changes_by_a_bounded_number() {
    for (store, _directory) in both().await {
        let mut positions = Vec::new();
        for number in 0..10 {
            positions.push(change(&store, number).await);
        }
        let Next::Changes(changes) = next(&store, positions[4]).await else { panic!("they are all there") };
        assert_eq!(changes.iter().map(contract::feed::Change::position).collect::<Vec<_>>(), positions[5..]);
        assert_eq!(store.compact(4, 3).await.unwrap(), 6);
        for (number, position) in positions.iter().enumerate() {
            let way = next(&store, *position).await;
            let is_right = match number {
                0..=2 => matches!(way, Next::OtherHistory(_)),
                3..=4 => matches!(way, Next::Snapshot),
                _ => matches!(way, Next::Changes(_)),
            };
            assert!(is_right, "{number}: {way:?}");
            assert!(is_refused(&store, with_another_mark(*position)).await, "{number}");
        }
        // Only the newest row is left.
        assert_eq!(store.compact(0, 1).await.unwrap(), 4);
        assert!(matches!(next(&store, positions[9]).await, Next::Changes(changes) if changes.is_empty()));
        assert_eq!(change(&store, 10).await.revision, positions[9].revision.next());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_accepts_followers_of_those_that_it_replaced() {
    for (store, _directory) in both().await {
        let before = change(&store, 0).await;
        let lost = before.revision.0.cast_signed() + 1_000;
        let mut write = store.write().await.unwrap();
        write.replace_earlier(lost).await.unwrap();
        write.commit().await.unwrap();
        assert!(matches!(next(&store, before).await, Next::Snapshot));
        assert!(matches!(next(&store, with_another_mark(before)).await, Next::Snapshot));
        let (_, restored, _) = store.snapshot().await.unwrap();
        assert!(restored.revision.0.cast_signed() > lost);
        assert!(matches!(next(&store, restored).await, Next::Changes(_)));
        assert!(is_refused(&store, with_another_mark(restored)).await);
        assert!(is_refused(&store, Position { revision: restored.revision.next(), ..restored }).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_a_future_number_stops_neither_followers_nor_changes() {
    for (store, _directory) in both().await {
        let first = change(&store, 0).await;
        let second = change(&store, 1).await;
        query("UPDATE changes SET revision = $1 WHERE revision = $2")
            .bind((second.revision.0.cast_signed() + 2, first.revision.0.cast_signed()))
            .execute(store.writer())
            .await
            .unwrap();
        for number in 2..6 {
            let before = store.snapshot().await.unwrap().1;
            assert!(matches!(next(&store, before).await, Next::Changes(changes) if changes.is_empty()), "{number}");
            let after = change(&store, number).await;
            let found = next(&store, before).await;
            if number == 2 {
                // The first transaction sets the row aside. Followers may lack its change.
                assert!(matches!(found, Next::Snapshot), "the change of the row that was quarantined");
                continue;
            }
            let Next::Changes(changes) = found else { panic!("{number}: a snapshot") };
            assert_eq!(changes.iter().map(contract::feed::Change::position).collect::<Vec<_>>(), [after]);
        }
    }
}
