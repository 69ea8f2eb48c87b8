//! Redirects between domains of a project.
//!
//! A domain may redirect to the primary domain of its project or to a named one. A redirect's target never redirects,
//! so there are no chains and no loops; and the target is served, so no redirect dangles. A redirect to a primary
//! domain that is not served yet has no effect until it is.

use contract::hostname::Hostname;
use contract::site::RedirectStatus;
use serde::{Deserialize, Serialize};

use super::Domain;

/// The target of a redirect. Removed projects keep it as JSON: `null` is the primary domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum RedirectTarget {
    /// To whichever domain is the primary one.
    Primary,
    /// To this domain of the same project.
    Name(Hostname),
}

impl RedirectTarget {
    /// The value in the API and the database. A hostname has a dot, so none equals `primary`.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Primary => "primary",
            Self::Name(name) => name.as_str(),
        }
    }
}

/// A domain's redirect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RedirectRule {
    pub(crate) to: RedirectTarget,
    /// `None`: 301 for GET and HEAD, 308 for other methods.
    pub(crate) status: Option<RedirectStatus>,
}

/// Why a redirect cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedirectError {
    /// It would form a loop or a chain.
    Loop(String),
    /// Its target does not exist or is not served.
    Inactive(String),
    /// The primary domain serves; it cannot redirect.
    Primary,
}

/// Whether `from` may redirect to `target`. `to_primary`: the target is, or will be, the primary domain, so it need not be
/// served yet. `dependants`: how many domains redirect to `from` at present.
pub(crate) fn permit(
    from: &Domain,
    target: Option<&Domain>,
    to_primary: bool,
    dependants: usize,
) -> Result<(), RedirectError> {
    if from.primary {
        return Err(RedirectError::Primary);
    }
    let Some(target) = target else {
        return Err(RedirectError::Inactive("the project has no such domain, or no primary domain".to_owned()));
    };
    if target.name == from.name {
        return Err(RedirectError::Loop(format!("{} cannot redirect to itself", from.name)));
    }
    if dependants > 0 {
        let why = "cannot redirect, because other domains redirect to it";
        return Err(RedirectError::Loop(format!("{} {why} ({dependants}); end these redirects first", from.name)));
    }
    if target.redirect.is_some() {
        return Err(RedirectError::Loop(format!("{} is itself a redirect; choose its target instead", target.name)));
    }
    if !target.status.is_served() && !to_primary {
        return Err(RedirectError::Inactive(format!("{} is {}", target.name, target.status.as_str())));
    }
    Ok(())
}

/// The present target of a rule. `None` if the target is not served any more; the domain then serves the project.
pub(crate) fn destination(
    rule: Option<&RedirectRule>,
    target: Option<&Domain>,
) -> Option<(Hostname, Option<RedirectStatus>)> {
    let (rule, target) = (rule?, target?);
    (target.status.is_served() && target.redirect.is_none()).then(|| (target.name.clone(), rule.status))
}

#[cfg(test)]
mod tests {
    use contract::time::UnixMillis;

    use super::super::Status;
    use super::*;

    fn node(name: &str, status: Status) -> Domain {
        Domain { status, ..Domain::added(name.parse().unwrap(), "demo".parse().unwrap(), UnixMillis(0)) }
    }

    const RULE: RedirectRule = RedirectRule { to: RedirectTarget::Primary, status: None };

    fn redirecting(domain: &Domain) -> Domain {
        Domain { redirect: Some(RULE), ..domain.clone() }
    }

    // rule: 1.15
    #[test]
    fn a_redirect_needs_a_served_target_that_does_not_redirect() {
        let from = node("a.example", Status::Active);
        assert_eq!(permit(&from, Some(&node("b.example", Status::Active)), false, 0), Ok(()));
        assert_eq!(permit(&from, Some(&node("b.example", Status::Degraded)), false, 0), Ok(()));
    }

    #[test]
    fn a_redirect_to_the_next_primary_domain_can_be_prepared() {
        let next = node("b.example", Status::PendingDns);
        assert_eq!(permit(&node("a.example", Status::Active), Some(&next), true, 0), Ok(()));
        assert_eq!(destination(Some(&RULE), Some(&next)), None, "until then the domain serves the project");
    }

    #[test]
    fn loops_chains_and_dangling_targets_cannot_be_configured() {
        let (a, b) = (node("a.example", Status::Active), node("b.example", Status::Active));
        let chain = redirecting(&b);
        let primary = Domain { primary: true, ..a.clone() };
        assert!(matches!(permit(&a, Some(&a), false, 0), Err(RedirectError::Loop(_))));
        assert!(matches!(permit(&a, Some(&chain), false, 0), Err(RedirectError::Loop(_))));
        assert!(matches!(permit(&a, Some(&b), false, 1), Err(RedirectError::Loop(_))));
        assert!(matches!(permit(&a, None, false, 0), Err(RedirectError::Inactive(_))));
        assert_eq!(permit(&primary, Some(&b), false, 0), Err(RedirectError::Primary));
        for status in Status::ALL.iter().copied().filter(|status| !status.is_served()) {
            assert!(matches!(permit(&a, Some(&node("b.example", status)), false, 0), Err(RedirectError::Inactive(_))));
        }
    }

    #[test]
    fn no_sequence_of_changes_sends_a_visitor_twice() {
        // Three domains, every sequence of five attempts to point one at another.
        let active = ["a.example", "b.example", "c.example"].map(|name| node(name, Status::Active));
        for sequence in 0..9_usize.pow(5) {
            let mut to: [Option<usize>; 3] = [None; 3];
            let mut rest = sequence;
            for _ in 0..5 {
                let (from, target) = ((rest % 9) / 3, rest % 3);
                rest /= 9;
                let dependants = to.iter().filter(|to| **to == Some(from)).count();
                let of = |index: usize| Domain { redirect: to[index].map(|_| RULE), ..active[index].clone() };
                if permit(&of(from), Some(&of(target)), false, dependants).is_ok() {
                    to[from] = Some(target);
                }
            }
            for target in to.iter().flatten() {
                assert_eq!(to[*target], None, "{to:?}");
            }
        }
    }

    #[test]
    fn a_domain_whose_redirect_target_is_gone_serves_the_project() {
        let rule = RedirectRule { to: RedirectTarget::Primary, status: Some(RedirectStatus::Found) };
        let target = node("b.example", Status::Active);
        assert_eq!(destination(Some(&rule), Some(&target)), Some((target.name.clone(), Some(RedirectStatus::Found))));
        assert_eq!(destination(Some(&rule), Some(&node("b.example", Status::Suspended))), None);
        // A target that redirects would be a second hop.
        assert_eq!(destination(Some(&rule), Some(&redirecting(&target))), None);
        assert_eq!(destination(Some(&rule), None), None);
        assert_eq!(destination(None, Some(&target)), None);
    }
}
