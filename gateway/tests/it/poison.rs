//! A faulty control plane: with any bad data the last good state is served and no request fails.

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::certificate::{CertificateBundle, SealedKey};
use contract::feed::{Change, Effect, Entity, EntityName, Frame, Mark, Revision};
use contract::time::UnixMillis;

use crate::fleet::extent;
use crate::world::client::Ask;
use crate::world::control::{line, snapshot};
use crate::world::entities::{certificate, challenge, limited, public, redirecting, site};
use crate::world::visitor::Visitor;
use crate::world::{DEMO, ORDERS, OTHER, SHOP, World, eventually};

/// Placeholder for the revision after the newest one, which is known only when the bad stream is sent.
const NEXT: u64 = 7_777_777;

fn change(revision: u64, effect: Effect) -> String {
    line(&Frame::Change(Change { revision: Revision(revision), mark: Mark(revision), at: UnixMillis(0), effect }))
}

/// The change that follows a lie. It must not be applied.
fn removal() -> String {
    change(NEXT, Effect::Remove(EntityName::Site(DEMO.parse().unwrap())))
}

/// Sends a gateway each bad stream alone, and asserts that the gateway applies nothing of it, no request fails, and
/// the next good stream is applied. `reason` is the metric's label; `None` when the stream merely broke.
///
/// `bench/run edge-proof` sends each of them several times.
async fn assert_survives(reason: Option<&str>, lies: Vec<(&str, String)>) {
    let rounds = usize::try_from(extent("POISON_ROUNDS", 1)).unwrap();
    let count = lies.len() * rounds;
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    let visitor = Visitor::of(&world);
    for (number, (what, lie)) in (1..).zip(lies.iter().cycle().take(count)) {
        world.control.lie_next(lie.replace(&NEXT.to_string(), &(world.control.revision() + 1).to_string()));
        let streams = world.control.asked_after().len();
        world.control.cut();
        eventually("the wrong change to be sent and another stream to be requested", async || {
            assert_eq!(client.ask(&world.list()).await.status, 200, "{what}");
            (world.control.asked_after().len() >= streams + 2).then_some(())
        })
        .await;
        world.control.put(Entity::Project(limited("demo", 100_000 + number, 1_000_000))).await;
        let reply = client.ask(&world.list()).await;
        assert_eq!(reply.number("x-ratelimit-limit"), i64::from(100_000 + number), "{what}");
    }
    let asked = visitor.leave().await;
    println!("{}: {count} lies, {asked} requests meanwhile, 0 failed", reason.unwrap_or("broken"));
    for (series, value) in world.admin.metrics().await {
        if series.starts_with("edge_replica_refused_total") {
            let is_ours = reason.is_some_and(|reason| series.contains(&format!("\"{reason}\"")));
            assert_eq!(value, if is_ours { count.to_string() } else { "0".to_owned() }, "{series}");
        }
    }
}

// promise: edge.23
#[tokio::test]
async fn malformed_frames_are_refused() {
    let unknown_plan = change(NEXT, Effect::Put(Entity::Project(public("demo")))).replace("\"pro\"", "\"platinum\"");
    let blank_host = change(NEXT, Effect::Put(site(DEMO, "demo"))).replace(DEMO, "");
    let zero = change(NEXT, Effect::Put(Entity::Project(limited("demo", 5, 5)))).replace(":5", ":0");
    assert_survives(
        Some("line"),
        vec![
            ("not JSON", "<html>502 Bad Gateway</html>\n".to_owned() + &removal()),
            ("cut short", removal().split_at(40).0.to_owned()),
            ("an unknown frame", "{\"explode\":{}}\n".to_owned() + &removal()),
            ("a blank line", "\n".to_owned() + &removal()),
            ("an unknown plan", unknown_plan),
            ("a blank host", blank_host),
            ("a limit of zero", zero),
            ("an entity of no snapshot", line(&Frame::Entity(site("stray.example", "demo"))) + &removal()),
            (
                "the end of no snapshot",
                line(&Frame::SnapshotEnd { revision: Revision(NEXT), mark: Mark(NEXT) }) + &removal(),
            ),
        ],
    )
    .await;
}

// promise: edge.23
#[tokio::test]
async fn snapshots_with_more_or_less_than_announced_are_refused() {
    let end = line(&Frame::SnapshotEnd { revision: Revision(NEXT), mark: Mark(NEXT) });
    let begin = |entities| line(&Frame::SnapshotBegin { entities });
    let one = line(&Frame::Entity(site("few.example", "demo")));
    assert_survives(
        Some("count"),
        vec![
            ("less", begin(2) + &one + &end),
            ("more", begin(1) + &one + &one.replace("few", "more") + &end),
            ("nothing at all where something was announced", begin(1_000_000) + &end),
        ],
    )
    .await;
}

// promise: edge.23
#[tokio::test]
async fn snapshots_with_duplicates_are_refused() {
    let twice = vec![Entity::Project(limited("demo", 1, 1)), Entity::Project(limited("demo", 2, 2))];
    assert_survives(Some("duplicate"), vec![("twice", snapshot(&twice, NEXT))]).await;
}

// promise: edge.23
#[tokio::test]
async fn certificates_sealed_with_a_missing_secret_are_refused() {
    let mut bundle = bundle(DEMO);
    let another = SealingKey::new(&Secret::new(vec![9; 32])).unwrap();
    bundle.key = SealedKey(another.seal(b"a key", DEMO).unwrap());
    let change = change(NEXT, Effect::Put(Entity::Certificate(bundle.clone())));
    let snapshot = snapshot(&[Entity::Certificate(bundle)], NEXT);
    assert_survives(Some("certificate"), vec![("a change", change), ("a snapshot", snapshot)]).await;
}

fn bundle(host: &str) -> CertificateBundle {
    let Entity::Certificate(bundle) = certificate(host) else { panic!("a certificate") };
    bundle
}

/// Certificates of [`SHOP`] that are not usable, and why.
fn unusable() -> Vec<(&'static str, CertificateBundle)> {
    let (good, other) = (bundle(SHOP), bundle("other.example"));
    let of_another_name = CertificateBundle { hostname: good.hostname.clone(), ..other.clone() };
    let chain_of_another = CertificateBundle { chain_pem: other.chain_pem, ..good.clone() };
    let no_chain = CertificateBundle { chain_pem: String::new(), ..good.clone() };
    // One changed letter of the leaf: it is no longer a sequence.
    let flipped = CertificateBundle { chain_pem: good.chain_pem.replacen("\nM", "\nA", 1), ..good };
    vec![
        ("cannot open", of_another_name),
        ("does not belong to the certificate", chain_of_another),
        ("the chain is empty", no_chain),
        ("does not", flipped),
    ]
}

/// The certificates that the gateway reports as skipped.
async fn unusable_certificates(world: &World) -> Vec<(String, String)> {
    let (_, status) = world.admin.get("/status").await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let word = |certificate: &serde_json::Value, field: &str| certificate[field].as_str().unwrap().to_owned();
    let listed = status["unusable_certificates"].as_array().unwrap().iter();
    listed.map(|certificate| (word(certificate, "hostname"), word(certificate, "reason"))).collect()
}

// promise: edge.23
#[tokio::test]
async fn an_unusable_certificate_is_skipped_and_all_other_changes_are_applied() {
    let mut world = World::start().await;
    let shop = Ask::get(SHOP, ORDERS).key(&world.key.text);
    let certificates = unusable();
    for (number, (why, bad)) in (1..).zip(&certificates) {
        world.control.put(Entity::Certificate(bad.clone())).await;
        let listed = unusable_certificates(&world).await;
        assert!(listed.len() == 1 && listed[0].0 == SHOP && listed[0].1.contains(why), "{why}: {listed:?}");
        assert_eq!(world.ask(shop.clone()).await.status, 200, "{why}: with the certificate from before");
        world.admin.counts("edge_replica_refused_total{reason=\"certificate\"}", number).await;
    }
    // A later withdrawal is applied.
    let revoked = world.other_key.clone();
    let removed = EntityName::Key(revoked.record.digest);
    world.control.remove(removed.clone()).await;
    world.ask(Ask::get(OTHER, ORDERS).key(&revoked.text)).await.refused(401, "invalid_api_key");
    // So is the absence from a snapshot that has the same certificate.
    world.control.put(revoked.entity()).await;
    assert_eq!(world.ask(Ask::get(OTHER, ORDERS).key(&revoked.text)).await.status, 200);
    world.control.die().await;
    let revision = world.control.publish(Effect::Remove(removed));
    world.control.forget_changes();
    world.control.revive();
    world.control.applied(revision).await;
    world.ask(Ask::get(OTHER, ORDERS).key(&revoked.text)).await.refused(401, "invalid_api_key");
    assert_eq!(world.ask(shop.clone()).await.status, 200);
    // It is still reported after a restart, until a valid one comes.
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    world.run().await;
    world.is_ready().await;
    assert_eq!(unusable_certificates(&world).await[0].0, SHOP);
    world.control.put(certificate(SHOP)).await;
    assert_eq!(unusable_certificates(&world).await, []);
    assert_eq!(world.ask(shop).await.status, 200);
}

// promise: edge.23
#[tokio::test]
async fn redirects_to_themselves_are_refused() {
    let looping = redirecting(DEMO, "demo", Some((DEMO, None)));
    let change = change(NEXT, Effect::Put(looping.clone()));
    assert_survives(Some("loop"), vec![("a change", change), ("a snapshot", snapshot(&[looping], NEXT))]).await;
}

#[tokio::test]
async fn tokens_that_leave_their_path_are_refused() {
    let token = change(NEXT, Effect::Put(Entity::Challenge(challenge(DEMO, "../x"))));
    assert_survives(Some("token"), vec![("a token", token)]).await;
}

// promise: edge.23
#[tokio::test]
async fn broken_streams_change_nothing() {
    let half = snapshot(&[site("half.example", "demo"), site("more.example", "demo")], NEXT);
    let (half, _) = half.split_at(half.find("more").expect("the second entity") - 60);
    let oversize = format!("\"{}\"\n", "x".repeat(300_000)) + &removal();
    assert_survives(
        None,
        vec![
            ("half a snapshot", half.rsplit_once('\n').map_or(String::new(), |(whole, _)| format!("{whole}\n"))),
            ("a line longer than any may be", oversize),
            ("a gap", change(NEXT + 1, Effect::Remove(EntityName::Site(DEMO.parse().unwrap())))),
            ("nothing", String::new()),
        ],
    )
    .await;
}
