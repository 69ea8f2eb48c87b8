//! The deprecated pets operation.

use std::time::Duration;

use reqwest::Method;

use crate::world::{World, refusal};

fn decorations(response: &reqwest::Response) -> (String, Option<String>, Vec<String>) {
    let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = response.headers();
    (text(&headers["deprecation"]), headers.get("sunset").map(text), headers.get_all("link").iter().map(text).collect())
}

// rule: 9.3
// rule: 1.5
// promise: orders.21
#[tokio::test]
async fn every_response_of_the_pets_operation_has_the_deprecation_headers() {
    let mut world = World::with("[pets]\nlink = \"https://example.com/pets\"\n").await;
    world.given("{\"id\":1,\"petId\":10}\n{\"id\":2}\n").await;
    let expected = (
        "@1767225600".to_owned(),
        None,
        vec!["<https://example.com/pets>; rel=\"deprecation\"; type=\"text/html\"".to_owned()],
    );
    let found = world.get("/v1/pets/10").await;
    assert_eq!((found.status().as_u16(), decorations(&found)), (200, expected.clone()));
    assert_eq!(found.text().await.unwrap(), "{\"id\":10}");
    for absent in ["/v1/pets/11", "/v1/pets/010", "/v1/pets/x", "/v1/pets/%ff"] {
        let response = world.get(absent).await;
        assert_eq!(decorations(&response), expected, "{absent}");
        assert_eq!(refusal(response).await, (404, "pet_not_found".to_owned()), "{absent}");
    }
    let head = world.request(Method::HEAD, "/v1/pets/10").send().await.unwrap();
    assert_eq!((head.status().as_u16(), decorations(&head)), (200, expected.clone()));
    let post = world.request(Method::POST, "/v1/pets/10").send().await.unwrap();
    assert_eq!((post.status().as_u16(), decorations(&post)), (405, expected.clone()));
    world.caller.scopes = [].into_iter().collect();
    let forbidden = world.get("/v1/pets/10").await;
    assert_eq!((forbidden.status().as_u16(), decorations(&forbidden)), (403, expected));
    let metrics = world.metrics().await;
    assert!(metrics.contains("orders_deprecated_calls_total{operation=\"getPet\"} 8"), "{metrics}");
}

// rule: 9.3
// promise: orders.21
#[tokio::test]
async fn from_the_sunset_on_the_operation_is_410() {
    // The test's clock is at 2026-11-20T12:00:00Z.
    let world = World::with("[pets]\nsunset = \"2026-11-20T12:00:10Z\"\nlink = \"/reference\"\n").await;
    world.given("{\"id\":1,\"petId\":10}\n").await;
    let before = world.get("/v1/pets/10").await;
    assert_eq!(before.status(), 200);
    let (deprecation, sunset, links) = decorations(&before);
    assert_eq!((deprecation.as_str(), sunset.as_deref()), ("@1767225600", Some("Fri, 20 Nov 2026 12:00:10 GMT")));
    assert_eq!(links.len(), 2);
    world.clock.advance(Duration::from_secs(10));
    let after = world.get("/v1/pets/10").await;
    assert_eq!(decorations(&after), decorations(&before));
    assert_eq!(refusal(after).await, (410, "endpoint_sunset".to_owned()));
    assert_eq!(world.get("/v1/store/orders").await.status(), 200);
}
