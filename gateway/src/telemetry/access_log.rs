//! One JSON line per request.
//!
//! Written into one buffer without formatting machinery, because it is the most frequent output of the product. Fields
//! that clients choose are cut at 512 bytes and escaped, so that a line stays one line. The query is omitted (it may
//! carry secrets of the application), and keys appear only by their public id.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::Duration;

use contract::time::UnixMillis;

use crate::facts::Facts;
use crate::telemetry::blame_word;
use contract::rejection::Rejection;
use listener::Connection;
use quota::settings::Mode;

/// Buffer size for usual lines.
const LINE_BYTES_USUAL: usize = 896;

/// Bytes of a client-chosen field that are written.
const FIELD_BYTES_MAX: usize = 512;

/// Data of the connection and the response.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    /// The status sent; 0 if the client disconnected before.
    pub status: u16,
    /// The method.
    pub method: &'a str,
    /// The path without the query.
    pub path: &'a str,
    /// Body bytes sent.
    pub bytes_sent: usize,
    /// The connection.
    pub connection: LoggedConnection<'a>,
    /// The kind of error that ended the request, and its side, without any data that either side sent.
    pub error: Option<String>,
}

/// Data of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedConnection<'a> {
    /// `h1` or `h2`.
    pub protocol: &'a str,
    /// TLS version, empty for plain HTTP.
    pub tls: &'a str,
    /// The client's address, as text.
    pub client: Option<&'a str>,
}

impl<'a> LoggedConnection<'a> {
    /// Of a request on this connection.
    pub(crate) fn of(connection: &'a Connection, facts: &'a Facts) -> Self {
        Self {
            protocol: if connection.is_h2() { "h2" } else { "h1" },
            tls: connection.tls().map_or("", |tls| tls.version),
            client: facts.client_text(connection).to_str().ok(),
        }
    }
}

/// The line of a request; its last fields are the gateway's enrolled name, empty while unknown, and the id of the
/// process.
pub(super) fn line(
    facts: &Facts,
    entry: &Entry<'_>,
    took: Duration,
    waited: Duration,
    (gateway, node): (&str, &str),
) -> Vec<u8> {
    let mut line = Line::begin(facts.began_at);
    line.text("request_id", facts.request_id.as_str());
    line.text("gateway", gateway);
    line.text("node", node);
    if let Some(client) = entry.connection.client {
        line.text("client_ip", client);
    }
    line.text("proto", entry.connection.protocol);
    line.text("tls", entry.connection.tls);
    line.text("surface", facts.surface.as_str());
    line.text("host", facts.host.as_ref().map_or("", |host| host.as_str()));
    line.text("method", entry.method);
    line.text("path", entry.path);
    line.number("status", u64::from(entry.status));
    if let Some(status) = facts.connection.grpc_status {
        line.number("grpc_status", u64::from(status));
    }
    line.text("code", facts.refused.map_or("", Rejection::code));
    line.text("blame", blame_word(facts.refused));
    line.number("bytes_in", facts.connection.body_bytes);
    line.number("bytes_out", u64::try_from(entry.bytes_sent).unwrap_or(u64::MAX));
    line.number("duration_us", micros(took));
    if facts.upstream.began.is_some() {
        line.number("upstream_us", micros(waited));
        line.number("attempts", u64::from(facts.upstream.attempts));
    }
    if let Some(upstream) = facts.upstream.forwarded_to() {
        line.text("upstream", upstream.settings.name.as_str());
    }
    if let Some(endpoint) = &facts.upstream.endpoint {
        line.text("endpoint", endpoint.text());
    }
    if let Some(kind) = facts.upstream.connection {
        line.text("upstream_connection", kind.as_str());
    }
    if facts.refused.is_some()
        && let Some(reason) = &facts.upstream.reason
    {
        line.text("reason", reason);
    }
    let project = facts.caller.payer.as_ref().or(facts.project.as_ref());
    if let Some(project) = project {
        line.text("project_id", project.id.as_str());
        line.text("plan", project.plan.as_str());
    }
    if let Some(key) = &facts.caller.key {
        line.text("api_key_id", key.id.as_str());
        if facts.refused == Some(Rejection::HttpsRequired) {
            line.text("event", "key_exposed_in_plain_http");
        }
    }
    if let Some(figures) = facts.quota.figures {
        let headers = figures.allowances.rate_limit_headers(figures.outcome);
        line.number("quota_limit", u64::from(headers.limit));
        line.number("quota_remaining", u64::from(headers.remaining));
    }
    line.text("quota_mode", facts.quota.mode.map_or("", Mode::as_str));
    if let Some(id) = &facts.connection.client_request_id {
        line.text("client_request_id", id);
    }
    if let Some(error) = &entry.error {
        line.text("error", error);
    }
    line.end()
}

/// A JSON object while it is written.
pub(super) struct Line(String);

impl Line {
    pub(super) fn begin(at: UnixMillis) -> Self {
        let mut line = Self(String::with_capacity(LINE_BYTES_USUAL));
        line.0.push_str("{\"timestamp\":\"");
        push_time(&mut line.0, at);
        line.0.push('"');
        line
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.name(name);
        self.0.push('"');
        escape(&mut self.0, value);
        self.0.push('"');
    }

    pub(super) fn display(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        let _ = write!(self.0, "\"{value}\"");
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.0.push_str(itoa::Buffer::new().format(value));
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.push_str("}\n");
        self.0.into_bytes()
    }

    fn name(&mut self, name: &str) {
        self.0.push_str(",\"");
        self.0.push_str(name);
        self.0.push_str("\":");
    }
}

/// `2023-11-14T22:13:20.123Z`. Each thread caches the text of its last second, which thousands of lines share.
fn push_time(out: &mut String, at: UnixMillis) {
    thread_local! {
        static SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    let (second, millis) = (at.0.div_euclid(1_000), at.0.rem_euclid(1_000));
    SECOND.with_borrow_mut(|(known, text)| {
        if *known != second {
            text.clear();
            match jiff::Timestamp::from_second(second) {
                Ok(time) => drop(write!(text, "{time:.0}")),
                Err(_) => drop(write!(text, "{second}")),
            }
            *known = second;
        }
        out.push_str(text.trim_end_matches('Z'));
    });
    // Three digits always: adds 1,000 and cuts off the 1.
    out.push('.');
    out.push_str(itoa::Buffer::new().format(millis + 1_000).get(1..).unwrap_or_default());
    out.push('Z');
}

/// Escapes a JSON string (RFC 8259 section 7); DEL and C1 controls too, because terminals obey them.
fn escape(out: &mut String, value: &str) {
    // Nearly all values need no escape. Checking all bytes without an early exit lets the compiler vectorise.
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if value.len() <= FIELD_BYTES_MAX && value.bytes().fold(true, |all, byte| all & plain(byte)) {
        out.push_str(value);
        return;
    }
    let cut = value.len() > FIELD_BYTES_MAX;
    let mut written = 0;
    for letter in value.chars() {
        written += letter.len_utf8();
        if written > FIELD_BYTES_MAX {
            break;
        }
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    if cut {
        let _ = write!(out, "…{}", value.len());
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_client_input_stays_one_line_of_json() {
        let mut line = Line::begin(UnixMillis(1_700_000_000_123));
        line.text("path", "/a\"\r\n\u{1b}[31m\\\u{85}ü");
        line.text("long", &"x".repeat(10_000));
        let text = String::from_utf8(line.end()).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["timestamp"], "2023-11-14T22:13:20.123Z");
        assert_eq!(value["path"], "/a\"\r\n\u{1b}[31m\\\u{85}ü");
        assert!(value["long"].as_str().unwrap().ends_with("…10000"));
        assert!(text.len() < 1_000);
    }
}
