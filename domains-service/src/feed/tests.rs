//! Which gateways may follow and report at the same time, and the bytes of the stream.

use std::pin::pin;

use chassis::clock::ManualClock;
use contract::feed::Entity;
use contract::time::UnixMillis;
use futures_util::StreamExt as _;

use super::*;

#[tokio::test]
async fn frames_waiting_for_a_follower_are_dropped_when_its_credential_is_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
    let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
    let (pieces, waiting) = mpsc::channel(PIECES_WAITING_MAX);
    pieces.send(Bytes::from_static(b"{}")).await.unwrap();
    // No credential is recorded, so this one is invalid.
    let mut body = pin!(body(waiting, store.watch_credential("revoked")));
    assert!(matches!(body.next().await, Some(Err(Ended::Revoked))));
}

#[test]
fn the_heartbeat_has_the_documented_interval() {
    // `contract::feed`: one every second.
    assert_eq!(HEARTBEAT, Duration::from_secs(1));
}

#[test]
fn one_credential_leaves_slots_to_others() {
    let permits = Arc::new(Permits::default());
    let mut stolen: Vec<_> = (0..FOLLOWERS_MAX).map_while(|_| permits.take("stolen")).collect();
    assert_eq!(stolen.len(), FOLLOWERS_OF_ONE_MAX);
    assert!(permits.take("another").is_some());
    stolen.pop();
    assert!(permits.take("stolen").is_some(), "a permit that is given back is there again");
    drop(stolen);
    assert_eq!(permits.followers.holders(), 0);
}

#[test]
fn one_credential_leaves_snapshots_to_others() {
    let permits = Permits::default();
    let stolen: Vec<_> = (0..FOLLOWERS_OF_ONE_MAX).map_while(|_| permits.snapshots.take("stolen")).collect();
    assert_eq!(stolen.len(), SNAPSHOTS_OF_ONE_MAX);
    assert!(permits.snapshots.take("another").is_some());
}

#[tokio::test]
async fn one_credential_leaves_reports_to_others() {
    use futures_util::FutureExt as _;

    let permits = Permits::default();
    let report = |digest: &'static str| permits.to_report(digest).now_or_never().flatten();
    let stolen: Vec<_> = (0..REPORTS_MAX).map_while(|_| report("stolen")).collect();
    assert_eq!(stolen.len(), REPORTS_OF_ONE_MAX);
    assert!(report("another").is_some());
    drop(stolen);
    assert!(report("stolen").is_some());
}

#[test]
fn an_entity_sent_as_it_rests_reads_as_the_frame() {
    let site = contract::site::Site {
        hostname: "a.example".parse().unwrap(),
        serves: contract::site::Serves::Project("demo".parse().unwrap()),
        redirect: None,
    };
    let entity = Entity::Site(site);
    let (mut as_it_rests, mut as_a_frame) = (Vec::new(), Vec::new());
    write_entity(&mut as_it_rests, &crate::store::to_json(&entity));
    write_frame(&mut as_a_frame, &Frame::Entity(entity));
    assert_eq!(as_it_rests, as_a_frame);
}
