//! Damaged orders, as clients see them. Other faults of the store are in `disk` and `postgres`.

use reqwest::Method;

use crate::world::{World, lines, refusal};

// promise: orders.16
#[tokio::test]
async fn a_fault_of_the_store_is_503_with_retry_after_and_counted_by_kind() {
    let world = World::new().await;
    world.given("{\"id\":1,\"petId\":1}").await;
    world.sql("UPDATE orders SET quantity = 7").await;
    let asked = [
        (Method::GET, "/v1/store/orders"),
        (Method::DELETE, "/v1/store/orders/1"),
        (Method::GET, "/v2/store/orders/1"),
    ];
    for (method, target) in asked.clone() {
        let response = world.request(method, target).send().await.unwrap();
        assert_eq!(response.headers()["retry-after"], "1", "{target}");
        assert_eq!(refusal(response).await, (503, "storage_unavailable".to_owned()), "{target}");
    }
    let metrics = world.metrics().await;
    let counted = format!("orders_store_errors_total{{kind=\"corrupt\"}} {}", asked.len());
    assert!(metrics.contains(&counted), "{counted} is missing from\n{metrics}");
    assert!(metrics.contains("orders_cancel_total{result=\"error\"} 1"));
    // A failing store does not make the process unready: a restart would not help.
    assert_eq!(world.ready().await, 200);
}

#[tokio::test]
async fn a_fault_of_the_store_is_in_the_status_until_a_change_is_written() {
    let world = World::new().await;
    world.given("{\"id\":1}\n{\"id\":2}").await;
    let trouble = async || {
        let status = world.operator(Method::GET, "/internal/status").send().await.unwrap();
        status.json::<serde_json::Value>().await.unwrap()["store_trouble"]["kind"].clone()
    };
    world.sql("CREATE TRIGGER fails BEFORE INSERT ON order_outbox BEGIN SELECT RAISE(ABORT, 'a fault'); END").await;
    assert_eq!(refusal(world.delete("/v1/store/orders/1").await).await.0, 503);
    assert_eq!(world.get("/v1/store/orders").await.status(), 200);
    assert_eq!(trouble().await, "other", "that reading works does not end it");
    world.sql("DROP TRIGGER fails").await;
    assert_eq!(world.delete("/v1/store/orders/1").await.status(), 204);
    assert_eq!(trouble().await, serde_json::Value::Null);
}

// rule: 8.5
// promise: orders.6
#[tokio::test]
async fn a_list_that_fails_ends_without_its_closing_bracket_and_without_end_of_body() {
    let world = World::new().await;
    world.given(&lines(0..10_000)).await;
    let whole = world.get("/v1/store/orders").await.bytes().await.unwrap();
    assert_eq!(serde_json::from_slice::<Vec<serde_json::Value>>(&whole).unwrap().len(), 10_000);
    // One in each batch but the first, from the last one on.
    for statement in [
        "UPDATE orders SET quantity = 7 WHERE id = 9000",
        "UPDATE orders SET quantity = 7 WHERE id = 7000",
        "UPDATE orders SET quantity = 7 WHERE id = 5000",
        "UPDATE orders SET quantity = 7 WHERE id = 3000",
        "UPDATE orders SET quantity = 7 WHERE id = 300",
    ] {
        world.sql(statement).await;
        for encoding in ["identity", "gzip", "br", "zstd"] {
            let request = world.request(Method::GET, "/v1/store/orders").header("accept-encoding", encoding);
            // An immediate fault can close the connection before the head was flushed; the client notices that too.
            if let Ok(response) = request.send().await {
                assert_eq!(response.status(), 200);
                let read = response.bytes().await;
                assert!(read.is_err(), "{encoding}, {statement}: a whole body of {} bytes", read.unwrap().len());
            }
        }
    }
}
