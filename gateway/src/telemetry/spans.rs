//! The spans of a sampled request: the gateway's response, and within it the upstream request.

use std::time::Duration;

use chassis::trace::{AttributeValue, Span, SpanKind, TraceId, Tracer};
use contract::time::UnixMillis;

use super::access_log::Entry;
use crate::facts::Facts;
use crate::request_id::RequestId;
use contract::rejection::{Blame, Rejection};

/// The span of the gateway's response.
pub(crate) fn server_span(request: &RequestId) -> u64 {
    half(request, 0..16)
}

/// The span of the upstream request, and so the parent of the upstream's own span.
pub(crate) fn client_span(request: &RequestId) -> u64 {
    half(request, 16..32)
}

/// Half of a request id as a span id. Never 0, which is invalid.
fn half(request: &RequestId, digits: std::ops::Range<usize>) -> u64 {
    request.as_str().get(digits).and_then(|half| u64::from_str_radix(half, 16).ok()).unwrap_or(0).max(1)
}

pub(super) fn record(tracer: &Tracer, facts: &Facts, entry: &Entry<'_>, took: Duration) {
    let Some(trace) = TraceId::parse(facts.request_id.as_str()) else { return };
    let text = |text: &str| AttributeValue::Text(text.to_owned());
    let status = AttributeValue::Number(i64::from(entry.status));
    let began = nanos_at(facts.began_at);
    let mut attributes = vec![
        ("http.request.method", text(entry.method)),
        ("http.response.status_code", status.clone()),
        ("network.protocol.name", text(entry.connection.protocol)),
        ("tollhouse.surface", text(facts.surface.as_str())),
    ];
    if let Some(host) = &facts.host {
        attributes.push(("server.address", text(host.as_str())));
    }
    if let Some(project) = facts.caller.payer.as_ref().or(facts.project.as_ref()) {
        attributes.push(("tollhouse.project", text(project.id.as_str())));
    }
    if let Some(rejection) = facts.refused {
        attributes.push(("tollhouse.code", text(rejection.code())));
    }
    let ours = matches!(facts.refused.map(Rejection::blame), Some(Blame::Platform | Blame::Upstream));
    let server = server_span(&facts.request_id);
    if let Some(sent) = facts.upstream.began {
        let answered = facts.upstream.answered.unwrap_or(facts.began + took);
        let mut attributes = vec![("tollhouse.attempts", AttributeValue::Number(i64::from(facts.upstream.attempts)))];
        if let Some(upstream) = facts.upstream.forwarded_to() {
            attributes.push(("tollhouse.upstream", text(upstream.settings.name.as_str())));
        }
        if let Some(endpoint) = &facts.upstream.endpoint {
            attributes.push(("server.address", AttributeValue::Text(endpoint.text().to_owned())));
        }
        if facts.upstream.answered.is_some() {
            attributes.push(("http.response.status_code", status));
        }
        tracer.record(Span {
            trace,
            id: client_span(&facts.request_id),
            parent: Some(server),
            name: "upstream".to_owned(),
            kind: SpanKind::Client,
            began_nanos: began.saturating_add(nanos(sent.saturating_sub(facts.began))),
            took_nanos: nanos(answered.saturating_sub(sent)),
            attributes,
            failed: facts.refused.map(Rejection::blame) == Some(Blame::Upstream),
        });
    }
    tracer.record(Span {
        trace,
        id: server,
        parent: None,
        name: format!("edge {}", facts.surface.as_str()),
        kind: SpanKind::Server,
        began_nanos: began,
        took_nanos: nanos(took),
        attributes,
        failed: ours,
    });
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn nanos_at(at: UnixMillis) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}
