//! A refusal or a redirect is the same whether the door gives it or the proxy behind it. The door does for requests
//! without a body; `Content-Length: 0` announces one, so that the proxy is asked.

use contract::site::RedirectStatus;

use crate::world::client::{Ask, Reply};
use crate::world::entities::{certificate, redirecting};
use crate::world::{DEMO, ORDERS, SHOP, World};

const WWW: &str = "www.shop.example";

/// Everything but what differs from request to request.
fn comparable(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let fields = reply.head.fields.iter().filter(|(name, _)| {
        // What is left to an address falls with every failure.
        !["x-request-id", "date", "x-ratelimit-remaining", "ratelimit"].contains(&name.to_ascii_lowercase().as_str())
    });
    (reply.status, fields.cloned().collect(), reply.text().to_owned())
}

#[tokio::test]
async fn answers_of_the_door_are_those_of_the_proxy_to_the_byte_and_in_the_log() {
    let world = World::start().await;
    world.control.put(certificate(WWW)).await;
    world.control.put(redirecting(WWW, "demo", Some((SHOP, Some(RedirectStatus::MovedPermanently))))).await;
    let key = format!("Bearer {}", world.key.text);
    for (ask, status) in [
        (Ask::get(DEMO, ORDERS), 401),
        (Ask::new("HEAD", DEMO, ORDERS), 401),
        (Ask::get(DEMO, ORDERS).field("Authorization", "Bearer x"), 401),
        (Ask::get(DEMO, "/nowhere").field("Authorization", &key), 404),
        (Ask::new("PUT", DEMO, ORDERS).field("Authorization", &key), 405),
        (
            Ask::new("OPTIONS", DEMO, ORDERS)
                .field("Origin", "https://a.example")
                .field("Access-Control-Request-Method", "GET"),
            204,
        ),
        (Ask::get(WWW, "/a?b=c"), 301),
        (Ask::get(SHOP, "/"), 401),
    ] {
        let host = ask.host.clone();
        let (mut early, mut late) = (world.tls(&host).await, world.tls(&host).await);
        let given = early.ask(&ask).await;
        let asked_on = late.ask(&ask.clone().field("Content-Length", "0")).await;
        assert_eq!(given.status, status, "{given:?}");
        assert_eq!(comparable(&given), comparable(&asked_on), "{ask:?}");
        let (line, other) =
            (world.log.line_of(given.request_id()).await, world.log.line_of(asked_on.request_id()).await);
        let names = |line: &serde_json::Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&line), names(&other), "{line} {other}");
        for name in ["status", "code", "host", "path", "method", "surface", "bytes_sent", "project", "key_id", "tls"] {
            assert_eq!(line.get(name), other.get(name), "{name} of {line} and {other}");
        }
        // Both connections go on.
        assert_eq!((early.ask(&ask).await.status, late.ask(&ask).await.status), (status, status));
    }
    world.assert_upstreams_untouched();
    world.end().await;
}
