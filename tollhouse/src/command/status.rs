//! `tollhouse status` and `tollhouse explain`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, lines, table, word};

/// `tollhouse dashboard-link`.
pub(super) async fn dashboard_link(common: &Common, client: &Client) -> anyhow::Result<()> {
    let made = client.control(Method::POST, "/internal/dashboard-links", &Value::Null).await?;
    let text = |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default();
    let url = format!("https://{}:{}{}", text("host"), client.run.https.port(), text("path"));
    answer(common, &json!({ "url": url, "expires_at": text("expires_at") }), |link| {
        word(link.get("url").unwrap_or(&Value::Null))
    });
    Ok(())
}

pub(super) async fn run(common: &Common, client: &Client) -> anyhow::Result<()> {
    let edge = client.edge(Method::GET, "/status").await?;
    let ready = client.edge(Method::GET, "/readyz").await.is_ok();
    let control = client.control(Method::GET, "/internal/status", &Value::Null).await;
    let nodes = client.control(Method::GET, "/internal/nodes", &Value::Null).await;
    let or_reason =
        |part: anyhow::Result<Value>| part.unwrap_or_else(|error| json!({ "unreachable": format!("{error:#}") }));
    let all = json!({
        "ready": ready,
        "edge": edge,
        "control": or_reason(control),
        "nodes": or_reason(nodes),
        "run": client.run,
    });
    answer(common, &all, |all| {
        let field = |pointer: &str| word(all.pointer(pointer).unwrap_or(&Value::Null));
        let mut text = format!(
            "edge      {} {}, revision {}, {} connections, {} requests in progress{}\n",
            if ready { "ready" } else { "NOT READY" },
            field("/edge/version"),
            field("/edge/revision"),
            field("/edge/connections"),
            field("/edge/requests_in_flight"),
            if all.pointer("/edge/draining") == Some(&json!(true)) { ", draining" } else { "" },
        );
        text.push_str(&format!("quota     counting: {}\n", field("/edge/quota/mode")));
        text.push_str(&format!("control   {}\n", one_line(all.get("control").unwrap_or(&Value::Null))));
        text.push_str(&format!(
            "https     {}   http {}   admin {}\n\n",
            field("/run/https"),
            field("/run/http"),
            field("/run/admin")
        ));
        let columns =
            [("UPSTREAM", "/name"), ("ADDRESSES", "/endpoints"), ("UP", "/up"), ("IN PROGRESS", "/in_flight")];
        text.push_str(&table(all.pointer("/edge/upstreams").unwrap_or(&Value::Null), &columns));
        text
    });
    Ok(())
}

pub(super) async fn explain(common: &Common, client: &Client, host: &str) -> anyhow::Result<()> {
    let known = client.edge(Method::GET, &format!("/hosts/{host}")).await?;
    answer(common, &known, lines);
    Ok(())
}

fn one_line(value: &Value) -> String {
    match value.as_object() {
        Some(object) => {
            object.iter().map(|(name, value)| format!("{name} {}", word(value))).collect::<Vec<_>>().join(", ")
        }
        None => word(value),
    }
}
