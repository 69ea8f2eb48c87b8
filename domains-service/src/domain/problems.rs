//! The problems of a domain after a DNS check.

use super::{Domain, Status};
use verification::problem::{Problem, ProblemCode};

/// Problems that the platform or the authority resolves; the owner can do nothing.
pub(crate) const WAITING: [ProblemCode; 3] =
    [ProblemCode::CaRateLimited, ProblemCode::CertQueued, ProblemCode::CaUnavailable];

/// Problems between an authority and this service. Orders report them, not DNS checks.
pub(crate) fn is_with_authority(code: ProblemCode) -> bool {
    WAITING.contains(&code) || matches!(code, ProblemCode::CaRejected | ProblemCode::ChallengeUnreachable)
}

/// The problems of a check, and the platform's own. Problems with the authority stay until an order succeeds.
pub(crate) fn problems(
    domain: &Domain,
    mut seen: Vec<Problem>,
    delayed: bool,
    pays: bool,
    before: Status,
) -> Vec<Problem> {
    let place = domain.name.as_str();
    seen.extend(domain.problems.iter().filter(|problem| is_with_authority(problem.code)).cloned());
    if delayed {
        seen.push(Problem::new(
            ProblemCode::CertDelayed,
            place,
            "There is no certificate after 30 minutes.",
            "Check that CAA records do not block the certificate authority, then choose Re-verify.",
        ));
    }
    if !pays && before != Status::Removing {
        seen.push(Problem::new(
            ProblemCode::PlanRequired,
            place,
            "The project's plan has no custom domains.",
            "Choose the Pro plan or above; the domain is then served again by itself.",
        ));
    }
    seen
}
