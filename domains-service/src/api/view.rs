//! How things look to whoever asks.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::time::UnixMillis;
use serde_json::{Value, json};

use crate::app::App;
use crate::domain::state::UNPAID_GRACE_MILLIS;
use crate::domain::{Domain, Status, name};
use crate::store::events::Event;
use crate::store::projects::ProjectRecord;
pub(super) use crate::text::{rfc3339, rfc3339_seconds};
use verification::verdict::{Checks, RecordState};
use verification::{TEXT_LABEL, TTL_SECONDS};

/// Bytes of a digest that are enough to tell two states of one domain apart.
const TAG_BYTES: usize = 12;

/// What a page of a list shows of its rows, and the cursor of the next page when this one is full.
pub(super) fn page<T>(
    rows: &[T],
    limit: i64,
    cursor: impl Fn(&T) -> String,
    view: impl Fn(&T) -> Value,
) -> (Vec<Value>, Option<String>) {
    let is_full = i64::try_from(rows.len()).is_ok_and(|count| count == limit);
    (rows.iter().map(view).collect(), rows.last().filter(|_| is_full).map(cursor))
}

/// A project.
pub(super) fn project(app: &App, project: &ProjectRecord) -> Value {
    let published = project.published(&app.settings.plans);
    json!({
        "id": project.id,
        "uid": project.id.uid,
        "plan": project.plan,
        "limits": published.limits,
        "limits_override": project.limits,
        "access": project.access,
        "upstream": project.upstream,
        "suspended": project.suspended,
        "cors": project.browsers.cors,
        "hsts": project.browsers.hsts,
        "deployed": project.deployed_at.is_some(),
        "deployed_at": project.deployed_at.map(rfc3339),
        "host": project.host(&app.settings.platform),
        "cname_target": app.issuing.prover.target(project.proof()),
        "domain_limit": app.settings.plans.of(project.plan).domains,
        "withdrawal": null,
        "domains_until": project.unpaid_since.map(|since| rfc3339(since.plus(UNPAID_GRACE_MILLIS))),
        "created_at": rfc3339(project.created_at),
        "updated_at": rfc3339(project.updated_at),
    })
}

/// An event, as its project's owner is shown it.
pub(super) fn event(event: &Event) -> Value {
    json!({
        "id": event.id,
        "type": event.kind,
        "domain": event.domain,
        "actor": event.actor,
        "client": event.client,
        "detail": event.detail,
        "at": rfc3339(event.at),
    })
}

/// An event, as operators are shown it: with the gateway that it came through.
pub(super) fn event_for_operators(event: &Event) -> Value {
    let mut shown = self::event(event);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("gateway".to_owned(), json!(event.gateway));
    }
    shown
}

/// A domain.
pub(super) fn domain(app: &App, project: &ProjectRecord, domain: &Domain) -> Value {
    let problems: Vec<Value> = domain
        .problems
        .iter()
        .map(|problem| {
            let mut value = json!(problem);
            if let Some(fields) = value.as_object_mut() {
                fields.insert("retry_at".to_owned(), json!(problem.retry_at.map(rfc3339_seconds)));
            }
            value
        })
        .collect();
    json!({
        "name": domain.name,
        "unicode_name": domain.name.to_unicode(),
        "project_id": domain.project,
        "status": domain.status.as_str(),
        "status_since": rfc3339(domain.status_since),
        "primary": domain.primary,
        "redirect": domain.redirect.as_ref().map(|rule| json!({
            "to": rule.to.as_str(),
            "status": rule.status.map(contract::site::RedirectStatus::code),
        })),
        "is_apex": is_apex(app, domain),
        "records": records(app, project, domain),
        "checks": domain.checks.as_ref().map(checks),
        "problems": problems,
        "next_check_at": domain.due_at.map(rfc3339),
        "certificate": certificate(domain),
        "withdrawal": null,
        "created_at": rfc3339(domain.created_at),
        "updated_at": rfc3339(domain.updated_at),
        "rev": domain.rev,
    })
}

/// The value of `ETag` for a domain: another one whenever anything that is shown is another.
pub(super) fn etag(shown: &Value) -> String {
    let digest = digest(&SHA256, shown.to_string().as_bytes());
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest.as_ref().get(..TAG_BYTES).unwrap_or_default()))
}

fn is_apex(app: &App, domain: &Domain) -> bool {
    domain.is_apex.unwrap_or_else(|| {
        name::attachable(domain.name.as_str(), &app.settings.platform, app.settings.names)
            .is_ok_and(|name| name.looks_apex() && !name.local)
    })
}

/// The records the owner is to create, as their provider's form wants them.
pub(super) fn records(app: &App, project: &ProjectRecord, domain: &Domain) -> Vec<Value> {
    let Ok(attachable) = name::attachable(domain.name.as_str(), &app.settings.platform, app.settings.names) else {
        return Vec::new();
    };
    if attachable.local {
        return Vec::new(); // it means this machine by definition
    }
    let zone = domain.checks.as_ref().and_then(|checks| checks.zone.as_deref());
    let zone = zone.unwrap_or(attachable.registrable.as_str());
    let relative = |name: &str| match name.strip_suffix(zone).map(|label| label.trim_end_matches('.')) {
        Some("") => "@".to_owned(),
        Some(label) => label.to_owned(),
        None => name.to_owned(),
    };
    let state = domain.checks.as_ref().map_or(RecordState::Unknown, |checks| checks.record);
    let is_apex = is_apex(app, domain);
    let kind = if is_apex { "ALIAS" } else { "CNAME" };
    let mut records = vec![json!({
        "type": kind,
        "name": relative(domain.name.as_str()),
        "fqdn": domain.name,
        "value": app.issuing.prover.target(project.proof()),
        "ttl": TTL_SECONDS,
        "purpose": "traffic",
        "state": state,
    })];
    let text_state = domain.checks.as_ref().and_then(|checks| checks.txt);
    // Before the first look it is shown to whoever will probably need it, so that both records are made in one go.
    let is_new = is_apex && domain.checks.is_none() && !domain.status.is_served();
    if text_state.is_some() || is_new || domain.status == Status::PendingOwnership {
        let place = format!("{TEXT_LABEL}.{}", domain.name);
        records.push(json!({
            "type": "TXT",
            "name": relative(&place),
            "fqdn": place,
            "value": app.issuing.prover.ownership_text(project.proof(), &domain.name),
            "ttl": TTL_SECONDS,
            "purpose": "ownership",
            "state": text_state.unwrap_or(RecordState::Unknown),
        }));
    }
    records
}

/// The last look at DNS.
pub(super) fn checks(checks: &Checks) -> Value {
    json!({
        "at": rfc3339(UnixMillis(checks.at_ms)),
        "duration_ms": checks.duration_ms,
        "queries": checks.queries,
        "resolver": checks.resolver,
        "zone": checks.zone,
        "nameservers": checks.nameservers,
        "caa": checks.caa,
    })
}

fn certificate(domain: &Domain) -> Value {
    let state = &domain.certificate;
    json!({
        "status": state.status,
        "ca": state.ca,
        "serial": state.serial,
        "not_before": state.not_before.map(rfc3339_seconds),
        "not_after": state.not_after.map(rfc3339_seconds),
        "key_type": state.key_type,
        "renew_at": state.renew_at.map(rfc3339_seconds),
        "attempts": state.attempts,
        "last_error": state.last_error,
        "next_attempt_at": state.next_attempt_at.map(rfc3339_seconds),
        "rate_limited_until": state.rate_limited_until.map(rfc3339_seconds),
    })
}
