//! The catalogue of problems between a domain and its certificate: the exact problem, who must act, and what to type.
//!
//! Codes are stable API; sentences may be reworded.

use contract::time::UnixSeconds;
use serde::{Deserialize, Serialize};

contract::words! {
    /// Whether a problem blocks the domain.
    pub enum Severity {
        /// The domain waits until it is solved.
        Error = "error",
        /// A hint; the domain is not blocked.
        Warning = "warning",
    }
}

contract::words! {
    /// Who must act.
    pub enum Who {
        /// The domain's owner.
        You = "you",
        /// The platform.
        Us = "us",
        /// The certificate authority.
        Ca = "ca",
    }
}

macro_rules! codes {
    ($($(#[doc = $cause:literal])+ $variant:ident = $word:literal $who:ident $severity:ident,)+) => {
        contract::words! {
            /// The kind of problem.
            pub enum ProblemCode { $($(#[doc = $cause])+ $variant = $word,)+ }
        }

        impl ProblemCode {
            /// Who must act, unless the problem itself says otherwise.
            pub const fn who(self) -> Who {
                match self { $(Self::$variant => Who::$who,)+ }
            }

            /// Whether it blocks the domain, unless the problem itself says otherwise.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)+ }
            }

            /// The problem, in one sentence.
            pub fn cause(self) -> &'static str {
                let cause = match self { $(Self::$variant => concat!($($cause),+),)+ };
                cause.trim_ascii_start()
            }
        }
    };
}

codes! {
    /// The record does not exist.
    DnsNoRecord = "DNS_NO_RECORD" You Error,
    /// The name is not registered, or its zone is not delegated.
    DnsZoneMissing = "DNS_ZONE_MISSING" You Error,
    /// An A record exists where the CNAME must be.
    DnsConflictingA = "DNS_CONFLICTING_A" You Error,
    /// An AAAA record exists where the CNAME must be.
    DnsConflictingAaaa = "DNS_CONFLICTING_AAAA" You Error,
    /// The CNAME points elsewhere.
    DnsCnameMismatch = "DNS_CNAME_MISMATCH" You Error,
    /// The CNAME points at another name that points at us.
    DnsCnameChained = "DNS_CNAME_CHAINED" You Error,
    /// An apex that holds a CNAME.
    DnsApexNeedsAlias = "DNS_APEX_NEEDS_ALIAS" You Warning,
    /// An apex with addresses that are not ours.
    DnsApexAddressMismatch = "DNS_APEX_ADDRESS_MISMATCH" You Error,
    /// Some nameservers answer correctly, others not yet.
    DnsPartial = "DNS_PARTIAL" You Error,
    /// A nameserver does not know the zone.
    DnsLameNs = "DNS_LAME_NS" You Warning,
    /// A nameserver reports a failure.
    DnsServfail = "DNS_SERVFAIL" You Warning,
    /// A nameserver does not answer.
    DnsTimeout = "DNS_TIMEOUT" You Warning,
    /// The zone's DNSSEC signatures do not hold.
    DnsDnssec = "DNS_DNSSEC" You Error,
    /// The name is proxied by a content delivery network.
    DnsProxied = "DNS_PROXIED" You Error,
    /// A cache still holds the old answer.
    DnsStaleCache = "DNS_STALE_CACHE" You Warning,
    /// The TXT record that proves ownership does not exist.
    OwnershipTxtMissing = "OWNERSHIP_TXT_MISSING" You Error,
    /// There is a TXT record, but for another project.
    OwnershipTxtMismatch = "OWNERSHIP_TXT_MISMATCH" You Error,
    /// CAA records allow none of our authorities.
    CaaForbids = "CAA_FORBIDS" You Error,
    /// CAA records allow our authority, but not our account.
    CaaAccountMismatch = "CAA_ACCOUNT_MISMATCH" You Error,
    /// CAA records allow our authority, but not our proof method.
    CaaMethodMismatch = "CAA_METHOD_MISMATCH" You Error,
    /// CAA records could not be read.
    CaaLookupFailed = "CAA_LOOKUP_FAILED" You Error,
    /// The authority asks us to wait.
    CaRateLimited = "CA_RATE_LIMITED" Ca Error,
    /// The authority's limits are reached, and the order waits in our queue.
    CertQueued = "CERT_QUEUED" Us Warning,
    /// No gateway is connected, or the authority cannot reach our gateways.
    EdgeUnavailable = "EDGE_UNAVAILABLE" Us Warning,
    /// The authority does not answer, or none is configured.
    CaUnavailable = "CA_UNAVAILABLE" Us Error,
    /// The authority refuses the name.
    CaRejected = "CA_REJECTED" Ca Error,
    /// The authority could not reach us under the name.
    ChallengeUnreachable = "CHALLENGE_UNREACHABLE" You Error,
    /// No certificate after 30 minutes.
    CertDelayed = "CERT_DELAYED" You Error,
    /// Our record of the domain cannot be read.
    RecordUnreadable = "RECORD_UNREADABLE" Us Error,
    /// The project's plan has no custom domains.
    PlanRequired = "PLAN_REQUIRED" You Error,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its code in the catalogue: stable API.
    pub code: ProblemCode,
    /// Whether it blocks the domain.
    pub severity: Severity,
    /// Who must act.
    pub who: Who,
    /// A sentence for the owner; may be reworded.
    pub message: String,
    /// The expected values.
    pub expected: Vec<String>,
    /// The observed values.
    pub observed: Vec<String>,
    /// The DNS name or nameserver with the problem.
    #[serde(rename = "where")]
    pub place: String,
    /// What to do, as an instruction.
    pub fix: String,
    /// When it is checked again, if known.
    pub retry_at: Option<UnixSeconds>,
}

impl Problem {
    /// A problem of the catalogue, at a place.
    pub fn new(
        code: ProblemCode,
        place: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            code,
            severity: code.severity(),
            who: code.who(),
            message: message.into(),
            expected: Vec::new(),
            observed: Vec::new(),
            place: place.into(),
            fix: fix.into(),
            retry_at: None,
        }
    }

    /// Adds the expected and observed values.
    #[must_use]
    pub fn seen(
        mut self,
        expected: impl IntoIterator<Item = String>,
        observed: impl IntoIterator<Item = String>,
    ) -> Self {
        self.expected = expected.into_iter().collect();
        self.observed = observed.into_iter().collect();
        self
    }

    /// Marks it as blocking the domain.
    #[must_use]
    pub fn holding_up(mut self) -> Self {
        self.severity = Severity::Error;
        self
    }

    /// Marks it as a wait: it passes without anybody's doing.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Marks it as a problem of the platform.
    #[must_use]
    pub fn ours(mut self) -> Self {
        self.who = Who::Us;
        self
    }

    /// Adds the time of the next attempt.
    #[must_use]
    pub fn until(mut self, at: Option<UnixSeconds>) -> Self {
        self.retry_at = at;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_distinct_and_their_spelling_is_the_same_everywhere() {
        let mut seen = HashSet::new();
        for code in ProblemCode::ALL {
            assert!(seen.insert(code.as_str()), "{code:?}");
            assert_eq!(serde_json::to_string(code).unwrap(), format!("\"{}\"", code.as_str()));
        }
    }
}
