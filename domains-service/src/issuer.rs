//! Certificates: who issues them, and what must be true of one before it replaces anything.
//!
//! An [`Issuer`] is asked for a certificate for one name whose records, ownership and CAA have passed. What it returns
//! is [checked](bundle) before it is sealed and published. When no issuer answers, domains wait in `issuing` with a
//! problem that says so, and what is deployed stays.

pub(crate) mod acme;
pub(crate) mod bundle;
pub(crate) mod local;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::hostname::Hostname;
use contract::project::ProjectUid;
use contract::text::is_deceptive;
use contract::time::{UnixMillis, UnixSeconds};
use zeroize::Zeroizing;

pub use local::{LocalAuthority, signing};
pub use verification::caa::CaaIdentity;
use verification::problem::ProblemCode;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct IssueRequest {
    /// The one name of the certificate.
    pub hostname: Hostname,
    /// The ways of proof CAA allows; empty when the authority does not heed CAA.
    pub methods: Vec<String>,
    /// The moment of the request.
    pub now: UnixSeconds,
    /// Whose domain it is: projects share an authority's limits fairly.
    pub project: ProjectUid,
    /// Failed attempts before this one; each may prove control another way.
    pub attempt: u32,
    /// Whether it has a place in the queue already: its turn has come.
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
    /// A page that says why, if there is a reason.
    pub explanation: Option<String>,
    /// When to ask again.
    pub again_in: Duration,
}

/// What an authority returned.
pub struct Issued {
    /// Leaf first, then intermediates, PEM.
    pub chain_pem: String,
    /// The leaf's private key, PKCS #8 in PEM.
    pub key_pem: Zeroizing<String>,
}

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The authority asks us to come back later.
    #[error("the certificate authority limits us: {message}")]
    RateLimited {
        /// When to come back, if it said so.
        until: Option<UnixSeconds>,
        /// Its words.
        message: String,
    },
    /// The authority could not reach us under the name, or read something else there.
    #[error("the certificate authority could not verify the name: {0}")]
    Unreachable(String),
    /// The authority reads CAA records that forbid it.
    #[error("CAA records forbid the certificate authority to issue: {0}")]
    Caa(String),
    /// The authority refuses this name.
    #[error("the certificate authority refuses the name: {0}")]
    Rejected(String),
    /// The mirror of the authority's limits has no room yet: the order waits in our queue.
    #[error("the order waits in our queue, number {number}")]
    Queued {
        /// When its turn comes.
        until: UnixSeconds,
        /// How many turns that is away, itself included.
        number: i64,
    },
    /// The authority does not answer, or fails whatever it is asked: nothing of the name's.
    #[error("the certificate authority is away: {message}")]
    Away {
        /// When it is asked again.
        until: UnixSeconds,
        /// Times in a row that it was away.
        failures: u32,
        /// What was seen.
        message: String,
    },
    /// This order failed, and not for a reason of the name's.
    #[error("the certificate authority is not available: {0}")]
    Unavailable(String),
}

/// Letters of an authority's verdict that the domain's owner is shown.
const VERDICT_LETTERS_MAX: usize = 500;

impl IssueError {
    /// The problem that the domain has with it.
    pub(crate) fn code(&self) -> ProblemCode {
        match self {
            Self::RateLimited { .. } => ProblemCode::CaRateLimited,
            Self::Unreachable(_) => ProblemCode::ChallengeUnreachable,
            Self::Caa(_) => ProblemCode::CaaForbids,
            Self::Rejected(_) => ProblemCode::CaRejected,
            Self::Queued { .. } => ProblemCode::CertQueued,
            Self::Away { .. } | Self::Unavailable(_) => ProblemCode::CaUnavailable,
        }
    }

    /// From when on the authority may be asked again, where that is known.
    pub(crate) fn until(&self) -> Option<UnixSeconds> {
        match self {
            Self::RateLimited { until, .. } => *until,
            Self::Queued { until, .. } | Self::Away { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// What the domain's owner reads of it: nothing that a network, the operating system or another server said.
    pub(crate) fn phrase(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "the certificate authority limits us",
            Self::Unreachable(_) => "the certificate authority could not verify the name",
            Self::Caa(_) => "CAA records forbid the certificate authority to issue",
            Self::Rejected(_) => "the certificate authority refuses the name",
            Self::Queued { .. } => "the order waits in our queue",
            Self::Away { .. } | Self::Unavailable(_) => "the certificate authority is not available",
        }
    }

    /// What the authority found when it looked at the owner's own name, in its words: the owner needs them to mend it.
    /// Every other text is for operators.
    pub(crate) fn verdict(&self) -> Option<String> {
        let (Self::Unreachable(words) | Self::Caa(words) | Self::Rejected(words)) = self else { return None };
        let shown = words.chars().map(|letter| if is_deceptive(letter) { ' ' } else { letter });
        Some(shown.take(VERDICT_LETTERS_MAX).collect())
    }
}

/// A certificate authority.
#[async_trait]
pub trait Issuer: Send + Sync {
    /// Its name in the API and in logs.
    fn name(&self) -> &str;

    /// How CAA records name it; `None` when it does not heed CAA.
    fn caa(&self) -> Option<CaaIdentity>;

    /// Until when it is not asked, because it was away.
    fn away_until(&self, _now: UnixMillis) -> Option<UnixMillis> {
        None
    }

    /// A certificate for one name. Takes as long as the authority needs; the caller sets the deadline.
    async fn issue(&self, request: &IssueRequest) -> Result<Issued, IssueError>;

    /// When it would like the certificate of this chain (PEM) to be renewed; `None` when it does not say.
    async fn renewal(&self, _chain_pem: &str) -> Result<Option<RenewalAdvice>, IssueError> {
        Ok(None)
    }

    /// Gives up what an order proved: its name is no longer ours to ask for.
    async fn abandon(&self, _order_url: &str) -> Result<(), IssueError> {
        Ok(())
    }
}

/// The authorities of a platform.
#[derive(Clone, Default)]
pub struct Authorities {
    /// For names only this machine knows, and for all names where there is no public one.
    pub local: Option<Arc<dyn Issuer>>,
    /// For public names, best first.
    pub public: Vec<Arc<dyn Issuer>>,
}

impl Authorities {
    /// Their names, best first.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.public.iter().chain(&self.local).map(|issuer| issuer.name()).collect()
    }

    /// The public one of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<dyn Issuer>> {
        self.public.iter().find(|issuer| issuer.name() == name)
    }

    /// Until when none of the public ones is asked, because all of them are away.
    pub(crate) fn away_until(&self, now: UnixMillis) -> Option<UnixMillis> {
        let away = self.public.iter().map(|issuer| issuer.away_until(now));
        away.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// How CAA records name the public ones, best first.
    pub(crate) fn caa(&self) -> Vec<CaaIdentity> {
        self.public.iter().filter_map(|issuer| issuer.caa()).collect()
    }

    /// Who issues for a name, best first: the public ones CAA permits, or the local one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_read_phrases_of_ours_and_the_authoritys_verdict_about_their_name() {
        let words = || "tcp connect error: Connection refused (os error 111)".to_owned();
        for error in [IssueError::Unavailable(words()), IssueError::RateLimited { until: None, message: words() }] {
            assert_eq!(error.verdict(), None);
            assert!(!error.phrase().contains("os error"), "{error}");
        }
        let long = format!("a\u{202e}b\n{}", "c".repeat(1_000));
        let shown = IssueError::Unreachable(long).verdict().unwrap();
        assert_eq!((shown.chars().count(), shown.starts_with("a b c")), (VERDICT_LETTERS_MAX, true));
    }
}
