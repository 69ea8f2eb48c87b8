//! The life of a request, in order. This is the page to read aloud.
//!
//! Cheapest and least trusted first. Leaving early is `?` with an [`Answer`]. A stage neither logs, nor counts, nor
//! writes bytes: it returns, and fills [`Facts`] on the way; whoever ends the request reads them.

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
use crate::keys::Keys;
use crate::overload::Overload;
use crate::platform_certificate::PlatformCertificate;
use crate::replica::Replica;
use crate::request::EdgeRequest;
use crate::upstreams::Upstreams;
use crate::vouch::Vouchers;
use quota::Quota;
use quota::failed_authentications::FailedAuthenticationLimits;

/// The stages and the knowledge behind them.
pub(crate) struct Pipeline {
    /// What is published where.
    pub replica: Arc<Replica>,
    /// Who is calling.
    pub keys: Keys,
    /// What they may still spend.
    pub quota: Quota,
    /// Plans whose limits refuse nobody.
    pub shadow_plans: Vec<Plan>,
    /// How often an address failed to say who it is.
    pub failed_authentications: FailedAuthenticationLimits,
    /// Whom there is room for.
    pub overload: Arc<Overload>,
    /// Tells upstreams who is calling.
    pub vouchers: Arc<Vouchers>,
    /// Where requests go.
    pub upstreams: Arc<Upstreams>,
    /// The certificate of the platform's hosts, for deciding which names share a connection.
    pub platform_certificate: Option<Arc<PlatformCertificate>>,
    /// The port in redirects to https, known once the listener is bound; 443 is left out of URLs.
    pub https_port: OnceLock<u16>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Pipeline {
    /// Where the request goes, or what is said instead.
    pub(crate) async fn decide(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<Target, Answer> {
        self.answer_challenge(request, facts)?; //      the certificate authority is calling, not a visitor
        self.locate(request, facts)?; //                whose host is this, and may it be asked on this connection?
        self.shed(facts)?; //                           is there room for this plan?
        self.require_encryption(request, facts)?; //    keys never travel in the clear, visitors are led to https
        self.redirect_to_primary(request, facts)?; //   before authentication: moving house costs no quota
        self.publish_keys(request, facts)?; //          the public keys of identities are for everybody
        self.answer_preflight(request, facts)?; //      browsers ask before they send; they have no key yet
        let asks_for_key = facts.surface == Surface::Api && !facts.is_preflight;
        if asks_for_key && !self.is_open(request, facts) {
            // what describes the API is for everybody
            self.authenticate(request, facts)?; //      who is calling?
            self.charge(facts).await?; //               banned? then minute and day: both or neither
        }
        self.route(request, facts) //                   path, method, body, and a place at the upstream
    }
}
