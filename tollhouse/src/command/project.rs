//! `tollhouse project`.

use std::num::NonZeroU32;

use contract::project::{ProjectId, UpstreamName};
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::{Common, Project};
use crate::client::Client;
use crate::output::{answer, lines, table};

pub(super) async fn run(common: &Common, client: &Client, action: Project) -> anyhow::Result<()> {
    match action {
        Project::Create { id, plan, upstream, access, per_minute, per_day } => {
            known_upstream(client, &upstream).await?;
            let mut body = json!({ "id": id, "plan": plan, "upstream": upstream, "access": access });
            if let Some(limits) = limits(per_minute, per_day) {
                put(&mut body, "limits", limits);
            }
            client.control(Method::POST, "/internal/projects", &body).await?;
            // Publishing is a deploy: from here on the project has its host.
            client.control(Method::POST, &format!("/internal/projects/{id}/deploy"), &Value::Null).await?;
            let project = client.control(Method::GET, &format!("/internal/projects/{id}"), &Value::Null).await?;
            let url = format!("https://{id}.{}:{}/", client.run.platform_domain, client.run.https.port());
            answer(common, &project, |_| format!("{id} is published at {url}"));
        }
        Project::List => {
            let projects = client.control(Method::GET, "/internal/projects", &Value::Null).await?;
            let rows = projects.get("projects").cloned().unwrap_or(projects);
            let columns = [
                ("PROJECT", "/id"),
                ("PLAN", "/plan"),
                ("ACCESS", "/access"),
                ("UPSTREAM", "/upstream"),
                ("MINUTE", "/limits/per_minute"),
                ("DAY", "/limits/per_day"),
                ("SUSPENDED", "/suspended"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Project::Show { id } => {
            let project = client.control(Method::GET, &format!("/internal/projects/{id}"), &Value::Null).await?;
            answer(common, &project, lines);
        }
        Project::Set { id, plan, upstream, access, per_minute, per_day, plan_limits } => {
            if let Some(upstream) = &upstream {
                known_upstream(client, upstream).await?;
            }
            let mut body = json!({});
            if let Some(plan) = plan {
                put(&mut body, "plan", json!(plan));
            }
            if let Some(upstream) = upstream {
                put(&mut body, "upstream", json!(upstream));
            }
            if let Some(access) = access {
                put(&mut body, "access", json!(access));
            }
            if let Some(limits) = limits(per_minute, per_day) {
                put(&mut body, "limits", limits);
            }
            if plan_limits {
                put(&mut body, "limits", Value::Null);
            }
            anyhow::ensure!(body != json!({}), "say what to change, for example --plan business");
            change(common, client, &id, &body).await?;
        }
        Project::Suspend { id } => change(common, client, &id, &json!({ "suspended": true })).await?,
        Project::Resume { id } => change(common, client, &id, &json!({ "suspended": false })).await?,
        Project::Remove { id, now } => {
            let path = format!("/internal/projects/{id}?now={now}");
            let removed = client.control(Method::DELETE, &path, &Value::Null).await?;
            answer(common, &removed, |_| {
                if now {
                    format!("{id} is removed and its data is erased")
                } else {
                    format!("{id} is removed; tollhouse project restore {id} brings it back until it is erased")
                }
            });
        }
        Project::Restore { id } => {
            let path = format!("/internal/projects/{id}/restore");
            let project = client.control(Method::POST, &path, &Value::Null).await?;
            answer(common, &project, |_| format!("{id} is back"));
        }
        Project::Removed => {
            let removed = client.control(Method::GET, "/internal/removed-projects", &Value::Null).await?;
            let rows = removed.get("projects").cloned().unwrap_or(removed);
            let columns = [("PROJECT", "/id"), ("PLAN", "/plan"), ("REMOVED", "/removed_at"), ("ERASED", "/erase_at")];
            answer(common, &rows, |rows| table(rows, &columns));
        }
    }
    Ok(())
}

async fn change(common: &Common, client: &Client, id: &ProjectId, body: &Value) -> anyhow::Result<()> {
    let project = client.control(Method::PATCH, &format!("/internal/projects/{id}"), body).await?;
    answer(common, &project, lines);
    Ok(())
}

/// A project on a backend that the edge does not know would answer 503 to everybody.
async fn known_upstream(client: &Client, upstream: &UpstreamName) -> anyhow::Result<()> {
    let status = client.edge(Method::GET, "/status").await?;
    let known = status.get("upstreams").and_then(Value::as_array).cloned().unwrap_or_default();
    let names: Vec<&str> = known.iter().filter_map(|one| one.get("name")?.as_str()).collect();
    anyhow::ensure!(
        names.contains(&upstream.as_str()),
        "the edge knows no upstream {upstream} (it knows {}); stop the platform and start it with --upstream {upstream}=URL",
        names.join(", ")
    );
    Ok(())
}

fn limits(per_minute: Option<NonZeroU32>, per_day: Option<NonZeroU32>) -> Option<Value> {
    per_minute.zip(per_day).map(|(per_minute, per_day)| json!({ "per_minute": per_minute, "per_day": per_day }))
}

fn put(body: &mut Value, name: &str, value: Value) {
    if let Some(object) = body.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}
