use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use parking_lot::Mutex;

use super::*;
use crate::metrics;

/// Fields of a protobuf message by number: numbers and eight-byte values as such, the rest as bytes.
#[derive(Debug)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
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
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (eight, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(eight.try_into().unwrap()))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (inside, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(inside.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

fn all(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    let fields = fields(message).into_iter().filter(|(found, _)| *found == number);
    fields.filter_map(|(_, field)| if let Field::Bytes(bytes) = field { Some(bytes) } else { None }).collect()
}

fn one(message: &[u8], number: u64) -> Vec<u8> {
    all(message, number).pop().unwrap_or_default()
}

fn figure(message: &[u8], number: u64) -> u64 {
    let found = fields(message).into_iter().find(|(found, _)| *found == number);
    if let Some((_, Field::Number(value))) = found { value } else { 0 }
}

fn span(trace: u128) -> Span {
    Span {
        trace: TraceId(trace),
        id: 0x0102_0304_0506_0708,
        parent: Some(9),
        name: "GET /v1/store/orders".to_owned(),
        kind: SpanKind::Server,
        began_nanos: 1_700_000_000_000_000_000,
        took_nanos: 5_000_000,
        attributes: vec![
            ("http.response.status_code", AttributeValue::Number(503)),
            ("http.route", AttributeValue::Text("/x".to_owned())),
        ],
        failed: true,
    }
}

fn counter() -> IntCounterVec {
    let ours = metrics::Registry::new();
    metrics::counter_vec(&ours, "spans", "Spans.", &["result"]).unwrap()
}

fn config(address: std::net::SocketAddr) -> TraceConfig {
    TraceConfig { endpoint: Some(format!("http://{address}")), per_thousand: 1_000 }
}

#[test]
fn a_span_reads_back_with_the_published_numbers() {
    let request = otlp::encode("gateway", &[span(0xabcd)]);
    let resource_spans = one(&request, 1);
    let service = all(&one(&resource_spans, 1), 1).into_iter().find(|pair| one(pair, 1) == b"service.name").unwrap();
    assert_eq!(one(&one(&service, 2), 1), b"gateway");
    let span = one(&one(&resource_spans, 2), 2);
    assert_eq!(one(&span, 1), 0xabcd_u128.to_be_bytes());
    assert_eq!((one(&span, 2), one(&span, 4)), (vec![1, 2, 3, 4, 5, 6, 7, 8], 9_u64.to_be_bytes().to_vec()));
    assert_eq!((one(&span, 5), figure(&span, 6)), (b"GET /v1/store/orders".to_vec(), 2));
    assert_eq!((figure(&span, 7), figure(&span, 8)), (1_700_000_000_000_000_000, 1_700_000_000_005_000_000));
    let attributes = all(&span, 9);
    assert_eq!(
        (one(&attributes[0], 1), figure(&one(&attributes[0], 2), 3)),
        (b"http.response.status_code".to_vec(), 503)
    );
    assert_eq!(one(&one(&attributes[1], 2), 1), b"/x");
    assert_eq!(figure(&one(&span, 15), 3), 2, "the status is an error");
}

#[test]
fn a_traceparent_is_read_strictly_and_written_the_same() {
    let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let parent = Parent::parse(text).unwrap();
    assert_eq!((parent.sampled, parent.span, parent.to_string().as_str()), (true, 0xb7ad_6b71_6920_3331, text));
    for bad in [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        assert_eq!(Parent::parse(bad), None, "{bad}");
    }
}

#[tokio::test]
async fn every_recorded_span_arrives_also_those_queued_at_the_end() {
    let bodies: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let kept = bodies.clone();
    let collect = move |body: Bytes| async move { kept.lock().push(body) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(collect))).await });
    let spans = counter();
    let (tracer, exporter) = Tracer::new(&config(address), "gateway", &spans).unwrap();
    let end = Shutdown::new();
    for trace in 1..=700 {
        tracer.record(span(trace));
    }
    let mut exporter = exporter.unwrap();
    let ends = end.clone();
    let running = tokio::spawn(async move { exporter.run(ends).await });
    end.begin();
    running.await.unwrap();
    let arrived: usize = bodies.lock().iter().map(|body| all(&one(&one(body, 1), 2), 2).len()).sum();
    assert_eq!(arrived, 700);
    assert_eq!(spans.with_label_values(&["exported"]).get(), 700);
}

#[tokio::test]
async fn a_stalled_collector_loses_spans_but_delays_no_request() {
    // Accepts and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let spans = counter();
    let (tracer, exporter) = Tracer::new(&config(address), "gateway", &spans).unwrap();
    let end = Shutdown::new();
    let total = SPANS_WAITING_MAX + 100;
    for trace in 1..=total {
        tracer.record(span(u128::try_from(trace).unwrap()));
    }
    assert_eq!(spans.with_label_values(&["dropped"]).get(), 100, "the queue is bounded, and no caller waited");
    end.begin();
    exporter.unwrap().run(end).await;
    assert_eq!(spans.with_label_values(&["failed"]).get(), 512);
    drop(listener);
}

#[test]
fn sampling_is_a_sum_over_the_trace_id() {
    let spans = counter();
    let config = TraceConfig { endpoint: Some("http://127.0.0.1:1".to_owned()), per_thousand: 10 };
    let (tracer, _) = Tracer::new(&config, "gateway", &spans).unwrap();
    let sampled = (0..100_000_u128).filter(|id| tracer.samples(TraceId(*id))).count();
    assert_eq!(sampled, 1_000);
    assert!(!Tracer::off().samples(TraceId(0)));
}
