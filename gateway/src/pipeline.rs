//! The pipeline: the stages of a request in order.
//!
//! Cheap and untrusted checks come first. An early exit is `?` with an [`Answer`]. A stage neither logs, nor counts,
//! nor writes bytes: it returns, and fills [`Facts`]; the code that ends the request reads them.

mod authenticate;
mod preflight;
mod route;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use chassis::clock::Clock;
use chassis::health::Health;
use contract::certificate::Challenge;
use contract::hostname::Hostname;
use contract::key::Environment;
use contract::plan::Plan;
use contract::project::Access;
use contract::rejection::Rejection;
use contract::site::{Redirect, RedirectStatus, Serves, Site};
use contract::token::KEY_SET_PATH;
use contract::window::Window;
use http::{HeaderValue, Method};
use pingora_http::RequestHeader;

use self::authenticate::carries_a_key;
use crate::answer::{Answer, Refusal};
use crate::facts::{Facts, QuotaFigures, Surface, Target};
use crate::identity::IdentityTokens;
use crate::overload::Overload;
use crate::platform_certificate::PlatformCertificate;
use crate::request::EdgeRequest;
use listener::{Connection, HEALTH_PATH};
use quota::allowance::{Allowances, QuotaOutcome};
use quota::failed_authentications::FailedAuthenticationLimits;
use quota::{ChargeError, Quota};
use replica::Replica;
use upstreams::AnnouncedBody;
use upstreams::Upstreams;

const CHALLENGE_PREFIX: &str = "/.well-known/acme-challenge/";

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

    /// Answers `/.well-known/acme-challenge/` on plain HTTP first, for any host, and never redirects or forwards it.
    /// Otherwise a tenant's upstream could answer it and obtain certificates.
    fn answer_challenge(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        if request.is_tls {
            return Ok(());
        }
        let Some(token) = request.path.strip_prefix(CHALLENGE_PREFIX) else { return Ok(()) };
        facts.surface = Surface::Challenge;
        let challenge = if Challenge::is_token(token) { self.replica.challenge(token) } else { None };
        match challenge.filter(|challenge| challenge.hostname == request.host) {
            Some(challenge) => Err(Answer::Challenge(challenge.key_authorization.clone())),
            None => Err(Rejection::NotFound.into()),
        }
    }

    /// Finds the site of the host, and checks that this connection may be used for it.
    ///
    /// A connection belongs to the name of its TLS handshake. Another host on it is served only if the presented
    /// certificate covers both names and both belong to the same tenant, as browsers that share connections expect.
    /// Everything else is 421, so that no response of one tenant ever travels on a connection opened for another.
    fn locate(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        facts.host = Some(request.host.clone());
        facts.port = request.port;
        if !self.replica.is_present() {
            return Err(Rejection::Starting.into());
        }
        let site = self.replica.site(&request.host);
        if request.is_tls && request.sni != Some(&request.host) {
            let coalesced = site.as_deref().zip(request.sni).is_some_and(|(site, sni)| self.may_share(sni, site));
            if !coalesced {
                return Err(Rejection::MisdirectedRequest.into());
            }
        }
        let site = site.ok_or(Rejection::UnknownHost)?;
        let (access, upstream) = match &site.serves {
            Serves::Platform { access, upstream } => (*access, upstream),
            Serves::Project(id) => {
                // The site's project has not arrived yet: changes of one transaction arrive one after the other.
                let project = self.replica.project(id).ok_or(Rejection::UnknownHost)?;
                if project.suspended {
                    return Err(Rejection::ProjectSuspended.into());
                }
                let project = facts.project.insert(project);
                (project.access, &project.upstream)
            }
        };
        facts.upstream.configured = self.upstreams.find(upstream);
        facts.surface = match access {
            Access::Key => Surface::Api,
            Access::Public => Surface::Site,
        };
        facts.site = Some(site);
        Ok(())
    }

    /// Only the platform's wildcard covers several names; a customer's domain has its own certificate.
    fn may_share(&self, sni: &Hostname, site: &Site) -> bool {
        let Some(certificate) = &self.platform_certificate else { return false };
        let covers_both = [sni, &site.hostname]
            .into_iter()
            .all(|name| self.replica.certificate(name).is_none() && certificate.covering(name).is_some());
        covers_both && self.replica.site(sni).is_some_and(|other| other.project() == site.project())
    }

    /// Under memory pressure refuses the lowest plans, before anything is spent on the request. The platform's own
    /// hosts have no project: operators and customers must be able to act.
    fn shed(&self, facts: &Facts) -> Result<(), Answer> {
        let is_refused = facts.project.as_ref().is_some_and(|project| self.overload.refuses(project.plan));
        if is_refused { Err(Rejection::Overloaded.into()) } else { Ok(()) }
    }

    /// Plain HTTP: refuses a request with a key, so that its owner notices, and redirects a visitor to https and to the
    /// primary domain in one hop.
    fn require_encryption(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        if request.is_tls {
            return Ok(());
        }
        // On an API any Authorization header counts as a key; on a public site only one that resembles a Tollhouse key.
        let authorization_counts =
            facts.surface == Surface::Api && request.headers.contains_key(http::header::AUTHORIZATION);
        if authorization_counts || carries_a_key(request) {
            // For the log: the exposed key. The request is refused in any case.
            facts.caller.key = self.key(request, facts.project.as_deref()).ok();
            return Err(Rejection::HttpsRequired.into());
        }
        Err(self.redirect_to_final_url(request, facts))
    }

    fn redirect_to_primary(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        let redirects = facts.site.as_ref().is_some_and(|site| site.redirect.is_some());
        if redirects { Err(self.redirect_to_final_url(request, facts)) } else { Ok(()) }
    }

    /// The redirect to the final URL in exactly one hop: https, and the primary domain if the site has one.
    ///
    /// Path and query are copied from the request byte for byte. The host is a stored hostname, never request data, and
    /// the configuration cannot chain redirects, so loops and open redirects are impossible.
    fn redirect_to_final_url(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Answer {
        facts.surface = Surface::Redirect;
        let redirect = facts.site.as_ref().and_then(|site| site.redirect.as_ref());
        let host = redirect.map_or(&request.host, |redirect| &redirect.to);
        let target = if request.target == "*" { "/" } else { request.target };
        let location = match self.https_port.get().copied().unwrap_or(443) {
            443 => format!("https://{host}{target}"),
            port => format!("https://{host}:{port}{target}"),
        };
        Answer::Redirect { status: redirect_status(redirect, request), location }
    }

    /// The key set on the platform's own hosts, from memory.
    fn publish_keys(&self, request: &EdgeRequest<'_>, facts: &Facts) -> Result<(), Answer> {
        let is_ours = facts.site.as_ref().is_some_and(|site| matches!(site.serves, Serves::Platform { .. }));
        let is_requested = request.path == KEY_SET_PATH && matches!(*request.method, Method::GET | Method::HEAD);
        if is_ours && is_requested { Err(Answer::KeySet(self.identity_tokens.published().to_json())) } else { Ok(()) }
    }

    /// Refuses banned keys, then charges one unit of the minute and one of the day: both or neither.
    async fn charge(&self, facts: &mut Facts) -> Result<(), Answer> {
        // Authentication has set both, or refused the request.
        let (Some(key), Some(payer)) = (facts.caller.key.clone(), facts.caller.payer.clone()) else {
            return Err(Rejection::InternalError.into());
        };
        let bucket = payer.uid.clone();
        let in_shadow = self.shadow_plans.contains(&payer.plan);
        let charged = if in_shadow {
            self.quota.try_charge(&bucket, payer.limits, &key.id).await
        } else {
            self.quota.charge(&bucket, payer.limits, &key.id).await
        };
        facts.quota.mode = Some(self.quota.mode());
        match charged {
            Ok(allowances) => {
                facts.quota.charged = Some(allowances);
                facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
                Ok(())
            }
            // In shadow mode the refusal is counted and its figures are shown, and the request continues.
            Err(ChargeError::Exceeded { allowances, .. }) if in_shadow => {
                facts.quota.in_shadow = true;
                facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
                Ok(())
            }
            Err(ChargeError::Exceeded { allowances, window }) => {
                let rejection = match window {
                    Window::Minute => Rejection::RateLimitExceeded,
                    Window::Day => Rejection::DailyQuotaExceeded,
                };
                Err(refuse_charge(facts, rejection, allowances, QuotaOutcome::Refused(window)))
            }
            Err(ChargeError::Banned { until, allowances }) => {
                Err(refuse_charge(facts, Rejection::ApiKeyBanned, allowances, QuotaOutcome::Banned { until }))
            }
            Err(ChargeError::Unavailable { retry_after_seconds, spent, allowances }) => {
                let outcome = spent.map_or(QuotaOutcome::Admitted, QuotaOutcome::Refused);
                facts.quota.figures = Some(QuotaFigures { allowances, outcome });
                Err(Refusal::new(Rejection::QuotaUnavailable).retry_after(i64::from(retry_after_seconds)).into())
            }
        }
    }
}

/// The client's address from the field of a trusted balancer, and its text.
fn forwarded_client(head: &RequestHeader, connection: &Connection) -> Option<(IpAddr, HeaderValue)> {
    let address = connection.forwarders()?.client(&head.headers)?;
    Some((address, HeaderValue::try_from(address.to_string()).ok()?))
}

/// The site's status; otherwise 301, which clients may turn into a GET, only for GET and HEAD.
fn redirect_status(redirect: Option<&Redirect>, request: &EdgeRequest<'_>) -> RedirectStatus {
    redirect.and_then(|redirect| redirect.status).unwrap_or(if request.is_read() {
        RedirectStatus::MovedPermanently
    } else {
        RedirectStatus::PermanentRedirect
    })
}

fn refuse_charge(facts: &mut Facts, rejection: Rejection, allowances: Allowances, outcome: QuotaOutcome) -> Answer {
    facts.quota.figures = Some(QuotaFigures { allowances, outcome });
    let wait = allowances.retry_after_seconds(outcome).unwrap_or(1);
    Refusal::new(rejection).retry_after(i64::from(wait)).into()
}
