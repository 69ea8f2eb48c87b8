//! The operators' listener.

use bytes::Bytes;
use chassis::secret::write_private;
use reqwest::{Body, Method};

use crate::world::{World, lines, refusal, trust};

#[tokio::test]
async fn an_export_can_be_imported_into_another_project_and_exported_again() {
    let world = World::new().await;
    let lines = "{\"id\":-3,\"status\":\"pending\"}\n\
                 {\"id\":1,\"petId\":10,\"quantity\":2,\"shipDate\":\"2026-12-01T07:00:00.25Z\",\"complete\":true,\"status\":\"shipped\"}\n\
                 {\"id\":2,\"status\":\"cancelled\"}\n";
    let response = world.import("demo", lines).await;
    assert_eq!(response.text().await.unwrap(), "{\"imported\":3}");
    let export = |project: &'static str| world.operator(Method::GET, &format!("/internal/orders/{project}/export"));
    let response = export("demo").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let exported = response.text().await.unwrap();
    assert_eq!(exported, lines);
    assert_eq!(world.import("copy", exported).await.text().await.unwrap(), "{\"imported\":3}");
    assert_eq!(export("copy").send().await.unwrap().text().await.unwrap(), lines);
    assert_eq!(export("empty").send().await.unwrap().text().await.unwrap(), "");
    let summary = world.operator(Method::GET, "/internal/orders/copy/summary").send().await.unwrap();
    assert_eq!(summary.text().await.unwrap(), "{\"pending\":1,\"shipped\":1,\"cancelled\":1}");
}

#[tokio::test]
async fn an_invalid_line_is_named_and_nothing_is_imported() {
    let world = World::new().await;
    world.given("{\"id\":5}\n").await;
    let many = lines(1_000..3_000);
    for (text, line, reason) in [
        ("{\"id\":1}\n{\"id\":2,\"color\":\"red\"}\n".to_owned(), 2, "unknown field `color`"),
        ("{\"id\":1}\n\nnot json\n".to_owned(), 3, "expected"),
        ("{\"petId\":1}\n".to_owned(), 1, "missing field `id`"),
        ("{\"id\":1}\n{\"id\":1}\n".to_owned(), 2, "line 1 already has order 1"),
        ("{\"id\":1}\n{\"id\":5}\n".to_owned(), 2, "the project already has order 5"),
        (format!("{many}{{\"id\":5}}\n"), 2_001, "the project already has order 5"),
        (format!("{many}{{\"id\":1000}}\n"), 2_001, "line 1 already has order 1000"),
        (format!("{{\"id\":1}}\n{{\"id\":2{}", " ".repeat(5_000)), 2, "longer than 4096 bytes"),
    ] {
        let response = world.import("demo", text).await;
        assert_eq!(response.status(), 400);
        let body: serde_json::Value = response.json().await.unwrap();
        assert_eq!(body["code"], "import_failed");
        assert_eq!(body["details"]["line"], line, "{body}");
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(&format!("Line {line}: ")) && message.contains(reason), "{message}");
        let summary = world.orders.summary(&"demo".parse().unwrap()).await.unwrap();
        assert_eq!(summary.pending, 1, "nothing of it was imported");
    }
}

#[tokio::test]
async fn an_interrupted_import_imports_nothing() {
    let world = World::new().await;
    let (send, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let body = Body::wrap_stream(futures_util::stream::unfold(pieces, |mut pieces| async {
        pieces.recv().await.map(|piece| (piece, pieces))
    }));
    send.send(Ok(Bytes::from_static(b"{\"id\":1}\n{\"id\":2}\n"))).await.unwrap();
    send.send(Err(std::io::Error::other("the line is cut"))).await.unwrap();
    let answer = world.operator(Method::POST, "/internal/orders/demo/import").body(body).send().await;
    assert!(answer.is_err());
    assert_eq!(world.orders.summary(&"demo".parse().unwrap()).await.unwrap().pending, 0);
    // The next import can start.
    world.given("{\"id\":1}\n").await;
}

#[tokio::test]
async fn one_import_at_a_time() {
    let world = World::new().await;
    let (send, pieces) = tokio::sync::mpsc::channel::<Bytes>(4);
    let (asked, was_asked) = tokio::sync::oneshot::channel::<()>();
    let slow = futures_util::stream::unfold((pieces, Some(asked)), |(mut pieces, mut asked)| async {
        let piece = pieces.recv().await?;
        if piece.is_empty() {
            // The service asked for more: it is importing.
            drop(asked.take());
        }
        Some((Ok::<_, std::convert::Infallible>(piece), (pieces, asked)))
    });
    let orders = world.orders.clone();
    let first = tokio::spawn(async move { orders.import(&"demo".parse().unwrap(), slow).await });
    send.send(Bytes::from_static(b"{\"id\":1}\n")).await.unwrap();
    send.send(Bytes::new()).await.unwrap();
    let _ = was_asked.await;
    assert_eq!(refusal(world.import("demo", "{\"id\":2}").await).await, (409, "import_in_progress".to_owned()));
    drop(send);
    assert_eq!(first.await.unwrap().unwrap(), 1);
    world.given("{\"id\":2}\n").await;
}

#[tokio::test]
async fn shipping_says_when_and_only_a_pending_order_ships() {
    let world = World::new().await;
    world.given("{\"id\":1,\"petId\":4}\n{\"id\":2,\"status\":\"cancelled\"}\n").await;
    let ship = |id: &str| world.operator(Method::POST, &format!("/internal/orders/demo/{id}/ship")).send();
    let shipped = ship("1").await.unwrap();
    assert_eq!(
        shipped.text().await.unwrap(),
        "{\"id\":1,\"petId\":4,\"shipDate\":\"2026-11-20T12:00:00Z\",\"complete\":true,\"status\":\"shipped\"}"
    );
    assert_eq!(refusal(ship("1").await.unwrap()).await, (409, "order_already_shipped".to_owned()));
    assert_eq!(refusal(ship("2").await.unwrap()).await, (409, "order_already_cancelled".to_owned()));
    assert_eq!(refusal(ship("3").await.unwrap()).await, (404, "order_not_found".to_owned()));
    assert_eq!(refusal(ship("01").await.unwrap()).await, (404, "order_not_found".to_owned()));
    // rule: 4.2.409
    assert_eq!(refusal(world.delete("/v1/store/orders/1").await).await, (409, "order_already_shipped".to_owned()));
    let nowhere = world.operator(Method::GET, "/internal/orders/NOT_A_PROJECT/summary").send().await.unwrap();
    assert_eq!(refusal(nowhere).await, (404, "not_found".to_owned()));
}

#[tokio::test]
async fn orders_are_imported_into_projects_that_the_control_plane_knows() {
    let world = World::new().await;
    assert_eq!(refusal(world.import("missing", lines(1..2)).await).await, (404, "not_found".to_owned()));
    // It knows its operators from before.
    let place = tempfile::tempdir().unwrap();
    write_private(&place.path().join("trust.json"), &serde_json::to_vec(&trust()).unwrap()).unwrap();
    let alone = World::over(place, "[events]\nurl = \"http://127.0.0.1:9\"\n").await;
    let refused = refusal(alone.import("demo", lines(1..2)).await).await;
    assert_eq!(refused, (503, "control_plane_unavailable".to_owned()));
    for world in [&world, &alone] {
        for project in ["missing", "demo"] {
            assert_eq!(world.orders.summary(&project.parse().unwrap()).await.unwrap().pending, 0);
        }
    }
}
