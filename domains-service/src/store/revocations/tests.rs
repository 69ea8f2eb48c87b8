use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use chassis::clock::ManualClock;

use super::super::credentials::{Enrolment, Kind, Origin};
use super::*;

fn revoked(digest: &str) -> Revocation {
    let line = format!(r#"{{"digest":"{digest}","name":"edge-1","kind":"gateway","created_at":1,"revoked_at":2}}"#);
    serde_json::from_str(&line).unwrap()
}

#[test]
fn a_file_keeps_every_revocation_once_and_loses_only_damaged_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("below/revoked");
    let file = Revocations::open(&path).unwrap();
    file.append(vec![revoked("a"), revoked("b")]).unwrap();
    file.append(vec![revoked("b"), revoked("c")]).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("\"b\"").count(), 1, "{text}");
    // The disk was full in the middle of a line, and a byte of the first line is wrong.
    std::fs::write(&path, format!("{}{{\"cut", text.replacen("\"a\"", "_a\"", 1))).unwrap();
    let file = Revocations::open(&path).unwrap();
    assert!(!file.has("a") && file.has("b") && file.has("c"));
    file.append(vec![revoked("a")]).unwrap();
    let file = Revocations::open(&path).unwrap();
    assert!(["a", "b", "c"].iter().all(|digest| file.has(digest)));
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_the_first_revocation() {
    let directory = tempfile::tempdir().unwrap();
    // Not even root makes a file there.
    for (path, reason) in
        [(directory.path(), "is not a regular file"), (Path::new("/proc/none/revoked"), "writing /proc/none/revoked")]
    {
        let error = format!("{:#}", Revocations::open(path).unwrap_err());
        assert!(error.contains(reason), "{error}");
    }
}

/// Counts what is logged.
struct Counted(Arc<AtomicUsize>);

impl tracing::Subscriber for Counted {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_file_with_many_damaged_lines_is_logged_in_few() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("revoked");
    for (damaged, logged) in [(0, 0), (1, 1), (20, 20), (21, 21), (5_000, 21)] {
        std::fs::write(&path, format!("{}\n{}\n", "damaged\n".repeat(damaged), to_json(&revoked("a")))).unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let read = tracing::subscriber::with_default(Counted(count.clone()), || read(&path).unwrap());
        assert_eq!((read.len(), count.load(Ordering::Relaxed)), (1, logged), "{damaged} damaged lines");
    }
}

#[test]
fn a_nearly_full_file_is_reported_with_a_fix() {
    let directory = tempfile::tempdir().unwrap();
    let file = Revocations::open(&directory.path().join("revoked")).unwrap();
    let one = revoked("");
    let numbered = |number: usize| {
        let mut one = one.clone();
        one.digest = number.to_string();
        one
    };
    let several = |count: usize| (0..count).map(numbered).collect::<Vec<_>>();
    file.append(several(LINES_WARNED - 1)).unwrap();
    assert_eq!(file.trouble(), None);
    file.append(several(LINES_WARNED)).unwrap();
    assert!(file.trouble().unwrap().problem.ends_with("has 80000 of at most 100000 lines"));
    let full = file.append(several(LINES_MAX + 2)).unwrap_err().to_string();
    assert!(full.contains("has 100000 lines and no room for 2 more: while the database"), "{full}");
    assert_eq!(["0", "99999", "100000"].map(|digest| file.has(digest)), [true, true, false]);
    assert!(file.trouble().unwrap().problem.contains("would be valid again"));
    file.append(several(1)).unwrap();
    assert!(!file.trouble().unwrap().problem.contains("would be valid again"), "nothing is missing in it");
}

/// A store with a file, and its clock.
async fn store(directory: &Path) -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
    let store = Store::open(&directory.join("db.sqlite").into(), clock.clone()).await.unwrap();
    (store.with_revocations(Revocations::open(&directory.join("revoked")).unwrap()), clock)
}

/// A credential that was made and revoked, by another replica.
async fn revoke(store: &Store, name: &str, expires_at: Option<UnixMillis>) {
    let mut write = store.write().await.unwrap();
    let new = Enrolment { kind: Kind::Operator, name, digest: name, expires_at, from: Origin::Maker("root") };
    assert_eq!(write.enrol(&new).await.unwrap(), Ok(true));
    let credential = write.last_credential(Kind::Operator, name).await.unwrap().unwrap().credential;
    write.revoke(&credential).await.unwrap();
    write.commit().await.unwrap();
}

#[tokio::test]
async fn a_replica_that_was_suspended_records_what_others_revoked_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let (store, clock) = store(directory.path()).await;
    store.record_revocations().await.unwrap();
    revoke(&store, "ada", None).await;
    clock.advance(Duration::from_hours(5));
    store.record_revocations().await.unwrap();
    assert!(store.revocations().unwrap().has("ada"));
    // By a clock that is behind.
    clock.jump_to(UnixMillis(1_000));
    revoke(&store, "eve", None).await;
    store.record_revocations().await.unwrap();
    assert!(store.revocations().unwrap().has("eve"));
}

#[tokio::test]
async fn a_new_file_has_all_revocations_but_those_of_expired_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let (store, clock) = store(directory.path()).await;
    revoke(&store, "endless", None).await;
    revoke(&store, "ended", Some(UnixMillis(2_000))).await;
    revoke(&store, "later", Some(UnixMillis(EXPIRED_FOR_MILLIS + 10_000))).await;
    clock.jump_to(UnixMillis(EXPIRED_FOR_MILLIS + 5_000));
    store.record_revocations().await.unwrap();
    let file = store.revocations().unwrap();
    assert_eq!(["endless", "ended", "later"].map(|digest| file.has(digest)), [true, false, true]);
    assert!(store.without_revocation(vec![revoked("ended")]).await.unwrap().is_empty(), "it is on record");
}
