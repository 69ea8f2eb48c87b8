//! `tollhouse changes`: recent changes of the platform.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, table};

pub(super) async fn run(common: &Common, client: &Client, limit: usize) -> anyhow::Result<()> {
    let (mut moments, mut silent) = (Vec::new(), Vec::new());
    for (edge, answer) in client.every_edge(&Method::GET, "/moments").await {
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                silent.push(json!({ "gateway": edge.gateway, "address": edge.admin, "error": format!("{error:#}") }));
                continue;
            }
        };
        let node = answer.get("node").cloned().unwrap_or_default();
        let Some(Value::Array(list)) = answer.get_mut("moments").map(Value::take) else { continue };
        moments.extend(list.into_iter().map(|moment| with_node(moment, &edge.gateway, &node)));
    }
    // Every gateway reports the changes that the control plane published; list them once.
    moments.sort_by(|left, right| key(right).cmp(&key(left)));
    moments
        .dedup_by(|left, right| left.get("what") == Some(&json!("change")) && left.get("words") == right.get("words"));
    moments.truncate(limit);
    answer(common, &json!({ "moments": moments, "silent": silent }), |all| {
        let columns = [
            ("WHEN", "/when"),
            ("WHAT", "/what"),
            ("GATEWAY", "/gateway"),
            ("PROCESS", "/node"),
            ("IN WORDS", "/words"),
        ];
        table(all.get("moments").unwrap_or(&Value::Null), &columns)
    });
    Ok(())
}

/// The order of changes: by time, then by text.
fn key(moment: &Value) -> (Option<i64>, Option<&str>) {
    (moment.get("at").and_then(Value::as_i64), moment.get("words").and_then(Value::as_str))
}

fn with_node(mut moment: Value, gateway: &str, node: &Value) -> Value {
    let at = moment.get("at").and_then(Value::as_i64).unwrap_or(0);
    let when = Timestamp::from_millisecond(at).map_or_else(|_| at.to_string(), |time| format!("{time:.0}"));
    if let Some(fields) = moment.as_object_mut() {
        fields.insert("when".to_owned(), json!(when));
        // A published change belongs to the platform, not to a gateway.
        if fields.get("what") != Some(&json!("change")) {
            fields.insert("gateway".to_owned(), json!(gateway));
            fields.insert("node".to_owned(), node.clone());
        }
    }
    moment
}
