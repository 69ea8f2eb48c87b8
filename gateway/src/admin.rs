//! The gateway's own routes on the admin listener, for `tollhouse status` and for operators with curl.

mod inspect;

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chassis::clock::Clock;
use chassis::guard::{PassGuard, require_pass};
use chassis::health::Health;
use chassis::peer::Listeners;
use chassis::refusal::Refusal;
use chassis::shutdown::Shutdown;
use chassis::supervise::Supervisor;
use contract::hostname::Hostname;
use contract::key::KeyId;
use contract::project::ProjectId;
use contract::site::Serves;
use contract::window::Window;
use serde_json::{Value, json};

use crate::clock::FleetClock;
use crate::exchange::Gateway;
use listener::Connections;
use quota::allowance::Allowance;
use quota::ledger::{self, bucket::NodeView};
use quota::store::StoreOutage;
use replica::Unregistered;

/// State that the running gateway shares with its admin listener.
pub(crate) struct Live {
    /// The id of this process.
    pub node: String,
    /// Open connections.
    pub connections: Arc<Connections>,
    /// Readiness.
    pub health: Health,
    /// The shutdown: once announced, a manual drain cannot be reverted.
    pub shutdown: Shutdown,
}

impl Live {
    pub(crate) fn new(node: &str, connections: &Arc<Connections>, health: &Health, shutdown: &Shutdown) -> Self {
        let (connections, health, shutdown) = (connections.clone(), health.clone(), shutdown.clone());
        Self { node: node.to_owned(), connections, health, shutdown }
    }
}

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct View {
    /// The data plane.
    pub gateway: Arc<Gateway>,
    /// Connections and the feed.
    pub live: Arc<Live>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The fleet's clock.
    pub fleet_clock: Arc<FleetClock>,
    /// This listener's certificate.
    pub listeners: Listeners,
    /// The background tasks.
    pub tasks: Supervisor,
}

/// `GET /status`, `GET /hosts/{host}`, `GET /usage/{project}`, `GET /bans`; and with an operator's pass
/// `POST /bans/{key}?seconds=N` (at most a day), `DELETE /bans/{key}`, `POST` and `GET /replica/accept`,
/// `POST` and `DELETE /drain`, `GET /top`,
/// `/requests/{id}`, `/keys/{id}` and `/changes`.
pub(crate) fn router(view: View, operators: PassGuard) -> Router {
    let with_token = Router::new()
        .route("/bans/{key}", post(ban).delete(lift))
        .route("/replica/accept", post(accept).get(accepted))
        .merge(inspect::router())
        .route_layer(axum::middleware::from_fn_with_state(operators, require_pass));
    Router::new()
        .route("/status", get(status))
        .route("/hosts/{host}", get(host))
        .route("/usage/{project}", get(usage))
        .route("/bans", get(bans))
        .merge(with_token)
        .with_state(view)
}

/// The numbers of certificates and codes in `/status`.
const CERTIFICATES_SHOWN: usize = 5;
const REFUSALS_SHOWN: usize = 5;

async fn status(State(view): State<View>) -> Json<Value> {
    let pipeline = &view.gateway.pipeline;
    let now = view.clock.monotonic();
    let upstreams: Vec<Value> = pipeline
        .upstreams
        .all()
        .iter()
        .map(|upstream| {
            json!({
                "name": upstream.settings.name,
                "endpoints": upstream.endpoints.len(),
                "up": upstream.endpoints.up(now),
                "in_turn": upstream.endpoints.in_rotation(now),
                "speaks": upstream.settings.transport.scheme(),
                "insecure": upstream.settings.transport.is_insecure(),
                "failing_because": upstream.endpoints.failing_because(),
                "failing_for_seconds": upstream.endpoints.failing_for(now).map(|time| time.as_secs()),
                "tried_seconds_ago": upstream.endpoints.tried().map(|time| time.as_secs()),
                "in_flight": upstream.in_flight(),
                "websockets": upstream.websockets(),
            })
        })
        .collect();
    let clocks = view.fleet_clock.off();
    let (refusal, outage) = (pipeline.replica.refusal(), pipeline.quota.trouble());
    Json(json!({
        "gateway": view.gateway.telemetry.gateway.load().as_deref(),
        "node": view.live.node,
        "version": env!("CARGO_PKG_VERSION"),
        "revision": pipeline.replica.revision(),
        "replica_refuses": refusal.as_ref().map(|(why, _)| why),
        "replica_remedy": refusal.as_ref().map(|(_, remedy)| remedy),
        "unusable_certificates": pipeline.replica.unusable(CERTIFICATES_SHOWN),
        "unregistered": pipeline.replica.unregistered().map(Unregistered::as_str),
        "ready": view.live.health.is_ready(),
        "now": view.fleet_clock.now_seconds(),
        "clock_behind_milliseconds": -clocks.machine,
        "clocks_off_milliseconds": { "quota_store": clocks.store, "control_plane": clocks.control },
        "feed_received_at": view.gateway.telemetry.feed_received.get(),
        "damaged_files": view.gateway.telemetry.damaged_files(),
        "settings_refused": *view.gateway.telemetry.settings_refused.lock(),
        "log_lines_dropped": view.gateway.telemetry.lines_dropped(),
        "platform_certificate_faults": inspect::platform_certificate_faults(&view),
        "listener_certificate_faults": view.listeners.faults(view.clock.now_seconds()),
        "panicked_tasks": view.tasks.panicked(),
        "certificates": inspect::certificates(&view, CERTIFICATES_SHOWN),
        "top_refusals": inspect::refusals(&view, REFUSALS_SHOWN),
        "connections": view.live.connections.live(),
        "requests_in_flight": view.gateway.telemetry.in_flight.get(),
        "draining": view.live.health.is_draining(),
        "quota": {
            "mode": pipeline.quota.mode().as_str(),
            "store_trouble": outage.as_ref().map(ToString::to_string),
            "store_remedy": outage.as_ref().map(StoreOutage::remedy),
        },
        "upstreams": upstreams,
    }))
}

async fn host(State(view): State<View>, Path(host): Path<String>) -> Response {
    let Ok(host) = Hostname::parse(&host) else {
        return Refusal::new(400, "bad_host", "Invalid hostname.").into_response();
    };
    let pipeline = &view.gateway.pipeline;
    let Some(site) = pipeline.replica.site(&host) else {
        return Refusal::new(404, "unknown_host", "This gateway serves no such host.").into_response();
    };
    let certificate = match (pipeline.replica.certificate(&host), &pipeline.platform_certificate) {
        (Some(_), _) => "own",
        (None, Some(platform)) if platform.covering(&host).is_some() => "platform",
        _ => "none",
    };
    let project = match &site.serves {
        Serves::Project(id) => pipeline.replica.project(id),
        Serves::Platform { .. } => None,
    };
    let upstream = match (&site.serves, project.as_deref()) {
        (Serves::Platform { upstream, .. }, _) => Some(upstream),
        (_, project) => project.map(|project| &project.upstream),
    };
    let upstream = upstream.map(|name| inspect::upstream(&view, name));
    Json(json!({
        "site": *site,
        "project": project.as_deref(),
        "certificate": certificate,
        "upstream": upstream,
        "revision": pipeline.replica.revision(),
        "why": inspect::why_host(&site, project.as_deref(), certificate, upstream.as_ref()),
    }))
    .into_response()
}

async fn usage(State(view): State<View>, Path(project): Path<String>) -> Response {
    let pipeline = &view.gateway.pipeline;
    let found = project.parse::<ProjectId>().ok().and_then(|id| pipeline.replica.project(&id));
    let Some(project) = found else {
        return Refusal::new(404, "project_not_found", "This gateway knows no such project.").into_response();
    };
    // The store's record covers all nodes; without it, this node's own figures are shown.
    let figures = pipeline.quota.usage(&project.uid).await;
    let mut known = json!({
        "project": project.id,
        "plan": project.plan,
        "shadow": pipeline.shadow_plans.contains(&project.plan),
        "mode": pipeline.quota.mode().as_str(),
    });
    let allowances = pipeline.quota.allowances(&project.uid, project.limits);
    let of_this_node = |window: Allowance| {
        json!({
            "limit": window.limit,
            "used": window.limit.saturating_sub(window.remaining),
            "remaining": window.remaining,
            "resets_at": window.resets_at,
        })
    };
    let (minute, day, nodes) = match figures {
        Ok(Some(figures)) => {
            let window = |window: Window, charged: u64, index: i64| {
                let limit = project.limits.of(window);
                let remaining = u64::from(limit).saturating_sub(charged);
                json!({ "limit": limit, "used": charged, "remaining": remaining, "resets_at": window.ends_at(index) })
            };
            let minute = window(Window::Minute, figures.minute_charged, figures.minute);
            let day = window(Window::Day, figures.day_charged, ledger::day_of(figures.minute));
            (minute, day, json!(figures.nodes.iter().map(node).collect::<Vec<_>>()))
        }
        Ok(None) => (of_this_node(allowances.minute), json!(allowances.day.map(of_this_node)), json!([])),
        Err(_) => (of_this_node(allowances.minute), json!(allowances.day.map(of_this_node)), Value::Null),
    };
    if let Some(known) = known.as_object_mut() {
        known.extend([("minute".to_owned(), minute), ("day".to_owned(), day), ("nodes".to_owned(), nodes)]);
    }
    Json(known).into_response()
}

/// One node's part of a bucket, for display.
fn node(part: &NodeView) -> Value {
    json!({
        "place": format!("{:016x}", part.node.place),
        "minute": part.minute_units,
        "held": part.held,
        "day": part.day_units,
    })
}

/// Accepts the refused state of the control plane, even if it is of another history or lacks most of the served names.
/// 409 if nothing is refused.
async fn accept(State(view): State<View>) -> Response {
    if let Err(why) = view.gateway.pipeline.replica.accept(view.clock.monotonic()) {
        return Refusal::new(409, "nothing_to_accept", why.to_string()).into_response();
    }
    let words = "an operator accepted the refused state; requesting a snapshot";
    view.gateway.telemetry.recent.changes.record("replica", words.to_owned());
    tracing::info!("an operator accepted the refused state; requesting a full snapshot");
    accepted(State(view)).await.into_response()
}

/// The state of the acceptance, and why the control plane's data was refused.
async fn accepted(State(view): State<View>) -> Json<Value> {
    let replica = &view.gateway.pipeline.replica;
    let mut body = json!(replica.acceptance());
    if let Some(fields) = body.as_object_mut() {
        let refused = replica.refusal().map(|(why, remedy)| format!("{why}: {remedy}"));
        fields.insert("refused".to_owned(), json!(refused));
    }
    Json(body)
}

async fn bans(State(view): State<View>) -> Json<Value> {
    Json(json!({ "bans": view.gateway.pipeline.quota.bans() }))
}

/// The duration of a manual ban.
#[derive(serde::Deserialize)]
struct BanFor {
    seconds: i64,
}

async fn ban(State(view): State<View>, Path(key): Path<String>, Query(duration): Query<BanFor>) -> Response {
    let until = view.clock.now_seconds().plus(duration.seconds.clamp(1, 86_400));
    change_ban(&view, &key, "banned", |view, key| view.gateway.pipeline.quota.ban(key, until))
}

async fn lift(State(view): State<View>, Path(key): Path<String>) -> Response {
    change_ban(&view, &key, "lifted", |view, key| view.gateway.pipeline.quota.lift(key))
}

fn change_ban<T: serde::Serialize>(
    view: &View,
    key: &str,
    what: &'static str,
    change: impl FnOnce(&View, &KeyId) -> T,
) -> Response {
    match key.parse::<KeyId>() {
        Ok(key) => {
            let result = json!(change(view, &key));
            tracing::info!(%key, what, %result, "an operator changed a ban");
            Json(json!({ "key": key, "result": result })).into_response()
        }
        Err(error) => Refusal::new(400, "bad_request", error.to_string()).into_response(),
    }
}
