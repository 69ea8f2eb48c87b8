//! Words for states: a status, a verdict, an event.

use contract::key::Scope;
use domains_api::types::{DisabledReason, Webhook};

/// The sign beside a word of this tone, for people who do not see the colours.
pub(crate) fn sign(tone: &str) -> &'static str {
    match tone {
        "good" => "✓",
        "wait" => "…",
        "bad" => "!",
        _ => "–",
    }
}

/// A domain's status: its word and its tone, which is `good`, `wait`, `bad` or `off`.
pub(crate) fn status(status: &str) -> (&'static str, &'static str) {
    match status {
        "pending_dns" => ("Waiting for DNS", "wait"),
        "pending_ownership" => ("Waiting for proof", "wait"),
        "propagating" => ("Propagating", "wait"),
        "issuing" => ("Getting a certificate", "wait"),
        "active" => ("Live", "good"),
        "action_required" => ("Needs you", "bad"),
        "degraded" => ("Live, needs you", "bad"),
        "suspended" => ("Suspended", "off"),
        "removing" => ("Being removed", "off"),
        _ => ("Unknown", "off"),
    }
}

/// The word for a status, if it is one.
pub(crate) fn known_status(text: &str) -> Option<&'static str> {
    match status(text) {
        ("Unknown", _) => None,
        (word, _) => Some(word),
    }
}

/// The meaning of a status for the domain's owner.
pub(crate) fn status_sentence(status: &str) -> &'static str {
    match status {
        "pending_dns" => "Create the DNS record at your DNS provider. We check automatically.",
        "pending_ownership" => {
            "Another project has this name, or had it. Create the TXT record below to prove that it is yours."
        }
        "issuing" => "DNS is right. A certificate is being issued, which usually takes a couple of minutes.",
        "active" => "Visitors reach your project here. The certificate renews automatically.",
        "action_required" => "A problem that only you can fix. Open the domain for the problem and its fix.",
        "degraded" => {
            "Visitors still reach your project here, but its DNS is no longer right. Fix it before service stops."
        }
        "suspended" => "Visitors are not served here. Open the domain for the problem and its fix.",
        "removing" => "Being removed. Gateways that have not confirmed yet may still serve it.",
        _ => "",
    }
}

pub(crate) fn propagating(right: usize, all: usize) -> String {
    format!(
        "{right} of {all} of your nameservers answer correctly already. The others follow, usually within minutes, \
         at most 48 hours."
    )
}

pub(crate) fn waits_in_queue(number: i64) -> String {
    format!("DNS is right. The certificate is number {number} in our queue. Nothing to do.")
}

pub(crate) fn certificate_status(status: &str) -> (&'static str, &'static str) {
    match status {
        "queued" => ("Waiting", "wait"),
        "ordering" => ("Ordered", "wait"),
        "validating" => ("Being validated", "wait"),
        "finalizing" => ("Being signed", "wait"),
        "deployed" => ("Deployed", "good"),
        "renewing" => ("Being renewed", "good"),
        "failed" => ("Failed, will be tried again", "bad"),
        _ => ("None yet", "off"),
    }
}

pub(crate) fn record_state(state: &str) -> (&'static str, &'static str) {
    match state {
        "ok" => ("Found", "good"),
        "missing" => ("Not found yet", "wait"),
        "wrong" => ("Wrong", "bad"),
        "partial" => ("Found by some", "wait"),
        _ => ("Not checked yet", "off"),
    }
}

/// The meaning of one nameserver's answer.
pub(crate) fn verdict(verdict: &str) -> (&'static str, &'static str) {
    match verdict {
        "ok" => ("Right", "good"),
        "ok_apex_cname" => ("Right, but a CNAME at an apex", "good"),
        "missing" => ("No record yet", "wait"),
        "wildcard" => ("Only a wildcard so far", "wait"),
        "cname_mismatch" => ("CNAME points elsewhere", "bad"),
        "cname_chained" => ("CNAME through another name", "bad"),
        "conflicting_a" => ("A record blocks the CNAME", "bad"),
        "conflicting_aaaa" => ("AAAA record blocks the CNAME", "bad"),
        "conflicting_a_and_aaaa" => ("A and AAAA records block the CNAME", "bad"),
        "proxied" => ("Proxied by another network", "bad"),
        "address_mismatch" => ("Addresses of another server", "bad"),
        "timeout" => ("Does not answer", "off"),
        "servfail" => ("Reports a failure", "off"),
        "lame" => ("Does not know the zone", "off"),
        "unreachable" => ("Unreachable from our network", "off"),
        _ => ("No usable answer", "off"),
    }
}

/// The party that must act.
pub(crate) fn who(who: &str) -> &'static str {
    match who {
        "us" => "We must act",
        "ca" => "The certificate authority must act",
        _ => "You must act",
    }
}

pub(crate) const fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::OrdersRead => "List orders",
        Scope::OrdersWrite => "Cancel, create and ship orders",
        Scope::DomainsRead => "See domains, activity and webhooks",
        Scope::DomainsWrite => "Add, verify, change and remove domains",
        Scope::KeysWrite => "Create, rotate and revoke API keys",
    }
}

/// The words of an event.
pub(crate) fn event(kind: &str) -> String {
    let words = match kind {
        "domain.created" => "Domain added",
        "domain.verify_requested" => "Check requested",
        "domain.verified" => "DNS verified",
        "domain.unverified" => "DNS no longer correct",
        "domain.status_changed" => "Status changed",
        "domain.active" => "Domain went live",
        "domain.degraded" => "Domain degraded",
        "domain.suspended" => "Domain suspended",
        "domain.plan_ended" => "Plan lost custom domains",
        "domain.updated" => "Domain changed",
        "domain.primary_changed" => "Primary domain changed",
        "domain.transferred" => "Domain moved to another project",
        "domain.removed" => "Domain removed",
        "domain.certificate.issued" => "Certificate issued",
        "domain.certificate.renewed" => "Certificate renewed",
        "domain.certificate.waiting" => "Certificate waiting",
        "domain.certificate.failed" => "Certificate attempt failed",
        "order.created" => "Order placed",
        "order.shipped" => "Order shipped",
        "order.cancelled" => "Order cancelled",
        "withdrawal.waiting" => "Waiting for gateways",
        "key.created" => "API key created",
        "key.rotated" => "API key rotated",
        "key.revoked" => "API key revoked",
        "webhook.created" => "Webhook added",
        "webhook.changed" => "Webhook changed",
        "webhook.removed" => "Webhook removed",
        "webhook.secret_rotated" => "Webhook secret rotated",
        "webhook.tested" => "Test message sent",
        "webhook.delivery_repeated" => "Delivery sent again",
        "project.created" => "Project created",
        "project.changed" => "Project changed",
        "project.deployed" => "Project deployed",
        "dashboard.signed_in" => "Signed in to the dashboard",
        // A kind without words shows its name.
        other => return other.replace(['.', '_'], " "),
    };
    words.to_owned()
}

pub(crate) fn actor(actor: &str) -> String {
    match actor {
        "system" => "system".to_owned(),
        other => other.replacen("operator:", "operator ", 1),
    }
}

pub(crate) fn webhook(webhook: &Webhook) -> (&'static str, &'static str) {
    match (webhook.enabled, &webhook.failing_since) {
        (true, Some(_)) => ("On, and failing", "bad"),
        (true, None) => ("On", "good"),
        (false, _) => ("Off", "off"),
    }
}

/// The reason why a webhook is disabled.
pub(crate) const fn webhook_off(reason: Option<DisabledReason>) -> &'static str {
    match reason {
        Some(DisabledReason::Failing) => "Switched off: every attempt failed for days.",
        Some(DisabledReason::Gone) => "Switched off: the receiver answered 410 Gone.",
        Some(DisabledReason::Backlog) => "Switched off: too many messages were waiting.",
        Some(DisabledReason::Owner) | None => "Switched off.",
    }
}

pub(crate) fn delivery_tone(state: &str) -> &'static str {
    match state {
        "delivered" => "good",
        "waiting" => "wait",
        _ => "bad",
    }
}

/// The result of a delivery's last attempt.
pub(crate) fn delivery(result: Option<&str>, status: Option<i64>, error: Option<&str>) -> String {
    match (result, status, error) {
        (_, Some(status), None) => format!("answered {status}"),
        (_, Some(status), Some(error)) => format!("answered {status}: {error}"),
        (_, None, Some(error)) => error.to_owned(),
        (Some(result), None, None) => result.to_owned(),
        (None, None, None) => "not tried yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domains_api::types::{EVENTS, Status};
    use verification::verdict::ServerVerdict;

    #[test]
    fn every_status_and_verdict_has_words() {
        for known in Status::ALL {
            assert_ne!(status(known.as_str()).0, "Unknown", "{known:?}");
            assert!(*known == Status::Propagating || !status_sentence(known.as_str()).is_empty(), "{known:?}");
        }
        for known in [ServerVerdict::Ok, ServerVerdict::Missing, ServerVerdict::Proxied, ServerVerdict::ConflictingBoth]
        {
            assert_ne!(verdict(known.as_str()).0, "No usable answer", "{known:?}");
        }
    }

    #[test]
    fn every_shown_event_has_words() {
        for kind in EVENTS {
            assert!(event(kind).starts_with(char::is_uppercase), "{kind}");
        }
        assert_eq!(event("something.new_here"), "something new here");
    }
}
