//! The gateway's recent history and current decisions, for `tollhouse top`, `explain`, `changes`, `status` and `drain`.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chassis::refusal::Refusal;
use contract::key::{KeyDigest, KeyId};
use contract::project::{Project, UpstreamName};
use contract::site::Site;
use serde_json::{Value, json};

use super::View;
use crate::recent::changes::CHANGES_MAX;
use crate::recent::top::{By, MINUTES};
use crate::telemetry::CertificateKind;
use contract::rejection::Rejection;
use contract::trouble::Trouble;
use replica::Expiry;

/// Rows of `/top`: default and maximum.
const ROWS: usize = 20;
const ROWS_MAX: usize = 512;

/// Codes of [`crate::recent::top`] that are not problems.
const FINE: [&str; 3] = ["ok", "redirected", "upgraded"];

pub(super) fn router() -> Router<View> {
    Router::new()
        .route("/top", get(top))
        .route("/requests/{id}", get(request))
        .route("/keys/{id}", get(key))
        .route("/changes", get(changes))
        .route("/drain", post(drain).delete(resume))
}

/// The query of `/top`.
#[derive(serde::Deserialize)]
struct Question {
    by: String,
    minutes: Option<u64>,
    limit: Option<usize>,
}

async fn top(State(view): State<View>, Query(question): Query<Question>) -> Response {
    let by: By = match question.by.parse() {
        Ok(by) => by,
        Err(unknown) => return Refusal::new(400, "bad_request", format!("{unknown}")).into_response(),
    };
    let limit = question.limit.unwrap_or(ROWS).min(ROWS_MAX);
    let minutes = question.minutes.unwrap_or(MINUTES).clamp(1, MINUTES);
    Json(json!({ "node": view.live.node, "minutes": minutes, "rows": rows(&view, by, minutes, limit) })).into_response()
}

fn rows(view: &View, by: By, minutes: u64, limit: usize) -> Vec<Value> {
    let rows = view.gateway.telemetry.recent.top.busiest(by, minutes, limit, view.clock.monotonic());
    let rows = rows.into_iter().map(|(name, row)| {
        let mut fields = json!(row);
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("name".to_owned(), json!(name));
        }
        fields
    });
    rows.collect()
}

/// The codes with the most refusals in the last minutes.
pub(super) fn refusals(view: &View, limit: usize) -> Value {
    let mut rows = rows(view, By::Code, MINUTES, usize::MAX);
    rows.retain(|row| row.get("name").and_then(Value::as_str).is_some_and(|name| !FINE.contains(&name)));
    rows.truncate(limit);
    Value::Array(rows)
}

/// The certificates that expire first, including the platform's.
pub(super) fn certificates(view: &View, limit: usize) -> Value {
    let now = view.clock.now_seconds();
    let pipeline = &view.gateway.pipeline;
    let of_domains = pipeline.replica.soonest_to_expire(limit).into_iter();
    let mut all: Vec<_> = of_domains.map(|expiry| (CertificateKind::Domains, expiry)).collect();
    let platform = pipeline.platform_certificate.as_ref();
    all.extend(platform.map(|platform| (CertificateKind::Platform, platform.expiry())));
    all.sort_by_key(|(_, expiry)| expiry.not_after);
    all.truncate(limit);
    let show = |(kind, expiry): (CertificateKind, Expiry)| {
        json!({
            "host": expiry.hostname,
            "kind": kind.as_str(),
            "ends_at": expiry.not_after,
            "lifetime_left": (expiry.left(now) * 1_000.0).round() / 1_000.0,
        })
    };
    all.into_iter().map(show).collect()
}

/// The faults of the platform's certificate.
pub(super) fn platform_certificate_faults(view: &View) -> Vec<Trouble> {
    let platform = view.gateway.pipeline.platform_certificate.as_ref();
    let faults = platform.into_iter().flat_map(|platform| platform.faults());
    faults.map(|fault| Trouble::of_platform(fault.to_string(), fault.remedy())).collect()
}

async fn request(State(view): State<View>, Path(id): Path<String>) -> Response {
    let line = view.gateway.telemetry.recent.requests.find(&id);
    let Some(line) = line.and_then(|line| serde_json::from_slice::<Value>(&line).ok()) else {
        let words = "This gateway has no record of this request: it keeps the last few thousand, and failed ones longer. Search the access log for the id.";
        return Refusal::new(404, "request_not_remembered", words).into_response();
    };
    let word = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = word("code");
    let why = match Rejection::ALL.iter().find(|rejection| rejection.code() == code) {
        Some(rejection) => json!({
            "who_must_act": rejection.blame().as_str(),
            "message_to_client": rejection.message(),
            "because": line.get("reason"),
            "read": format!("docs/reference/errors.md#{code}"),
        }),
        None => match line.get("status").and_then(Value::as_u64).unwrap_or(0) {
            0 => json!({ "who_must_act": "client", "because": "The client disconnected before the response began." }),
            _ if word("upstream").is_empty() => {
                json!({ "because": "The gateway answered this request itself; nothing failed." })
            }
            400.. => {
                json!({ "because": format!("The upstream {} sent this status; its log has the reason.", word("upstream")) })
            }
            _ => json!({ "because": format!("The upstream {} answered.", word("upstream")) }),
        },
    };
    Json(json!({ "node": view.live.node, "request": line, "why": why })).into_response()
}

async fn key(State(view): State<View>, Path(id): Path<String>) -> Response {
    let replica = view.gateway.pipeline.replica.clone();
    let found = match (id.parse::<KeyId>(), id.parse::<KeyDigest>()) {
        // There may be a million keys to search: not on a thread that serves requests.
        (Ok(id), _) => tokio::task::spawn_blocking(move || replica.key_called(&id)).await.ok().flatten(),
        (_, Ok(digest)) => replica.key(&digest).map(|key| (*key).clone()),
        (Err(error), _) => return Refusal::new(400, "bad_request", format!("{error}")).into_response(),
    };
    let pipeline = &view.gateway.pipeline;
    let Some(key) = found else {
        let words = format!(
            "This gateway has no such key at revision {}: it was revoked, never created, or has not arrived yet. Requests with it get 401.",
            pipeline.replica.revision()
        );
        return Refusal::new(404, "key_not_found", words).into_response();
    };
    let project = pipeline.replica.project(&key.project);
    let now = view.clock.now_seconds();
    let bans = pipeline.quota.bans();
    let ban = bans.iter().find(|ban| ban.key == key.id);
    let mut why = Vec::new();
    match &key.expires_at {
        Some(ends) if *ends <= now => why.push(format!("It expired at {}: 401 expired_api_key.", ends.0)),
        _ => {}
    }
    if key.environment != pipeline.environment {
        why.push("It belongs to another deployment: 401 invalid_api_key.".to_owned());
    }
    if let Some(ban) = ban {
        why.push(format!("It is banned until {}: 429 api_key_banned.", ban.until.0));
    }
    match &project {
        None => why.push("Its project is unknown to this gateway: 401 invalid_api_key.".to_owned()),
        Some(project) if project.suspended => why.push("Its project is suspended: 403 project_suspended.".to_owned()),
        Some(_) => {}
    }
    let allowances = project.as_ref().map(|project| pipeline.quota.allowances(&project.uid, project.limits));
    if allowances.is_some_and(|allowances| {
        allowances.minute.remaining == 0 || allowances.day.is_some_and(|day| day.remaining == 0)
    }) {
        why.push("Its project has used up its minute or its day: 429.".to_owned());
    }
    if why.is_empty() {
        why.push("Valid; has quota left.".to_owned());
    }
    Json(json!({
        "node": view.live.node,
        "key": {
            "id": key.id.as_str(),
            "project": key.project,
            "environment": key.environment,
            "scopes": key.scopes,
            "expires_at": key.expires_at,
        },
        "project": project.as_deref(),
        "ban": ban,
        "why": why,
    }))
    .into_response()
}

/// The state of an upstream.
pub(super) fn upstream(view: &View, name: &UpstreamName) -> Value {
    let now = view.clock.monotonic();
    match view.gateway.pipeline.upstreams.find(name) {
        Some(upstream) => json!({
            "name": name,
            "endpoints": upstream.endpoints.len(),
            "up": upstream.endpoints.up(now),
            "insecure": upstream.settings.transport.is_insecure(),
            "failing_because": upstream.endpoints.failing_because(),
        }),
        None => json!({ "name": name, "endpoints": 0, "up": 0 }),
    }
}

/// How requests for a host are handled, and why.
pub(super) fn why_host(
    site: &Site,
    project: Option<&Project>,
    certificate: &str,
    upstream: Option<&Value>,
) -> Vec<String> {
    let mut why = Vec::new();
    if certificate == "none" {
        why.push("No certificate covers it: handshakes for it are refused.".to_owned());
    }
    if let Some(redirect) = &site.redirect {
        why.push(format!("It is not the primary domain: visitors are redirected to {}.", redirect.to));
    }
    if project.is_some_and(|project| project.suspended) {
        why.push("Its project is suspended: 403 project_suspended.".to_owned());
    }
    let figure = |name: &str| upstream.and_then(|upstream| upstream.get(name)?.as_u64()).unwrap_or(0);
    if figure("endpoints") == 0 {
        why.push("Its upstream is not configured on this gateway: 503 upstream_unknown.".to_owned());
    } else if figure("up") == 0 {
        let because = upstream.and_then(|upstream| upstream.get("failing_because")?.as_str());
        why.push(match because {
            Some(because) => format!("All addresses of its upstream refused the last connection: {because}."),
            None => "All addresses of its upstream failed the last request: 502 upstream_unreachable.".to_owned(),
        });
    }
    if upstream.and_then(|upstream| upstream.get("insecure")?.as_bool()) == Some(true) {
        why.push("INSECURE: the certificate of its upstream is not verified (tls.insecure).".to_owned());
    }
    if why.is_empty() {
        why.push("Requests are served.".to_owned());
    }
    why
}

/// Number of recent changes.
#[derive(serde::Deserialize)]
struct Newest {
    limit: Option<usize>,
}

async fn changes(State(view): State<View>, Query(newest): Query<Newest>) -> Json<Value> {
    let limit = newest.limit.unwrap_or(CHANGES_MAX).min(CHANGES_MAX);
    Json(json!({ "node": view.live.node, "changes": view.gateway.telemetry.recent.changes.newest(limit) }))
}

async fn drain(State(view): State<View>) -> Json<Value> {
    view.live.health.drain();
    view.gateway.telemetry.draining.set(1);
    view.live.connections.announce_drain();
    view.gateway.telemetry.recent.changes.record("drain", "an operator took this gateway out of rotation");
    tracing::info!("an operator took this gateway out of rotation");
    Json(json!({ "node": view.live.node, "draining": true, "connections": view.live.connections.live() }))
}

async fn resume(State(view): State<View>) -> Response {
    if view.live.shutdown.has_begun() {
        return Refusal::new(409, "ending", "This gateway is ending.").into_response();
    }
    view.live.connections.revoke_drain();
    view.gateway.telemetry.draining.set(0);
    view.live.health.resume();
    view.gateway.telemetry.recent.changes.record("drain", "an operator put this gateway back into rotation");
    tracing::info!("an operator put this gateway back into rotation");
    Json(json!({ "node": view.live.node, "draining": false, "connections": view.live.connections.live() }))
        .into_response()
}
