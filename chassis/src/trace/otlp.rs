//! Encodes spans in OTLP's protobuf: the few fields that we fill, with the numbers of
//! `opentelemetry/proto/trace/v1/trace.proto`.
//!
//! Written by hand because it is short: a length, a number and bytes, nested. The decoder in the tests shares only the
//! numbers with it.

use super::TraceId;

/// The side of a call that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The called side.
    Server = 2,
    /// The calling side.
    Client = 3,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

/// A finished operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace it belongs to.
    pub trace: TraceId,
    /// Its own id, never 0.
    pub id: u64,
    /// The enclosing span.
    pub parent: Option<u64>,
    /// The operation; from a fixed list.
    pub name: String,
    /// The side.
    pub kind: SpanKind,
    /// When it began, Unix nanoseconds.
    pub began_nanos: u64,
    /// How long it took, nanoseconds.
    pub took_nanos: u64,
    /// Attributes. Names follow OpenTelemetry's conventions.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Whether it failed through a fault of the called side.
    pub failed: bool,
}

/// `ExportTraceServiceRequest` of one service.
pub(super) fn encode(service: &str, spans: &[Span]) -> Vec<u8> {
    let resource = message(|out| {
        field(out, 1, &attribute("service.name", &AttributeValue::Text(service.to_owned())));
        field(out, 1, &attribute("service.version", &AttributeValue::Text(env!("CARGO_PKG_VERSION").to_owned())));
    });
    let scope_spans = message(|out| {
        field(out, 1, &message(|out| field(out, 1, b"tollhouse")));
        for one in spans {
            field(out, 2, &span(one));
        }
    });
    message(|out| {
        let resource_spans = message(|out| {
            field(out, 1, &resource);
            field(out, 2, &scope_spans);
        });
        field(out, 1, &resource_spans);
    })
}

fn span(span: &Span) -> Vec<u8> {
    message(|out| {
        field(out, 1, &span.trace.0.to_be_bytes());
        field(out, 2, &span.id.to_be_bytes());
        if let Some(parent) = span.parent {
            field(out, 4, &parent.to_be_bytes());
        }
        field(out, 5, span.name.as_bytes());
        number(out, 6, span.kind as u64);
        fixed(out, 7, span.began_nanos);
        fixed(out, 8, span.began_nanos.saturating_add(span.took_nanos));
        for (name, value) in &span.attributes {
            field(out, 9, &attribute(name, value));
        }
        if span.failed {
            // STATUS_CODE_ERROR
            field(out, 15, &message(|out| number(out, 3, 2)));
        }
    })
}

fn attribute(name: &str, value: &AttributeValue) -> Vec<u8> {
    message(|out| {
        field(out, 1, name.as_bytes());
        let value = message(|out| match value {
            AttributeValue::Text(text) => field(out, 1, text.as_bytes()),
            AttributeValue::Number(number_of) => number(out, 3, number_of.cast_unsigned()),
        });
        field(out, 2, &value);
    })
}

fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// Bytes, text or a message: wire type 2.
fn field(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    varint(out, tag << 3 | 2);
    varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

/// A number of any size: wire type 0.
fn number(out: &mut Vec<u8>, tag: u64, value: u64) {
    varint(out, tag << 3);
    varint(out, value);
}

/// Eight bytes: wire type 1.
fn fixed(out: &mut Vec<u8>, tag: u64, value: u64) {
    varint(out, tag << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or(0);
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}
