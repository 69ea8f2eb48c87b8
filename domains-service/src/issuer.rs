//! Certificates: the issuers, and the checks of a certificate before it replaces another.
//!
//! An [`Issuer`] is asked for a certificate for one name with valid records, ownership and CAA. The returned
//! certificate is [checked](bundle) before it is sealed and published. When no issuer answers, domains wait in
//! `issuing` with a problem that says so, and the deployed certificate stays.

pub(crate) mod acme;
pub(crate) mod bundle;
pub(crate) mod local;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::hostname::Hostname;
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use zeroize::Zeroizing;

pub use crate::domain::failure::IssueError;
pub use local::{LocalAuthority, signing};
pub use verification::caa::CaaIdentity;

/// The certificate to order.
#[derive(Clone, Debug)]
pub struct IssueRequest {
    /// The one name of the certificate.
    pub hostname: Hostname,
    /// The ways of proof CAA allows; empty when the authority does not heed CAA.
    pub methods: Vec<String>,
    /// The time of the request.
    pub now: UnixSeconds,
    /// The domain's project: projects share an authority's limits fairly.
    pub project: ProjectUid,
    /// Failed attempts before this one; each may prove control another way.
    pub attempt: u32,
    /// Whether the queue serves it now.
    pub queued: bool,
    /// The chain in service that came from this authority, PEM: the certificate this one replaces.
    pub replaces: Option<String>,
}

/// When an authority would like a certificate to be renewed (RFC 9773).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalAdvice {
    /// From here on.
    pub start: UnixSeconds,
    /// Until here.
    pub end: UnixSeconds,
    /// A page with the reason, if there is one.
    pub explanation: Option<String>,
    /// When to ask again.
    pub again_in: Duration,
}

/// A certificate as an authority returned it.
pub struct Issued {
    /// Leaf first, then intermediates, PEM.
    pub chain_pem: String,
    /// The leaf's private key, PKCS #8 in PEM.
    pub key_pem: Zeroizing<String>,
}

/// A certificate authority.
#[async_trait]
pub trait Issuer: Send + Sync {
    /// Its name in the API and in logs.
    fn name(&self) -> &str;

    /// Its name in CAA records; `None` if it does not check CAA.
    fn caa(&self) -> Option<CaaIdentity>;

    /// The end of its pause after an outage.
    fn away_until(&self, _now: UnixMillis) -> Option<UnixMillis> {
        None
    }

    /// A certificate for one name. Takes as long as the authority needs; the caller sets the deadline.
    async fn issue(&self, request: &IssueRequest) -> Result<Issued, IssueError>;

    /// Its advice on when to renew the certificate of this chain (PEM); `None` without advice.
    async fn renewal(&self, _chain_pem: &str) -> Result<Option<RenewalAdvice>, IssueError> {
        Ok(None)
    }

    /// Deactivates the authorizations of an order, because its name is no longer ours.
    async fn abandon(&self, _order_url: &str) -> Result<(), IssueError> {
        Ok(())
    }
}

/// The authorities of a platform.
#[derive(Clone, Default)]
pub struct Authorities {
    /// The issuer for names that only this machine knows, and for all names if there is no public one.
    pub local: Option<Arc<dyn Issuer>>,
    /// For public names, best first.
    pub public: Vec<Arc<dyn Issuer>>,
}

impl Authorities {
    /// Their names, best first.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.public.iter().chain(&self.local).map(|issuer| issuer.name()).collect()
    }

    /// The public issuer of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<dyn Issuer>> {
        self.public.iter().find(|issuer| issuer.name() == name)
    }

    /// The end of the outage of all public issuers, if none can be asked now.
    pub(crate) fn away_until(&self, now: UnixMillis) -> Option<UnixMillis> {
        let away = self.public.iter().map(|issuer| issuer.away_until(now));
        away.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// The public issuers' names in CAA records, best first.
    pub(crate) fn caa(&self) -> Vec<CaaIdentity> {
        self.public.iter().filter_map(|issuer| issuer.caa()).collect()
    }

    /// The issuers for a name, best first: the public ones that CAA permits, or the local one.
    pub(crate) fn choose(
        &self,
        local: bool,
        permitted: &[(String, Vec<String>)],
    ) -> Vec<(Arc<dyn Issuer>, Vec<String>)> {
        if local || self.public.is_empty() {
            return self.local.iter().map(|issuer| (issuer.clone(), Vec::new())).collect();
        }
        let allowed = |issuer: &Arc<dyn Issuer>| match issuer.caa() {
            None => Some((issuer.clone(), Vec::new())),
            Some(identity) => permitted
                .iter()
                .find(|(domain, _)| *domain == identity.domain)
                .map(|(_, methods)| (issuer.clone(), methods.clone())),
        };
        self.public.iter().filter_map(allowed).collect()
    }
}
