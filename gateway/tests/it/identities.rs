//! The identity token for upstreams: its receivers, its audience, and its lifetime.

use std::time::Duration;

use contract::feed::Entity;
use contract::project::Access;
use contract::site::{Serves, Site};
use contract::time::UnixSeconds;
use contract::token::{Claims, InvalidToken, KEY_SET_PATH, KeySet};

use crate::world::client::Ask;
use crate::world::upstream::{Received, Upstream};
use crate::world::{BLOG, DEMO, NOW, SHOP, World};

/// The platform's own host.
const API: &str = "api.tollhouse.localhost";

fn api() -> Entity {
    let serves = Serves::Platform { upstream: "domains".parse().unwrap(), access: Access::Key };
    Entity::Site(Site { hostname: API.parse().unwrap(), serves, redirect: None })
}

/// A world with the platform's own host, and a `blog` upstream that gets identities.
async fn world() -> World {
    World::with(|setup| {
        setup.entities.push(api());
        setup.blog = "identity = \"jwt\"";
    })
    .await
}

fn token(request: &Received) -> &str {
    request.head.get("tollhouse-identity-token").expect("a token")
}

/// The published keys, requested without an API key.
async fn published(world: &World) -> KeySet {
    let reply = world.ask(Ask::get(API, KEY_SET_PATH)).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/jwk-set+json")));
    serde_json::from_str(reply.text()).unwrap()
}

fn claims(keys: &KeySet, request: &Received, audience: &str, at: i64) -> Result<Claims, InvalidToken> {
    keys.verify(token(request), &[audience], UnixSeconds(at))
}

#[tokio::test]
async fn an_upstream_verifies_the_caller_with_the_published_keys() {
    let world = world().await;
    let keys = published(&world).await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    let claimed = claims(&keys, &world.orders.only_request(), "orders", NOW).unwrap();
    let caller = claimed.caller.unwrap();
    assert_eq!((caller.key, caller.project.as_str()), (world.key.record.id.clone(), "demo"));
    assert_eq!((caller.plan.as_str(), caller.scopes), ("pro", world.key.record.scopes.clone()));
    assert_eq!((claimed.site_project, claimed.issued_at), (Some("demo".parse().unwrap()), UnixSeconds(NOW)));
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    let visitor = claims(&keys, &world.blog.only_request(), "blog", NOW).unwrap();
    assert_eq!((visitor.caller, visitor.site_project), (None, Some("blog".parse().unwrap())));
    world.end().await;
}

#[tokio::test]
async fn a_token_made_for_one_upstream_is_refused_by_another() {
    let world = world().await;
    let keys = published(&world).await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    let request = world.orders.only_request();
    assert_eq!(claims(&keys, &request, "blog", NOW), Err(InvalidToken::Audience));
    assert_eq!(claims(&keys, &request, "orders", NOW + 60), Err(InvalidToken::Age));
    world.end().await;
}

#[tokio::test]
async fn a_token_is_signed_once_and_sent_while_it_is_fresh() {
    let world = world().await;
    let ask = async |ask: Ask| {
        assert_eq!(world.ask(ask).await.status, 200);
        token(world.orders.requests().last().unwrap()).to_owned()
    };
    let first = ask(world.list()).await;
    // The clock advances: a newly signed token has another time, so an equal token is the first one.
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(ask(world.list()).await, first, "a token is signed again while the first is fresh");
    let shop = Ask::get(SHOP, "/v1/store/orders").key(&world.key.text);
    assert_eq!(ask(shop).await, first, "another site of the project has a token of its own");
    world.clock.advance(Duration::from_secs(19));
    assert_eq!(ask(world.list()).await, first, "29 seconds old");
    world.clock.advance(Duration::from_secs(1));
    assert_ne!(ask(world.list()).await, first, "a token is sent for 30 seconds");
    world.end().await;
}

#[tokio::test]
async fn a_change_of_the_caller_is_in_the_next_token() {
    let world = world().await;
    let keys = published(&world).await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    let project = crate::world::entities::project("demo", contract::plan::Plan::Business);
    world.control.put(Entity::Project(project)).await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    let requests = world.orders.requests();
    let plans = requests.iter().map(|request| claims(&keys, request, "orders", NOW).unwrap().caller.unwrap().plan);
    assert_eq!(plans.map(contract::plan::Plan::as_str).collect::<Vec<_>>(), ["pro", "business"]);
    world.end().await;
}

#[tokio::test]
async fn the_presented_key_reaches_only_the_control_plane() {
    let control = Upstream::start().await;
    let address = control.address;
    let world = World::with(|setup| {
        setup.entities.push(api());
        setup.blog_tables = format!("[upstreams.domains]\nendpoints = [\"{address}\"]\n");
    })
    .await;
    let key = &world.key.text;
    assert_eq!(world.ask(world.list()).await.status, 200);
    assert_eq!(world.orders.only_request().head.get("authorization"), None);
    let ask = Ask::get(API, "/v1/projects/demo").key(key);
    let reply = world.ask(ask).await;
    assert_eq!(reply.status, 200);
    let handed = control.only_request();
    assert_eq!(handed.head.get("authorization"), Some(format!("Bearer {key}").as_str()));
    assert!(claims(&published(&world).await, &handed, "domains", NOW).is_ok());
    assert!(!world.log.line_of(reply.request_id()).await.to_string().contains(key.as_str()), "a key is in no log line");
    world.end().await;
}

#[tokio::test]
async fn the_keys_are_published_only_on_platform_hosts() {
    let world = world().await;
    assert_eq!(world.ask(Ask::get(BLOG, KEY_SET_PATH)).await.status, 200, "the blog answers its own paths");
    assert_eq!(world.blog.only_request().head.first_line, format!("GET {KEY_SET_PATH} HTTP/1.1"));
    world.ask(Ask::get(DEMO, KEY_SET_PATH)).await.refused(401, "missing_api_key");
    world.end().await;
}
