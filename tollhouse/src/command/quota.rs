//! `tollhouse quota`.

use clap::Subcommand;
use contract::project::ProjectId;
use domains_service::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, table, word};

/// `tollhouse quota`.
#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Show limit and use of the current minute and day.
    Show {
        /// The project.
        project: ProjectId,
    },
}

pub(super) async fn run(common: &Common, client: &Client, action: Quota) -> anyhow::Result<()> {
    let Quota::Show { project } = action;
    let mut usage = client.edge(Method::GET, &format!("/usage/{project}")).await?;
    let known = client.call(Operation::ListNodes, &[], "").await.unwrap_or_default();
    name_gateways(&mut usage, &known);
    answer(common, &usage, readable);
    Ok(())
}

/// Adds the name of the gateway to each part; the id of its place if the control plane does not know the gateway.
fn name_gateways(usage: &mut Value, known: &Value) {
    let name_of = |place: &Value| {
        let mut nodes = known.get("nodes")?.as_array()?.iter();
        nodes.find(|node| node.get("place") == Some(place))?.get("gateway").cloned()
    };
    let parts = usage.get_mut("nodes").and_then(Value::as_array_mut).into_iter().flatten();
    for part in parts.filter_map(Value::as_object_mut) {
        let place = part.get("place").cloned().unwrap_or_default();
        part.insert("gateway".to_owned(), name_of(&place).unwrap_or(place));
    }
}

fn readable(usage: &Value) -> String {
    let field = |name: &str| word(usage.get(name).unwrap_or(&Value::Null));
    let row = |name: &str| {
        let mut row = usage.get(name).cloned().unwrap_or_else(|| json!({}));
        if let Some(object) = row.as_object_mut() {
            object.insert("window".to_owned(), json!(name));
        }
        row
    };
    let windows = [
        ("WINDOW", "/window"),
        ("LIMIT", "/limit"),
        ("USED", "/used"),
        ("REMAINING", "/remaining"),
        ("RESETS AT", "/resets_at"),
    ];
    let nodes = [("GATEWAY", "/gateway"), ("THIS MINUTE", "/minute"), ("HELD", "/held"), ("THIS DAY", "/day")];
    let shadow = if usage.get("shadow") == Some(&json!(true)) { ", in shadow mode" } else { "" };
    let mut text = format!("{} ({} plan{shadow}, counting: {})\n", field("project"), field("plan"), field("mode"));
    text.push_str(&table(&json!([row("minute"), row("day")]), &windows));
    match usage.get("nodes") {
        Some(Value::Array(parts)) if parts.is_empty() => {}
        Some(parts @ Value::Array(_)) => {
            text.push('\n');
            text.push_str(&table(parts, &nodes));
        }
        _ => text.push_str("\nThe quota store does not answer: these are the figures of one gateway.\n"),
    }
    text
}
