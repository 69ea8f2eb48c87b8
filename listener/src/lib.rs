//! The gateway's listeners, plain and TLS, and the HTTP validation in front of the request handler.
//!
//! A listener accepts connections within limits and completes TLS with a certificate from memory. A strict gate between
//! the socket and the HTTP/1 handler releases only bytes that have exactly one meaning. Heads and bodies have
//! deadlines. Requests that are refused here get the same error body, log line and metric as every other refusal.
//!
//! Left to others: which hosts exist, who may send requests and where they go (the pipeline); HTTP/2 framing (an
//! engine, for which this crate adds a deadline for the preface, a minimum rate of writes and a count of idle frames);
//! certificates ([`Hooks`], read from the local replica). If the replica has no certificate for a name, the
//! handshake ends with an alert and no state is kept. If the runtime is busy, connections wait in the backlog.
//!
//! The modules in the order in which bytes pass them: [`listener`], [`tls`], `stream`, `gate`, [`head`], [`chunks`];
//! beside them [`settings`], [`connection`] and [`registry`].

pub mod network;
pub mod fields;
pub mod head;
pub mod chunks;
pub mod forwarded;
mod flood_guard;
mod gate;
mod minimum_rate;
pub mod settings;
mod streams;
pub mod connection;
mod client;
mod reader_rate;
pub mod registry;
mod proxy_header;
mod stream;
mod http1;
mod http2;
pub mod tls;
pub mod listener;
pub mod fuzzing;

#[cfg(test)]
mod fakes;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use contract::hostname::Hostname;
use h2::RecvStream;
use h2::server::SendResponse;
use rustls::sign::CertifiedKey;

pub use self::client::{BodyReadError, Client};
pub use self::connection::{Addresses, Connection, TlsFacts, with_jitter};
pub use self::flood_guard::FrameLimits;
pub use self::listener::{Listener, ListenerState};
pub use self::minimum_rate::MinimumRateTimer;
pub use self::minimum_rate::{MinimumRate, WholeMessageRate};
pub use self::reader_rate::ReaderRateTimer;
pub use self::registry::Connections;
pub use self::settings::ListenerSettings;
pub use self::settings::{LINGER_MAX, LINGER_MAX_LONG};
pub use self::stream::Timer;
pub use self::streams::Streams;
pub use self::tls::{TicketSeed, Tickets};
use contract::rejection::Rejection;

/// The path of the health check for balancers. It answers on every host.
pub const HEALTH_PATH: &str = "/.well-known/tollhouse/health";

/// The gateway as the listener calls it for each request.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Serves the pending HTTP/1 request of `client`.
    async fn serve_http1(&self, client: &mut dyn Client) -> ServeOutcome;

    /// Serves an HTTP/2 request. Returns `false` if the request was malformed and refused.
    async fn serve_http2(&self, request: H2Request, connection: &Arc<Connection>) -> bool;
}

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeOutcome {
    /// Completely; the connection continues.
    Whole,
    /// Completely; the connection ends, as the response announces.
    Last,
    /// The response broke off: the connection ends with the part that was written.
    Cut,
    /// Not at all: the kind of request is not supported, and the listener answers.
    Refused(Rejection),
}

/// An HTTP/2 request and the handle for its response.
pub struct H2Request {
    /// Its head.
    pub head: http::request::Parts,
    /// Its body.
    pub body: RecvStream,
    /// Its response.
    pub respond: SendResponse<Bytes>,
}

/// What the listener needs from the gateway for its own work. Every method runs while a client waits, so it reads
/// memory and returns.
pub trait Hooks: Send + Sync + 'static {
    /// The certificate for `client`, which asks for `sni`; `None` ends the handshake. The client is unknown behind a
    /// balancer that names it only in requests.
    fn certificate(&self, sni: &Hostname, client: Option<IpAddr>) -> Option<Arc<CertifiedKey>>;

    /// The certificate that answers a TLS-ALPN-01 challenge for `name`, while a challenge is open.
    fn challenge_certificate(&self, name: &Hostname) -> Option<Arc<CertifiedKey>>;

    /// A new request id, in the format of all request ids of the gateway. Visible ASCII.
    fn request_id(&self) -> String;

    /// Reports a request that the listener answered itself: one log line, one metric.
    fn refused(&self, refusal: &ListenerRefusal<'_>);

    /// Reports the end of a handshake.
    fn handshake(&self, outcome: HandshakeOutcome, took: Duration);

    /// Reports an event of a connection.
    fn connection(&self, event: ConnectionEvent);
}

/// A message that the listener refused before it became a request.
#[derive(Clone, Copy, Debug)]
pub struct ListenerRefusal<'a> {
    /// The reason.
    pub rejection: Rejection,
    /// The connection that sent it.
    pub connection: &'a Connection,
    /// The id in the response, if the listener wrote one.
    pub request_id: &'a str,
    /// The request line as far as it was received; empty over HTTP/2. At most 256 bytes, without the query; bytes
    /// outside of visible ASCII are replaced by a dot. The client wrote it, so escape it.
    pub first_line: &'a str,
}

contract::words! {
    /// How a TLS handshake ended.
    pub enum HandshakeOutcome {
        /// Keys were exchanged and the certificate was presented.
        Full = "full",
        /// A ticket was honoured.
        Resumed = "resumed",
        /// A certificate authority saw a challenge certificate.
        Challenge = "challenge",
        /// The client sent no hostname, or an unknown one.
        UnknownName = "unknown_name",
        /// It took longer than `handshake_timeout`.
        TimedOut = "timed_out",
        /// The client spoke plain HTTP and got an error message.
        PlainHttp = "plain_http",
        /// No common version or cipher, bytes other than TLS, or the client disconnected.
        Failed = "failed",
    }
}

contract::words! {
    /// An event of a connection.
    pub enum ConnectionEvent {
        /// It was accepted and took a slot.
        Opened = "opened",
        /// It ended and freed its slot.
        Closed = "closed",
        /// It was refused: all slots are taken.
        TooMany = "too_many",
        /// It was refused: its client has too many connections.
        TooManyFromAddress = "too_many_from_address",
        /// It came from a trusted peer without a valid PROXY header.
        BadProxyHeader = "bad_proxy_header",
        /// It was closed because no request arrived in time.
        Idle = "idle",
        /// It was cut off because the client did not read its response.
        Stalled = "stalled",
        /// It was closed because its host was withdrawn.
        Ended = "ended",
        /// It was cut off because the client sent too many frames that do no work, or too many malformed requests.
        Flooded = "flooded",
        /// Its task panicked; other connections were not affected.
        Panicked = "panicked",
        /// The kernel returned no connection, most likely because file descriptors ran out.
        AcceptFailed = "accept_failed",
    }
}
