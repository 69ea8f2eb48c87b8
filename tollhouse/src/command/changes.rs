//! `tollhouse changes`: recent changes of the platform.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, table};

pub(super) async fn run(common: &Common, client: &Client, limit: usize) -> anyhow::Result<()> {
    let (mut changes, mut silent) = (Vec::new(), Vec::new());
    for (edge, answer) in client.every_edge(&Method::GET, "/changes").await {
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                silent.push(json!({ "gateway": edge.gateway, "address": edge.admin, "error": format!("{error:#}") }));
                continue;
            }
        };
        let node = answer.get("node").cloned().unwrap_or_default();
        let Some(Value::Array(list)) = answer.get_mut("changes").map(Value::take) else { continue };
        changes.extend(list.into_iter().map(|change| with_node(change, &edge.gateway, &node)));
    }
    // Every gateway reports the changes that the control plane published; list them once.
    changes.sort_by(|left, right| key(right).cmp(&key(left)));
    changes
        .dedup_by(|left, right| left.get("what") == Some(&json!("change")) && left.get("words") == right.get("words"));
    changes.truncate(limit);
    answer(common, &json!({ "changes": changes, "silent": silent }), |all| {
        let columns = [
            ("WHEN", "/when"),
            ("WHAT", "/what"),
            ("GATEWAY", "/gateway"),
            ("PROCESS", "/node"),
            ("IN WORDS", "/words"),
        ];
        table(all.get("changes").unwrap_or(&Value::Null), &columns)
    });
    Ok(())
}

/// The order of changes: by time, then by text.
fn key(change: &Value) -> (Option<i64>, Option<&str>) {
    (change.get("at").and_then(Value::as_i64), change.get("words").and_then(Value::as_str))
}

fn with_node(mut change: Value, gateway: &str, node: &Value) -> Value {
    let at = change.get("at").and_then(Value::as_i64).unwrap_or(0);
    let when = Timestamp::from_millisecond(at).map_or_else(|_| at.to_string(), |time| format!("{time:.0}"));
    if let Some(fields) = change.as_object_mut() {
        fields.insert("when".to_owned(), json!(when));
        // A published change belongs to the platform, not to a gateway.
        if fields.get("what") != Some(&json!("change")) {
            fields.insert("gateway".to_owned(), json!(gateway));
            fields.insert("node".to_owned(), node.clone());
        }
    }
    change
}
