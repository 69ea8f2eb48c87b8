#[path = "../../chassis/tests/support/power.rs"]
mod power;

mod follower;

use std::time::Duration;

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::feed::{InvalidEntity, Mark};
use contract::plan::Plan;
use contract::project::Access;
use contract::site::Serves;
use contract::time::UnixMillis;
use redb::ReadableDatabase as _;

use super::acceptance::NotAccepted;
use super::*;

fn opener() -> CertificateOpener {
    CertificateOpener::new(SealingKey::new(&Secret::new(vec![1; 32])).unwrap())
}

fn replica(directory: &Path) -> Replica {
    Replica::open(&directory.join("replica.redb"), &opener(), HotBounds::default()).unwrap()
}

fn project(id: &str, plan: Plan) -> Entity {
    Entity::Project(Project {
        id: id.parse().unwrap(),
        uid: id.parse().unwrap(),
        plan,
        limits: plan.stated_limits(),
        access: Access::Key,
        upstream: "orders".parse().unwrap(),
        suspended: false,
        browsers: contract::browsers::Browsers::default(),
    })
}

fn site(host: &str, project: &str) -> Entity {
    Entity::Site(Site {
        hostname: host.parse().unwrap(),
        serves: Serves::Project(project.parse().unwrap()),
        redirect: None,
    })
}

fn change(revision: u64, effect: Effect) -> Change {
    Change { revision: Revision(revision), mark: Mark(revision), at: UnixMillis(0), effect }
}

/// A position with a mark of its own.
fn at(revision: u64) -> Position {
    Position { revision: Revision(revision), mark: Mark(revision) }
}

fn host(text: &str) -> Hostname {
    text.parse().unwrap()
}

#[test]
fn changes_are_seen_at_once_and_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    replica.replace(&[project("a", Plan::Free), site("a.example", "a")], at(5)).unwrap();
    assert_eq!(replica.project(&"a".parse().unwrap()).unwrap().plan, Plan::Free);
    replica.apply(&[change(6, Effect::Put(project("a", Plan::Pro)))]).unwrap();
    assert_eq!(replica.project(&"a".parse().unwrap()).unwrap().plan, Plan::Pro);
    drop(replica);
    let again = self::replica(directory.path());
    assert_eq!(again.revision(), Revision(6));
    assert!(again.site(&host("a.example")).is_some());
}

#[test]
fn applied_changes_survive_a_power_failure() {
    let left = power::fails_after("tests::applied_changes_survive_a_power_failure", |directory| {
        let replica = replica(&directory.join("data"));
        replica.replace(&[project("a", Plan::Free)], at(5)).unwrap();
        for (revision, id) in (6..).zip(["b", "c", "d"]) {
            replica.apply(&[change(revision, Effect::Put(project(id, Plan::Pro)))]).unwrap();
        }
        // Before the database is closed, which writes as well.
        std::process::exit(power::DONE);
    });
    let again = replica(&left.path().join("data"));
    assert_eq!(again.position().unwrap(), Some(at(8)), "the mark as well");
    for id in ["a", "b", "c", "d"] {
        assert!(again.project(&id.parse().unwrap()).is_some(), "{id}");
    }
}

/// The rows that every version writes: the kind of entity, its table, its key there, and its value.
const STORED: [(&str, &str, &str, &str); 5] = [
    (
        "certificate",
        "certificates",
        "a.example",
        r#"{"hostname":"a.example","chain_pem":"PEM\n","key":"sealed","not_before":1,"not_after":2}"#,
    ),
    ("challenge", "challenges", "t-_1", r#"{"hostname":"a.example","token":"t-_1","key_authorization":"t-_1.thumb"}"#),
    (
        "key",
        "keys",
        "__________________________________________8",
        r#"{"digest":"__________________________________________8","id":"key_abcdefghij234567","project":"demo","project_uid":"prj_aaaaaaaaaaaaaaaaaaaaaaaaaa","environment":"live","scopes":["orders:read"],"expires_at":null}"#,
    ),
    (
        "project",
        "projects",
        "demo",
        r#"{"id":"demo","uid":"prj_aaaaaaaaaaaaaaaaaaaaaaaaaa","plan":"pro","limits":{"per_minute":300,"per_day":10000},"access":"key","upstream":"orders","suspended":false}"#,
    ),
    (
        "site",
        "sites",
        "a.example",
        r#"{"hostname":"a.example","serves":{"project":"demo"},"redirect":{"to":"www.a.example","status":"308"}}"#,
    ),
];

const OF_POSITION: redb::TableDefinition<'static, (), (u64, u64)> = redb::TableDefinition::new("position");

fn table(name: &str) -> redb::TableDefinition<'_, &'static str, &'static [u8]> {
    redb::TableDefinition::new(name)
}

// An updated or downgraded gateway continues with the existing file.
#[test]
fn a_file_that_another_version_wrote_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replica.redb");
    let written = redb::Database::create(&path).unwrap();
    let write = written.begin_write().unwrap();
    for (_, name, key, value) in STORED {
        write.open_table(table(name)).unwrap().insert(key, value.as_bytes()).unwrap();
    }
    write.open_table(OF_POSITION).unwrap().insert((), (7, 7)).unwrap();
    write.commit().unwrap();
    drop(written);
    let replica = replica(directory.path());
    assert_eq!(replica.position().unwrap(), Some(at(7)));
    let redirect = replica.site(&host("a.example")).unwrap().redirect.clone().unwrap();
    assert_eq!(redirect.to, host("www.a.example"));
    assert_eq!(replica.project(&"demo".parse().unwrap()).unwrap().plan, Plan::Pro);
    assert_eq!(replica.key(&KeyDigest([255; 32])).unwrap().id.as_str(), "key_abcdefghij234567");
    assert_eq!(replica.challenge("t-_1").unwrap().key_authorization, "t-_1.thumb");
    let soonest = replica.soonest_to_expire(9);
    assert_eq!(soonest.len(), 1, "the order of ends is made where it is missing");
    assert_eq!((soonest[0].hostname.as_str(), soonest[0].not_after), ("a.example", UnixSeconds(2)));
}

#[test]
fn a_file_is_written_as_other_versions_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replica.redb");
    let entities: Vec<Entity> = STORED
        .iter()
        .map(|(kind, _, _, value)| serde_json::from_str(&format!(r#"{{"{kind}":{value}}}"#)).unwrap())
        .collect();
    let file = File::open(&path).unwrap();
    file.replace(&entities, &[], at(7)).unwrap();
    drop(file);
    let written = redb::Database::open(&path).unwrap();
    let read = written.begin_read().unwrap();
    for (_, name, key, value) in STORED {
        let stored = read.open_table(table(name)).unwrap().get(key).unwrap().unwrap().value().to_vec();
        assert_eq!(String::from_utf8(stored).unwrap().trim_end(), value, "blanks behind JSON are ignored");
    }
    assert_eq!(read.open_table(OF_POSITION).unwrap().get(()).unwrap().unwrap().value(), (7, 7));
}

#[test]
fn a_removed_site_is_named_so_that_its_connections_end() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    replica.replace(&[project("a", Plan::Pro), site("a.example", "a")], at(1)).unwrap();
    assert!(replica.site(&host("a.example")).is_some());
    let done = replica.apply(&[change(2, Effect::Remove(EntityName::Site(host("a.example"))))]).unwrap();
    assert_eq!(done.retired, [host("a.example")]);
    assert!(replica.site(&host("a.example")).is_none());
}

#[test]
fn a_gap_is_refused_and_a_repetition_is_harmless() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    replica.replace(&[], at(1)).unwrap();
    let second = change(2, Effect::Put(project("a", Plan::Pro)));
    replica.apply(std::slice::from_ref(&second)).unwrap();
    replica.apply(&[second, change(3, Effect::Put(project("b", Plan::Pro)))]).unwrap();
    assert_eq!(replica.revision(), Revision(3));
    let gap = replica.apply(&[change(5, Effect::Put(project("c", Plan::Pro)))]);
    assert!(matches!(gap, Err(ReplicaError::Gap { .. })));
    assert_eq!(replica.revision(), Revision(3));
}

#[test]
fn a_batch_with_one_bad_change_leaves_the_last_good_state() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    replica.replace(&[project("a", Plan::Free)], at(1)).unwrap();
    let looping = Entity::Site(Site {
        hostname: host("a.example"),
        serves: Serves::Project("a".parse().unwrap()),
        redirect: Some(contract::site::Redirect { to: host("a.example"), status: None }),
    });
    let refused = replica.apply(&[change(2, Effect::Put(project("a", Plan::Pro))), change(3, Effect::Put(looping))]);
    assert!(matches!(refused, Err(ReplicaError::Invalid(Invalid::Entity(InvalidEntity::Loop(_))))));
    assert_eq!(replica.revision(), Revision(1));
    assert_eq!(replica.project(&"a".parse().unwrap()).unwrap().plan, Plan::Free);
}

#[test]
fn a_snapshot_without_most_served_hostnames_is_applied_when_an_operator_accepts_it() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    let sites = |count: usize| (0..count).map(|number| site(&format!("{number}.example"), "a")).collect::<Vec<_>>();
    replica.replace(&sites(11), at(1)).unwrap();
    let refused = replica.replace(&sites(4), at(2));
    assert!(matches!(refused, Err(ReplicaError::Invalid(Invalid::Shrunk { known: 11, found: 4, .. }))), "{refused:?}");
    assert!(replica.site(&host("10.example")).is_some());
    replica.replace(&sites(5), at(2)).unwrap();
    replica.replace(&[], at(3)).expect("a few may all go");
    replica.replace(&sites(11), at(4)).unwrap();
    accept(&replica, at(5));
    replica.replace(&[], at(5)).unwrap();
    replica.replace(&sites(11), at(6)).unwrap();
    assert!(replica.replace(&[], at(7)).is_err(), "accepted once");
}

/// Refuses a database that is there, and accepts it at the moment 0.
fn accept(replica: &Replica, there: Position) {
    replica.set_refusal(Some(Refused { why: "another history".to_owned(), what_to_do: "", there: Some(there) }));
    replica.accept(Duration::ZERO).unwrap();
}

#[test]
fn an_acceptance_applies_to_the_refused_state_and_expires() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    replica.replace(&[site("a.example", "a")], at(9)).unwrap();
    assert!(matches!(replica.accept(Duration::ZERO), Err(NotAccepted::NothingRefused)));
    replica.set_refusal(Some(Refused { why: "the disk is full".to_owned(), what_to_do: REPAIR_DISK, there: None }));
    let why = replica.accept(Duration::ZERO).unwrap_err();
    assert!(why.to_string().contains("the disk is full"), "{why}");
    assert_eq!((replica.acceptance(), replica.accepted_place(Duration::ZERO)), (Acceptance::None, None));
    accept(&replica, at(4));
    assert_eq!(replica.accepted_place(Duration::from_mins(9)), Some(at(4)));
    assert_eq!(replica.accepted_place(Duration::from_mins(10)), None);
    assert_eq!(replica.acceptance(), Acceptance::None, "it is over");
}

fn key(id: &str, digest: u8) -> Entity {
    Entity::Key(ApiKey {
        digest: KeyDigest([digest; 32]),
        id: id.parse().unwrap(),
        project: "a".parse().unwrap(),
        project_uid: "demo".parse().unwrap(),
        environment: contract::key::Environment::Live,
        scopes: [contract::key::Scope::OrdersRead].into_iter().collect(),
        expires_at: None,
    })
}

#[test]
fn an_accepted_snapshot_reports_what_it_adds_and_removes() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    let stays = "key_aaaaaaaaaa234567";
    let before = [project("a", Plan::Pro), project("b", Plan::Pro), site("new.example", "a"), key(stays, 1)];
    replica.replace(&before, at(9)).unwrap();
    assert_eq!(replica.acceptance(), Acceptance::None);
    accept(&replica, at(4));
    assert!(replica.accepts());
    // An older database: a revoked key is valid again, and a domain and a project's change are missing.
    let names = (0..30).map(|number| site(&format!("{number:02}.example"), "a"));
    let back = [project("a", Plan::Free), key(stays, 1), key("key_bbbbbbbbbb234567", 2)];
    replica.replace(&back.into_iter().chain(names).collect::<Vec<_>>(), at(4)).unwrap();
    assert_eq!(replica.position().unwrap(), Some(at(4)));
    let Acceptance::Taken(difference) = replica.acceptance() else { panic!("{:?}", replica.acceptance()) };
    assert_eq!(difference.revision, Revision(4));
    assert_eq!(
        (difference.keys.added.count, &*difference.keys.added.names),
        (1, &["key_bbbbbbbbbb234567".to_owned()][..])
    );
    assert_eq!((difference.keys.removed.count, difference.keys.changed.count), (0, 0));
    assert_eq!((difference.hostnames.added.count, difference.hostnames.added.names.len()), (30, 20));
    assert_eq!(difference.hostnames.removed.names, ["new.example"]);
    assert_eq!(difference.projects.changed.names, ["a"]);
    assert_eq!(difference.projects.removed.names, ["b"]);
    assert!(!replica.accepts(), "accepted once");
}

#[test]
fn certificates_are_ordered_by_expiry() {
    let directory = tempfile::tempdir().unwrap();
    let file = File::open(&directory.path().join("replica.redb")).unwrap();
    let bundle = |host: &str, ends: i64| {
        let (not_before, not_after) = (UnixSeconds(ends - 100), UnixSeconds(ends));
        let key = contract::certificate::SealedKey("sealed".to_owned());
        let chain_pem = String::new();
        let hostname = host.parse().unwrap();
        Entity::Certificate(contract::certificate::CertificateBundle {
            hostname,
            chain_pem,
            key,
            not_before,
            not_after,
        })
    };
    let soonest =
        |file: &File| -> Vec<String> { file.soonest_to_expire(10).into_iter().map(|expiry| expiry.hostname).collect() };
    file.replace(&[bundle("a.example", 900), bundle("b.example", 500), bundle("c.example", 700)], &[], at(1)).unwrap();
    assert_eq!(soonest(&file), ["b.example", "c.example", "a.example"]);
    assert_eq!(file.soonest_to_expire(1)[0].not_before, UnixSeconds(400));
    assert!((file.soonest_to_expire(1)[0].left(UnixSeconds(475)) - 0.25).abs() < 1e-9);
    // Damaged certificates are replaced and removed like others.
    let write = file.database.read().begin_write().unwrap();
    let mut stored = write.open_table(table("certificates")).unwrap();
    for host in ["b.example", "c.example"] {
        stored.insert(host, b"damaged".as_slice()).unwrap();
    }
    drop(stored);
    write.commit().unwrap();
    let renewed = Effect::Put(bundle("b.example", 999));
    let removed = Effect::Remove(EntityName::Certificate(host("c.example")));
    file.apply(&[Step::Take(&renewed), Step::Take(&removed)], at(2)).unwrap();
    assert_eq!(soonest(&file), ["a.example", "b.example"]);
    drop(file);
    let again = File::open(&directory.path().join("replica.redb")).unwrap();
    assert_eq!(soonest(&again), ["a.example", "b.example"]);
    again.replace(&[], &[], at(3)).unwrap();
    assert!(soonest(&again).is_empty());
}

#[test]
fn a_snapshot_with_duplicates_is_refused_whole() {
    let directory = tempfile::tempdir().unwrap();
    let replica = replica(directory.path());
    replica.replace(&[project("a", Plan::Free)], at(1)).unwrap();
    let refused = replica.replace(&[project("b", Plan::Free), project("b", Plan::Pro)], at(9));
    assert!(matches!(refused, Err(ReplicaError::Invalid(Invalid::Duplicate(_)))));
    assert!(replica.project(&"a".parse().unwrap()).is_some());
}

#[test]
fn a_change_is_refused_on_a_full_disk_and_reads_continue() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replica.redb");
    let file = File::open(&path).unwrap();
    file.replace(&[project("a", Plan::Pro)], &[], at(1)).unwrap();
    drop(file);
    let second = Effect::Put(project("b", Plan::Pro));
    let full = File::open_on(&path, |_| Ok(file::ROOM_MIN - 1)).unwrap();
    let refused = format!("{:#}", full.apply(&[Step::Take(&second)], at(2)).unwrap_err());
    assert!(refused.contains("has 15 MiB left, and 16 MiB are needed"), "{refused}");
    assert!(full.replace(&[], &[], at(2)).is_err());
    assert_eq!(full.position().unwrap(), Some(at(1)));
    assert!(full.get::<Project>(Kind::Project, "a").is_some());
    drop(full);
    // Enough space for changes is not enough for a whole snapshot.
    let narrow = File::open_on(&path, |_| Ok(file::ROOM_MIN)).unwrap();
    assert!(narrow.replace(&[project("c", Plan::Pro)], &[], at(3)).is_err());
    narrow.apply(&[Step::Take(&second)], at(2)).unwrap();
    assert!(narrow.get::<Project>(Kind::Project, "b").is_some());
}

/// One that is open elsewhere is not damaged.
#[test]
fn a_file_in_use_is_not_renamed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("replica.redb");
    let first = replica(directory.path());
    assert!(Replica::open(&path, &opener(), HotBounds::default()).is_err());
    drop(first);
    assert!(path.exists() && !damage::kept_as(&path).exists());
    replica(directory.path());
}
