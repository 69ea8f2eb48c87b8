//! The steps of a domain: record, proof of ownership if required, certificate, live.

use verification::verdict::Records;

use domains_api::types::{Domain, RecordType};

contract::words! {
    /// The state of a step, and its class in style sheets.
    pub(super) enum State {
        /// It is behind.
        Done = "done",
        /// It is next.
        Now = "now",
        /// It is next, and its owner must act.
        Stuck = "stuck",
        /// It comes after others.
        Later = "later",
    }
}

impl State {
    pub(super) const fn word(self) -> &'static str {
        if matches!(self, Self::Now) { "in progress" } else { self.as_str() }
    }
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) state: State,
}

/// The steps of a domain.
pub(super) fn of(domain: &Domain) -> Vec<Step> {
    let proves = domain.records.iter().any(|record| record.kind == RecordType::Txt);
    let mut names = vec!["DNS record"];
    if proves {
        names.push("Proof of ownership");
    }
    names.extend(["Certificate", "Live"]);
    let all = names.len();
    let record_is_right = domain.records.first().is_none_or(|record| record.state == Records::Pass);
    let proof_is_right =
        domain.records.iter().filter(|record| record.kind == RecordType::Txt).all(|text| text.state == Records::Pass);
    // How many steps are behind it.
    let done = match domain.status.as_str() {
        "active" | "degraded" => all,
        "issuing" => all - 2,
        _ if !record_is_right => 0,
        _ if proves && !proof_is_right => 1,
        _ => all - 2,
    };
    let stuck = matches!(domain.status.as_str(), "action_required" | "suspended");
    let step = |(index, name): (usize, &'static str)| {
        let state = match index.cmp(&done) {
            std::cmp::Ordering::Less => State::Done,
            std::cmp::Ordering::Equal if stuck => State::Stuck,
            std::cmp::Ordering::Equal => State::Now,
            std::cmp::Ordering::Greater => State::Later,
        };
        Step { name, state }
    };
    names.into_iter().enumerate().map(step).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn states(status: &str, record: &str, text: Option<&str>) -> Vec<State> {
        let record_of = |kind: &str, state: &str| {
            json!({
                "type": kind, "name": "shop", "fqdn": "shop.a.example", "value": "x", "ttl": 3600, "purpose": "traffic", "state": state,
            })
        };
        let mut records = vec![record_of("CNAME", record)];
        records.extend(text.map(|state| record_of("TXT", state)));
        let domain: Domain = serde_json::from_value(json!({
            "name": "a.example", "unicode_name": "a.example", "status": status, "primary": false, "redirect": null,
            "is_apex": false, "records": records, "checks": null, "problems": [], "next_check_at": null,
            "certificate": { "status": "none", "attempts": 0 }, "project_id": "demo", "rev": 1,
            "status_since": "2026-01-31T12:00:00Z", "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z",
        }))
        .unwrap();
        of(&domain).into_iter().map(|step| step.state).collect()
    }

    #[test]
    fn a_domain_goes_step_by_step() {
        use State::{Done, Later, Now, Stuck};
        assert_eq!(states("pending_dns", "missing", None), [Now, Later, Later]);
        assert_eq!(states("propagating", "partial", None), [Now, Later, Later]);
        assert_eq!(states("action_required", "wrong", None), [Stuck, Later, Later]);
        assert_eq!(states("pending_ownership", "ok", Some("missing")), [Done, Now, Later, Later]);
        assert_eq!(states("action_required", "ok", None), [Done, Stuck, Later]);
        assert_eq!(states("issuing", "ok", None), [Done, Now, Later]);
        assert_eq!(states("active", "ok", Some("ok")), [Done, Done, Done, Done]);
        assert_eq!(states("suspended", "ok", None), [Done, Stuck, Later]);
    }
}
