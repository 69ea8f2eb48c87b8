//! Certificates: the issuers, and the checks of a certificate before it replaces another.
//!
//! An [`Issuer`] is asked for a certificate for one name with valid records, ownership and CAA. The returned
//! certificate is [checked](bundle) before it is sealed and published. When no issuer answers, domains wait in
//! `issuing` with a problem that says so, and the deployed certificate stays.

pub(crate) mod acme;
pub(crate) mod bundle;
pub(crate) mod local;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::hostname::Hostname;
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use zeroize::Zeroizing;

use crate::store::StoreError;

pub use crate::domain::failure::IssueError;
pub use crate::limits::QueuePosition;
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
    /// The addresses of our edge to which the name's records lead, as far as they are known.
    pub edge: Vec<IpAddr>,
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
    fn unreachable_until(&self, _now: UnixMillis) -> Option<UnixMillis> {
        None
    }

    /// Makes the names due whose turn in the authority's queue has come. Returns how many.
    async fn offer_turns(&self) -> Result<usize, IssueError> {
        Ok(0)
    }

    /// The places of a project's names in the authority's queue.
    async fn places(&self, _project: &ProjectUid) -> Result<Vec<(String, QueuePosition)>, IssueError> {
        Ok(Vec::new())
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

impl From<StoreError> for IssueError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<anyhow::Error> for IssueError {
    fn from(error: anyhow::Error) -> Self {
        Self::Unavailable(format!("{error:#}"))
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
    pub(crate) fn unreachable_until(&self, now: UnixMillis) -> Option<UnixMillis> {
        let away = self.public.iter().map(|issuer| issuer.unreachable_until(now));
        away.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// Makes the names due whose turn has come in a queue of a public issuer. Returns how many.
    pub(crate) async fn offer_turns(&self) -> usize {
        let mut offered = 0;
        for issuer in &self.public {
            match issuer.offer_turns().await {
                Ok(count) => offered += count,
                Err(error) => {
                    tracing::error!(authority = issuer.name(), %error, "cannot read the queue of orders; retrying");
                }
            }
        }
        offered
    }

    /// The places of a project's names in the queues of the public issuers; of several places the first.
    pub(crate) async fn places(&self, project: &ProjectUid) -> Result<HashMap<String, QueuePosition>, IssueError> {
        let mut places: HashMap<String, QueuePosition> = HashMap::new();
        for issuer in &self.public {
            for (hostname, place) in issuer.places(project).await? {
                let first = places.entry(hostname).or_insert(place);
                if place.at.unwrap_or_default() < first.at.unwrap_or_default() {
                    *first = place;
                }
            }
        }
        Ok(places)
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
