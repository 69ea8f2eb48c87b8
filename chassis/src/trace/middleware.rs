//! The span of a service: from a request's head to its response's head, if the gateway sampled the trace.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::{AttributeValue, Parent, Span, SpanKind, Tracer};
use crate::clock::Clock;

/// The state of the middleware.
#[derive(Clone)]
pub struct Traced {
    /// Where spans go.
    pub tracer: Tracer,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Middleware: records a span for requests of sampled traces. Without a collector it only checks a flag.
pub async fn traced(State(traced): State<Traced>, request: Request, next: Next) -> Response {
    let parent = if traced.tracer.is_on() { parent_of(&request) } else { None };
    let Some(parent) = parent.filter(|parent| parent.sampled) else { return next.run(request).await };
    let method = request.method().as_str().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let (began_at, began) = (traced.clock.now(), traced.clock.monotonic());
    let response = next.run(request).await;
    let took = traced.clock.monotonic().saturating_sub(began);
    let status = response.status().as_u16();
    // Without randomness there is no id, and no span.
    let id = crate::random::bytes::<8>().map_or(0, u64::from_be_bytes);
    if id != 0 {
        traced.tracer.record(Span {
            trace: parent.trace,
            id,
            parent: Some(parent.span),
            name: format!("{method} {route}"),
            kind: SpanKind::Server,
            began_nanos: began_at.0.unsigned_abs().saturating_mul(1_000_000),
            took_nanos: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            attributes: vec![
                ("http.request.method", AttributeValue::Text(method)),
                ("http.route", AttributeValue::Text(route)),
                ("http.response.status_code", AttributeValue::Number(i64::from(status))),
            ],
            failed: status >= 500,
        });
    }
    response
}

fn parent_of(request: &Request) -> Option<Parent> {
    let mut values = request.headers().get_all("traceparent").iter();
    let parent = Parent::parse(values.next()?.to_str().ok()?);
    parent.filter(|_| values.next().is_none())
}
