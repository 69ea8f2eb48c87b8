//! Events of the listeners: refusals before a request exists, handshakes, connections.

use std::time::Duration;

use chassis::metrics::{self, HistogramVec, IntCounterVec, IntGauge, Registry};

use super::access_log::Line;
use super::{Telemetry, position};
use crate::facts::Surface;
use contract::rejection::Rejection;
use listener::{ConnectionEvent, HandshakeOutcome, ListenerRefusal};

pub(super) struct ListenerMetrics {
    handshakes: IntCounterVec,
    handshake_seconds: HistogramVec,
    connections: IntGauge,
    events: IntCounterVec,
}

impl ListenerMetrics {
    pub(super) fn new(registry: &Registry) -> anyhow::Result<Self> {
        let listener = Self {
            handshakes: metrics::counter_vec(
                registry,
                "edge_tls_handshakes_total",
                "TLS handshakes, by outcome.",
                &["outcome"],
            )?,
            handshake_seconds: metrics::latency_vec(
                registry,
                "edge_tls_handshake_seconds",
                "Time from accepting a connection to the end of its handshake.",
                &["outcome"],
            )?,
            connections: metrics::gauge(registry, "edge_connections", "Open client connections.")?,
            events: metrics::counter_vec(
                registry,
                "edge_connection_events_total",
                "Events of client connections.",
                &["event"],
            )?,
        };
        for outcome in HandshakeOutcome::ALL {
            listener.handshakes.with_label_values(&[outcome.as_str()]);
        }
        for outcome in [HandshakeOutcome::Full, HandshakeOutcome::Resumed] {
            listener.handshake_seconds.with_label_values(&[outcome.as_str()]);
        }
        for event in ConnectionEvent::ALL {
            listener.events.with_label_values(&[event.as_str()]);
        }
        Ok(listener)
    }
}

impl Telemetry {
    /// Counts and logs a refusal of the listener like any other.
    pub fn refused_by_listener(&self, refusal: &ListenerRefusal<'_>) {
        let index = position(Surface::ALL, &Surface::Listener) * Rejection::ALL.len()
            + position(Rejection::ALL, &refusal.rejection);
        if let Some(counter) = self.refused.get(index) {
            counter.inc();
        }
        let mut line = Line::begin(self.clock.now());
        line.text("request_id", refusal.request_id);
        line.text("gateway", self.gateway.load().as_deref().map_or("", String::as_str));
        line.text("node", &self.node);
        line.display("client_ip", refusal.connection.client().ip());
        line.text("proto", if refusal.connection.is_h2() { "h2" } else { "h1" });
        line.text("surface", Surface::Listener.as_str());
        line.text("sni", refusal.connection.sni().map_or("", |sni| sni.as_str()));
        line.text("first_line", refusal.first_line);
        line.number("status", u64::from(refusal.rejection.status()));
        line.text("code", refusal.rejection.code());
        line.text("blame", refusal.rejection.blame().as_str());
        let line = line.end();
        self.lines.write(&line);
        self.recent.refused_by_listener(refusal.request_id, refusal.rejection, &line);
    }

    /// Records the end of a handshake. Unknown names are counted and not logged, because scanners choose them.
    pub fn handshake_ended(&self, outcome: HandshakeOutcome, took: Duration) {
        self.listener.handshakes.with_label_values(&[outcome.as_str()]).inc();
        if matches!(outcome, HandshakeOutcome::Full | HandshakeOutcome::Resumed) {
            self.listener.handshake_seconds.with_label_values(&[outcome.as_str()]).observe(took.as_secs_f64());
        }
    }

    /// Counts an event of a connection.
    pub fn connection_event(&self, event: ConnectionEvent) {
        self.listener.events.with_label_values(&[event.as_str()]).inc();
    }

    /// Shows the number of open connections.
    pub fn show_connections(&self, live: usize) {
        self.listener.connections.set(i64::try_from(live).unwrap_or(i64::MAX));
    }
}
