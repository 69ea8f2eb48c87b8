//! The list over HTTP: entity tags, compression, HEAD, and a hundred thousand orders in constant memory.

use std::collections::BTreeSet;
use std::io::Read as _;

use reqwest::Method;

use crate::world::{World, lines};

// promise: orders.8
#[tokio::test]
async fn an_unchanged_list_is_304_and_every_change_gives_a_new_tag() {
    let world = World::new().await;
    let list = "/v1/store/orders";
    let mut seen = BTreeSet::new();
    let steps = ["nothing yet", "import", "ship", "cancel"];
    for step in steps {
        match step {
            "import" => world.given("{\"id\":1}\n{\"id\":2}\n").await,
            "ship" => {
                let shipped = world.operator(Method::POST, "/internal/orders/demo/1/ship").send().await.unwrap();
                assert_eq!(shipped.status(), 200);
            }
            "cancel" => assert_eq!(world.delete("/v1/store/orders/2").await.status(), 204),
            _ => {}
        }
        let response = world.get(list).await;
        let tag = response.headers()["etag"].to_str().unwrap().to_owned();
        assert!(tag.starts_with("W/\""), "{tag}");
        assert_eq!(response.headers()["cache-control"], "private, no-cache");
        assert_eq!(response.headers()["vary"], "authorization, accept-encoding");
        for given in [tag.clone(), format!("\"x\", {tag}"), tag.trim_start_matches("W/").to_owned(), "*".to_owned()] {
            let again = world.request(Method::GET, list).header("if-none-match", &given).send().await.unwrap();
            assert_eq!(again.status(), 304, "{step}: {given}");
            assert_eq!(again.headers()["etag"], tag.as_str());
            assert_eq!(again.headers()["vary"], "authorization, accept-encoding");
            assert_eq!(again.text().await.unwrap(), "");
        }
        for old in &seen {
            let old: &String = old;
            let again = world.request(Method::GET, list).header("if-none-match", old).send().await.unwrap();
            assert_eq!(again.status(), 200, "{step}: {old} is an old tag");
        }
        assert!(seen.insert(tag), "{step} gave an old tag");
    }
    // A refused change does not change the tag.
    assert_eq!(world.delete("/v1/store/orders/2").await.status(), 409);
    let newest = world.get(list).await.headers()["etag"].to_str().unwrap().to_owned();
    assert!(seen.contains(&newest));
}

// promise: orders.8
#[tokio::test]
async fn tags_of_a_replaced_database_never_match() {
    let (one, other) = (World::new().await, World::new().await);
    one.given("{\"id\":1}").await;
    other.given("{\"id\":2}").await;
    let tag = one.get("/v1/store/orders").await.headers()["etag"].clone();
    let response = other.request(Method::GET, "/v1/store/orders").header("if-none-match", tag).send().await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn head_returns_the_headers_of_get() {
    let world = World::new().await;
    world.given("{\"id\":1}").await;
    let get = world.get("/v1/store/orders").await;
    let head = world.request(Method::HEAD, "/v1/store/orders").send().await.unwrap();
    assert_eq!(head.status(), 200);
    for name in ["etag", "content-type", "content-length", "cache-control", "vary"] {
        assert_eq!(head.headers().get(name), get.headers().get(name), "{name}");
    }
    assert_eq!(head.text().await.unwrap(), "");
}

// promise: orders.8
#[tokio::test]
async fn a_compressed_list_decompresses_to_the_plain_list() {
    let world = World::new().await;
    world.given(&lines(0..5_000)).await;
    let plain = world.get("/v1/store/orders").await;
    assert!(plain.headers().get("content-encoding").is_none());
    let tag = plain.headers()["etag"].clone();
    let plain = plain.bytes().await.unwrap();
    for (asked, used) in [("gzip", "gzip"), ("br", "br"), ("zstd", "zstd"), ("gzip;q=0.1, zstd, br;q=0.5", "zstd")] {
        let request = world.request(Method::GET, "/v1/store/orders").header("accept-encoding", asked);
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-encoding"], used, "{asked}");
        assert_eq!(response.headers()["etag"], tag, "a weak tag is the same in every encoding");
        assert_eq!(response.headers().get_all("vary").iter().count(), 1);
        let packed = response.bytes().await.unwrap();
        assert!(packed.len() < plain.len() / 4, "{used}: {} of {}", packed.len(), plain.len());
        let mut unpacked = Vec::new();
        let read = match used {
            "gzip" => flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked),
            "br" => brotli::Decompressor::new(&*packed, 4_096).read_to_end(&mut unpacked),
            _ => zstd::stream::read::Decoder::new(&*packed).unwrap().read_to_end(&mut unpacked),
        };
        read.unwrap();
        assert!(unpacked == plain, "{used} decompresses to something else");
    }
    let identity = world.request(Method::GET, "/v1/store/orders").header("accept-encoding", "identity, zstd;q=0");
    assert!(identity.send().await.unwrap().headers().get("content-encoding").is_none());
}

// rule: 8.5
// promise: orders.4
#[tokio::test]
async fn a_hundred_thousand_orders_are_streamed_completely_during_cancellations() {
    const ORDERS: i64 = 100_000;
    let world = World::new().await;
    world.given(&lines(0..ORDERS)).await;
    let mut response = world.get("/v1/store/orders").await;
    assert!(response.headers().get("content-length").is_none(), "a list of this size streams");
    let mut body = Vec::new();
    let mut cancelled = 0;
    let mut largest = 0;
    while let Some(piece) = response.chunk().await.unwrap() {
        largest = largest.max(piece.len());
        body.extend_from_slice(&piece);
        if cancelled < 20 {
            assert_eq!(world.delete(&format!("/v1/store/orders/{}", cancelled * 4_999)).await.status(), 204);
            cancelled += 1;
        }
    }
    assert_eq!(cancelled, 20, "cancellations work while a list is read");
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap();
    let ids: Vec<u64> = listed.iter().map(|order| order["id"].as_u64().unwrap()).collect();
    assert!(ids.iter().copied().eq(0..u64::try_from(ORDERS).unwrap()), "every order once, in id order");
    assert!(largest < 512 * 1_024, "a piece of {largest} bytes");
}

// rule: 4.1.200
// promise: orders.6
#[tokio::test]
async fn a_list_that_ends_with_a_full_batch_is_complete() {
    // Batches have 256 and then 2,048 orders.
    for count in [1, 255, 256, 257, 2_303, 2_304, 2_305] {
        let world = World::new().await;
        world.given(&lines(0..count)).await;
        for encoding in ["identity", "gzip"] {
            let request = world.request(Method::GET, "/v1/store/orders").header("accept-encoding", encoding);
            let body = request.send().await.unwrap().bytes().await.unwrap();
            let mut text = Vec::new();
            if encoding == "gzip" {
                flate2::read::GzDecoder::new(&*body).read_to_end(&mut text).unwrap();
            } else {
                text.extend_from_slice(&body);
            }
            let listed: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
            assert_eq!(i64::try_from(listed.len()).unwrap(), count, "{encoding}");
        }
    }
}
