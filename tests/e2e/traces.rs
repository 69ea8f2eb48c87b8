//! Traces, as a collector receives them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use parking_lot::Mutex;
use reqwest::Method;

use crate::world::{Platform, until};

/// The checked fields of a span.
#[derive(Clone, Debug, Default)]
struct Span {
    service: String,
    trace: String,
    id: String,
    parent: String,
    name: String,
    attributes: BTreeMap<String, String>,
}

/// The parts of a protobuf message: its fields' numbers with their bytes; numbers as eight bytes.
fn parts(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut bytes).to_be_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)).unwrap(),
            other => panic!("wire type {other}"),
        };
        let (inside, rest) = bytes.split_at(length);
        found.push((key >> 3, inside.to_vec()));
        bytes = rest;
    }
    found
}

fn all(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    parts(message).into_iter().filter(|(found, _)| *found == number).map(|(_, bytes)| bytes).collect()
}

fn one(message: &[u8], number: u64) -> Vec<u8> {
    all(message, number).pop().unwrap_or_default()
}

fn attributes(message: &[u8], number: u64) -> BTreeMap<String, String> {
    let pairs = all(message, number).into_iter().map(|pair| {
        let value = one(&pair, 2);
        let number = one(&value, 3);
        let text = if number.is_empty() {
            String::from_utf8(one(&value, 1)).unwrap()
        } else {
            u64::from_be_bytes(number.try_into().unwrap()).to_string()
        };
        (String::from_utf8(one(&pair, 1)).unwrap(), text)
    });
    pairs.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every span of one export.
fn spans(export: &[u8]) -> Vec<Span> {
    let mut found = Vec::new();
    for resource_spans in all(export, 1) {
        let service = attributes(&one(&resource_spans, 1), 1)["service.name"].clone();
        for span in all(&resource_spans, 2).iter().flat_map(|scope| all(scope, 2)) {
            found.push(Span {
                service: service.clone(),
                trace: hex(&one(&span, 1)),
                id: hex(&one(&span, 2)),
                parent: hex(&one(&span, 4)),
                name: String::from_utf8(one(&span, 5)).unwrap(),
                attributes: attributes(&span, 9),
            });
        }
    }
    found
}

#[tokio::test]
async fn one_request_is_one_trace_through_gateway_and_service() {
    let arrived: Arc<Mutex<Vec<Span>>> = Arc::default();
    let kept = arrived.clone();
    let collect = move |body: Bytes| async move { kept.lock().extend(spans(&body)) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(collect))).await });

    let platform = Platform::start_with(&["--trace-to", &url]);
    let (client, shop) = (platform.client(), platform.project("pro"));
    let claimed = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = shop.request(&platform, &client, Method::GET, "/v1/store/orders").header("traceparent", claimed);
    let response = request.send().await.unwrap();
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let of_request = || -> Vec<Span> { arrived.lock().iter().filter(|span| span.trace == id).cloned().collect() };
    until("three spans have arrived", async || of_request().len() == 3).await;
    let found = of_request();
    let named = |service: &str, name: &str| {
        found.iter().find(|span| span.service == service && span.name == name).unwrap_or_else(|| panic!("{found:?}"))
    };
    let answer = named("gateway", "edge api");
    let question = named("gateway", "upstream");
    let service = named("orders-service", "GET /v1/store/orders");
    assert_eq!(answer.parent, "", "the gateway begins the trace and ignores the client's");
    assert_eq!((&question.parent, &service.parent), (&answer.id, &question.id));
    assert_eq!(answer.attributes["tollhouse.project"], "demo-pro");
    assert_eq!(answer.attributes["http.response.status_code"], "200");
    assert_eq!(question.attributes["tollhouse.upstream"], "orders");
    assert_eq!(service.attributes["http.response.status_code"], "200");
    let everything = format!("{:?}", arrived.lock());
    assert!(
        !everything.contains(&shop.key) && !everything.contains("0af7651916cd43dd"),
        "no key, no claim of a client"
    );
}

#[tokio::test]
async fn requests_succeed_without_the_collector() {
    let platform = Platform::start_with(&["--trace-to", "http://127.0.0.1:9"]);
    let (client, shop) = (platform.client(), platform.project("pro"));
    assert_eq!(shop.list(&platform, &client).await.len(), 40);
    until("the lost spans are counted", async || {
        let metrics = platform.admin("/metrics").await;
        let line = metrics.lines().find(|line| line.starts_with("edge_trace_spans_total{result=\"failed\"}")).unwrap();
        !line.ends_with(" 0")
    })
    .await;
}
