//! A gateway with its own credential: its signing keys, and the operators whose passes it accepts, come from the
//! control plane.

use chassis::guard::{operator_token, pass};
use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::feed::Frame;
use contract::keyring::{Generation, KEYRING_PLACE, Keyring};
use contract::time::UnixSeconds;
use contract::token::{KeySet, SigningKey};
use contract::trust::{ORDERS_SERVICE, PassFor};
use serde_json::Value;

use crate::world::client::Reply;
use crate::world::control::line;
use crate::world::credentials::{credential, name, operator_pass, operators, sealed};
use crate::world::{NOW, World, eventually};

/// A secret that opens a whole platform.
const PLATFORM_SECRET: &str = "the secret of a whole platform";

/// A gateway that gets its keys from the test.
async fn world() -> World {
    World::with(|setup| setup.sends_no_keys = true).await
}

fn generation(number: u8, signs_from: i64) -> Generation {
    Generation {
        number: i64::from(number),
        signs_from: UnixSeconds(signs_from),
        identity: [number; 32],
        tickets: [number; 32],
    }
}

/// The control plane's message with the keys.
fn keys(generations: Vec<Generation>) -> String {
    let passes = [operators().public().clone()].into_iter().collect();
    let identities = identities(&generations);
    sealed(&Keyring { gateway: name(0), generations, identities, passes })
}

/// The public keys of this gateway's generations, and one of another gateway.
fn identities(generations: &[Generation]) -> KeySet {
    let seeds = generations.iter().map(|generation| generation.identity).chain([[200; 32]]);
    seeds.map(|seed| SigningKey::from_seed(&seed).unwrap().public().clone()).collect()
}

/// The number of the signing generation, once a request carries a token of one of them.
async fn signer(world: &World, numbers: &[u8]) -> u8 {
    eventually("a token", async || {
        assert_eq!(world.ask(world.list()).await.status, 200);
        let requests = world.orders.requests();
        let head = &requests.last().unwrap().head;
        let token = head.get("tollhouse-identity-token")?;
        numbers.iter().copied().find(|number| {
            let key = SigningKey::from_seed(&[*number; 32]).unwrap();
            let set: KeySet = [key.public().clone()].into_iter().collect();
            set.verify(token, &["orders"], UnixSeconds(NOW)).is_ok()
        })
    })
    .await
}

/// The gateway's name in its status and in the log line of this reply.
async fn called(world: &World, reply: &Reply) -> Value {
    let status: Value = serde_json::from_str(&world.admin.get("/status").await.1).unwrap();
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!(line.get("gateway").unwrap_or(&Value::Null), &status["gateway"]);
    status["gateway"].clone()
}

#[tokio::test]
async fn a_gateway_signs_with_the_newest_active_key_also_after_a_restart_without_the_control_plane() {
    let mut world = world().await;
    let unnamed = world.ask(world.list()).await;
    assert_eq!((unnamed.status, called(&world, &unnamed).await), (200, Value::Null));
    assert_eq!(world.orders.only_request().head.get("tollhouse-identity-token"), None, "it has no key yet");
    world.control.say(&keys(vec![generation(2, NOW + 100), generation(1, NOW)]));
    assert_eq!(signer(&world, &[1, 2]).await, 1);
    world.control.die().await;
    world.begin_stop();
    world.stopped().await.unwrap();
    world.run().await;
    let named = world.ask(world.list()).await;
    assert_eq!(called(&world, &named).await, name(0), "it knows its name as it knows its keys");
    assert_eq!(signer(&world, &[1, 2]).await, 1);
    world.control.revive();
    world.control.asked(2).await;
    world.control.say(&keys(vec![generation(3, NOW)]));
    eventually("the new key signs", async || (signer(&world, &[1, 3]).await == 3).then_some(())).await;
    world.end().await;
}

#[tokio::test]
async fn a_keyring_that_does_not_open_changes_nothing() {
    let world = world().await;
    world.control.say(&keys(vec![generation(1, NOW)]));
    assert_eq!(signer(&world, &[1]).await, 1);
    let stranger = SealingKey::new(&Secret::new(vec![9; 32])).unwrap();
    let generations = vec![generation(2, NOW)];
    let identities = identities(&generations);
    let keyring = Keyring { gateway: name(1), generations, identities, passes: KeySet::default() };
    let sealed = stranger.seal(&serde_json::to_vec(&keyring).unwrap(), KEYRING_PLACE).unwrap();
    world.control.say(&line(&Frame::Keyring { sealed }));
    // The stream continues: the next change is applied.
    world.control.put(crate::world::entities::site("later.tollhouse.localhost", "demo")).await;
    assert_eq!(signer(&world, &[1, 2]).await, 1);
    world.end().await;
}

/// What of the admin listener is for operators. Draining comes last.
const ROUTES: &[(&str, &str)] = &[
    ("POST", "/bans/{key}"),
    ("DELETE", "/bans/{key}"),
    ("POST", "/replica/accept"),
    ("GET", "/replica/accept"),
    ("GET", "/top"),
    ("GET", "/requests/{id}"),
    ("GET", "/keys/{id}"),
    ("GET", "/changes"),
    ("DELETE", "/drain"),
    ("POST", "/drain"),
];

/// What of it needs no pass.
const OPEN: &[&str] = &["/status", "/hosts/{host}", "/usage/{project}", "/bans"];

/// The source of the listener, so that a route that is in neither list fails the test.
const SOURCES: [&str; 2] = [include_str!("../../src/admin.rs"), include_str!("../../src/admin/inspect.rs")];

/// The routes for operators that this token, or none, opens.
async fn opened(world: &World, token: Option<&str>) -> Vec<(&'static str, &'static str)> {
    let header = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let mut opened = Vec::new();
    for (method, path) in ROUTES {
        if world.admin.ask(method, &path.replace(['{', '}'], ""), &header).await.0 != 401 {
            opened.push((*method, *path));
        }
    }
    opened
}

#[tokio::test]
async fn an_operator_needs_a_pass_for_this_gateway() {
    let world = world().await;
    let signed = |key: &SigningKey, to: &PassFor, at: i64| pass(key, to, UnixSeconds(at));
    let (key, this, other) = (operators(), PassFor::gateway(&name(0)), PassFor::gateway(&name(1)));
    let good = operator_pass(UnixSeconds(NOW));
    let routes = SOURCES.iter().flat_map(|source| source.split(".route(\"").skip(1));
    for route in routes.filter_map(|text| text.split('"').next()) {
        let is_tried = OPEN.contains(&route) || ROUTES.iter().any(|(_, path)| *path == route);
        assert!(is_tried, "{route} is not tried");
    }
    let nothing = Vec::<(&str, &str)>::new();
    assert_eq!(opened(&world, Some(&good)).await, nothing, "no signing key has arrived yet");
    world.control.say(&keys(vec![generation(1, NOW)]));
    assert_eq!(signer(&world, &[1]).await, 1);
    assert_eq!(opened(&world, None).await, nothing);
    let identity = world.orders.requests().last().unwrap().head.get("tollhouse-identity-token").unwrap().to_owned();
    // An attacker's secrets: the gateway's signing key, passes that it received, and those of a minute ago.
    let stolen = SigningKey::from_seed(&[1; 32]).unwrap();
    for (what, token) in [
        ("an identity", identity),
        ("its own credential", Secret::parse(&credential(0)).unwrap().to_token().to_string()),
        ("the platform's token", operator_token(&Secret::parse(PLATFORM_SECRET).unwrap()).to_token().to_string()),
        ("a token of another platform", "a token".to_owned()),
        ("a pass for another gateway", signed(&key, &other, NOW)),
        ("a pass for a service", signed(&key, &PassFor::service(ORDERS_SERVICE), NOW)),
        ("a pass for a service of this name", signed(&key, &PassFor::service(&name(0)), NOW)),
        ("a pass of a gateway's making", signed(&stolen, &this, NOW)),
        ("a pass of a minute ago", signed(&key, &this, NOW - 60)),
        ("a pass of tomorrow", signed(&key, &this, NOW + 86_400)),
    ] {
        assert_eq!(opened(&world, Some(&token)).await, nothing, "{what}");
    }
    assert_eq!(opened(&world, Some(&good)).await, ROUTES);
    // And no longer when the control plane signs passes with another key.
    let generations = vec![generation(1, NOW)];
    let identities = identities(&generations);
    let passes = [stolen.public().clone()].into_iter().collect();
    world.control.say(&sealed(&Keyring { gateway: name(0), generations, identities, passes }));
    let now = signed(&stolen, &this, NOW);
    eventually("the new key is known", async || (opened(&world, Some(&now)).await == ROUTES).then_some(())).await;
    assert_eq!(opened(&world, Some(&good)).await, nothing);
    world.end().await;
}
