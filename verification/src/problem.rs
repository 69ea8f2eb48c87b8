//! What stands between a domain and its certificate: exactly what, who must act, and what to type.
//!
//! The catalogue of problems. Codes are stable API; sentences may be reworded.

use contract::time::UnixSeconds;
use serde::{Deserialize, Serialize};

/// Whether a problem holds the domain up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing goes on until it is solved.
    Error,
    /// Worth knowing; things go on.
    Warning,
}

/// Who must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The domain's owner.
    You,
    /// The platform.
    Us,
    /// The certificate authority.
    Ca,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $word:literal $who:ident $severity:ident,)+) => {
        contract::words! {
            /// What kind of problem it is.
            pub enum ProblemCode { $($(#[$doc])* $variant = $word,)+ }
        }

        impl ProblemCode {
            const fn who(self) -> Who {
                match self { $(Self::$variant => Who::$who,)+ }
            }

            const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)+ }
            }
        }
    };
}

codes! {
    /// The record is not there.
    DnsNoRecord = "DNS_NO_RECORD" You Error,
    /// Nobody has registered the name, or its zone is not delegated.
    DnsZoneMissing = "DNS_ZONE_MISSING" You Error,
    /// An A record stands where the CNAME must be.
    DnsConflictingA = "DNS_CONFLICTING_A" You Error,
    /// An AAAA record stands where the CNAME must be.
    DnsConflictingAaaa = "DNS_CONFLICTING_AAAA" You Error,
    /// The CNAME points elsewhere.
    DnsCnameMismatch = "DNS_CNAME_MISMATCH" You Error,
    /// The CNAME points at another name that leads to us.
    DnsCnameChained = "DNS_CNAME_CHAINED" You Error,
    /// An apex that holds a CNAME.
    DnsApexNeedsAlias = "DNS_APEX_NEEDS_ALIAS" You Warning,
    /// An apex whose addresses are not ours.
    DnsApexAddressMismatch = "DNS_APEX_ADDRESS_MISMATCH" You Error,
    /// Some nameservers answer rightly, others not yet.
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
    /// The text that proves ownership is not there.
    OwnershipTxtMissing = "OWNERSHIP_TXT_MISSING" You Error,
    /// There is a text, and it proves another project.
    OwnershipTxtMismatch = "OWNERSHIP_TXT_MISMATCH" You Error,
    /// CAA records allow none of our authorities.
    CaaForbids = "CAA_FORBIDS" You Error,
    /// CAA records allow our authority, but not our account.
    CaaAccountMismatch = "CAA_ACCOUNT_MISMATCH" You Error,
    /// CAA records allow our authority, but not the way we prove control.
    CaaMethodMismatch = "CAA_METHOD_MISMATCH" You Error,
    /// CAA records could not be read.
    CaaLookupFailed = "CAA_LOOKUP_FAILED" You Error,
    /// The authority asks us to wait.
    CaRateLimited = "CA_RATE_LIMITED" Ca Error,
    /// The authority's limits leave no room yet, and the order waits in our queue.
    CertQueued = "CERT_QUEUED" Us Error,
    /// The authority does not answer, or there is none.
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
    /// Its word in the catalogue: stable API.
    pub code: ProblemCode,
    /// Whether it holds the domain up.
    pub severity: Severity,
    /// Who must act.
    pub who: Who,
    /// A sentence for the owner; may be reworded.
    pub message: String,
    /// What should have been seen.
    pub expected: Vec<String>,
    /// What was seen.
    pub observed: Vec<String>,
    /// The DNS name or nameserver it was seen at.
    #[serde(rename = "where")]
    pub place: String,
    /// What to do, as an instruction.
    pub fix: String,
    /// When it is looked at again, where that is known.
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

    /// With what should be seen and what is.
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

    /// As one that holds the domain up.
    #[must_use]
    pub fn holding_up(mut self) -> Self {
        self.severity = Severity::Error;
        self
    }

    /// As one that the platform must solve.
    #[must_use]
    pub fn ours(mut self) -> Self {
        self.who = Who::Us;
        self
    }

    /// With the moment of the next attempt.
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
    fn codes_are_distinct_and_written_alike_everywhere() {
        let mut seen = HashSet::new();
        for code in ProblemCode::ALL {
            assert!(seen.insert(code.as_str()), "{code:?}");
            assert_eq!(serde_json::to_string(code).unwrap(), format!("\"{}\"", code.as_str()));
        }
    }
}
