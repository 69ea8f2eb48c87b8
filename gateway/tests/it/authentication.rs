//! Authentication: valid keys, the faults of others, and addresses that guess keys.

use contract::feed::{Effect, Entity, EntityName};
use contract::key::Environment;
use contract::plan::Plan;
use contract::project::{Access, Project, ProjectUid};
use contract::site::{Serves, Site};
use contract::time::UnixSeconds;

use crate::world::client::{Ask, Reply};
use crate::world::entities::{TestKey, project};
use crate::world::{DEMO, DEMO_TOO, MINUTE_END, NOW, ORDERS, OTHER, SHOP, World};

const API: &str = "api.tollhouse.localhost";

const PLAIN: &str = r#"Bearer realm="tollhouse""#;
const INVALID: &str = r#"Bearer realm="tollhouse", error="invalid_token""#;

/// Asserts a 401 and that its three headers describe the failures of this address, `failures` of them so far.
#[track_caller]
fn assert_unauthorized(reply: &Reply, code: &str, challenge: &str, failures: i64) {
    reply.refused(401, code);
    assert_eq!(reply.header("www-authenticate"), Some(challenge));
    assert_eq!(reply.rate_limit_headers(), (60, 60 - failures, MINUTE_END));
    assert_eq!(reply.header("ratelimit-policy"), Some("\"minute\";q=60;w=60"));
    assert_eq!(reply.header("retry-after"), None);
}

// rule: 5.1, 5.2
#[tokio::test]
async fn a_valid_key_is_accepted_on_every_host_of_its_project() {
    let world = World::start().await;
    for host in [DEMO, DEMO_TOO, SHOP] {
        let reply = world.ask(Ask::get(host, ORDERS).key(&world.key.text)).await;
        assert_eq!((reply.status, reply.text()), (200, "[]"));
        assert_eq!(reply.header("www-authenticate"), None);
    }
    let heads = world.orders.requests().into_iter().map(|request| request.head.first_line);
    assert_eq!(heads.collect::<Vec<_>>(), ["GET /v1/store/orders HTTP/1.1"; 3]);
}

// rule: 5.2, 5.3, 7.401
// promise: edge.13, edge.18
#[tokio::test]
async fn a_missing_or_wrong_key_is_401_with_an_error_body() {
    let world = World::start().await;
    let key = world.key.text.clone();
    let mut flipped = key.clone();
    flipped.replace_range(20..21, if &key[20..21] == "x" { "y" } else { "x" });
    let unknown = TestKey::new("demo", 99).text;
    // Staging keys are refused although they are known here: by their prefix, and by their record.
    let staging = TestKey::of("demo", 1, Environment::Test);
    let mut says_staging = TestKey::of("demo", 2, Environment::Test);
    says_staging.record.environment = Environment::Live;
    let mut recorded_in_staging = TestKey::new("demo", 3);
    recorded_in_staging.record.environment = Environment::Test;
    for key in [&staging, &says_staging, &recorded_in_staging] {
        world.control.put(key.entity()).await;
    }
    let bearer = |text: &str| vec![("Authorization", format!("Bearer {text}"))];
    let cases = vec![
        ("nothing", vec![], "missing_api_key", PLAIN),
        ("key in another header", vec![("X-Api-Key", key.clone())], "missing_api_key", PLAIN),
        ("empty", vec![("Authorization", String::new())], "invalid_api_key", INVALID),
        ("scheme alone", vec![("Authorization", "Bearer".to_owned())], "invalid_api_key", INVALID),
        ("no scheme", vec![("Authorization", key.clone())], "invalid_api_key", INVALID),
        ("basic", vec![("Authorization", format!("Basic {key}"))], "invalid_api_key", INVALID),
        ("token", vec![("Authorization", format!("Token {key}"))], "invalid_api_key", INVALID),
        ("two keys in one", bearer(&format!("{key}, {key}")), "invalid_api_key", INVALID),
        ("two headers", [bearer(&key), bearer(&key)].concat(), "invalid_api_key", INVALID),
        ("good and bad header", [bearer(&key), bearer("x")].concat(), "invalid_api_key", INVALID),
        ("quoted", bearer(&format!("\"{key}\"")), "invalid_api_key", INVALID),
        ("flipped letter", bearer(&flipped), "invalid_api_key", INVALID),
        ("too long", bearer(&format!("{key}a")), "invalid_api_key", INVALID),
        ("four kilobytes", bearer(&"a".repeat(4_096)), "invalid_api_key", INVALID),
        ("other case", bearer(&key.to_uppercase()), "invalid_api_key", INVALID),
        ("well-formed but unknown", bearer(&unknown), "invalid_api_key", INVALID),
        ("of another project", bearer(&world.other_key.text), "invalid_api_key", INVALID),
        ("of staging", bearer(&staging.text), "invalid_api_key", INVALID),
        ("says staging", bearer(&says_staging.text), "invalid_api_key", INVALID),
        ("recorded in staging", bearer(&recorded_in_staging.text), "invalid_api_key", INVALID),
    ];
    let mut client = world.tls(DEMO).await;
    for (number, (what, fields, code, challenge)) in (1..).zip(&cases) {
        let mut ask = Ask::get(DEMO, ORDERS);
        for (name, value) in fields {
            ask = ask.field(name, value);
        }
        let reply = client.ask(&ask).await;
        assert_unauthorized(&reply, code, challenge, number);
        assert!(!reply.text().contains(&key), "{what}");
        assert!(!world.log.line_of(reply.request_id()).await.to_string().contains(&key), "{what}");
    }
    // A key in the query does not count either, and the 401 comes before any answer about paths.
    let reply = client.ask(&Ask::get(DEMO, &format!("/nowhere?api_key={key}"))).await;
    reply.refused(401, "missing_api_key");
    world.assert_upstreams_untouched();
    for (result, times) in [("missing", 3), ("malformed", 13), ("unknown", 5), ("ok", 0)] {
        world.admin.counts(&format!("edge_auth_total{{result=\"{result}\"}}"), times).await;
    }
}

// rule: 5.2
#[tokio::test]
async fn the_scheme_is_read_in_any_case_and_after_any_number_of_spaces() {
    let world = World::start().await;
    let key = &world.key.text;
    let mut client = world.tls(DEMO).await;
    for value in [format!("bearer {key}"), format!("BEARER {key}"), format!("Bearer  {key}"), format!("Bearer {key}  ")]
    {
        let reply = client.ask(&Ask::get(DEMO, ORDERS).field("Authorization", &value)).await;
        assert_eq!(reply.status, 200, "{value}");
    }
}

#[tokio::test]
async fn a_key_expires_to_the_second() {
    let world = World::start().await;
    let mut key = TestKey::new("demo", 2);
    key.record.expires_at = Some(UnixSeconds(NOW + 5));
    world.control.put(key.entity()).await;
    let ask = Ask::get(DEMO, ORDERS).key(&key.text);
    assert_eq!(world.ask(ask.clone()).await.status, 200);
    world.clock.advance(std::time::Duration::from_millis(4_999));
    assert_eq!(world.ask(ask.clone()).await.status, 200);
    world.clock.advance(std::time::Duration::from_millis(1));
    let expired = format!("{INVALID}, error_description=\"The API key has expired\"");
    assert_unauthorized(&world.ask(ask).await, "expired_api_key", &expired, 1);
}

// promise: edge.18
#[tokio::test]
async fn a_revoked_key_is_refused_from_the_acknowledgement_on() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    assert_eq!(client.ask(&world.list()).await.status, 200);
    world.control.remove(EntityName::Key(world.key.record.digest)).await;
    assert_unauthorized(&client.ask(&world.list()).await, "invalid_api_key", INVALID, 1);
    assert_eq!(world.orders.requests().len(), 1);
    world.control.put(world.key.entity()).await;
    assert_eq!(client.ask(&world.list()).await.status, 200);
}

#[tokio::test]
async fn a_key_that_arrives_before_its_project_is_unknown() {
    let world = World::start().await;
    let key = TestKey::new("young", 1);
    world.control.put(key.entity()).await;
    let site = crate::world::entities::site("young.tollhouse.localhost", "young");
    world.control.put(site).await;
    // A site without its project is not served.
    world.ask(Ask::get("young.tollhouse.localhost", ORDERS).key(&key.text)).await.refused(404, "unknown_host");
    let revision = world.control.publish(Effect::Put(Entity::Project(project("young", Plan::Free))));
    world.control.applied(revision).await;
    assert_eq!(world.ask(Ask::get("young.tollhouse.localhost", ORDERS).key(&key.text)).await.status, 200);
}

// rule: 5.4
#[tokio::test]
async fn an_address_that_guesses_keys_is_refused_while_valid_keys_pass() {
    let world = World::with(|setup| setup.quota = "failed_authentications_per_minute = 3").await;
    let mut client = world.tls(DEMO).await;
    let guess = Ask::get(DEMO, ORDERS).key(&TestKey::new("demo", 99).text);
    for left in [2, 1, 0] {
        let reply = client.ask(&guess).await;
        reply.refused(401, "invalid_api_key");
        assert_eq!(reply.rate_limit_headers(), (3, left, MINUTE_END));
    }
    for ask in [&guess, &Ask::get(DEMO, ORDERS), &Ask::get(OTHER, "/nowhere")] {
        let reply = world.ask(ask.clone()).await;
        reply.refused(429, "too_many_auth_failures");
        assert_eq!(reply.rate_limit_headers(), (3, 0, MINUTE_END));
        assert_eq!(reply.number("retry-after"), MINUTE_END - NOW);
        assert_eq!(reply.header("www-authenticate"), None);
    }
    // Other clients behind the same address are still served.
    let reply = client.ask(&world.list()).await;
    assert_eq!((reply.status, reply.number("x-ratelimit-remaining")), (200, 299));
    assert_eq!(world.admin.metric("edge_auth_total{result=\"throttled\"}").await, 3);
    world.clock.advance(std::time::Duration::from_secs(u64::try_from(MINUTE_END - NOW).unwrap()));
    let reply = client.ask(&guess).await;
    reply.refused(401, "invalid_api_key");
    assert_eq!(reply.rate_limit_headers(), (3, 2, MINUTE_END + 60));
}

#[tokio::test]
async fn on_a_host_of_the_platform_every_key_spends_its_own_projects_quota() {
    let world = with_an_api_of_the_platform().await;
    let reply = world.ask(Ask::get(API, ORDERS).key(&world.key.text)).await;
    assert_eq!((reply.status, reply.rate_limit_headers()), (200, (300, 299, MINUTE_END)));
    let reply = world.ask(Ask::get(API, ORDERS).key(&world.other_key.text)).await;
    assert_eq!((reply.status, reply.rate_limit_headers()), (200, (60, 59, MINUTE_END)));
    world.ask(Ask::get(API, ORDERS)).await.refused(401, "missing_api_key");
}

/// A host of the platform that every project's keys open.
async fn with_an_api_of_the_platform() -> World {
    let world = World::start().await;
    let (upstream, access) = ("orders".parse().unwrap(), Access::Key);
    let serves = Serves::Platform { upstream, access };
    world.control.put(Entity::Site(Site { hostname: API.parse().unwrap(), serves, redirect: None })).await;
    world
}

#[tokio::test]
async fn a_key_of_a_missing_project_or_of_one_whose_name_was_reused_is_unknown() {
    let world = with_an_api_of_the_platform().await;
    let young = TestKey::new("young", 1);
    world.control.put(young.entity()).await;
    world.ask(Ask::get(API, ORDERS).key(&young.text)).await.refused(401, "invalid_api_key");
    let uid = ProjectUid::from_random([7; 16]);
    let mut heir = TestKey::new("demo", 41);
    heir.record.project_uid = uid.clone();
    world.control.put(Entity::Project(Project { uid, ..project("demo", Plan::Pro) })).await;
    world.control.put(heir.entity()).await;
    for host in [API, DEMO] {
        world.ask(Ask::get(host, ORDERS).key(&world.key.text)).await.refused(401, "invalid_api_key");
        assert_eq!(world.ask(Ask::get(host, ORDERS).key(&heir.text)).await.status, 200, "{host}");
    }
}
