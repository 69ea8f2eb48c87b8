//! Counts the requests in progress.

use listener::Connection;

use crate::gateway::Gateway;

/// A request in progress, counted by the connection, for the drain, and by the metrics.
pub(super) struct Progress<'a> {
    gateway: &'a Gateway,
    connection: &'a Connection,
}

impl<'a> Progress<'a> {
    pub(super) fn begin(gateway: &'a Gateway, connection: &'a Connection) -> Self {
        connection.request_seen();
        gateway.telemetry.in_flight.inc();
        Self { gateway, connection }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.gateway.telemetry.in_flight.dec();
        self.connection.request_done();
    }
}
