//! All limits of the listeners, with their defaults.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::flood_guard::FrameLimits;
use super::head::HeadLimits;
use super::minimum_rate::{MinimumRate, WholeMessageRate};
use crate::forwarded::Forwarders;

/// The longest pause of a client that still sends a request which was already answered: on an HTTP/2 stream, and by
/// default on a connection.
pub const LINGER_MAX: Duration = Duration::from_secs(2);
/// The longest total time for such a client.
pub const LINGER_MAX_LONG: Duration = Duration::from_secs(30);

/// The minimum rate of a whole request body, because every body occupies a slot at its upstream. 8 KiB per second is an
/// uplink of 64 kbit/s; a body smaller than 1 MB may arrive at half of that.
const WHOLE_BODY: WholeMessageRate = WholeMessageRate { grace: Duration::from_mins(2), bytes_per_second: 8 * 1024 };

/// Timeouts, sizes and counts of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Sizes of a request head.
    pub head: HeadLimits,
    /// Time from the first byte of a head to its last; for the first head of a connection, from the end of the
    /// handshake. Then 408. Also the time for the preface of HTTP/2. Default 10 s.
    pub head_timeout: Duration,
    /// Time between two requests of a connection. Default 75 s.
    pub idle_timeout: Duration,
    /// The same while more than four fifths of `connections` are open, or memory is scarce. Default 5 s.
    pub idle_timeout_under_pressure: Duration,
    /// The minimum rate of a request body; a slower one gets 408. Default: 40 s grace and pause, 500 bytes per second;
    /// for the whole body, two minutes and 8 KiB per second.
    pub body_minimum_rate: MinimumRate,
    /// The minimum rate at which a response must be read; else the connection is cut off. For HTTP/2 it applies to all
    /// responses of a connection together; else the stream is reset. Default: 60 s grace and pause (a player that
    /// pauses), 500 bytes per second for each.
    pub write_minimum_rate: MinimumRate,
    /// Time from accept to the end of the TLS handshake, including the PROXY header. Default 10 s.
    pub handshake_timeout: Duration,
    /// How long to keep a request of an HTTP/1 client that closed its sending side: the client may have left, or may
    /// only have finished sending, which looks the same. Default 5 s.
    pub half_closed_timeout: Duration,
    /// HTTP/2 frames that do no work. Default: 1,000 at once, 10 per second, and one for each KiB moved.
    pub idle_frames: FrameLimits,
    /// Open connections of all listeners that share a registry. Default 20,000.
    pub connections: usize,
    /// Open connections of one client address, or of one /64 with IPv6. Default 256.
    pub connections_per_address: u32,
    /// Requests on one connection before `Connection: close`. Default one million.
    pub requests_per_connection: u32,
    /// Age of a connection before `Connection: close`, plus or minus a tenth so that reconnects spread. Default 1 h.
    pub connection_age: Duration,
    /// Trusted peers that speak PROXY protocol, version 1 or 2. Each of their connections must begin with its header,
    /// and their own address is not limited. From other peers the header is refused. Default: none.
    pub proxy_protocol_from: Vec<IpNet>,
    /// Trusted peers that name clients in a field of each request. Their own address is not limited. Default: none.
    pub forwarders: Arc<Forwarders>,
    /// An HTTP/2 connection without requests is drained after this time. Default 75 s.
    pub h2_idle_timeout: Duration,
    /// By how much the windows of all HTTP/2 connections together may grow: data that clients sent and no upstream has
    /// read, beside a MiB for each connection. Default 128 MiB, or a sixteenth of the memory if that is less.
    pub windows_bytes: u64,
    /// How long a connection is still read after we end it, so that our response is not lost in a reset. Default 2 s.
    pub linger_timeout: Duration,
    /// How many bytes are read in that time. Default 256 KiB.
    pub linger_bytes: usize,
    /// How long a connection is read if its client is still sending a body or reading its responses, with pauses of at
    /// most `linger_timeout`. Default 30 s.
    pub linger_timeout_long: Duration,
    /// How many bytes are read in that time. Default 256 MiB.
    pub linger_bytes_long: usize,
    /// Connections of one client address that may linger that long at once; the others have `linger_timeout`. Default
    /// 16.
    pub lingering_per_address: u32,
    /// Connections the kernel completes before we accept them. Default 4096.
    pub backlog: i32,
}

impl Default for ListenerSettings {
    fn default() -> Self {
        let rate = |grace, idle| MinimumRate {
            grace: Duration::from_secs(grace),
            idle: Duration::from_secs(idle),
            bytes_per_second: 500,
            whole: None,
        };
        Self {
            head: HeadLimits::default(),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            idle_timeout_under_pressure: Duration::from_secs(5),
            body_minimum_rate: MinimumRate { whole: Some(WHOLE_BODY), ..rate(40, 40) },
            write_minimum_rate: rate(60, 60),
            handshake_timeout: Duration::from_secs(10),
            half_closed_timeout: Duration::from_secs(5),
            idle_frames: FrameLimits::default(),
            connections: 20_000,
            connections_per_address: 256,
            requests_per_connection: 1_000_000,
            connection_age: Duration::from_hours(1),
            proxy_protocol_from: Vec::new(),
            forwarders: Arc::default(),
            h2_idle_timeout: Duration::from_secs(75),
            windows_bytes: 128 * 1024 * 1024,
            linger_timeout: LINGER_MAX,
            linger_bytes: 256 * 1024,
            linger_timeout_long: LINGER_MAX_LONG,
            linger_bytes_long: 256 * 1024 * 1024,
            lingering_per_address: 16,
            backlog: 4096,
        }
    }
}

impl ListenerSettings {
    /// Limits `connections` to two fifths of the file descriptors of the process: each connection may need a second
    /// descriptor for its upstream, and the rest of the process needs some too.
    #[must_use]
    pub fn for_descriptors(mut self, descriptors: u64) -> Self {
        let bound = usize::try_from(descriptors.saturating_mul(2) / 5).unwrap_or(usize::MAX);
        self.connections = self.connections.min(bound).max(1);
        self
    }

    /// Limits `windows_bytes` to a sixteenth of the memory of the process.
    #[must_use]
    pub fn for_memory(mut self, bytes: u64) -> Self {
        self.windows_bytes = self.windows_bytes.min(bytes / WINDOWS_PART);
        self
    }
}

/// The fraction of the memory by which HTTP/2 windows may grow.
const WINDOWS_PART: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_other_uses() {
        assert_eq!(ListenerSettings::default().for_descriptors(1_024).connections, 409);
        assert_eq!(ListenerSettings::default().for_descriptors(1_048_576).connections, 20_000);
        assert_eq!(ListenerSettings::default().for_descriptors(0).connections, 1);
    }

    #[test]
    fn windows_leave_memory_for_other_uses() {
        const MIB: u64 = 1024 * 1024;
        assert_eq!(ListenerSettings::default().for_memory(256 * MIB).windows_bytes, 16 * MIB);
        assert_eq!(ListenerSettings::default().for_memory(u64::MAX).windows_bytes, 128 * MIB);
    }
}
