//! Counting requests by operation.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use chassis::refusal::RefusalCode;

use crate::app::App;

/// Counts the request under its operation and class of status.
pub(super) async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let operation = operation(request.method().as_str(), path);
    let response = next.run(request).await;
    let class = class(response.status().as_u16());
    app.core.metrics.requests.with_label_values(&[operation, class]).inc();
    if class == "5xx"
        && let Some(code) = response.extensions().get::<RefusalCode>()
    {
        *app.api.last_trouble.lock() = Some((code.0.clone(), app.core.clock.now()));
    }
    response
}

/// Counts a request for which there is no operation.
pub(super) fn unknown(app: &App) {
    app.core.metrics.requests.with_label_values(&["unknown", "4xx"]).inc();
}

const fn class(status: u16) -> &'static str {
    match status {
        ..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

/// The name of an operation, by its method and the pattern of its path.
pub(crate) fn operation(method: &str, path: &str) -> &'static str {
    let path = path.trim_start_matches("/v1").trim_start_matches("/internal");
    let path = path.strip_prefix("/projects/{project}").map_or(path, |rest| rest.trim_end_matches('/'));
    match (method, path) {
        ("GET", "") => "showProject",
        ("PATCH", "") => "changeProject",
        ("DELETE", "") => "deleteProject",
        ("POST", "/deploy") => "deployProject",
        ("POST", "/restore") => "restoreProject",
        ("GET", "/removed-projects") => "listRemovedProjects",
        ("GET", "/erasures") => "listErasures",
        ("POST", "/erasures") => "confirmErasures",
        ("GET", "/projects") => "listProjects",
        ("POST", "/projects") => "createProject",
        ("GET", "/keys") => "listKeys",
        ("POST", "/keys") => "createKey",
        ("DELETE", "/keys/{key}") => "revokeKey",
        ("POST", "/keys/{key}/rotate") => "rotateKey",
        ("GET", "/domains") => "listDomains",
        ("POST", "/domains") => "addDomain",
        ("GET", "/domains/{domain}") => "showDomain",
        ("PATCH", "/domains/{domain}") => "changeDomain",
        ("DELETE", "/domains/{domain}") => "removeDomain",
        ("POST", "/domains/{domain}/verify") => "verifyDomain",
        ("GET", "/domains/{domain}/events") => "listDomainEvents",
        ("GET", "/domain-check") => "checkDomain",
        ("GET", "/events") => "listEvents",
        ("GET", "/webhooks") => "listWebhooks",
        ("POST", "/webhooks") => "createWebhook",
        ("GET", "/webhooks/{webhook}") => "showWebhook",
        ("PATCH", "/webhooks/{webhook}") => "changeWebhook",
        ("DELETE", "/webhooks/{webhook}") => "removeWebhook",
        ("POST", "/webhooks/{webhook}/rotate") => "rotateWebhookSecret",
        ("POST", "/webhooks/{webhook}/test") => "testWebhook",
        ("GET", "/webhooks/{webhook}/deliveries") => "listWebhookDeliveries",
        ("POST", "/webhooks/{webhook}/deliveries/{delivery}/repeat") => "repeatWebhookDelivery",
        ("GET", "/acme-account") => "showAcmeAccount",
        ("GET", "/openapi.json") => "showDescription",
        ("GET", "/edge/feed") => "followFeed",
        ("POST", "/edge/nodes") => "reportNode",
        ("POST", "/edge/usage") => "reportUsage",
        ("POST", "/edge/keys") => "reportKeys",
        ("GET", "/trust") => "showTrust",
        ("GET", "/known-projects/{uid}") => "checkProject",
        ("POST", "/passes") => "makePass",
        ("GET", "/settings") => "showSettings",
        ("GET", "/credentials") => "listCredentials",
        ("POST", "/credentials") => "createCredential",
        ("DELETE", "/credentials/{kind}/{name}") => "revokeCredential",
        ("GET", "/credentials/gateway/{gateway}/changes") => "listChangesThroughGateway",
        ("POST", "/gateway-keys") => "rotateGatewayKeys",
        ("POST", "/dashboard-links") => "makeDashboardLink",
        ("POST", "/events/orders") => "takeOrderEvents",
        ("GET", "/nodes") => "listNodes",
        ("GET", "/status") => "showStatus",
        ("GET", "/withdrawals") => "listWithdrawals",
        _ => "unknown",
    }
}
