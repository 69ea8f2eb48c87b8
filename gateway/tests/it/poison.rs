//! A control plane gone wrong: whatever it says, the last good state is served and no request fails.

use contract::feed::{Change, Effect, Entity, EntityName, Frame, Mark, Revision};
use contract::time::UnixMillis;

use crate::fleet::extent;
use crate::world::control::{line, snapshot};
use crate::world::entities::{certificate, challenge, limited, public, redirecting, site};
use crate::world::visitor::Visitor;
use crate::world::{DEMO, World, eventually};

/// The revision after the newest one; known only when the lie is told.
const NEXT: u64 = 7_777_777;

fn change(revision: u64, effect: Effect) -> String {
    line(&Frame::Change(Change { revision: Revision(revision), mark: Mark(revision), at: UnixMillis(0), effect }))
}

/// What would follow and must not be believed.
fn removal() -> String {
    change(NEXT, Effect::Remove(EntityName::Site(DEMO.parse().unwrap())))
}

/// Tells a gateway each lie in a stream of its own, and asserts that nothing of it is believed, no request fails, and
/// the truth is believed afterwards. `reason` is what the metric says; none when the stream merely broke.
///
/// `bench/door-proof` tells each of them several times.
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
        eventually("the lie to be told and another stream to be asked for", async || {
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

#[tokio::test]
async fn lines_that_are_no_frames_are_refused() {
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

#[tokio::test]
async fn snapshots_that_say_one_thing_twice_are_refused() {
    let twice = vec![Entity::Project(limited("demo", 1, 1)), Entity::Project(limited("demo", 2, 2))];
    assert_survives(Some("duplicate"), vec![("twice", snapshot(&twice, NEXT))]).await;
}

#[tokio::test]
async fn certificates_that_do_not_fit_are_refused() {
    let Entity::Certificate(good) = certificate(DEMO) else { panic!("a certificate") };
    let Entity::Certificate(other) = certificate("other.example") else { panic!("a certificate") };
    let put = |bundle| change(NEXT, Effect::Put(Entity::Certificate(bundle)));
    let mut of_another_name = other.clone();
    of_another_name.hostname = DEMO.parse().unwrap();
    let mut chain_of_another = good.clone();
    chain_of_another.chain_pem = other.chain_pem;
    let mut no_chain = good.clone();
    no_chain.chain_pem = String::new();
    assert_survives(
        Some("certificate"),
        vec![
            ("sealed for another name", put(of_another_name)),
            ("the key of another certificate", put(chain_of_another)),
            ("no chain", put(no_chain)),
        ],
    )
    .await;
}

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

#[tokio::test]
async fn streams_that_break_in_the_middle_change_nothing() {
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
