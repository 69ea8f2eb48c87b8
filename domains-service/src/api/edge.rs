//! For gateways: the change stream and their reports. For operators: the state of the gateways.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::guard;
use chassis::openapi::Method;
use chassis::refusal::Refusal;
use chassis::shutdown::Shutdown;
use chassis::sql::UnreadableRows;
use contract::feed::{InvalidMark, NodeReport, Revision, UNSERVED_MAX};
use contract::hostname::Hostname;
use contract::usage::{BANS_MAX, KEY_USES_MAX, KeyReport, KeyUse, USAGE_PROJECTS_MAX, UsageReport};
use serde_json::json;
use tokio::sync::mpsc;

use super::Operation;
use super::extract::{Json, Params};
use super::types::{GatewayProcess, GatewayProcesses, Withdrawals};
use crate::app::App;
use crate::common::Core;
use crate::error::{ApiError, ApiResult, Code};
use crate::feed::{self, Ended, PIECES_WAITING_MAX, Permits};
use crate::gateways::Gateways;
use crate::key_rotation;
use crate::nodes::{NODES_OF_ONE_MAX, Nodes, gateway_of};
use crate::store::credentials::Credential;
use crate::store::keys;
use crate::store::log::Next;
use crate::store::log::claim::Claim;
use crate::store::rows::Table;
use crate::withdrawals;

/// Operations for gateways.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation::internal("followFeed", Method::Get, "/internal/edge/feed", |get| on(get, feed)),
    Operation::internal("reportNode", Method::Post, "/internal/edge/nodes", |post| on(post, report)),
    Operation::internal("reportUsage", Method::Post, "/internal/edge/usage", |post| on(post, usage)),
    Operation::internal("reportKeys", Method::Post, "/internal/edge/keys", |post| on(post, take_keys)),
];

const NODES: Operation = Operation::internal("listNodes", Method::Get, "/internal/nodes", |get| on(get, nodes));
const STATUS: Operation = Operation::internal("showStatus", Method::Get, "/internal/status", |get| on(get, status));
const WITHDRAWALS: Operation =
    Operation::internal("listWithdrawals", Method::Get, "/internal/withdrawals", |get| on(get, withdrawals));

/// Operations on the edge, for operators.
pub(super) const OF_OPERATORS: &[Operation] = &[NODES, STATUS, WITHDRAWALS];

/// Withdrawals in the operators' list.
const WITHDRAWALS_SHOWN_MAX: i64 = 200;

/// The longest name of a node.
const NODE_BYTES_MAX: usize = 128;

/// `GET /internal/edge/feed?node=ID&after=REVISION&mark=MARK&keyring=1&whole=1`: frames without end; with the gateway's
/// keys if `keyring` is given, and with a snapshot first if `whole` is given. Refuses a follower of
/// another history.
async fn feed(
    State(gateways): State<Arc<Gateways>>,
    Extension(permits): Extension<Arc<Permits>>,
    Extension(shutdown): Extension<Shutdown>,
    Extension(edge): Extension<Credential>,
    params: Params,
) -> ApiResult {
    let core = &gateways.core;
    let node = params.text("node").unwrap_or_default().to_owned();
    if node.is_empty() || node.len() > NODE_BYTES_MAX {
        return Code::InvalidQuery.fail("Name the gateway's process: node=NAME.");
    }
    let node = edge.node(&node);
    let after = Revision(params.value("after", 0, "a revision")?);
    let bad_mark = |error: InvalidMark| Code::InvalidQuery.refuse(format!("mark: {error}."));
    let mark = params.text("mark").map(str::parse).transpose().map_err(bad_mark)?;
    // Followers of another history come back each second and get no permit of a follower.
    let checking = permits.to_report(&edge.digest).await.ok_or_else(too_many_reports)?;
    if let Next::OtherHistory(newest) = core.store.changes_after(&core.sealing, (after, mark), 0).await? {
        let (_, here, _) = core.store.snapshot().await?;
        return Err(refuse_history(&gateways.nodes, &node, after, newest).with_details(json!(here)).into());
    }
    drop(checking);
    admit(&gateways, &permits, &edge, &node).await?;
    if !core.store.is_good(&edge.digest) {
        return Ok(guard::token_required());
    }
    let Some(permit) = permits.take(&edge.digest) else {
        return Code::StorageUnavailable.fail("The maximum number of gateways is connected. Retry later.");
    };
    let (pieces, waiting) = mpsc::channel(PIECES_WAITING_MAX);
    let watch = core.store.watch_credential(&edge.digest);
    let wants_keyring = params.text("keyring") == Some("1");
    let position = if params.text("whole") == Some("1") { (Revision::default(), None) } else { (after, mark) };
    let follower = feed::Follower {
        gateways,
        permits,
        credential: edge,
        node: node.clone(),
        wants_keyring,
        keys: None,
        pieces,
        sent: position,
    };
    tokio::spawn(async move {
        let _permit = permit;
        match feed::serve(follower, shutdown).await {
            Ok(()) | Err(Ended::Left) => tracing::debug!(node, "a gateway closed its change stream"),
            Err(error) => tracing::warn!(node, %error, "ended a gateway's change stream; it reconnects"),
        }
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(feed::body(waiting, watch))).into_response())
}

/// The refusal for a gateway that followed another history.
fn refuse_history(nodes: &Nodes, node: &str, after: Revision, newest: Revision) -> Refusal {
    nodes.refused_history(node);
    tracing::warn!(
        node,
        revision = after.0,
        newest = newest.0,
        "refused a gateway: this database lacks the revision that it applied last. It serves its last good state. \
         Restore the right database, or run `tollhouse node accept`"
    );
    let message = format!("This database has no revision {after} with this mark; its newest revision is {newest}.");
    Code::History.refuse(message)
}

/// `POST /internal/edge/nodes`: the revision that a gateway has applied. Refuses impossible reports: an unknown
/// revision, one of another history, or too many processes with one credential. A revision whose mark the log no longer
/// keeps counts as nothing applied.
async fn report(
    State(gateways): State<Arc<Gateways>>,
    Extension(permits): Extension<Arc<Permits>>,
    Extension(edge): Extension<Credential>,
    Json(report): Json<NodeReport>,
) -> ApiResult {
    let is_named = (1..=NODE_BYTES_MAX).contains(&report.node.len()) && !report.node.contains('/');
    if !is_named || report.version.len() > NODE_BYTES_MAX {
        return Code::InvalidBody.fail("node and version have 1 to 128 characters, and node has no slash.");
    }
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if report.place.as_deref().is_some_and(|place| place.len() != 16 || !place.bytes().all(is_digit)) {
        return Code::InvalidBody.fail("place is 16 hexadecimal digits.");
    }
    let mut report = NodeReport { node: edge.node(&report.node), ..report };
    admit(&gateways, &permits, &edge, &report.node).await?;
    make_due(&gateways.core, &std::mem::take(&mut report.unserved)).await;
    let report = match gateways.core.store.claim(&report).await? {
        Claim::Held => report,
        Claim::Unproven => report.of_nothing(),
        Claim::NeverGiven => return Err(refuse_revision(&gateways.nodes, &report)),
        Claim::OtherHistory(newest) => {
            gateways.nodes.invalidate(&report.node);
            return Err(refuse_history(&gateways.nodes, &report.node, report.applied, newest).into());
        }
    };
    gateways.peers.send(&report, gateways.nodes.report(report.clone())).await;
    Ok(http::StatusCode::NO_CONTENT.into_response())
}

/// Makes inactive domains of these names due: visitors use them already, so their records may be right.
async fn make_due(core: &Core, unserved: &[Hostname]) {
    for name in unserved.iter().take(UNSERVED_MAX) {
        let result = match core.store.make_due_for_visitors(name).await {
            Ok(true) => {
                core.wake.notify_one();
                "due"
            }
            Ok(false) => "not_due",
            Err(error) => {
                tracing::debug!(domain = %name, %error, "cannot make the domain of a handshake due");
                "failed"
            }
        };
        core.metrics.handshake_checks.with_label_values(&[result]).inc();
    }
}

/// Refuses a process beyond the maximum of its credential.
async fn admit(gateways: &Gateways, permits: &Permits, edge: &Credential, node: &str) -> ApiResult<()> {
    if gateways.nodes.knows(node) {
        return Ok(());
    }
    let _permit = permits.to_report(&edge.digest).await.ok_or_else(too_many_reports)?;
    if let Err(error) = gateways.load_processes().await {
        tracing::debug!(%error, "cannot read the list of gateway processes; counting those that reported lately");
    }
    if gateways.nodes.has_room_for(node) {
        return Ok(());
    }
    tracing::warn!(
        node,
        processes_max = NODES_OF_ONE_MAX,
        "refused a gateway process: the maximum of processes is registered with its credential. If you do not know \
         these processes, run `tollhouse node revoke`"
    );
    let message = format!("{NODES_OF_ONE_MAX} processes are registered with this credential, the maximum.");
    Code::TooManyProcesses.fail(message)
}

/// The refusal for a report of an unknown revision.
fn refuse_revision(nodes: &Nodes, report: &NodeReport) -> ApiError {
    nodes.invalidate(&report.node);
    nodes.refused_history(&report.node);
    tracing::warn!(
        node = report.node,
        revision = report.applied.0,
        "refused a gateway's report: its revision does not exist. Withdrawals wait for this gateway. If no older \
         database was restored, its credential may be stolen: run `tollhouse node revoke`"
    );
    Code::UnknownRevision.refuse(format!("The database has no revision {}.", report.applied)).into()
}

/// `POST /internal/edge/usage`: the requests that a gateway has counted, for the dashboard. Refuses what exceeds the
/// maximum.
async fn usage(
    State(core): State<Arc<Core>>,
    Extension(permits): Extension<Arc<Permits>>,
    Extension(edge): Extension<Credential>,
    Json(report): Json<UsageReport>,
) -> ApiResult {
    let UsageReport { node, projects } = report;
    if node.is_empty() || node.len() > NODE_BYTES_MAX || projects.len() > USAGE_PROJECTS_MAX {
        let message = format!("node has 1 to 128 characters, and a report at most {USAGE_PROJECTS_MAX} projects.");
        return Code::InvalidBody.fail(message);
    }
    let node = edge.node(&node);
    let _permit = permits.to_report(&edge.digest).await.ok_or_else(too_many_reports)?;
    let (mut write, mut has_room) = (core.store.write().await?, true);
    for usage in &projects {
        has_room &= write.record_usage(&node, usage).await?;
    }
    write.commit().await?;
    taken(&node, has_room, "usage")
}

/// `POST /internal/edge/keys`: the last use of keys, and the bans that a gateway knows. Refuses bans beyond the
/// maximum.
async fn take_keys(
    State(core): State<Arc<Core>>,
    Extension(permits): Extension<Arc<Permits>>,
    Extension(edge): Extension<Credential>,
    Json(report): Json<KeyReport>,
) -> ApiResult {
    let is_named = (1..=NODE_BYTES_MAX).contains(&report.node.len());
    if !is_named || report.used.len() > KEY_USES_MAX || report.bans.len() > BANS_MAX {
        let message =
            format!("node has 1 to 128 characters, and a report at most {KEY_USES_MAX} keys and {BANS_MAX} bans.");
        return Code::InvalidBody.fail(message);
    }
    let report = KeyReport { node: edge.node(&report.node), ..report };
    let _permit = permits.to_report(&edge.digest).await.ok_or_else(too_many_reports)?;
    let mut write = core.store.write().await?;
    let now = write.now();
    for KeyUse { key, minute } in &report.used {
        keys::record_use(write.connection(), key, *minute, now).await?;
    }
    let has_room = write.record_bans(&report).await?;
    write.commit().await?;
    taken(&report.node, has_room, "bans")
}

fn too_many_reports() -> ApiError {
    let message = "The maximum of waiting reports with this credential is reached. Retry shortly.";
    Code::StorageUnavailable.refuse(message).with_header(header::RETRY_AFTER, "1").into()
}

/// The response to a report: a refusal if a part of it exceeded a maximum. The other parts are stored.
fn taken(node: &str, has_room: bool, what: &'static str) -> ApiResult {
    if has_room {
        return Ok(http::StatusCode::NO_CONTENT.into_response());
    }
    tracing::warn!(
        node,
        what,
        "refused a gateway's report: the maximum of processes, of its credential or of all gateways, has reported. If \
         you do not know these processes, run `tollhouse node revoke`"
    );
    Code::TooManyProcesses.fail(format!("Too many processes report {what}. Reports of earlier processes are kept."))
}

/// `GET /internal/nodes`: the processes of gateways that removals wait for.
async fn nodes(State(gateways): State<Arc<Gateways>>) -> ApiResult {
    let revision = gateways.load_processes().await?;
    let now = gateways.core.clock.now();
    let nodes = gateways.nodes.all().into_iter().map(|known| GatewayProcess {
        gateway: gateway_of(&known.report.node).map(str::to_owned),
        live: known.live,
        silent_ms: now.since(known.last_seen).max(0),
        first_seen_at: known.first_seen.into(),
        last_seen_at: known.last_seen.into(),
        node: known.report.node,
        place: known.report.place,
        applied: known.report.applied,
        version: known.report.version,
    });
    Ok(axum::Json(GatewayProcesses { revision, nodes: nodes.collect() }).into_response())
}

/// `GET /internal/withdrawals`: withdrawals that a gateway has not confirmed, oldest first, at most
/// [`WITHDRAWALS_SHOWN_MAX`].
async fn withdrawals(State(gateways): State<Arc<Gateways>>) -> ApiResult {
    let total: i64 = gateways.core.store.count_withdrawals().await?.iter().map(|counted| counted.count).sum();
    let found = gateways.core.store.withdrawals(WITHDRAWALS_SHOWN_MAX).await?;
    if !found.is_empty() {
        gateways.load_processes().await?;
    }
    let list = found.iter().map(|withdrawal| withdrawals::listed(&gateways.nodes, withdrawal)).collect();
    Ok(axum::Json(Withdrawals { withdrawals: list, total }).into_response())
}

/// `GET /internal/status`.
async fn status(State(App { core, gateways, issuing, api }): State<App>) -> ApiResult {
    let revision = core.store.newest_revision().await?;
    let domains: serde_json::Map<String, serde_json::Value> =
        core.store.domains_by_status().await?.into_iter().map(|(status, count)| (status, json!(count))).collect();
    let (projects, keys) = core.store.count_projects_and_keys().await?;
    let nodes = gateways.nodes.status_of_live(revision);
    let sealed = key_rotation::count(&core).await?;
    let withdrawals: i64 = core.store.count_withdrawals().await?.iter().map(|counted| counted.count).sum();
    let now = core.clock.now();
    let trouble = api.faults.last_trouble.lock().clone();
    let trouble =
        trouble.map(|(code, at)| json!({ "code": code, "at": at, "seconds_ago": (now.0 - at.0).max(0) / 1_000 }));
    let shown = json!({
        "revision": revision,
        "environment": core.settings.environment,
        "platform_domain": core.settings.platform,
        "projects": projects,
        "keys": keys,
        "domains": domains,
        "nodes_live": nodes.asked,
        "nodes_lagging": nodes.lagging,
        "gateways_of_another_history": gateways.nodes.of_another_history(),
        "withdrawals": withdrawals,
        "certificate_authorities": issuing.authorities.names(),
        "sealed_with_older": sealed.older,
        "sealed_with_missing": sealed.missing,
        "credential_files_refused": *api.faults.refused_files.lock(),
        "revocations_file_trouble": core.store.revocations().and_then(|file| file.trouble()),
        "listener_certificate_faults": api.faults.listeners.faults(now.to_seconds()),
        "panicked_tasks": core.metrics.tasks.panicked(),
        "unreadable_rows": unreadable_rows(core.store.reader().unreadable()),
        "trouble": trouble,
    });
    Ok(axum::Json(shown).into_response())
}

/// Maximum of rows in lists for operators.
const UNREADABLE_SHOWN: usize = 100;

fn unreadable_rows(unreadable: &UnreadableRows) -> serde_json::Value {
    let total: usize = Table::WORDS.iter().map(|table| unreadable.count(table)).sum();
    let shown = unreadable.entries(UNREADABLE_SHOWN).into_iter().map(|(key, bad)| {
        json!({ "table": key.table, "row": key.row, "of": key.of, "column": bad.column, "reason": bad.reason })
    });
    json!({ "total": total, "rows": shown.collect::<Vec<_>>() })
}
