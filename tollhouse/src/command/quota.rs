//! `tollhouse quota`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::{Common, Quota};
use crate::client::Client;
use crate::output::{answer, table, word};

pub(super) async fn run(common: &Common, client: &Client, action: Quota) -> anyhow::Result<()> {
    let Quota::Show { project } = action;
    let usage = client.edge(Method::GET, &format!("/usage/{project}")).await?;
    answer(common, &usage, readable);
    Ok(())
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
    let nodes = [("NODE", "/node"), ("THIS MINUTE", "/minute"), ("HELD", "/held"), ("THIS DAY", "/day")];
    let shadow = if usage.get("shadow") == Some(&json!(true)) { ", in shadow mode" } else { "" };
    let mut text = format!("{} ({} plan{shadow}, counting: {})\n", field("project"), field("plan"), field("mode"));
    text.push_str(&table(&json!([row("minute"), row("day")]), &windows));
    match usage.get("nodes") {
        Some(Value::Array(parts)) if parts.is_empty() => {}
        Some(parts @ Value::Array(_)) => {
            text.push('\n');
            text.push_str(&table(parts, &nodes));
        }
        _ => text.push_str("\nThe quota store does not answer: these are the figures of one node.\n"),
    }
    text
}
