//! The door of the gateway: our own listeners, plain and TLS, in front of whoever serves requests.
//!
//! It accepts connections within limits, agrees on TLS with a certificate from memory, and puts a strict gate between
//! the socket and whoever reads HTTP/1: only bytes that have one reading are ever released, heads and bodies have
//! deadlines, and whatever is refused here gets the same Error body, log line and metric as every other refusal.
//!
//! Left to others: which hosts exist, who may ask and where requests go (the pipeline); HTTP/2 framing (an engine, for
//! which the door keeps the deadline of the preface, the pace of writes and the count of idle frames); certificates (the
//! [`Doorman`]'s, read from the local replica). When the replica has no certificate for a name, the handshake ends with an
//! alert and nothing is remembered of it. When the runtime has no task to spare, connections wait in the backlog.
//!
//! The parts in the order bytes meet them: [`listener`], [`tls`], `stream`, `gate`, [`head`], [`chunks`]; beside them
//! [`settings`], [`connection`] and [`registry`].

pub mod network;
pub mod fields;
pub mod head;
pub mod chunks;
pub mod forwarded;
mod frames;
mod gate;
mod pace;
pub mod settings;
mod streams;
pub mod connection;
mod client;
mod reader_pace;
pub mod registry;
mod proxy_header;
mod stream;
mod http1;
mod http2;
pub mod tls;
pub mod listener;
pub mod trial;

#[cfg(test)]
mod fakes;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use contract::hostname::Hostname;
use rustls::sign::CertifiedKey;

pub use self::client::{Broken, Client};
pub use self::connection::{Connection, Ends, TlsFacts};
pub use self::frames::FrameLimits;
pub use self::http1::{Handler, Served};
pub use self::http2::H2Request;
pub use self::listener::{Door, Listening};
pub use self::pace::Pace;
pub use self::pace::{PaceLimits, WholeLimits};
pub use self::reader_pace::ReaderPace;
pub use self::registry::Connections;
pub use self::settings::DoorSettings;
pub use self::settings::{LINGER_MAX, LINGER_MAX_LONG};
pub use self::stream::Timer;
pub use self::streams::Streams;
pub use self::tls::{TicketSeed, Tickets};
use contract::rejection::Rejection;

/// Where balancers ask whether requests may be sent here, whatever host they name.
pub const HEALTH_PATH: &str = "/.well-known/tollhouse/health";

/// Whom the door asks and tells. Every method is called while a client waits: it reads memory and returns.
pub trait Doorman: Send + Sync + 'static {
    /// The certificate to present to clients that ask for `sni`; `None` ends the handshake.
    fn certificate(&self, sni: &Hostname) -> Option<Arc<CertifiedKey>>;

    /// The certificate that answers a TLS-ALPN-01 challenge for `name`, while there is one.
    fn challenge_certificate(&self, name: &Hostname) -> Option<Arc<CertifiedKey>>;

    /// A new request id, of the form that all requests of the gateway have. Visible ASCII.
    fn request_id(&self) -> String;

    /// The door has answered a request by itself: one log line, one metric.
    fn refused(&self, refusal: &DoorRefusal<'_>);

    /// A handshake is over.
    fn handshake(&self, outcome: HandshakeOutcome, took: Duration);

    /// Something happened to a connection.
    fn connection(&self, event: ConnectionEvent);
}

/// A request that never became one: the door answered it.
#[derive(Clone, Copy, Debug)]
pub struct DoorRefusal<'a> {
    /// Why.
    pub rejection: Rejection,
    /// Whose.
    pub connection: &'a Connection,
    /// The id that the response carries, if the door wrote one.
    pub request_id: &'a str,
    /// What came of the request line; empty over HTTP/2, which has none. At most 256 bytes, without the query, bytes
    /// outside of visible ASCII replaced by a dot. It is the client's text, to be escaped like any other.
    pub first_line: &'a str,
}

contract::words! {
    /// How a TLS handshake ended.
    pub enum HandshakeOutcome {
        /// Keys were exchanged and the certificate was presented.
        Full = "full",
        /// A ticket was honoured.
        Resumed = "resumed",
        /// A certificate authority looked at a challenge certificate.
        Challenge = "challenge",
        /// The client named no host, or none that we serve.
        UnknownName = "unknown_name",
        /// It took longer than `handshake_timeout`.
        TimedOut = "timed_out",
        /// The client speaks plain HTTP, and was told so.
        PlainHttp = "plain_http",
        /// No common ground, bytes that are not TLS, or the client left.
        Failed = "failed",
    }
}

contract::words! {
    /// What may happen to a connection.
    pub enum ConnectionEvent {
        /// It was accepted and has a slot.
        Opened = "opened",
        /// Its slot is free again.
        Closed = "closed",
        /// It was not let in: all slots were taken.
        TooMany = "too_many",
        /// It was not let in: its client has too many.
        TooManyFromAddress = "too_many_from_address",
        /// It came from a trusted peer without a good PROXY header.
        BadProxyHeader = "bad_proxy_header",
        /// It was closed because no request came in time.
        Idle = "idle",
        /// It was cut because the client did not take its response.
        Stalled = "stalled",
        /// It was ended because its host went away.
        Ended = "ended",
        /// It was cut because the client sent frame after frame that did no work, or request after request that is none.
        Flooded = "flooded",
        /// Its task panicked; no other connection noticed.
        Panicked = "panicked",
        /// The kernel would not hand over a connection, for want of file descriptors most likely.
        AcceptFailed = "accept_failed",
    }
}
