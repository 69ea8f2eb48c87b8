//! Settings of the quota's Redis connection.

use std::time::Duration;

use chassis::secret::Secret;

contract::words! {
    /// How the servers are found.
    #[derive(Default)]
    pub enum RedisMode {
        /// The first address that is a master.
        #[default]
        Standalone = "standalone",
        /// The addresses are sentinels, which know the master.
        Sentinel = "sentinel",
        /// The addresses are some servers of a Cluster, which know the others.
        Cluster = "cluster",
    }
}

/// One server's address: `redis://host:port`, or `rediss://` for TLS. User, password and database have their own
/// settings, so that an address may be logged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RedisAddress {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether TLS is used.
    pub tls: bool,
}

/// Why a text is not a [`RedisAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use redis://host:port or rediss://host:port; user and password have settings of their own")]
pub struct InvalidRedisAddress;

impl std::str::FromStr for RedisAddress {
    type Err = InvalidRedisAddress;

    fn from_str(text: &str) -> Result<Self, InvalidRedisAddress> {
        let (tls, rest) = match (text.strip_prefix("redis://"), text.strip_prefix("rediss://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(InvalidRedisAddress),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = rest.rsplit_once(':').ok_or(InvalidRedisAddress)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(InvalidRedisAddress)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['@', '/', '?', '#']) {
            return Err(InvalidRedisAddress);
        }
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

impl RedisAddress {
    /// The server that this one names in a redirection, `host:port`. An empty host is that of this server.
    pub(super) fn redirected(&self, to: &str) -> Option<Self> {
        let (host, port) = to.rsplit_once(':')?;
        let host = if host.is_empty() { &self.host } else { host };
        Some(Self { host: host.to_owned(), port: port.parse().ok()?, tls: self.tls })
    }
}

/// Settings of the Redis connection.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// How the servers are found.
    pub mode: RedisMode,
    /// Addresses to start from, at least one.
    pub addresses: Vec<RedisAddress>,
    /// Sentinel's name of the master.
    pub master_name: String,
    /// The ACL user; `None`: the default user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// Authorities that sign the servers' certificates, PEM; `None`: the system's.
    pub ca_certificate: Option<Vec<u8>>,
    /// How long one call may take.
    pub call_budget: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_a_host_a_port_and_no_secret() {
        let good = |host: &str, port, tls| Ok(RedisAddress { host: host.to_owned(), port, tls });
        assert_eq!("redis://127.0.0.1:6379".parse(), good("127.0.0.1", 6379, false));
        assert_eq!("rediss://cache.internal:6380/".parse(), good("cache.internal", 6380, true));
        assert_eq!("redis://[::1]:6379".parse(), good("::1", 6379, false));
        for wrong in
            ["", "redis://", "127.0.0.1:6379", "redis://host", "redis://user:word@host:6379", "redis://host:6379/1"]
        {
            assert_eq!(wrong.parse::<RedisAddress>(), Err(InvalidRedisAddress), "{wrong}");
        }
        let server = RedisAddress { host: "10.0.0.1".to_owned(), port: 6_379, tls: true };
        assert_eq!(server.redirected("10.0.0.2:6380"), good("10.0.0.2", 6380, true).ok());
        assert_eq!(server.redirected("::1:6380"), good("::1", 6380, true).ok());
        assert_eq!(server.redirected(":6380"), good("10.0.0.1", 6380, true).ok());
        assert_eq!(server.redirected("10.0.0.2"), None);
    }
}
