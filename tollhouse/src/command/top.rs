//! `tollhouse top`: the most frequent projects, hosts, keys or codes, and who must act on their errors.

use std::collections::BTreeMap;

use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, table, word};

/// `tollhouse top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Column to group by.
    #[arg(long, default_value = "project")]
    pub by: By,
    /// Minutes to look back, including the current one, 1 to 5.
    #[arg(long, default_value_t = 5)]
    pub minutes: u64,
    /// Maximum number of rows.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
}

contract::words! {
    /// The column that `tollhouse top` groups by.
    #[derive(clap::ValueEnum)]
    pub enum By {
        /// Project.
        Project = "project",
        /// Hostname.
        Host = "host",
        /// API key.
        Key = "key",
        /// Status or error code.
        Code = "code",
    }
}

pub(super) async fn run(common: &Common, client: &Client, question: &Top) -> anyhow::Result<()> {
    // Every gateway is asked for more rows than are shown: a row that is tenth on each can be first in total.
    let path = format!("/top?by={}&minutes={}&limit=512", question.by.as_str(), question.minutes);
    let (mut all, mut silent) = (BTreeMap::new(), Vec::new());
    for (edge, answer) in client.every_edge(&Method::GET, &path).await {
        match answer {
            Ok(answer) => add(&mut all, answer.get("rows").unwrap_or(&Value::Null)),
            Err(error) => {
                silent.push(json!({ "gateway": edge.gateway, "address": edge.admin, "error": format!("{error:#}") }));
            }
        }
    }
    let mut rows: Vec<Value> = all.into_iter().map(|(name, row)| finished(&name, row)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.get("requests").and_then(Value::as_u64)));
    rows.truncate(question.limit);
    let all = json!({ "by": question.by.as_str(), "minutes": question.minutes, "rows": rows, "silent": silent });
    answer(common, &all, readable);
    Ok(())
}

/// Adds the figures of a gateway.
fn add(all: &mut BTreeMap<String, Map<String, Value>>, rows: &Value) {
    for row in rows.as_array().into_iter().flatten().filter_map(Value::as_object) {
        let Some(name) = row.get("name").and_then(Value::as_str) else { continue };
        let sum = all.entry(name.to_owned()).or_default();
        for (field, value) in row.iter().filter_map(|(field, value)| Some((field, value.as_u64()?))) {
            let before = sum.get(field).and_then(Value::as_u64).unwrap_or(0);
            sum.insert(field.clone(), json!(before + value));
        }
    }
}

fn finished(name: &str, mut row: Map<String, Value>) -> Value {
    let figure = |field: &str| row.get(field).and_then(Value::as_u64).unwrap_or(0);
    let mean = figure("micros") / figure("requests").max(1);
    row.remove("micros");
    row.insert("mean_micros".to_owned(), json!(mean));
    row.insert("name".to_owned(), json!(name));
    Value::Object(row)
}

fn readable(all: &Value) -> String {
    let by = all.get("by").and_then(Value::as_str).unwrap_or_default().to_uppercase();
    let columns = [
        (by.as_str(), "/name"),
        ("REQUESTS", "/requests"),
        ("CLIENT", "/client"),
        ("CUSTOMER", "/customer"),
        ("PLATFORM", "/platform"),
        ("UPSTREAM", "/upstream"),
        ("AVG µs", "/mean_micros"),
        ("UNCERTAIN", "/uncertain"),
    ];
    let minutes = all.get("minutes").and_then(Value::as_u64).unwrap_or(0);
    let mut text = format!("The last {minutes} minutes. The error columns name who must act.\n");
    text.push_str(&table(all.get("rows").unwrap_or(&Value::Null), &columns));
    for silent in all.get("silent").and_then(Value::as_array).into_iter().flatten() {
        let (gateway, address) = (word(&silent["gateway"]), word(&silent["address"]));
        text.push_str(&format!("\nWithout {gateway} ({address}): it does not answer."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_gateways_are_added() {
        let mut all = BTreeMap::new();
        add(&mut all, &json!([{ "name": "a", "requests": 3, "platform": 1, "micros": 900 }]));
        add(
            &mut all,
            &json!([{ "name": "a", "requests": 1, "platform": 0, "micros": 100 }, { "name": "b", "requests": 1 }]),
        );
        let row = finished("a", all.remove("a").unwrap());
        assert_eq!(row, json!({ "name": "a", "requests": 4, "platform": 1, "mean_micros": 250 }));
        assert!(all.contains_key("b"));
    }
}
