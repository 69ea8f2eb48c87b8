//! The pipeline: the stages of a request in order.
//!
//! Cheap and untrusted checks come first. An early exit is `?` with an [`Answer`]. A stage neither logs, nor counts,
//! nor writes bytes: it returns, and fills [`Facts`]; the code that ends the request reads them.

mod authenticate;
mod challenge;
mod charge;
mod encrypt;
mod locate;
mod preflight;
mod redirect;
mod route;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use chassis::clock::Clock;
use chassis::health::Health;
use contract::key::Environment;
use contract::plan::Plan;
use contract::rejection::Rejection;
use contract::site::Serves;
use contract::token::KEY_SET_PATH;
use http::{HeaderValue, Method};
use pingora_http::RequestHeader;

use crate::answer::Answer;
use crate::facts::{Facts, Surface, Target};
use crate::identity::IdentityTokens;
use crate::overload::Overload;
use crate::platform_certificate::PlatformCertificate;
use crate::request::EdgeRequest;
use listener::{Connection, HEALTH_PATH};
use quota::Quota;
use quota::failed_authentications::FailedAuthenticationLimits;
use replica::Replica;
use upstreams::AnnouncedBody;
use upstreams::Upstreams;

/// The stages and their data.
pub(crate) struct Pipeline {
    /// The published sites, projects and keys.
    pub replica: Arc<Replica>,
    /// The deployment whose keys are valid here.
    pub environment: Environment,
    /// Quotas of projects.
    pub quota: Quota,
    /// Plans with limits that are not enforced.
    pub shadow_plans: Vec<Plan>,
    /// Failed authentications per address.
    pub failed_authentications: FailedAuthenticationLimits,
    /// Load shedding.
    pub overload: Arc<Overload>,
    /// Signs identities for upstreams.
    pub identity_tokens: Arc<IdentityTokens>,
    /// The upstreams.
    pub upstreams: Arc<Upstreams>,
    /// The certificate of the platform's hosts, which decides which names may share a connection.
    pub platform_certificate: Option<Arc<PlatformCertificate>>,
    /// The port in redirects to https, known once the listener is bound; URLs omit 443.
    pub https_port: OnceLock<u16>,
    /// The health that health checks report.
    pub health: Health,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Pipeline {
    /// The target of a request and the body it announces, or the gateway's own answer.
    pub(crate) async fn decide(
        &self,
        head: &RequestHeader,
        body_follows: bool,
        connection: &Connection,
        facts: &mut Facts,
    ) -> Result<(Target, AnnouncedBody), Answer> {
        self.answer_health_check(head)?; //             of a balancer: for any host or none, over HTTP/1.0 too
        facts.connection.forwarded_for = forwarded_client(head, connection);
        let parsed = EdgeRequest::parse(head, body_follows, connection)?;
        let request = &EdgeRequest { client: facts.client(connection), ..parsed };
        connection.record_host(&request.host);
        facts.connection.client_request_id = request.client_request_id();
        self.answer_challenge(request, facts)?; //      a request of a certificate authority, not of a visitor
        self.locate(request, facts)?; //                whose host is this, and may this connection be used for it?
        self.shed(facts)?; //                           is there memory for this plan?
        self.require_encryption(request, facts)?; //    keys are refused in plain HTTP, visitors redirected
        self.redirect_to_primary(request, facts)?; //   before authentication: a redirect costs no quota
        self.publish_keys(request, facts)?; //          the public keys of identities need no API key
        self.answer_preflight(request, facts)?; //      browsers ask before they send; they have no key yet
        let is_for_callers = facts.surface == Surface::Api && !facts.caller.is_preflight;
        if is_for_callers && !self.is_open(request, facts) {
            // descriptions of an API are open: they need no key
            self.authenticate(request, facts)?; //      who is calling?
            self.charge(facts).await?; //               banned? then minute and day: both or neither
        }
        let target = self.route(request, facts)?; //    path, method, body, and a permit of the upstream
        Ok((target, request.body))
    }

    fn answer_health_check(&self, head: &RequestHeader) -> Result<(), Answer> {
        let is_requested = head.uri.path() == HEALTH_PATH && matches!(head.method, Method::GET | Method::HEAD);
        if is_requested { Err(Answer::Health { ready: self.health.is_ready() }) } else { Ok(()) }
    }

    /// Under memory pressure refuses the lowest plans, before anything is spent on the request. The platform's own
    /// hosts have no project: operators and customers must be able to act.
    fn shed(&self, facts: &Facts) -> Result<(), Answer> {
        let is_refused = facts.project.as_ref().is_some_and(|project| self.overload.refuses(project.plan));
        if is_refused { Err(Rejection::Overloaded.into()) } else { Ok(()) }
    }

    /// The key set on the platform's own hosts, from memory.
    fn publish_keys(&self, request: &EdgeRequest<'_>, facts: &Facts) -> Result<(), Answer> {
        let is_ours = facts.site.as_ref().is_some_and(|site| matches!(site.serves, Serves::Platform { .. }));
        let is_requested = request.path == KEY_SET_PATH && matches!(*request.method, Method::GET | Method::HEAD);
        if is_ours && is_requested { Err(Answer::KeySet(self.identity_tokens.published().to_json())) } else { Ok(()) }
    }
}

/// The client's address from the field of a trusted balancer, and its text.
fn forwarded_client(head: &RequestHeader, connection: &Connection) -> Option<(IpAddr, HeaderValue)> {
    let address = connection.forwarders()?.client(&head.headers)?;
    Some((address, HeaderValue::try_from(address.to_string()).ok()?))
}
