//! `tollhouse project`.

use std::num::NonZeroU32;

use clap::Subcommand;
use contract::browsers::{Cors, Hsts};
use contract::plan::Plan;
use contract::project::{Access, ProjectId, UpstreamName};
use domains_service::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use super::{all_pages, lagging, waiting};
use crate::arguments::Common;
use crate::client::Client;
use crate::output::{Attention, answer, ask, lines, table, word};

/// `tollhouse project`.
#[derive(Debug, Subcommand)]
pub enum Project {
    /// Create a project and publish it at {ID}.{platform domain}.
    Create {
        /// Name of the project, and first label of its hostname.
        id: ProjectId,
        /// Plan: free, pro, business or enterprise.
        #[arg(long, default_value = "free")]
        plan: Plan,
        /// Upstream of its requests.
        #[arg(long, default_value = "orders")]
        upstream: UpstreamName,
        /// key: an API with keys and quotas. public: a site without keys.
        #[arg(long, default_value = "key")]
        access: Access,
        /// Own limit in place of the plan's: requests per minute.
        #[arg(long, requires = "per_day")]
        per_minute: Option<NonZeroU32>,
        /// Own limit in place of the plan's: requests per day.
        #[arg(long, requires = "per_minute")]
        per_day: Option<NonZeroU32>,
    },
    /// List projects.
    List,
    /// Show a project.
    Show {
        /// Name of the project.
        id: ProjectId,
    },
    /// Change a project. Takes effect at once; counts so far are kept.
    Set {
        /// Name of the project.
        id: ProjectId,
        /// The new plan.
        #[arg(long)]
        plan: Option<Plan>,
        /// The new upstream.
        #[arg(long)]
        upstream: Option<UpstreamName>,
        /// The new access.
        #[arg(long)]
        access: Option<Access>,
        /// Own limit in place of the plan's: requests per minute.
        #[arg(long, requires = "per_day")]
        per_minute: Option<NonZeroU32>,
        /// Own limit in place of the plan's: requests per day.
        #[arg(long, requires = "per_minute")]
        per_day: Option<NonZeroU32>,
        /// Return to the limits of the plan.
        #[arg(long, conflicts_with = "per_minute")]
        plan_limits: bool,
        /// CORS: upstream, open, off, or a list of origins separated by commas;
        /// default: the upstream's setting.
        #[arg(long, value_name = "upstream|open|off|ORIGIN,…|default")]
        cors: Option<OrDefault<Cors>>,
        /// Strict-Transport-Security: upstream or on; default: the upstream's setting.
        #[arg(long, value_name = "upstream|on|default")]
        hsts: Option<OrDefault<Hsts>>,
    },
    /// Suspend a project: all its hosts answer 403.
    Suspend {
        /// Name of the project.
        id: ProjectId,
    },
    /// End the suspension of a project.
    Resume {
        /// Name of the project.
        id: ProjectId,
    },
    /// Remove a project: its keys and traffic stop at once. Its data is kept for a while, then erased everywhere.
    Remove {
        /// Name of the project.
        id: ProjectId,
        /// Erase its data at once, with the data of removed projects of this name. This cannot be undone.
        #[arg(long)]
        now: bool,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Restore a removed project with its keys and data. Its domains are verified again.
    Restore {
        /// Name of the project.
        id: ProjectId,
    },
    /// List removed projects that can be restored, and the time of their erasure.
    Removed,
}

/// A project's own value, or that of its upstream.
#[derive(Clone, Debug)]
pub enum OrDefault<T> {
    /// The upstream's value.
    Default,
    /// The project's own value.
    Own(T),
}

impl<T: std::str::FromStr> std::str::FromStr for OrDefault<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "default" { Ok(Self::Default) } else { text.parse().map(Self::Own) }
    }
}

pub(super) async fn run(common: &Common, client: &Client, action: Project) -> anyhow::Result<()> {
    match action {
        Project::Create { id, plan, upstream, access, per_minute, per_day } => {
            known_upstream(client, &upstream).await?;
            let limits = limits(per_minute, per_day);
            let body = json!({ "id": id, "plan": plan, "upstream": upstream, "access": access, "limits": limits });
            client.send(Operation::CreateProject, &[], &body).await?;
            // Publishing gives the project its host.
            client.call(Operation::DeployProject, &[id.as_str()], "").await?;
            let project = client.call(Operation::ShowProject, &[id.as_str()], "").await?;
            let url = format!("https://{id}.{}:{}/", client.run.platform_domain, client.run.https.port());
            answer(common, &project, |_| format!("{id} is published at {url}"));
        }
        Project::List => {
            let rows = all_pages(client, Operation::ListProjects, &[], "limit=200", "projects", usize::MAX).await?;
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
            let project = client.call(Operation::ShowProject, &[id.as_str()], "").await?;
            answer(common, &project, lines);
        }
        Project::Set { id, plan, upstream, access, per_minute, per_day, plan_limits, cors, hsts } => {
            if let Some(upstream) = &upstream {
                known_upstream(client, upstream).await?;
            }
            let fields = [
                ("plan", plan.map(|plan| json!(plan))),
                ("upstream", upstream.map(|upstream| json!(upstream))),
                ("access", access.map(|access| json!(access))),
                ("limits", if plan_limits { Some(Value::Null) } else { limits(per_minute, per_day) }),
                ("cors", cors.map(own_or_null)),
                ("hsts", hsts.map(own_or_null)),
            ];
            let body: Value = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            anyhow::ensure!(body != json!({}), "name a change, for example --plan business");
            change(common, client, &id, &body).await?;
        }
        Project::Suspend { id } => change(common, client, &id, &json!({ "suspended": true })).await?,
        Project::Resume { id } => change(common, client, &id, &json!({ "suspended": false })).await?,
        Project::Remove { id, now, yes } => remove(common, client, &id, now, yes).await?,
        Project::Restore { id } => {
            let project = client.call(Operation::RestoreProject, &[id.as_str()], "").await?;
            answer(common, &project, |_| format!("{id} is restored"));
        }
        Project::Removed => {
            let rows = kept(client, "").await?;
            let columns = [("PROJECT", "/id"), ("PLAN", "/plan"), ("REMOVED", "/removed_at"), ("ERASED", "/erase_at")];
            answer(common, &rows, |rows| table(rows, &columns));
        }
    }
    Ok(())
}

async fn remove(common: &Common, client: &Client, id: &ProjectId, now: bool, yes: bool) -> anyhow::Result<()> {
    let kept = if now { kept(client, &format!("project={id}")).await? } else { json!([]) };
    if !yes {
        agreed(id, &what_goes(client, id, now, &kept).await?)?;
    }
    let answered = client.call(Operation::DeleteProject, &[id.as_str()], &format!("now={now}")).await?;
    let lagging = lagging(&answered);
    let removed = json!({ "id": id, "removed": true, "erased": now, "kept_erased": kept, "lagging": lagging });
    answer(common, &removed, |_| {
        let end = if now {
            let kept =
                earlier(&kept).map(|list| format!(", with the kept data of earlier projects of the name: {list}"));
            format!("{id} is removed and its data is erased{}", kept.unwrap_or_default())
        } else {
            format!(
                "{id} is removed; restore it with `tollhouse project restore {id}` until its erasure (see `tollhouse project removed`)"
            )
        };
        waiting(&end, &end, &lagging)
    });
    Attention::when(!lagging.is_empty())
}

/// The removed projects that match `filter`.
async fn kept(client: &Client, filter: &str) -> anyhow::Result<Value> {
    let removed = client.call(Operation::ListRemovedProjects, &[], filter).await?;
    Ok(removed.get("projects").cloned().unwrap_or(removed))
}

/// The removed projects of a name, each with its identity and dates; `None` if there are none.
fn earlier(kept: &Value) -> Option<String> {
    let named = kept.as_array()?.iter().map(|project| {
        let text = |name: &str| project.get(name).map(word).unwrap_or_default();
        format!("{} (removed {}, kept until {})", text("uid"), text("removed_at"), text("erase_at"))
    });
    Some(named.collect::<Vec<_>>().join(", ")).filter(|list| !list.is_empty())
}

/// The effect of a removal, as text. A project that is already removed has nothing to count.
async fn what_goes(client: &Client, id: &ProjectId, now: bool, kept: &Value) -> anyhow::Result<String> {
    let project = [id.as_str()];
    let found = client.call(Operation::ShowProject, &project, "").await;
    let mut words = match found {
        Ok(known) => {
            let text = |name: &str| known.get(name).map(word).unwrap_or_default();
            let domains = client.call(Operation::ListDomains, &project, "limit=1").await?;
            let domains = domains.pointer("/quota/used").map(word).unwrap_or_default();
            let count = async |operation: Operation, list: &str| -> anyhow::Result<usize> {
                let page = client.call(operation, &project, "").await?;
                Ok(page.get(list).and_then(Value::as_array).map_or(0, Vec::len))
            };
            let (keys, webhooks) =
                (count(Operation::ListKeys, "keys").await?, count(Operation::ListWebhooks, "webhooks").await?);
            let orders = client.orders_json(&format!("/internal/orders/{}/summary", text("uid"))).await?;
            let orders: i64 = orders.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_i64()).sum();
            format!(
                "{id} ({} plan) has {domains} domains, {keys} API keys, {webhooks} webhooks and {orders} orders. Its \
                 hosts and keys stop at once.",
                text("plan")
            )
        }
        Err(_) if now => format!("{id} is already removed."),
        Err(error) => return Err(error),
    };
    if now {
        if let Some(list) = earlier(kept) {
            words.push_str(&format!(" The kept data of earlier projects of the name goes as well: {list}."));
        }
        words.push_str(" All of it is erased everywhere and cannot be restored.");
    } else {
        words
            .push_str(" Its data is kept for a while: `tollhouse project removed` says until when it can be restored.");
    }
    Ok(words)
}

/// Asks for confirmation at the terminal. Programs use `--yes`.
fn agreed(id: &ProjectId, words: &str) -> anyhow::Result<()> {
    match ask(&format!("{words}\nType the project's name to continue:"))? {
        Some(typed) if typed == id.as_str() => Ok(()),
        Some(_) => anyhow::bail!("the typed name is not {id}; nothing was removed"),
        None => anyhow::bail!("{words} Nothing was removed; use --yes to continue"),
    }
}

async fn change(common: &Common, client: &Client, id: &ProjectId, body: &Value) -> anyhow::Result<()> {
    let project = client.send(Operation::ChangeProject, &[id.as_str()], body).await?;
    let withdrawal = project.get("withdrawal").unwrap_or(&Value::Null);
    let done = match withdrawal.get("what").and_then(Value::as_str) {
        Some("suspension") => "The project is suspended",
        Some("access") => "The project requires a key",
        _ => "The project is changed",
    };
    let lagging = lagging(withdrawal);
    answer(common, &project, |project| waiting(&lines(project), &format!("{}{done}", lines(project)), &lagging));
    Attention::when(!lagging.is_empty())
}

/// Checks that the gateways know the upstream; otherwise the project would answer 503 to every request.
async fn known_upstream(client: &Client, upstream: &UpstreamName) -> anyhow::Result<()> {
    let status = client.edge(Method::GET, "/status").await?;
    let known = status.get("upstreams").and_then(Value::as_array).cloned().unwrap_or_default();
    let names: Vec<&str> = known.iter().filter_map(|one| one.get("name")?.as_str()).collect();
    anyhow::ensure!(
        names.contains(&upstream.as_str()),
        "unknown upstream {upstream} (known: {}); stop the platform and start it with --upstream {upstream}=URL",
        names.join(", ")
    );
    Ok(())
}

fn limits(per_minute: Option<NonZeroU32>, per_day: Option<NonZeroU32>) -> Option<Value> {
    per_minute.zip(per_day).map(|(per_minute, per_day)| json!({ "per_minute": per_minute, "per_day": per_day }))
}

/// The project's own value; null for the upstream's.
fn own_or_null<T: serde::Serialize>(value: OrDefault<T>) -> Value {
    match value {
        OrDefault::Default => Value::Null,
        OrDefault::Own(value) => json!(value),
    }
}
