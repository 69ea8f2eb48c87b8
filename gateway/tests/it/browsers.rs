//! Cross-origin requests (CORS) and forced TLS (HSTS): the gateway answers by its settings, and an upstream's own
//! fields win.

use contract::browsers::{Browsers, Cors, Hsts};
use contract::feed::Entity;
use contract::plan::Plan;
use contract::project::Project;

use crate::world::client::{Ask, Reply};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, ORDERS, World, entities};

const PAGE: &str = "https://app.example";

const THEIRS: &str = "Access-Control-Allow-Origin: https://app.example\r\nAccess-Control-Allow-Credentials: true\r\n\
     Access-Control-Expose-Headers: X-Theirs\r\nVary: Accept\r\nStrict-Transport-Security: max-age=1\r\n";

async fn world(browsers: &'static str) -> World {
    World::with(|setup| setup.browsers = browsers).await
}

fn preflight(host: &str, path: &str) -> Ask {
    Ask::new("OPTIONS", host, path)
        .field("Origin", PAGE)
        .field("Access-Control-Request-Method", "DELETE")
        .field("Access-Control-Request-Headers", "authorization, x-requested-with")
}

/// The browser fields of a reply: origin, credentials, exposed, HSTS.
fn said(reply: &Reply) -> [Option<&str>; 4] {
    [
        "access-control-allow-origin",
        "access-control-allow-credentials",
        "access-control-expose-headers",
        "strict-transport-security",
    ]
    .map(|name| reply.header(name))
}

const UNTOUCHED: [Option<&str>; 4] = [Some(PAGE), Some("true"), Some("X-Theirs"), Some("max-age=1")];

/// `listOrders`, answered with these fields, over both versions and over HTTP/1 with a length.
async fn listed(world: &World, origin: &str, fields: &str) -> Vec<Reply> {
    let (mut h1, h2) = (world.tls(DEMO).await, world.h2(DEMO).await);
    let ask = world.list().field("Origin", origin);
    let mut replies = Vec::new();
    for version in 0..3 {
        world.orders.next(Act::Answer(response("200 OK", fields, "[]").into_bytes()));
        replies.push(match version {
            0 => h1.ask(&ask).await,
            1 => h1.ask(&ask.clone().field("Content-Length", "0")).await,
            _ => h2.ask(&ask).await,
        });
    }
    replies
}

#[tokio::test]
async fn an_upstreams_own_cors_and_hsts_fields_are_never_replaced() {
    for browsers in
        ["", "cors = \"open\"\nhsts = \"on\"", "cors = [\"https://b.example\"]\nhsts = \"on\"", "cors = \"off\""]
    {
        let world = world(browsers).await;
        for reply in listed(&world, PAGE, THEIRS).await {
            assert_eq!((reply.status, said(&reply)), (200, UNTOUCHED), "{browsers}");
            assert_eq!(reply.head.all("vary"), ["Accept"], "{browsers}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_gateway_adds_no_browser_fields_by_default() {
    let world = world("").await;
    for reply in listed(&world, PAGE, "").await {
        assert_eq!((reply.status, said(&reply)), (200, [None; 4]));
    }
    let refused = world.ask(Ask::get(DEMO, ORDERS).field("Origin", PAGE)).await;
    refused.refused(401, "missing_api_key");
    assert_eq!(said(&refused), [None; 4]);
}

#[tokio::test]
async fn an_apis_own_preflights_reach_it_without_a_key_and_cost_nothing() {
    let world = world("").await;
    let (mut h1, h2) = (world.tls(DEMO).await, world.h2(DEMO).await);
    let ask = preflight(DEMO, ORDERS).key(&world.key.text).field("X-HTTP-Method-Override", "DELETE");
    let allowed = format!("{THEIRS}Access-Control-Allow-Headers: *\r\n");
    for version in 0..2 {
        world.orders.next(Act::Answer(response("204 No Content", &allowed, "").into_bytes()));
        let reply = if version == 0 { h1.ask(&ask).await } else { h2.ask(&ask).await };
        assert_eq!((reply.status, said(&reply)), (204, UNTOUCHED));
        assert_eq!(reply.header("access-control-allow-headers"), Some("*"));
        let head = world.orders.requests().pop().expect("a request").head;
        assert_eq!(head.first_line, format!("OPTIONS {ORDERS} HTTP/1.1"));
        assert_eq!(head.get("access-control-request-method"), Some("DELETE"));
        for absent in ["authorization", "x-http-method-override", "x-tollhouse-project", "x-tollhouse-key-id"] {
            assert_eq!(head.get(absent), None, "{absent}");
        }
    }
    h1.ask(&preflight(DEMO, "/nowhere")).await.refused(404, "not_found");
    let reply = h1.ask(&world.list()).await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 299, "preflights are free");
    // It is a question, not a way in.
    let with_body = preflight(DEMO, ORDERS).body("x");
    h1.ask(&with_body).await.refused(400, "body_not_allowed");
    let mut client = world.tls(DEMO).await;
    let without_origin = Ask::new("OPTIONS", DEMO, ORDERS).field("Access-Control-Request-Method", "GET");
    client.ask(&without_origin).await.refused(401, "missing_api_key");
    let without_method = Ask::new("OPTIONS", DEMO, ORDERS).field("Origin", PAGE);
    client.ask(&without_method).await.refused(401, "missing_api_key");
    let another_method = Ask { method: "GET".to_owned(), ..preflight(DEMO, ORDERS) };
    client.ask(&another_method).await.refused(401, "missing_api_key");
    assert_eq!(world.orders.requests().len(), 3);
}

#[tokio::test]
async fn listed_origins_may_read_and_others_may_not() {
    let world = world("cors = [\"https://app.example\", \"http://localhost:3000\"]").await;
    for reply in listed(&world, PAGE, "Vary: Accept\r\n").await {
        let [origin, credentials, exposed, hsts] = said(&reply);
        assert_eq!((origin, credentials, hsts), (Some(PAGE), None, None));
        assert!(exposed.is_some_and(|names| names.contains("X-RateLimit-Remaining")));
        let mut vary = reply.head.all("vary");
        vary.sort_unstable();
        assert_eq!(vary, ["Accept", "Origin"]);
    }
    for reply in listed(&world, "https://evil.example", "").await {
        assert_eq!((reply.status, said(&reply)), (200, [None; 4]));
        assert_eq!(reply.head.all("vary"), ["Origin"], "another page would be answered otherwise");
    }
    let mut client = world.tls(DEMO).await;
    let reply = client.ask(&preflight(DEMO, "/anything")).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (204, Some(PAGE)));
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization, x-requested-with"));
    let mut stranger = preflight(DEMO, ORDERS);
    stranger.fields[0].1 = "https://evil.example".to_owned();
    let reply = client.ask(&stranger).await;
    assert_eq!(reply.status, 204);
    let allows = |name: &str| name.to_ascii_lowercase().starts_with("access-control-allow");
    assert!(!reply.head.fields.iter().any(|(name, _)| allows(name)), "{reply:?}");
    let refused = client.ask(&Ask::get(DEMO, ORDERS).field("Origin", PAGE)).await;
    refused.refused(401, "missing_api_key");
    assert_eq!(refused.header("access-control-allow-origin"), Some(PAGE), "a page reads why it was refused");
}

#[tokio::test]
async fn a_projects_rule_overrides_its_upstreams_and_the_upstreams_fields_win() {
    let world = world("cors = \"off\"").await;
    let own = |cors: Option<&str>, hsts| Browsers { cors: cors.map(|text| text.parse().unwrap()), hsts };
    for (browsers, origin, hsts) in [
        (own(Some("https://app.example"), None), Some(PAGE), None),
        (own(Some("open"), Some(Hsts::On)), Some("*"), Some("max-age=31536000")),
        (own(Some("upstream"), Some(Hsts::Upstream)), None, None),
        (own(None, None), None, None),
    ] {
        let project = Project { browsers: browsers.clone(), ..entities::project("demo", Plan::Pro) };
        world.control.put(Entity::Project(project)).await;
        for reply in listed(&world, PAGE, "").await {
            assert_eq!([said(&reply)[0], said(&reply)[3]], [origin, hsts], "{browsers:?}");
        }
        for reply in listed(&world, PAGE, THEIRS).await {
            assert_eq!(said(&reply), UNTOUCHED, "{browsers:?}");
        }
        let answered = world.tls(DEMO).await.ask(&preflight(DEMO, "/nowhere")).await;
        let expected = match browsers.cors {
            Some(Cors::Upstream) => 404,
            Some(_) => 204,
            None => 401,
        };
        assert_eq!(answered.status, expected, "{browsers:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn with_cors_off_a_preflight_needs_a_key() {
    let world = world("cors = \"off\"").await;
    let mut client = world.tls(DEMO).await;
    client.ask(&preflight(DEMO, ORDERS)).await.refused(401, "missing_api_key");
    world.assert_upstreams_untouched();
}

#[tokio::test]
async fn a_site_may_be_open_too() {
    let world = World::with(|setup| setup.blog = "cors = \"open\"\nhsts = \"on\"").await;
    let mut client = world.tls(BLOG).await;
    assert_eq!(client.ask(&preflight(BLOG, "/")).await.status, 204);
    world.assert_upstreams_untouched();
    let reply = client.ask(&Ask::get(BLOG, "/")).await;
    let [origin, _, exposed, hsts] = said(&reply);
    assert_eq!((origin, hsts), (Some("*"), Some("max-age=31536000")));
    assert!(exposed.is_some());
}
