//! The facts about a request so far: the stages fill them; decoration, log and metrics read them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use contract::hostname::Hostname;
use contract::key::ApiKey;
use contract::project::Project;
use contract::site::Site;
use contract::time::UnixMillis;
use http::HeaderValue;

use crate::grpc::WebForm;
use crate::overload::Reservation;
use crate::request_id::RequestId;
use crate::usage::Decision;
use contract::rejection::Rejection;
use listener::Connection;
use quota::allowance::{Allowances, QuotaOutcome};
use quota::settings::Mode;
use upstreams::{AllowedOrigin, Endpoint, Permit, Upstream};

contract::words! {
    /// The part of the product that answered: a label of metrics.
    pub enum Surface {
        /// Before a site was known.
        Listener = "listener",
        /// A certificate authority's validation request.
        Challenge = "challenge",
        /// A redirect, to https or to the primary domain.
        Redirect = "redirect",
        /// A site that needs a key.
        Api = "api",
        /// A public site.
        Site = "site",
    }
}

/// Why authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// No `Authorization` header.
    Missing,
    /// Not a valid key: another scheme, two headers, a wrong form or checksum. Needs no lookup.
    Malformed,
    /// Unknown or revoked, or of another project or deployment.
    Unknown,
    /// Expired.
    Expired,
}

/// The result of an authentication, for the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// The caller is authenticated.
    Recognised,
    /// The key is missing or wrong.
    Failed(AuthError),
    /// The address failed too often: its key is not checked.
    Throttled,
}

impl Authentication {
    /// All results, in the order of their counters.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Recognised,
        Self::Failed(AuthError::Missing),
        Self::Failed(AuthError::Malformed),
        Self::Failed(AuthError::Unknown),
        Self::Failed(AuthError::Expired),
        Self::Throttled,
    ];

    /// The word in `edge_auth_total{result}`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Recognised => "ok",
            Self::Failed(AuthError::Missing) => "missing",
            Self::Failed(AuthError::Malformed) => "malformed",
            Self::Failed(AuthError::Unknown) => "unknown",
            Self::Failed(AuthError::Expired) => "expired",
            Self::Throttled => "throttled",
        }
    }
}

/// The quota figures in a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaFigures {
    /// Both windows of the caller.
    pub allowances: Allowances,
    /// The quota's decision.
    pub outcome: QuotaOutcome,
}

/// The kind of an upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionKind {
    /// It had served other requests before.
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

/// The destination of a request.
#[derive(Debug)]
pub(crate) struct Target {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// Largest request body in bytes.
    pub body_bytes_max: u64,
    /// Its permit among the requests in progress; released when the request ends.
    pub permit: Permit,
    /// Its permit among the WebSockets, if it asks for one; it replaces the other once the upstream has accepted.
    pub websocket_permit: Option<Permit>,
    /// Its reserved memory; released with the permit.
    #[expect(dead_code, reason = "dropping it releases the memory")]
    pub reservation: Reservation,
}

/// All facts about one request: those about the request itself, and what the stages learned in four parts.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The id.
    pub request_id: RequestId,
    /// The wall-clock start, for the log line.
    pub began_at: UnixMillis,
    /// The monotonic start, for durations.
    pub began: Duration,
    /// Its trace is sampled.
    pub sampled: bool,
    /// The part of the product that answers.
    pub surface: Surface,
    /// The requested host.
    pub host: Option<Hostname>,
    /// The requested port, if the host names one.
    pub port: Option<u16>,
    /// The site behind the host.
    pub site: Option<Arc<Site>>,
    /// The project behind the site; `None` on the platform's own hosts.
    pub project: Option<Arc<Project>>,
    /// The reason of a refusal.
    pub refused: Option<Rejection>,
    /// Who sent it.
    pub caller: CallerFacts,
    /// Its units.
    pub quota: QuotaFacts,
    /// Where it goes.
    pub upstream: UpstreamFacts,
    /// How it came.
    pub connection: ConnectionFacts,
}

/// The sender of a request.
#[derive(Debug, Default)]
pub(crate) struct CallerFacts {
    /// The presented key.
    pub key: Option<Arc<ApiKey>>,
    /// The result of authentication; `None` if none was required.
    pub authentication: Option<Authentication>,
    /// The project of the key: the request is charged to its quota.
    pub payer: Option<Arc<Project>>,
    /// A browser's preflight, without a key, that the API's upstream answers.
    pub is_preflight: bool,
    /// The origin whose pages may read the response, unless the upstream decides.
    pub allowed_origin: AllowedOrigin,
}

/// The charge of a request.
#[derive(Debug, Default)]
pub(crate) struct QuotaFacts {
    /// The figures in the response.
    pub figures: Option<QuotaFigures>,
    /// The allowances after the charge, for a refund.
    pub charged: Option<Allowances>,
    /// The quota would have refused it, but its plan's limits are in shadow mode.
    pub in_shadow: bool,
    /// How the quota was counted.
    pub mode: Option<Mode>,
}

/// The way of a request to its upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamFacts {
    /// The upstream that the site names, if the settings have it.
    pub configured: Option<Arc<Upstream>>,
    /// The destination.
    pub target: Option<Target>,
    /// The last endpoint that was tried.
    pub endpoint: Option<Arc<Endpoint>>,
    /// Connection attempts.
    pub attempts: u32,
    /// The kind of the last connection.
    pub connection: Option<ConnectionKind>,
    /// Why the upstream failed, for the operator only.
    pub reason: Option<Cow<'static, str>>,
    /// Interim responses (1xx) so far.
    pub interim_responses: u32,
    /// The monotonic time of the first attempt.
    pub began: Option<Duration>,
    /// The monotonic time of the response head.
    pub answered: Option<Duration>,
    /// How long, of the time until the response head, only the client's body was awaited.
    pub client_awaited: Duration,
}

/// The client's connection, and what it carries besides HTTP requests of the usual form.
#[derive(Debug, Default)]
pub(crate) struct ConnectionFacts {
    /// The client's address and its text, from a trusted balancer's field; `None`: the connection's address.
    pub forwarded_for: Option<(IpAddr, HeaderValue)>,
    /// The client's own request id, for the log only.
    pub client_request_id: Option<String>,
    /// The request asks for a WebSocket and may have one.
    pub upgrade: bool,
    /// The request is a gRPC call, also a translated one of gRPC-Web.
    pub is_grpc: bool,
    /// The request is a gRPC-Web call, translated or not.
    pub grpc_web: Option<WebForm>,
    /// The gRPC status in the response.
    pub grpc_status: Option<u16>,
    /// Bytes of the request body so far.
    pub body_bytes: u64,
}

impl Facts {
    /// Knows the id and the start only.
    pub(crate) fn new(request_id: RequestId, began_at: UnixMillis, began: Duration) -> Self {
        Self {
            request_id,
            began_at,
            began,
            sampled: false,
            surface: Surface::Listener,
            host: None,
            port: None,
            site: None,
            project: None,
            refused: None,
            caller: CallerFacts::default(),
            quota: QuotaFacts::default(),
            upstream: UpstreamFacts::default(),
            connection: ConnectionFacts::default(),
        }
    }

    /// From the start to the response head, or to the end of a request that `took` this long and got none from an
    /// upstream; without waits for the client.
    pub(crate) fn latency(&self, took: Duration) -> Duration {
        let until_head = self.upstream.answered.map_or(took, |answered| answered.saturating_sub(self.began));
        until_head.saturating_sub(self.upstream.client_awaited)
    }

    /// The quota's decision; `None` if the request was neither charged nor refused by the quota.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.quota.mode?;
        Some(match self.refused {
            Some(Rejection::RateLimitExceeded) => Decision::RefusedMinute,
            Some(Rejection::DailyQuotaExceeded) => Decision::RefusedDay,
            Some(Rejection::ApiKeyBanned) => Decision::Banned,
            Some(Rejection::QuotaUnavailable) => Decision::Unavailable,
            _ if self.quota.in_shadow => Decision::Shadow,
            _ => Decision::Admitted,
        })
    }

    /// The client's address.
    pub(crate) fn client(&self, connection: &Connection) -> IpAddr {
        self.connection.forwarded_for.as_ref().map_or_else(|| connection.client().ip(), |(address, _)| *address)
    }

    /// The client's address as text.
    pub(crate) fn client_text<'a>(&'a self, connection: &'a Connection) -> &'a HeaderValue {
        self.connection.forwarded_for.as_ref().map_or_else(|| connection.client_text(), |(_, text)| text)
    }
}

impl UpstreamFacts {
    /// The upstream that the request is forwarded to.
    pub(crate) fn forwarded_to(&self) -> Option<&Arc<Upstream>> {
        self.target.as_ref().map(|target| &target.upstream)
    }

    /// From the first attempt to the response head, without waits for the client; `None` without a response.
    pub(crate) fn waited(&self) -> Option<Duration> {
        Some(self.answered?.saturating_sub(self.began?).saturating_sub(self.client_awaited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_excludes_waits_for_the_client() {
        let seconds = Duration::from_secs;
        let mut facts = Facts::new(RequestId::new(7), UnixMillis(0), seconds(100));
        assert_eq!(facts.latency(seconds(2)), seconds(2), "an answer of the gateway");
        (facts.upstream.began, facts.upstream.client_awaited) = (Some(seconds(101)), seconds(40));
        assert_eq!(facts.latency(seconds(50)), seconds(10), "an upstream that never answered");
        facts.upstream.answered = Some(seconds(145));
        assert_eq!(facts.latency(seconds(900)), seconds(5), "a response that was read slowly");
        assert_eq!(facts.upstream.waited(), Some(seconds(4)));
    }
}
