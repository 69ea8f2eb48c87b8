//! Removal of a project, in three steps: removed, kept for a while, erased.
//!
//! After the removal, its keys and its traffic stop at once and its name is free. A new project of the name has
//! another identity and sees no data of the old one. An operator can restore the old one until its restore period ends;
//! then, or at once on request, all its data is erased here, and the other services do the same.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::Method;
use contract::feed::Entity;
use contract::project::ProjectId;
use serde_json::{Value, json};

use super::extract::{Params, Path};
use super::{Operation, projects, view};
use crate::actor::Actor;
use crate::common::Core;
use crate::error::{ApiResult, Code};
use crate::gateways::Gateways;
use crate::publish;
use crate::store::projects::{ProjectRecord, erase, find_named, find_removed};
use crate::store::withdrawals::Kind;
use crate::store::{domains, keys};
use crate::withdrawals::{self, PendingWithdrawals};

/// Operations on removed projects.
pub(super) const OF_ALL: &[Operation] =
    &[Operation::internal("listRemovedProjects", Method::Get, "/internal/removed-projects", |get| on(get, list))];

/// Operations on one project.
pub(super) const OF_ONE: &[Operation] = &[
    Operation::internal("deleteProject", Method::Delete, "/internal/projects/{project}", |delete| on(delete, remove)),
    Operation::internal("restoreProject", Method::Post, "/internal/projects/{project}/restore", |post| {
        on(post, restore)
    }),
];

/// `DELETE /internal/projects/{project}?now=bool`: keys and traffic stop, the name is free, and the data is kept until
/// its restore period ends; with `now` it is erased at once, together with the data of earlier projects of the name.
async fn remove(
    State(core): State<Arc<Core>>,
    State(gateways): State<Arc<Gateways>>,
    Extension(actor): Extension<Actor>,
    Path([project]): Path<1>,
    params: Params,
) -> ApiResult {
    let at_once = params.value("now", false, "true or false")?;
    let name = name(&project)?;
    let started = core.clock.monotonic();
    let mut write = core.store.write().await?;
    let found = find_named(write.connection(), &name).await?;
    let kept = if at_once { find_removed(write.connection(), &name).await? } else { Vec::new() };
    if found.is_none() && kept.is_empty() {
        drop(write);
        // Asked for again while gateways are waited for: the same answer.
        let waiting = core.store.project_removal(name.as_str()).await?.ok_or_else(projects::none)?;
        let acknowledged = withdrawals::wait(&gateways, waiting.revision).await?;
        return Ok(view::removed(&acknowledged, core.clock.monotonic().saturating_sub(started)));
    }
    let gone = found.as_ref().or(kept.first()).map(|project| project.id.clone()).ok_or_else(projects::none)?;
    let now = write.now();
    if let Some(mut project) = found {
        let erase_at = now.plus(core.settings.removed_kept_millis);
        publish::withdraw_project(&mut write, &core.settings.platform, &mut project, erase_at).await?;
        if at_once {
            erase(write.connection(), &project.id, now).await?;
        } else {
            write.record(&project.id, None, "project.deleted", &actor, json!({})).await?;
        }
    }
    for project in &kept {
        erase(write.connection(), &project.id, now).await?;
    }
    let acknowledged = withdrawals::confirm(&gateways, write, (&[Kind::Project], name.as_str()), &gone).await?;
    let took = core.clock.monotonic().saturating_sub(started);
    Ok(view::removed(&acknowledged, took.min(Duration::from_mins(1))))
}

/// `POST /internal/projects/{project}/restore`: restores the project of this name that was removed last, with its
/// keys, data and webhooks. Its domains are verified again: they may belong to another project by now.
async fn restore(
    State(core): State<Arc<Core>>,
    State(gateways): State<Arc<Gateways>>,
    Extension(actor): Extension<Actor>,
    Path([project]): Path<1>,
) -> ApiResult {
    let name = name(&project)?;
    let mut write = core.store.write().await?;
    let now = write.now();
    if find_named(write.connection(), &name).await?.is_some() {
        return Code::ProjectExists.fail("A project of this name exists. Remove it first; both are kept then.");
    }
    let removed = find_removed(write.connection(), &name).await?;
    let mut project = removed.into_iter().next().ok_or_else(projects::none)?;
    let domains = project.removed.take().map(|removed| removed.domains).unwrap_or_default();
    project.updated_at = now;
    projects::save(&core, &mut write, &project).await?;
    if project.deployed_at.is_some() {
        projects::publish_host(&core, &mut write, &project).await?;
    }
    for key in keys::all_keys(write.connection(), &project.id).await? {
        if key.is_valid() {
            write.put(Entity::Key(key.published())).await?;
        }
    }
    for kept in domains {
        domains::save_domain(write.connection(), &kept.added(&project.id, now)).await?;
    }
    write.record(&project.id, None, "project.restored", &actor, json!({})).await?;
    gateways.commit_everywhere(write).await?;
    core.wake.notify_one();
    Ok(axum::Json(view::project(&core, &project)).into_response())
}

/// `GET /internal/removed-projects?project=NAME`: those that can be restored, all or of this name, the one removed last
/// first.
async fn list(State(gateways): State<Arc<Gateways>>, params: Params) -> ApiResult {
    let removed = match params.text("project") {
        Some(text) => find_removed(&mut gateways.core.store.reading().await?, &name(text)?).await?,
        None => gateways.core.store.removed_projects().await?,
    };
    let mut list = Vec::new();
    for project in removed {
        list.push(kept(&gateways, &project).await?);
    }
    Ok(axum::Json(json!({ "projects": list })).into_response())
}

async fn kept(gateways: &Gateways, project: &ProjectRecord) -> ApiResult<Value> {
    let pending = PendingWithdrawals::of(gateways, &project.id.uid).await?;
    Ok(json!({
        "id": project.id,
        "uid": project.id.uid,
        "plan": project.plan,
        "removed_at": project.removed.as_ref().map(|removed| view::rfc3339(removed.at)),
        "erase_at": project.removed.as_ref().map(|removed| view::rfc3339(removed.erase_at)),
        "withdrawal": pending.find(&[Kind::Project], project.id.name.as_str()),
    }))
}

fn name(text: &str) -> ApiResult<ProjectId> {
    text.parse().map_err(|_| projects::none())
}
