//! What we have learnt about a request so far: filled by the stages, read by whoever decorates, logs and counts.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use contract::hostname::Hostname;
use contract::key::ApiKey;
use contract::project::Project;
use contract::site::Site;
use contract::time::UnixMillis;
use http::HeaderValue;

use crate::keys::Authentication;
use crate::overload::Reservation;
use crate::upstreams::{Endpoint, Permit, Readers, Upstream};
use crate::usage::Decision;
use contract::rejection::Rejection;
use listener::Connection;
use quota::settings::Mode;
use quota::standing::{Outcome, Standing};

/// 128 random bits in hex: the request's id, and the trace id of what it causes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId([u8; 32]);

impl RequestId {
    /// From 16 bytes.
    pub(crate) fn new(bits: u128) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'0'; 32];
        for (index, digit) in text.iter_mut().enumerate() {
            let nibble = (bits >> (124 - index * 4)) & 0xf;
            *digit = DIGITS.get(usize::try_from(nibble).unwrap_or(0)).copied().unwrap_or(b'0');
        }
        Self(text)
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("0")
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

contract::words! {
    /// Which face of the product answered: the label of metrics.
    pub enum Surface {
        /// Before a site was known.
        Door = "door",
        /// A certificate authority's question.
        Challenge = "challenge",
        /// A redirect, to https or to the primary domain.
        Redirect = "redirect",
        /// A site that needs a key.
        Api = "api",
        /// A public site.
        Site = "site",
    }
}

/// The quota figures a response shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The figures.
    pub standing: Standing,
    /// How the request ended for the quota.
    pub outcome: Outcome,
}

/// Which kind of connection to an upstream a request was sent over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionKind {
    /// It had served other requests.
    pub reused: bool,
    /// It speaks HTTP/2.
    pub http2: bool,
    /// It is encrypted.
    pub tls: bool,
}

impl ConnectionKind {
    /// The words in the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match (self.reused, self.http2, self.tls) {
            (false, false, false) => "fresh h1",
            (true, false, false) => "reused h1",
            (false, false, true) => "fresh h1 tls",
            (true, false, true) => "reused h1 tls",
            (false, true, false) => "fresh h2",
            (true, true, false) => "reused h2",
            (false, true, true) => "fresh h2 tls",
            (true, true, true) => "reused h2 tls",
        }
    }
}

/// Where the request goes.
#[derive(Debug)]
pub(crate) struct Target {
    /// The backend.
    pub upstream: Arc<Upstream>,
    /// Largest request body in bytes.
    pub body_bytes_max: u64,
    /// Its place among the requests in progress; given back when the request ends.
    pub place: Permit,
    /// The memory it may come to need; given back with the place.
    #[expect(dead_code, reason = "memory is given back when it is dropped")]
    pub reservation: Reservation,
}

/// Everything known of one request.
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
#[derive(Debug)]
pub(crate) struct Facts {
    /// Its id.
    pub request_id: RequestId,
    /// When it began, for the log line.
    pub began_at: UnixMillis,
    /// When it began, for durations.
    pub began: Duration,
    /// Which face of the product it met.
    pub surface: Surface,
    /// The host it is for.
    pub host: Option<Hostname>,
    /// The port that was said with it.
    pub port: Option<u16>,
    /// The site behind the host.
    pub site: Option<Arc<Site>>,
    /// The project behind the site; `None` on the platform's own hosts.
    pub project: Option<Arc<Project>>,
    /// The backend of the site, if there is one with its name.
    pub backend: Option<Arc<Upstream>>,
    /// Who may read the response, where the backend says nothing of it.
    pub readers: Readers,
    /// A browser's preflight that the backend of an API is to answer: it has no key.
    pub is_preflight: bool,
    /// The key it presented.
    pub key: Option<Arc<ApiKey>>,
    /// How authentication ended; `None` where none was asked for.
    pub authentication: Option<Authentication>,
    /// The project of the key, whose quota it spends.
    pub payer: Option<Arc<Project>>,
    /// The quota figures to show.
    pub shown: Option<Shown>,
    /// The standing after a unit was charged; what a refund gives back.
    pub charged: Option<Standing>,
    /// The quota would have refused it, if its plan's limits were not in shadow mode.
    pub in_shadow: bool,
    /// How it was counted.
    pub quota_mode: Option<Mode>,
    /// Why it was refused.
    pub refused: Option<Rejection>,
    /// Where it goes.
    pub target: Option<Target>,
    /// The address tried last.
    pub endpoint: Option<Arc<Endpoint>>,
    /// Connection attempts to the upstream.
    pub attempts: u32,
    /// Over what it was sent there.
    pub upstream_connection: Option<ConnectionKind>,
    /// Why the upstream failed, for the operator: never for the client.
    pub upstream_reason: Option<Cow<'static, str>>,
    /// The caller speaks gRPC.
    pub is_grpc: bool,
    /// The status of gRPC that it was told.
    pub grpc_status: Option<u16>,
    /// Interim responses (1xx) of the upstream so far.
    pub interim_responses: u32,
    /// When the upstream was first asked.
    pub upstream_began: Option<Duration>,
    /// When the upstream's response head came.
    pub upstream_answered: Option<Duration>,
    /// Request body bytes so far.
    pub body_bytes: u64,
    /// Whether the request asks for a WebSocket and may.
    pub upgrade: bool,
    /// A request id the client sent, for the log alone.
    pub client_request_id: Option<String>,
    /// The client that a trusted balancer names in the request, and how that is written; else it is the connection's.
    pub forwarded_for: Option<(IpAddr, HeaderValue)>,
    /// Its trace is one of those that are looked at.
    pub sampled: bool,
}

impl Facts {
    /// How the request was charged, or refused for its quota; `None` where it was neither.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.quota_mode?;
        Some(match self.refused {
            Some(Rejection::RateLimitExceeded) => Decision::RefusedMinute,
            Some(Rejection::DailyQuotaExceeded) => Decision::RefusedDay,
            Some(Rejection::ApiKeyBanned) => Decision::Banned,
            Some(Rejection::QuotaUnavailable) => Decision::Unavailable,
            _ if self.in_shadow => Decision::Shadow,
            _ => Decision::Admitted,
        })
    }

    /// Nothing is known yet but when.
    pub(crate) fn new(request_id: RequestId, began_at: UnixMillis, began: Duration) -> Self {
        Self {
            request_id,
            began_at,
            began,
            surface: Surface::Door,
            host: None,
            port: None,
            site: None,
            project: None,
            backend: None,
            readers: Readers::Unsaid,
            is_preflight: false,
            key: None,
            authentication: None,
            payer: None,
            shown: None,
            charged: None,
            in_shadow: false,
            quota_mode: None,
            refused: None,
            target: None,
            endpoint: None,
            attempts: 0,
            upstream_connection: None,
            upstream_reason: None,
            is_grpc: false,
            grpc_status: None,
            interim_responses: 0,
            upstream_began: None,
            upstream_answered: None,
            body_bytes: 0,
            upgrade: false,
            client_request_id: None,
            forwarded_for: None,
            sampled: false,
        }
    }

    /// The client's address.
    pub(crate) fn client(&self, connection: &Connection) -> IpAddr {
        self.forwarded_for.as_ref().map_or_else(|| connection.client().ip(), |(address, _)| *address)
    }

    /// The same as text.
    pub(crate) fn client_text<'a>(&'a self, connection: &'a Connection) -> &'a HeaderValue {
        self.forwarded_for.as_ref().map_or_else(|| connection.client_text(), |(_, text)| text)
    }

    /// The backend the request goes to.
    pub(crate) fn upstream(&self) -> Option<&Arc<Upstream>> {
        self.target.as_ref().map(|target| &target.upstream)
    }
}
