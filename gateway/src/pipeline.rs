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
mod publish;
mod redirect;
mod route;
mod shed;

use std::sync::{Arc, OnceLock};

use chassis::clock::Clock;
use contract::plan::Plan;

use crate::answer::Answer;
use crate::facts::{Facts, Surface, Target};
use crate::identity::IdentityTokens;
use crate::keys::Keys;
use crate::overload::Overload;
use crate::platform_certificate::PlatformCertificate;
use crate::replica::Replica;
use crate::request::EdgeRequest;
use crate::upstreams::Upstreams;
use quota::Quota;
use quota::failed_authentications::FailedAuthenticationLimits;

/// The stages and their data.
pub(crate) struct Pipeline {
    /// The published sites, projects and keys.
    pub replica: Arc<Replica>,
    /// Authentication of API keys.
    pub keys: Keys,
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
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Pipeline {
    /// The target of the request, or the gateway's own answer.
    pub(crate) async fn decide(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<Target, Answer> {
        self.answer_challenge(request, facts)?; //      a request of a certificate authority, not of a visitor
        self.locate(request, facts)?; //                whose host is this, and may this connection be used for it?
        self.shed(facts)?; //                           is there memory for this plan?
        self.require_encryption(request, facts)?; //    keys are refused in plain HTTP, visitors redirected
        self.redirect_to_primary(request, facts)?; //   before authentication: a redirect costs no quota
        self.publish_keys(request, facts)?; //          the public keys of identities need no API key
        self.answer_preflight(request, facts)?; //      browsers ask before they send; they have no key yet
        let asks_for_key = facts.surface == Surface::Api && !facts.caller.is_preflight;
        if asks_for_key && !self.is_open(request, facts) {
            // descriptions of the API need no key
            self.authenticate(request, facts)?; //      who is calling?
            self.charge(facts).await?; //               banned? then minute and day: both or neither
        }
        self.route(request, facts) //                   path, method, body, and a permit of the upstream
    }
}
