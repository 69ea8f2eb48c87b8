//! Looking up the names of servers, in the background and never while a request waits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How long one look may take. The system's resolver leaves a nameserver that is silent after five seconds
/// (resolv.conf(5), `timeout`) and asks the next, three at most: whoever waits less never hears the last of them.
pub const LOOK_UP_MAX: Duration = Duration::from_secs(11);

/// All addresses that the system's resolver knows for a name.
///
/// # Errors
/// When the resolver does not know the name or does not answer in time.
pub async fn look_up(name: &str, port: u16) -> io::Result<impl Iterator<Item = SocketAddr>> {
    let looking = tokio::net::lookup_host((name, port));
    tokio::time::timeout(LOOK_UP_MAX, looking)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no nameserver answers in time")))
}
