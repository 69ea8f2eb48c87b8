//! Requests to upstreams over HTTP/2: many share a connection, and what an upstream refuses before it has begun goes to another
//! one.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::downstream::Downstream;
use super::retry::{Failure, Retries, Retry};
use super::upstream::connection::Patience;
use super::upstream::http2::body::Source;
use super::upstream::http2::head::{self, ResponseHead, wants_trailers};
use super::upstream::http2::{Call, First, Refused, reason};
use super::upstream::trailers;
use super::upstream::upload::Body;
use super::{Exchange, has_died};
use crate::decorate::{is_foreign, ours};
use crate::facts::ConnectionKind;
use crate::forward;
use crate::grpc;
use crate::upstreams::{Demands, DialError, DialFailure, Endpoint, Lease, Tenant, Upstream, dial};

/// What is known of a request that is sent again.
#[derive(Default)]
pub(super) struct Again {
    pub(super) retries: Retries,
    /// When it was sent over the connection that had ended; it goes over a fresh one.
    pub(super) since: Option<Instant>,
    /// What was taken from the client, and will be.
    source: Option<Box<Source>>,
}

/// An upstream that has begun to answer over HTTP/2, and the head of the response as the client gets it.
pub(super) struct Called<H> {
    call: Box<Call>,
    head: ResponseHead,
    out: H,
}

impl Again {
    /// Whether something of the body was taken from the client.
    pub(super) fn has_taken(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.begun)
    }
}

impl Exchange<'_> {
    /// Sends the request and reads the head of the response; `None` when it is to be tried again.
    pub(super) async fn call<D: Downstream>(
        &mut self,
        (upstream, endpoint): (&Arc<Upstream>, &Arc<Endpoint>),
        tenant: Tenant,
        body: Body,
        patience: Patience,
        again: &mut Again,
        client: &mut D,
    ) -> pingora::Result<Option<Called<D::Head>>> {
        let demands = Demands {
            tenant,
            shown: upstream.settings.transport.shown(),
            may_be_repeated: self.head.method.is_safe(),
            heard_after: again.since,
        };
        let lease = match lease(upstream, endpoint, &demands).await {
            Ok(lease) => lease,
            // It may have changed its mind about the version.
            Err(error)
                if error.kind == DialFailure::Protocol
                    && may_speak_http1(upstream)
                    && self.retry(Failure::Unsent, again) != Retry::Never =>
            {
                endpoint.sessions.note(false);
                return Ok(None);
            }
            Err(error) => return self.unconnected(endpoint, &error, again).map(|()| None),
        };
        let tls = upstream.settings.transport.tls().is_some();
        self.facts.upstream_connection = Some(ConnectionKind { reused: lease.reused, http2: true, tls });
        let request = head::request(&self.head, upstream.settings.transport.url_scheme())?;
        let body_bytes_max = self.facts.target.as_ref().map_or(0, |target| target.body_bytes_max);
        let source = again.source.take();
        let source = source.unwrap_or_else(|| Box::new(Source::new(body, body_bytes_max, upstream.clone())));
        let mut call = match Call::begin(lease, request, source, patience) {
            Ok(call) => Box::new(call),
            Err((_, source)) if self.retry(Failure::Unsent, again) != Retry::Never => {
                again.source = Some(source);
                return Ok(None);
            }
            Err((error, _)) => return Err(Error::because(ErrorType::H2Error, "to an upstream", error).into_up()),
        };
        match self.first(&mut call, client).await {
            Ok((head, out)) => {
                endpoint.worked();
                self.facts.upstream_answered = Some(self.gateway.clock.monotonic());
                Ok(Some(Called { call, head, out }))
            }
            Err(error) => self.sent_in_vain(*call, error, again).map(|()| None),
        }
    }

    /// No response came. Whether the request may be sent once more: it was refused unread, or it changes nothing and its
    /// connection may have died before.
    fn sent_in_vain(&mut self, call: Call, error: Box<Error>, again: &mut Again) -> pingora::Result<()> {
        self.facts.upstream_reason = reason(&error).or_else(|| call.lease.reason().map(Into::into));
        let sent_at = call.sent_at;
        let unheard = call.lease.is_unheard() || call.lease.is_silent_since(sent_at);
        let (refused, reused, silent) = (Refused::of(&error), call.lease.reused, self.facts.interim_responses == 0);
        if refused == Some(Refused::Connection) {
            call.lease.leave();
        }
        let mut source = call.into_source();
        let ended = reused && silent && !source.begun && has_died(&error);
        let failure = match refused.filter(|_| silent && source.rewind()) {
            Some(refused) => Failure::Refused(refused),
            None if refused.is_none() && ended => Failure::Ended { unheard },
            None => Failure::Unknown,
        };
        match self.retry(failure, again) {
            Retry::Never => return Err(error),
            Retry::FreshConnection => again.since = Some(sent_at),
            Retry::AnotherAddress | Retry::AnotherStream => {}
        }
        again.source = Some(source);
        Ok(())
    }

    /// The head of the final response.
    async fn first<D: Downstream>(
        &mut self,
        call: &mut Call,
        client: &mut D,
    ) -> pingora::Result<(ResponseHead, D::Head)> {
        loop {
            let first = call.receive_first(client).await?;
            forward::in_time(&self.facts, self.gateway.clock.monotonic())?;
            let mut out = client.head();
            let is_foreign = |name: &str| is_foreign(name, &self.facts);
            let (parts, ends) = match &first {
                First::Interim(parts) => (parts, true),
                First::Head(parts, ends) => (parts, *ends),
            };
            let head = head::response(parts, (ends, self.is_head()), is_foreign, &mut self.host_cookies(&mut out))?;
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                let why = "HTTP/2 switches no protocols";
                return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
            }
            forward::inspect(head.status, head.fields_bytes, &mut self.facts)?;
            forward::accepted(head.spoken.refuses_identity(head.status))?;
            match first {
                First::Interim(_) => client.interim(out).await?,
                First::Head(..) => return Ok((head, out)),
            }
        }
    }

    /// Hands the response on to the client.
    pub(super) async fn hand_back<D: Downstream>(
        &mut self,
        called: Called<D::Head>,
        client: &mut D,
    ) -> pingora::Result<()> {
        let Called { mut call, head, mut out } = called;
        ours(&self.facts, self.connection.is_tls(), head.spoken, &mut out)?;
        self.status = head.status.as_u16();
        self.facts.grpc_status = head.grpc_status;
        client.begin(out, head.ends, head.chunked).await?;
        if head.ends {
            return client.end(None).await;
        }
        if self.facts.is_grpc {
            call.may_be_silent();
        }
        let (facts, clock) = (&*self.facts, &*self.gateway.clock);
        let in_time = || forward::in_time(facts, clock.monotonic());
        let relayed = call.relay(client, in_time, &mut self.body_bytes).await;
        let trailers = match relayed {
            Ok(trailers) => trailers,
            Err(error) => {
                self.facts.upstream_reason = reason(&error).or_else(|| call.lease.reason().map(Into::into));
                return Err(error);
            }
        };
        self.facts.grpc_status = trailers.as_ref().and_then(grpc::status).or(self.facts.grpc_status);
        self.end(client, trailers).await
    }

    /// Ends the response, with what of its trailers the client takes.
    pub(super) async fn end<D: Downstream>(&self, client: &mut D, trailers: Option<HeaderMap>) -> pingora::Result<()> {
        let trailers = trailers.filter(|_| D::TAKES_TRAILERS || wants_trailers(&self.head.headers));
        let trailers = trailers.map(|all| trailers::of_response(all, |name| is_foreign(name, &self.facts)));
        client.end(trailers.filter(|all| !all.is_empty())).await
    }
}

/// Whether both sides agree on a version.
fn may_speak_http1(upstream: &Upstream) -> bool {
    upstream.settings.transport.tls().is_some()
}

/// A place on a connection.
async fn lease(upstream: &Arc<Upstream>, endpoint: &Arc<Endpoint>, demands: &Demands) -> Result<Lease, DialError> {
    let settings = &upstream.settings;
    let connect = || {
        let (upstream, endpoint) = (upstream.clone(), endpoint.clone());
        async move {
            let settings = &upstream.settings;
            dial(&settings.transport, &endpoint, true, settings.connect_timeout).await
        }
    };
    endpoint.sessions.lease(demands, settings.connect_timeout, connect).await
}
