//! The JSON of projects, keys, domains and their records in answers.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::time::UnixMillis;
use serde_json::{Value, json};

use super::types::{self, Record, RecordPurpose, RecordType, Rfc3339};
use crate::app::App;
use crate::domain::state::UNPAID_GRACE_MILLIS;
use crate::domain::{CertificateState, Domain, Status};
use crate::store::events::Event;
use crate::store::projects::ProjectRecord;
pub(super) use crate::text::rfc3339;
use verification::problem::Problem;
use verification::verdict::{Checks, RecordState};
use verification::{TEXT_LABEL, TTL_SECONDS};

/// Bytes of a digest that are enough to tell two states of one domain apart.
const TAG_BYTES: usize = 12;

/// What a page of a list shows of its rows, and the cursor of the next page when this one is full.
pub(super) fn page<T, V>(
    rows: &[T],
    limit: i64,
    cursor: impl Fn(&T) -> String,
    view: impl Fn(&T) -> V,
) -> (Vec<V>, Option<String>) {
    let is_full = i64::try_from(rows.len()).is_ok_and(|count| count == limit);
    (rows.iter().map(view).collect(), rows.last().filter(|_| is_full).map(cursor))
}

/// A project.
pub(super) fn project(app: &App, project: &ProjectRecord) -> types::Project {
    types::Project {
        id: project.id.name.clone(),
        uid: project.id.uid.clone(),
        plan: project.plan,
        limits: project.published(&app.core.settings.plans).limits,
        limits_override: project.limits,
        access: project.access,
        upstream: project.upstream.clone(),
        suspended: project.suspended,
        cors: project.browsers.cors.clone(),
        hsts: project.browsers.hsts,
        deployed: project.deployed_at.is_some(),
        deployed_at: project.deployed_at.map(Rfc3339::from),
        host: project.host(&app.core.settings.platform),
        cname_target: app.issuing.prover.target(project.proof()),
        domain_limit: app.core.settings.plans.of(project.plan).domains,
        withdrawal: None,
        domains_until: project.unpaid_since.map(|since| since.plus(UNPAID_GRACE_MILLIS).into()),
        created_at: project.created_at.into(),
        updated_at: project.updated_at.into(),
    }
}

/// An event, as its project's owner is shown it.
pub(super) fn event(event: &Event) -> types::Event {
    let Event { id, domain, kind, actor, client, gateway: _, detail, at } = event.clone();
    types::Event { id, kind, domain, actor, client, detail, at: at.into() }
}

/// An event, as operators are shown it: with the gateway that it came through.
pub(super) fn event_for_operators(event: &Event) -> Value {
    let mut shown = json!(self::event(event));
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("gateway".to_owned(), json!(event.gateway));
    }
    shown
}

/// A domain.
pub(super) fn domain(app: &App, project: &ProjectRecord, domain: &Domain) -> types::Domain {
    let redirect = domain.redirect.as_ref().map(|rule| types::Redirect {
        to: rule.to.as_str().to_owned(),
        status: rule.status.map(contract::site::RedirectStatus::code),
    });
    types::Domain {
        name: domain.name.clone(),
        unicode_name: domain.name.to_unicode(),
        project_id: domain.project.name.clone(),
        status: domain.status,
        status_since: domain.status_since.into(),
        primary: domain.primary,
        redirect,
        is_apex: is_apex(app, domain),
        records: records(app, project, domain),
        checks: domain.checks.as_ref().map(checks),
        problems: domain.problems.iter().map(problem).collect(),
        next_check_at: domain.due_at.map(Rfc3339::from),
        certificate: certificate(&domain.certificate),
        withdrawal: None,
        created_at: domain.created_at.into(),
        updated_at: domain.updated_at.into(),
        rev: domain.rev,
    }
}

fn problem(problem: &Problem) -> types::Problem {
    let Problem { code, severity, who, message, expected, observed, place, fix, retry_at } = problem.clone();
    let retry_at = retry_at.map(Rfc3339::from);
    types::Problem { code, severity, who, message, expected, observed, place, fix, retry_at }
}

/// The value of `ETag` for a domain: another one whenever anything that is shown is another.
pub(super) fn etag(shown: &types::Domain) -> String {
    // Members in the order of their names.
    let digest = digest(&SHA256, json!(shown).to_string().as_bytes());
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest.as_ref().get(..TAG_BYTES).unwrap_or_default()))
}

fn is_apex(app: &App, domain: &Domain) -> bool {
    domain.is_apex.unwrap_or_else(|| {
        app.core.settings.attachable(domain.name.as_str()).is_ok_and(|name| name.seems_apex() && !name.local)
    })
}

/// The records the owner is to create, as their provider's form wants them.
pub(super) fn records(app: &App, project: &ProjectRecord, domain: &Domain) -> Vec<Record> {
    let Ok(attachable) = app.core.settings.attachable(domain.name.as_str()) else {
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
    let mut records = vec![Record {
        kind: if is_apex { RecordType::Alias } else { RecordType::Cname },
        name: relative(domain.name.as_str()),
        fqdn: domain.name.to_string(),
        value: app.issuing.prover.target(project.proof()).to_string(),
        ttl: TTL_SECONDS,
        purpose: RecordPurpose::Traffic,
        state,
    }];
    let text_state = domain.checks.as_ref().and_then(|checks| checks.txt);
    // Before the first check of an apex it is shown as well, so that the owner creates both records at once.
    let is_new = is_apex && domain.checks.is_none() && !domain.status.is_served();
    if text_state.is_some() || is_new || domain.status == Status::PendingOwnership {
        let place = format!("{TEXT_LABEL}.{}", domain.name);
        records.push(Record {
            kind: RecordType::Txt,
            name: relative(&place),
            fqdn: place,
            value: app.issuing.prover.ownership_text(project.proof(), &domain.name),
            ttl: TTL_SECONDS,
            purpose: RecordPurpose::Ownership,
            state: text_state.unwrap_or(RecordState::Unknown),
        });
    }
    records
}

fn checks(checks: &Checks) -> types::Checks {
    let Checks { at_ms, duration_ms, queries, resolver, nameservers, caa, zone, .. } = checks.clone();
    types::Checks { at: UnixMillis(at_ms).into(), duration_ms, queries, resolver, zone, nameservers, caa }
}

fn certificate(state: &CertificateState) -> types::Certificate {
    types::Certificate {
        status: state.status,
        ca: state.ca.clone(),
        serial: state.serial.clone(),
        not_before: state.not_before.map(Rfc3339::from),
        not_after: state.not_after.map(Rfc3339::from),
        key_type: state.key_type.clone(),
        renew_at: state.renew_at.map(Rfc3339::from),
        attempts: state.attempts,
        last_error: state.last_error.clone(),
        next_attempt_at: state.next_attempt_at.map(Rfc3339::from),
        rate_limited_until: state.rate_limited_until.map(Rfc3339::from),
    }
}
