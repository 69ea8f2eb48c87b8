//! `tollhouse node`.

mod accept;
mod certificates;

use std::time::Duration;

use anyhow::Context as _;
use chassis::percent::segment;
use domains_service::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use super::credentials::{self, PATH};
use crate::arguments::{Common, Node};
use crate::client::Client;
use crate::output::{answer, say, table};

pub(super) async fn run(common: &Common, client: &Client, action: Node) -> anyhow::Result<()> {
    match action {
        Node::Add { name, service } => {
            let kind = if service { "service" } else { "gateway" };
            let body = json!({ "name": name, "kind": kind });
            let (made, credential) = credentials::make(client, body, "credential").await?;
            answer(common, &made, |_| {
                format!(
                    "{credential}\n\nThis is the credential of {name}, shown once. Put it into a file that only the \
                     {kind} may read, and name that file in its settings: credential_file."
                )
            });
        }
        Node::List => answer(common, &credentials::list(client, false).await?, credentials::readable),
        Node::Revoke { name, since } => {
            let mut answered = credentials::revoke(client, &kind_of(client, &name).await?, &name, false).await?;
            // The revocation succeeded; its changes can be listed again later.
            let changed = changes(client, &name, since).await;
            if let (Ok((changed, _)), Some(fields)) = (&changed, answered.as_object_mut()) {
                fields.insert("changes".to_owned(), changed.clone());
            }
            answer(common, &answered, |answered| revoked(&name, answered));
            if let Ok((_, true)) = changed {
                say(&cut(&name));
            }
            changed.with_context(|| {
                format!("{name} is revoked. List the changes made through it: tollhouse node changes {name}")
            })?;
        }
        Node::Changes { name, since } => {
            let (changed, is_cut) = changes(client, &name, since).await?;
            answer(common, &changed, |changed| shown(&name, changed));
            if is_cut {
                say(&cut(&name));
            }
        }
        Node::Certificates { replace } => certificates::run(common, client, replace)?,
        Node::Accept => accept::run(common, client).await?,
        Node::Rotate => {
            let answered = client.call(Operation::RotateGatewayKeys, &[], "").await?;
            answer(common, &answered, |_| "all gateways have new keys".to_owned());
        }
    }
    Ok(())
}

/// Whether this name belongs, or belonged last, to a gateway or a service.
async fn kind_of(client: &Client, name: &str) -> anyhow::Result<String> {
    let all = credentials::list(client, false).await?;
    let named = all.as_array().into_iter().flatten().filter(|one| one.get("name") == Some(&json!(name)));
    // A valid credential has no time of revocation.
    let last = named.max_by_key(|one| {
        let revoked_at = one.get("revoked_at").and_then(Value::as_str);
        (revoked_at.is_none(), revoked_at)
    });
    let kind = last.and_then(|last| last.get("kind")?.as_str());
    kind.map(str::to_owned).with_context(|| format!("{name:?} is not the name of a gateway or service"))
}

/// Most pages of changes, 200 changes each.
const PAGES_MAX: usize = 500;

/// Changes made through a gateway, newest first, and whether there are older ones behind [`PAGES_MAX`] pages.
async fn changes(client: &Client, name: &str, since: Duration) -> anyhow::Result<(Value, bool)> {
    let since = jiff::Timestamp::now().checked_sub(since).context("the time to look back is too long")?;
    let first = format!("{PATH}/gateway/{}/changes?since={}", segment(name), segment(&since.to_string()));
    let (mut all, mut path) = (Vec::new(), first.clone());
    for _ in 0..PAGES_MAX {
        let mut page = client.control(Method::GET, &path, &Value::Null).await?;
        if let Some(Value::Array(list)) = page.get_mut("changes").map(Value::take) {
            all.extend(list);
        }
        let Some(cursor) = page.get("next_cursor").and_then(Value::as_str) else {
            return Ok((Value::Array(all), false));
        };
        path = format!("{first}&cursor={}", segment(cursor));
    }
    Ok((Value::Array(all), true))
}

/// The warning that a list is not complete.
fn cut(name: &str) -> String {
    format!(
        "There are older changes through {name} in this time: the list has the newest {} only. The events of each project, \
         in the dashboard and the API, have the others.",
        PAGES_MAX * 200
    )
}

/// The result of a revocation, and the operator's next steps.
fn revoked(name: &str, answered: &Value) -> String {
    let mut text = format!(
        "{name} is refused from now on, its identities too, and the other gateways have new keys for sessions. If it is in \
         wrong hands, change the sealing secret too: docs/operator/secrets.md says how.\n"
    );
    if let Some(file) = answered.pointer("/revoked/0/file").and_then(Value::as_str) {
        text.push_str(&format!(
            "\nIts credential came from the file {file}. That credential is never taken again. Before {name} can come \
             back: `tollhouse node add {name}`, put the new credential into that file, and restart {name}. In containers \
             replace the original in the data directory of `tollhouse init`, which copies it at each start.\n"
        ));
    }
    if let Some(changes) = answered.get("changes") {
        text.push_str(&format!("\n{}", shown(name, changes)));
    }
    text
}

/// Changes made through a gateway, as text.
fn shown(name: &str, changes: &Value) -> String {
    if changes.as_array().is_none_or(Vec::is_empty) {
        return format!("No changes were made through {name} in this time.\n");
    }
    let columns = [
        ("AT", "/at"),
        ("PROJECT", "/project"),
        ("CHANGE", "/type"),
        ("DOMAIN", "/domain"),
        ("BY", "/actor"),
        ("FROM", "/client"),
        ("DETAIL", "/detail"),
    ];
    format!(
        "Changes made through {name}; undo those that the projects' owners did not make:\n{}",
        table(changes, &columns)
    )
}
