//! Translates refusals of an authority into problems of a domain (RFC 8555, section 6.7).

use std::net::{IpAddr, SocketAddr};

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
pub(super) fn has_kind(error: &Error, what: &str) -> bool {
    matches!(error, Error::Api(problem) if kind(problem) == what)
}

/// Whether the authority no longer has the requested object.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if problem.status == Some(StatusCode::NOT_FOUND.as_u16())
        || matches!(kind(problem), "malformed" | "accountDoesNotExist"))
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
    let mut message = problem.detail.clone().unwrap_or_else(|| "without a reason".to_owned());
    for detail in problem.subproblems.iter().filter_map(|part| part.detail.as_ref()) {
        message = format!("{message}; {detail}");
    }
    match kind(problem) {
        "rateLimited" => IssueError::RateLimited { until, message },
        "connection" | "dns" | "unauthorized" | "incorrectResponse" | "tls" => IssueError::Unreachable(message),
        "caa" => IssueError::Caa(message),
        "rejectedIdentifier" | "unsupportedIdentifier" => IssueError::Rejected(message),
        _ if until.is_some() => IssueError::RateLimited { until, message },
        // It fails by itself, with any request.
        _ if problem.status.is_some_and(|status| status >= 500) => away(message),
        _ => IssueError::Unavailable(message),
    }
}

/// Pause after a proof that failed because the authority could not connect to our edge. The authority counts such
/// failures, five an hour.
const EDGE_PAUSE_SECONDS: i64 = 15 * 60;

/// The meaning of a failed proof for a name with correct records, which lead to these addresses of our `edge`. A
/// connection that failed is ours, unless the authority says that it went to another address.
pub(super) fn explain_failed_proof(problem: &Problem, edge: &[IpAddr], now: UnixSeconds) -> IssueError {
    match explain_problem(problem, None) {
        IssueError::Unreachable(message) if is_connection(problem) && leads_here(&message, edge) => {
            IssueError::EdgeUnreachable { until: now.plus(EDGE_PAUSE_SECONDS), message }
        }
        other => other,
    }
}

/// Whether a connection failed, for the problem or one of its parts.
fn is_connection(problem: &Problem) -> bool {
    let kinds = problem.subproblems.iter().filter_map(|part| part.r#type.as_deref());
    let mut kinds = kinds.chain(problem.r#type.as_deref()).filter_map(|kind| kind.strip_prefix(NAMESPACE));
    kinds.any(|kind| matches!(kind, "connection" | "tls"))
}

/// Whether an authority's words name no address, or one of the edge's. Without known addresses every address may be
/// one.
fn leads_here(words: &str, edge: &[IpAddr]) -> bool {
    let parts = words.split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | ';' | '(' | ')' | '"'));
    let mut named = parts.filter_map(address).peekable();
    named.peek().is_none() || edge.is_empty() || named.any(|address| edge.contains(&address))
}

/// The address that a word is, alone or with a port or a colon.
fn address(word: &str) -> Option<IpAddr> {
    let word = word.trim_end_matches([':', '.']);
    word.parse().ok().or_else(|| word.parse::<SocketAddr>().ok().map(|socket| socket.ip())).or_else(|| {
        word.strip_prefix('[').and_then(|rest| rest.split_once(']')).and_then(|(address, _)| address.parse().ok())
    })
}

/// An error with its causes: those of HTTP say little by themselves.
fn words(error: &Error) -> String {
    anyhow::Chain::new(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
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
    fn a_failed_connection_to_our_edge_counts_against_the_platform_and_other_failures_against_the_name() {
        let edge: Vec<IpAddr> = vec!["203.0.113.10".parse().unwrap(), "2001:db8::10".parse().unwrap()];
        let failed = |kind: &str, detail: &str| {
            let text = format!(r#"{{"type":"{NAMESPACE}{kind}","detail":"{detail}","status":400}}"#);
            explain_failed_proof(&serde_json::from_str(&text).unwrap(), &edge, UnixSeconds(7))
        };
        for (kind, detail, is_ours) in [
            ("connection", "203.0.113.10: Fetching http://a.test/: Connection refused", true),
            ("connection", "dial tcp 203.0.113.10:80: connect: connection refused", true),
            ("connection", "dial tcp [2001:db8::10]:80: i/o timeout", true),
            ("connection", "Timeout during connect (likely firewall problem)", true),
            ("tls", "203.0.113.10: remote error: tls: no application protocol", true),
            ("connection", "198.51.100.7: Fetching http://a.test/: Connection refused", false),
            ("connection", "dial tcp [2001:db8::99]:80: i/o timeout", false),
            ("unauthorized", "203.0.113.10: Invalid response from http://a.test/: 404", false),
            ("dns", "DNS problem: SERVFAIL looking up A for a.test", false),
        ] {
            let meaning = failed(kind, detail);
            assert_eq!(matches!(meaning, IssueError::EdgeUnreachable { .. }), is_ours, "{kind} {detail}: {meaning:?}");
            assert_eq!(matches!(meaning, IssueError::Unreachable(_)), !is_ours, "{kind} {detail}: {meaning:?}");
        }
        let foreign = problem("connection");
        assert_eq!(
            explain_failed_proof(&foreign, &[], UnixSeconds(7)),
            IssueError::EdgeUnreachable { until: UnixSeconds(7 + EDGE_PAUSE_SECONDS), message: "so it is".to_owned() }
        );
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
