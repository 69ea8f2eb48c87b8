//! A refused request changes nothing, and a request that changed an order is never refused.

use reqwest::{Method, StatusCode};

use crate::world::World;

/// Headers that could make a server refuse a request.
const HEADERS: [(&str, &str); 14] = [
    ("accept-encoding", "identity;q=0"),
    ("accept-encoding", "*;q=0"),
    ("accept-encoding", "identity;q=0, *;q=0"),
    ("accept-encoding", "br;q=1, identity;q=0"),
    ("accept", "text/html"),
    ("accept", "application/json;q=0"),
    ("accept-charset", "utf-16"),
    ("accept-language", "*;q=0"),
    ("if-match", "\"nothing\""),
    ("if-none-match", "*"),
    ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ("range", "bytes=5-1"),
    ("expect", "nothing"),
    ("content-encoding", "nothing"),
];

#[tokio::test]
async fn a_request_refused_because_of_its_headers_changes_nothing() {
    for (name, value) in HEADERS {
        let world = World::new().await;
        world.given("{\"id\":1}\n{\"id\":2}\n").await;
        let project = "demo".parse().unwrap();
        for (method, target, body) in [
            (Method::DELETE, "/v1/store/orders/1", None),
            (Method::POST, "/v2/store/orders", Some("{\"petId\":7}")),
            (Method::GET, "/v1/store/orders", None),
            (Method::GET, "/v2/store/orders", None),
        ] {
            let before = world.orders.summary(&project).await.unwrap();
            let mut request = world.request(method.clone(), target).header(name, value);
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body);
            }
            let status = request.send().await.unwrap().status();
            let after = world.orders.summary(&project).await.unwrap();
            let changed = before != after;
            let refused = status.is_client_error() || status.is_server_error();
            assert!(!(refused && changed), "{method} {target} with {name}: {value} changed something and is {status}");
            assert_ne!(status, StatusCode::NOT_ACCEPTABLE, "{method} {target} with {name}: {value}");
        }
    }
}

// rule: 4.2.204
#[tokio::test]
async fn a_client_that_accepts_no_supported_coding_gets_a_plain_response() {
    let world = World::new().await;
    world.given("{\"id\":1}\n").await;
    for forbidding in ["identity;q=0", "*;q=0"] {
        let list = world.request(Method::GET, "/v1/store/orders").header("accept-encoding", forbidding);
        let list = list.send().await.unwrap();
        assert_eq!((list.status().as_u16(), list.text().await.unwrap().as_str()), (200, "[{\"id\":1}]"));
    }
    let cancelled = world.request(Method::DELETE, "/v1/store/orders/1").header("accept-encoding", "identity;q=0");
    assert_eq!(cancelled.send().await.unwrap().status(), 204);
}
