//! Reasons why a certificate authority issued no certificate.

use contract::text::is_deceptive;
use contract::time::UnixSeconds;

use verification::problem::ProblemCode;

/// Why an authority issued no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The authority's rate limit is reached.
    #[error("the certificate authority rate-limits us: {message}")]
    RateLimited {
        /// When to retry, if the authority named a time.
        until: Option<UnixSeconds>,
        /// Its words.
        message: String,
    },
    /// The authority could not reach us under the name, or read something else there.
    #[error("the certificate authority could not verify the name: {0}")]
    Unreachable(String),
    /// The authority could not connect to our edge, to which the name's records lead.
    #[error("the certificate authority cannot reach our gateways: {message}")]
    EdgeUnreachable {
        /// When the next order is made.
        until: UnixSeconds,
        /// Its words.
        message: String,
    },
    /// No gateway is live, so nothing would answer the authority. It was not asked.
    #[error("no gateway is live; the order waits until one is")]
    NoGateway,
    /// The authority reads CAA records that forbid it.
    #[error("CAA records forbid this certificate authority: {0}")]
    Caa(String),
    /// The authority refuses this name.
    #[error("the certificate authority refuses the name: {0}")]
    Rejected(String),
    /// The mirror of the authority's limits has no room yet: the order waits in our queue.
    #[error("the order waits in our queue, at place {number}")]
    Queued {
        /// Its number in the queue, from 1.
        number: i64,
        /// Whether the limit is its owner's alone: of the project, the registered domain or the name.
        is_own: bool,
    },
    /// The authority does not answer, or fails every request. This says nothing about the name.
    #[error("the certificate authority does not answer: {message}")]
    Away {
        /// When the authority is tried again.
        until: UnixSeconds,
        /// Times in a row that it was away.
        failures: u32,
        /// The error.
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
            Self::EdgeUnreachable { .. } | Self::NoGateway => ProblemCode::EdgeUnavailable,
            Self::Caa(_) => ProblemCode::CaaForbids,
            Self::Rejected(_) => ProblemCode::CaRejected,
            Self::Queued { .. } => ProblemCode::CertQueued,
            Self::Away { .. } | Self::Unavailable(_) => ProblemCode::CaUnavailable,
        }
    }

    /// The time from which the authority may be asked again, if known.
    pub(crate) fn until(&self) -> Option<UnixSeconds> {
        match self {
            Self::RateLimited { until, .. } => *until,
            Self::EdgeUnreachable { until, .. } | Self::Away { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Whether the cause is not the name: the order waits, and no attempt is used.
    pub(crate) fn is_wait(&self) -> bool {
        self.until().is_some() || matches!(self, Self::Queued { .. } | Self::NoGateway)
    }

    /// Whether the name keeps its place in our queue: the authority has not answered for it.
    pub(crate) const fn keeps_place(&self) -> bool {
        matches!(self, Self::Queued { .. } | Self::NoGateway | Self::Away { .. })
    }

    /// The text for the domain's owner. It contains no text of the network, the operating system or another server.
    pub(crate) fn phrase(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "the certificate authority's rate limit is reached",
            Self::Unreachable(_) => "the certificate authority could not verify the name",
            Self::EdgeUnreachable { .. } => "the certificate authority could not reach our gateways",
            Self::NoGateway => "none of our gateways is connected",
            Self::Caa(_) => "CAA records forbid this certificate authority",
            Self::Rejected(_) => "the certificate authority refuses the name",
            Self::Queued { .. } => "the order waits in our queue",
            Self::Away { .. } | Self::Unavailable(_) => "the certificate authority is not available",
        }
    }

    /// The authority's own words about the owner's name, which the owner needs for the fix. Every other text is for
    /// operators.
    pub(crate) fn verdict(&self) -> Option<String> {
        let (Self::Unreachable(words)
        | Self::EdgeUnreachable { message: words, .. }
        | Self::Caa(words)
        | Self::Rejected(words)) = self
        else {
            return None;
        };
        let shown = words.chars().map(|letter| if is_deceptive(letter) { ' ' } else { letter });
        Some(shown.take(VERDICT_LETTERS_MAX).collect())
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
