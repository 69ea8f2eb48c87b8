//! Translates refusals of an authority into problems of a domain (RFC 8555, section 6.7).

use contract::time::UnixSeconds;
use http::StatusCode;
use instant_acme::{Error, Problem};

use super::transport::pause;
use crate::issuer::IssueError;

/// The namespace of the protocol's errors.
const NAMESPACE: &str = "urn:ietf:params:acme:error:";

/// The kind of a problem, without its namespace.
fn kind(problem: &Problem) -> &str {
    problem.r#type.as_deref().and_then(|kind| kind.strip_prefix(NAMESPACE)).unwrap_or_default()
}

/// Whether it is a problem of this kind.
pub(super) fn is(error: &Error, what: &str) -> bool {
    matches!(error, Error::Api(problem) if kind(problem) == what)
}

/// Whether the authority no longer has the requested object.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if problem.status == Some(StatusCode::NOT_FOUND.as_u16())
        || matches!(kind(problem), "malformed" | "accountDoesNotExist"))
}

/// Whether the authority fails by itself, with any request.
fn is_away(problem: &Problem) -> bool {
    problem.status.is_some_and(|status| status >= StatusCode::INTERNAL_SERVER_ERROR.as_u16())
}

/// The meaning of a failed call.
pub(super) fn explain(error: &Error, now: UnixSeconds) -> IssueError {
    let until = pause().map(|pause| now.plus(i64::try_from(pause.as_secs()).unwrap_or(i64::MAX)));
    match error {
        Error::Api(problem) => explain_problem(problem, until),
        error if until.is_some() => IssueError::RateLimited { until, message: words(error) },
        error => away(words(error)),
    }
}

/// The caller, which counts failures, sets the time of the next try.
fn away(message: String) -> IssueError {
    IssueError::Away { until: UnixSeconds::default(), failures: 0, message }
}

/// The meaning of a problem document.
pub(super) fn explain_problem(problem: &Problem, until: Option<UnixSeconds>) -> IssueError {
    let mut message = problem.detail.clone().unwrap_or_else(|| "it gives no reason".to_owned());
    for part in &problem.subproblems {
        if let Some(detail) = &part.detail {
            message.push_str("; ");
            message.push_str(detail);
        }
    }
    match kind(problem) {
        "rateLimited" => IssueError::RateLimited { until, message },
        "connection" | "dns" | "unauthorized" | "incorrectResponse" | "tls" => IssueError::Unreachable(message),
        "caa" => IssueError::Caa(message),
        "rejectedIdentifier" | "unsupportedIdentifier" => IssueError::Rejected(message),
        _ if until.is_some() => IssueError::RateLimited { until, message },
        _ if is_away(problem) => away(message),
        _ => IssueError::Unavailable(message),
    }
}

/// An error with its causes: those of HTTP say little by themselves.
fn words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authoritys_own_failures_do_not_count_against_the_name() {
        for (status, is_its_own) in [(400, false), (404, false), (409, false), (500, true), (502, true), (503, true)] {
            let problem: Problem = serde_json::from_str(&format!(r#"{{"status":{status}}}"#)).unwrap();
            let meant = explain_problem(&problem, None);
            assert_eq!(matches!(meant, IssueError::Away { .. }), is_its_own, "{status}: {meant}");
        }
    }

    fn problem(kind: &str) -> Problem {
        let text = format!(r#"{{"type":"{NAMESPACE}{kind}","detail":"so it is","status":400}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn each_kind_of_refusal_has_one_meaning() {
        let said = || "so it is".to_owned();
        let later = Some(UnixSeconds(7));
        for (kind, until, expected) in [
            ("rateLimited", later, IssueError::RateLimited { until: later, message: said() }),
            ("rateLimited", None, IssueError::RateLimited { until: None, message: said() }),
            ("connection", None, IssueError::Unreachable(said())),
            ("dns", None, IssueError::Unreachable(said())),
            ("unauthorized", None, IssueError::Unreachable(said())),
            ("incorrectResponse", None, IssueError::Unreachable(said())),
            ("tls", None, IssueError::Unreachable(said())),
            ("caa", None, IssueError::Caa(said())),
            ("rejectedIdentifier", None, IssueError::Rejected(said())),
            ("unsupportedIdentifier", None, IssueError::Rejected(said())),
            ("serverInternal", None, IssueError::Unavailable(said())),
            ("serverInternal", later, IssueError::RateLimited { until: later, message: said() }),
            ("badCSR", None, IssueError::Unavailable(said())),
        ] {
            assert_eq!(explain_problem(&problem(kind), until), expected, "{kind}");
        }
    }

    #[test]
    fn subproblems_are_reported_too() {
        let text = format!(
            r#"{{"type":"{NAMESPACE}compound","detail":"two things","subproblems":[{{"detail":"this"}},{{"detail":"that"}}]}}"#
        );
        let problem: Problem = serde_json::from_str(&text).unwrap();
        assert_eq!(explain_problem(&problem, None), IssueError::Unavailable("two things; this; that".to_owned()));
    }
}
