//! pingora's phases: each is a few lines that call something below.
//!
//! Two traps. pingora skips `response_filter` when the gateway answers by itself, so answers get their fields where they
//! are composed ([`crate::decorate::ours`]). And failures on the way to an upstream surface in `fail_to_proxy`, which
//! speaks through [`Rejection`] like everyone else.

mod decide;
mod doubtful;
mod ids;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chassis::clock::Clock;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType};

pub(crate) use self::decide::connection_facts;
use self::doubtful::is_doubtful;
pub(crate) use self::write::bytes;
use crate::answer::Refusal;
use crate::decorate::decorate;
use crate::door::Connection;
use crate::facts::Facts;
use crate::forward;
use crate::pipeline::Pipeline;
use crate::rejection::Rejection;
use crate::request::BodyPromise;
use crate::telemetry::{Entry, Telemetry, UpstreamOutcome};

/// The door keeps the time of idle connections; to pingora they may stay open.
const KEEPALIVE_FOREVER: u64 = 0;

/// How long one read or write on the client's side may take; the door's own clocks are shorter.
const CLIENT_IO_MAX: Duration = Duration::from_mins(1);

/// What the log says of an upstream whose time the door has kept; as [`explain`] would.
const UPSTREAM_SILENT: &str = "Upstream ReadTimedout";

/// A silent WebSocket is cut after this time.
const UPGRADED_IO_MAX: Duration = Duration::from_hours(1);

/// The gateway as pingora sees it.
pub struct Gateway {
    /// The stages.
    pub pipeline: Pipeline,
    /// Metrics and log.
    pub telemetry: Arc<Telemetry>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// What a request carries from phase to phase.
pub struct Context {
    facts: Box<Facts>,
    connection: Option<Arc<Connection>>,
    /// The client sends a body.
    uploads: bool,
    /// A response without a body that says it has one: it is handed on, its connection is not used again.
    doubtful: Option<Box<ResponseHeader>>,
}

/// The handle pingora owns; admin and door hold the same gateway.
#[derive(Clone)]
pub struct SharedGateway(pub Arc<Gateway>);

impl std::ops::Deref for SharedGateway {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.0
    }
}

#[async_trait]
impl ProxyHttp for SharedGateway {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        self.telemetry.in_flight.inc();
        Context { facts: self.begin(), connection: None, uploads: false, doubtful: None }
    }

    /// No modules: the default would register compression, which the edge leaves to services.
    fn init_downstream_modules(&self, _modules: &mut pingora::modules::http::HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Context) -> pingora::Result<()> {
        // Without its connection a request came from somewhere else than our door: that is a bug, not a visitor.
        let connection = Connection::of(session).ok_or_else(|| Error::new(ErrorType::InternalError))?;
        connection.request_seen();
        // An HTTP/1.0 client reads to the end of the connection (RFC 9112 section 9.3).
        let ends = connection.should_close() || is_old(session);
        let keepalive = if ends { None } else { Some(KEEPALIVE_FOREVER) };
        session.set_keepalive(keepalive);
        session.set_read_timeout(Some(CLIENT_IO_MAX));
        session.set_write_timeout(Some(CLIENT_IO_MAX));
        ctx.connection = Some(connection);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Context) -> pingora::Result<bool> {
        let Some(connection) = ctx.connection.clone() else {
            return Error::e_explain(ErrorType::InternalError, "no connection");
        };
        let body_follows = !session.as_downstream_mut().is_body_empty();
        let facts = &mut *ctx.facts;
        let decided = self.decide(session.req_header(), body_follows, &connection, facts).await;
        match decided {
            Ok((target, body)) => {
                facts.target = Some(target);
                ctx.uploads = body != BodyPromise::None;
                connection.grant(forward::time_left(facts, self.clock.monotonic()));
                if facts.upgrade {
                    session.set_read_timeout(Some(UPGRADED_IO_MAX));
                    session.set_write_timeout(Some(UPGRADED_IO_MAX));
                }
                self.welcome_body(session, body).await?;
                Ok(false)
            }
            Err(answer) => {
                self.write(session, facts, &connection, answer).await?;
                Ok(true)
            }
        }
    }

    async fn upstream_peer(&self, _session: &mut Session, ctx: &mut Context) -> pingora::Result<Box<HttpPeer>> {
        let upgrade = ctx.facts.upgrade;
        let (upstream, endpoint) = forward::choose(&mut ctx.facts, self.clock.monotonic())
            .ok_or_else(|| Error::explain(ErrorType::ConnectNoRoute, "the upstream has no address"))?;
        if let (true, Some(connection)) = (upgrade, &ctx.connection) {
            connection.await_answer(upstream.settings.connect_timeout + upstream.settings.first_byte_timeout);
        }
        let mut peer = forward::peer(&upstream, &endpoint, upgrade);
        peer.group_key = ctx.facts.target.as_ref().map_or(0, |target| upstream.tenant(&target.place).0);
        // The library takes a pause of the client for one of the upstream. The door ends such a pause before the library
        // loses its patience, and from the end of the body on keeps the upstream's time itself.
        if let (true, Some(connection)) = (ctx.uploads, &ctx.connection) {
            peer.options.read_timeout = Some(upstream.settings.first_byte_timeout + connection.body_pace().idle);
        }
        Ok(Box::new(peer))
    }

    fn fail_to_connect(
        &self,
        _s: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Context,
        mut error: Box<Error>,
    ) -> Box<Error> {
        error.set_retry(self.has_not_connected(&ctx.facts));
        error
    }

    /// A pooled connection may have died before the request was read.
    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        ctx: &mut Context,
        client_reused: bool,
    ) -> Box<Error> {
        let mut error = error.more_context(format!("upstream {}", peer._address));
        error.retry.decide_reuse(client_reused);
        let may_repeat = error.retry()
            && !session.as_downstream().retry_buffer_truncated()
            && forward::may_repeat(&ctx.facts, &session.req_header().method);
        if !may_repeat {
            error.set_retry(false);
        }
        error
    }

    async fn upstream_request_filter(
        &self,
        _s: &mut Session,
        head: &mut RequestHeader,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        let Some(connection) = &ctx.connection else {
            return Error::e_explain(ErrorType::InternalError, "no connection");
        };
        forward::rewrite(head, &ctx.facts, connection, &self.pipeline.vouchers, self.clock.now_seconds())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        ctx.facts.body_bytes += body.as_ref().map_or(0, |body| u64::try_from(body.len()).unwrap_or(u64::MAX));
        let limit = ctx.facts.target.as_ref().map_or(0, |target| target.body_bytes_max);
        // What travels after a switch of protocols is no body; asking for the switch lifts no limit.
        let switched = ctx.connection.as_ref().is_some_and(|connection| connection.is_upgraded());
        if ctx.facts.body_bytes > limit && !switched {
            return Error::e_explain(ErrorType::HTTPStatus(413), "the body exceeds the route's limit");
        }
        if let (true, Some(connection), Some(upstream)) = (ctx.uploads, &ctx.connection, ctx.facts.upstream()) {
            forward::in_time(&ctx.facts, self.clock.monotonic()).map_err(Error::into_down)?;
            if end {
                connection.await_answer(upstream.settings.first_byte_timeout);
            }
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        forward::inspect(response.status, forward::fields_bytes(response), &mut ctx.facts)?;
        forward::in_time(&ctx.facts, self.clock.monotonic())?;
        if let Some(endpoint) = &ctx.facts.endpoint {
            endpoint.worked();
        }
        let Some(connection) = &ctx.connection else {
            return Error::e_explain(ErrorType::InternalError, "no connection");
        };
        match response.status.as_u16() {
            101 => connection.upgraded(),
            100..200 => {
                // Whoever says that there will be an answer has its time anew.
                if let Some(upstream) = ctx.facts.upstream().filter(|_| ctx.uploads && connection.is_awaiting()) {
                    connection.await_answer(upstream.settings.first_byte_timeout);
                }
                return Ok(());
            }
            _ => {}
        }
        ctx.facts.upstream_answered = Some(self.clock.monotonic());
        match ctx.facts.upstream().filter(|_| ctx.uploads) {
            Some(upstream) => connection.await_answer(upstream.settings.first_byte_timeout),
            None => connection.answered(),
        }
        if is_doubtful(session, response) {
            ctx.doubtful = Some(Box::new(std::mem::replace(response, ResponseHeader::build(response.status, None)?)));
            return Error::e_explain(ErrorType::InvalidHTTPHeader, "a response without a body that announces one");
        }
        Ok(())
    }

    fn upstream_response_body_filter(
        &self,
        _session: &mut Session,
        _body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Context,
    ) -> pingora::Result<Option<Duration>> {
        // A WebSocket's bytes are no response: it may go on for hours.
        let switched = ctx.connection.as_ref().is_some_and(|connection| connection.is_upgraded());
        if !switched {
            forward::in_time(&ctx.facts, self.clock.monotonic())?;
            if let (true, Some(connection), Some(upstream)) = (ctx.uploads, &ctx.connection, ctx.facts.upstream()) {
                if end {
                    connection.answered();
                } else {
                    connection.await_answer(upstream.settings.first_byte_timeout);
                }
            }
        }
        Ok(None)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> pingora::Result<()> {
        // Chunks are HTTP/1.1's (RFC 9112 section 6.1); without them the body ends where the connection does.
        if is_old(session) {
            response.remove_header(&http::header::TRANSFER_ENCODING);
        }
        let is_tls = ctx.connection.as_ref().is_some_and(|connection| connection.is_tls());
        decorate(response, &ctx.facts, is_tls)
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, ctx: &mut Context) -> FailToProxy {
        if let Some(response) = &ctx.doubtful {
            let status = response.status.as_u16();
            if let Err(failed) = self.hand_on(session, *response.clone(), ctx).await {
                tracing::debug!(error = %failed, "a response could not be written");
            }
            return FailToProxy { error_code: status, can_reuse_downstream: false };
        }
        let door_refused = ctx.connection.as_ref().and_then(|connection| connection.refusal());
        let rejection = door_refused.or_else(|| forward::rejection(error));
        let facts = &mut *ctx.facts;
        if let Some(rejection) = rejection {
            facts.refused = Some(rejection);
            if session.response_written().is_none()
                && let Some(connection) = ctx.connection.clone()
                && let Err(failed) = self.write(session, facts, &connection, Refusal::new(rejection).into()).await
            {
                tracing::debug!(error = %failed, "a refusal could not be written");
            }
        }
        FailToProxy { error_code: rejection.map_or(0, Rejection::status), can_reuse_downstream: false }
    }

    /// Everything worth knowing is in the access log; a client that left is no error of ours.
    fn suppress_error_log(&self, _session: &Session, _ctx: &Context, _error: &Error) -> bool {
        true
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Context) {
        let head = session.req_header();
        let connection = ctx.connection.as_deref();
        let error = match connection.and_then(Connection::refusal) {
            _ if ctx.doubtful.is_some() => None,
            // The door fails a read from the client to say so.
            Some(Rejection::UpstreamTimeout) => Some(UPSTREAM_SILENT.to_owned()),
            _ => error.map(explain),
        };
        let entry = Entry {
            status: session.response_written().map_or(0, |response| response.status.as_u16()),
            method: head.method.as_str(),
            path: head.uri.path(),
            bytes_sent: session.body_bytes_sent(),
            connection: connection_facts(connection),
            error,
        };
        self.account(&ctx.facts, &entry);
        self.telemetry.in_flight.dec();
        if let Some(connection) = &ctx.connection {
            connection.request_done();
        }
    }
}

/// A failure as the log says it: its kind alone, since the library's own words quote what the other side sent.
pub(crate) fn explain(error: &Error) -> String {
    format!("{} {}", error.esource().as_str(), error.root_etype().as_str())
}

impl Gateway {
    /// Ends the story of a request and of its attempt at an upstream.
    pub(crate) fn account(&self, facts: &Facts, entry: &Entry<'_>) {
        if facts.upstream_began.is_some() {
            let outcome = match facts.refused {
                Some(Rejection::UpstreamTimeout) => UpstreamOutcome::Timeout,
                Some(Rejection::UpstreamUnreachable) => UpstreamOutcome::ConnectError,
                Some(Rejection::UpstreamInvalid) => UpstreamOutcome::Invalid,
                _ => UpstreamOutcome::Answered,
            };
            let took = facts
                .upstream_began
                .zip(facts.upstream_answered)
                .map(|(began, answered)| answered.saturating_sub(began));
            self.telemetry.upstream_ended(outcome, took);
        }
        self.telemetry.finish(facts, entry);
    }

    /// The address chosen last took no connection. Whether another one may be tried: nothing was sent yet, so that cannot
    /// hurt.
    pub(crate) fn has_not_connected(&self, facts: &Facts) -> bool {
        if let Some(endpoint) = &facts.endpoint {
            endpoint.failed(self.clock.monotonic());
            self.pipeline.upstreams.look_again();
        }
        forward::may_try_another(facts)
    }

    /// `Expect: 100-continue`: the gateway says yes itself, once the request is accepted, and does not forward it.
    async fn welcome_body(&self, session: &mut Session, body: BodyPromise) -> pingora::Result<()> {
        let expects = session.req_header().headers.contains_key(http::header::EXPECT);
        // HTTP/1.0 clients would take the 100 for the answer.
        let understands = session.req_header().version == http::Version::HTTP_11;
        if expects && body != BodyPromise::None && understands {
            session.as_downstream_mut().write_continue_response().await?;
        }
        Ok(())
    }
}

/// Whether the client speaks HTTP/1.0.
fn is_old(session: &Session) -> bool {
    session.req_header().version == http::Version::HTTP_10
}
