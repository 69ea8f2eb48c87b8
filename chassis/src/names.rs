//! Looks up the names of servers, in the background and never while a request waits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest lookup. The system's resolver gives a silent nameserver five seconds (resolv.conf(5), `timeout`), then
/// asks the next, at most three: a shorter wait would never reach the last one.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(11);

/// All addresses of a name that the system's resolver finds.
///
/// # Errors
/// If the resolver does not find the name or does not answer in time.
pub async fn look_up(name: &str, port: u16) -> io::Result<impl Iterator<Item = SocketAddr>> {
    let lookup = tokio::net::lookup_host((name, port));
    tokio::time::timeout(LOOKUP_TIMEOUT, lookup)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no nameserver answered in time")))
}
