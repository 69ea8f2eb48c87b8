//! `tollhouse status`: the state of all processes on one screen. Processes that do not answer and all other problems
//! are lines with TROUBLE, each with the party that must act and its next step.

mod trouble;

use std::time::Duration;

use domains_service::Operation;
use futures_util::future::{join, join3};
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::{Client, Refused};
use crate::output::{Attention, answer, table, word};

/// Longest wait for a process: longer than a service waits for its database, so that it can still say so.
const RESPONSE_MAX: Duration = Duration::from_secs(8);

pub(super) async fn run(common: &Common, client: Client) -> anyhow::Result<()> {
    let (client, get) = (client.waiting(RESPONSE_MAX), Method::GET);
    // The control plane first, so that gateways have had time to receive the revision that it reports.
    let (nodes, control, withdrawals) = join3(
        client.call(Operation::ListNodes, &[], ""),
        client.call(Operation::ShowStatus, &[], ""),
        client.call(Operation::ListWithdrawals, &[], ""),
    )
    .await;
    let (edges, orders) = join(client.every_edge(&get, "/status"), client.orders_json("/internal/status")).await;
    let edges: Vec<Value> = edges
        .into_iter()
        .map(|(edge, status)| {
            let mut status = or_reason(status);
            if let Some(fields) = status.as_object_mut() {
                fields.insert("address".to_owned(), json!(edge.admin));
                // The configured name, not the reported one: a stolen gateway could report another's name.
                fields.insert("gateway".to_owned(), json!(edge.gateway));
            }
            status
        })
        .collect();
    let first = edges.iter().find(|edge| edge.get("node").is_some()).or(edges.first()).cloned().unwrap_or_default();
    let ready = edges.iter().any(|edge| edge.get("ready") == Some(&json!(true)));
    let mut all = json!({
        "ready": ready,
        "edge": first,
        "edges": edges,
        "control": or_reason(control),
        "orders": or_reason(orders),
        "nodes": or_reason(nodes),
        "withdrawals": or_reason(withdrawals),
        "run": client.run,
    });
    let found = trouble::find(&all);
    if let Some(fields) = all.as_object_mut() {
        fields.insert("trouble".to_owned(), json!(found));
    }
    answer(common, &all, readable);
    Attention::when(!found.is_empty())
}

/// The response of a process, or its error. A refusal has its code.
fn or_reason(part: anyhow::Result<Value>) -> Value {
    part.unwrap_or_else(|error| {
        let reason = format!("{error:#}");
        match error.downcast_ref::<Refused>() {
            Some(refused) => json!({ "unreachable": reason, "code": refused.code }),
            None => json!({ "unreachable": reason }),
        }
    })
}

/// The columns of gateways.
const GATEWAYS: [(&str, &str); 8] = [
    ("GATEWAY", "/gateway"),
    ("PROCESS", "/node"),
    ("ADDRESS", "/address"),
    ("READY", "/ready"),
    ("VERSION", "/version"),
    ("REVISION", "/revision"),
    ("QUOTA", "/quota/mode"),
    ("CONNECTIONS", "/connections"),
];

fn readable(all: &Value) -> String {
    let field = |pointer: &str| word(all.pointer(pointer).unwrap_or(&Value::Null));
    let mut text = format!(
        "edge      {} {}, revision {}, {} connections, {} requests in progress{}\n",
        if all.get("ready") == Some(&json!(true)) { "ready" } else { "NOT READY" },
        field("/edge/version"),
        field("/edge/revision"),
        field("/edge/connections"),
        field("/edge/requests_in_flight"),
        if all.pointer("/edge/draining") == Some(&json!(true)) { ", draining" } else { "" },
    );
    text.push_str(&format!("quota     counting: {}\n", field("/edge/quota/mode")));
    text.push_str(&format!("control   {}\n", one_line(all.get("control").unwrap_or(&Value::Null))));
    text.push_str(&format!("orders    {}\n", one_line(all.get("orders").unwrap_or(&Value::Null))));
    let addresses = (field("/run/https"), field("/run/http"), field("/run/gateways/0/admin"));
    text.push_str(&format!("https     {}   http {}   admin {}\n", addresses.0, addresses.1, addresses.2));
    let none = Value::Array(Vec::new());
    let edges = all.get("edges").unwrap_or(&none);
    text.push_str(&format!("\n{}", table(edges, &GATEWAYS)));
    let columns = [
        ("UPSTREAM", "/name"),
        ("ADDRESSES", "/endpoints"),
        ("UP", "/up"),
        ("IN PROGRESS", "/in_flight"),
        ("WEBSOCKETS", "/websockets"),
        ("DOWN FOR (S)", "/failing_for_seconds"),
        ("TRIED (S AGO)", "/tried_seconds_ago"),
    ];
    text.push_str(&format!("\n{}", table(all.pointer("/edge/upstreams").unwrap_or(&none), &columns)));
    let columns = [("CERTIFICATE", "/host"), ("EXPIRES", "/ends"), ("LIFETIME LEFT", "/lifetime_left")];
    text.push_str(&format!("\n{}", table(&with_dates(all.pointer("/edge/certificates")), &columns)));
    let columns = [
        ("WITHDRAWN", "/what"),
        ("WHICH", "/which"),
        ("PROJECT", "/project"),
        ("SINCE", "/since"),
        ("NOT CONFIRMED BY", "/lagging"),
    ];
    let withdrawals = all.pointer("/withdrawals/withdrawals").unwrap_or(&none);
    if withdrawals.as_array().is_some_and(|rows| !rows.is_empty()) {
        text.push_str(&format!("\n{}", table(withdrawals, &columns)));
    }
    let columns = [
        ("REFUSED, LAST MINUTES", "/name"),
        ("REQUESTS", "/requests"),
        ("CLIENT", "/client"),
        ("PLATFORM", "/platform"),
        ("UPSTREAM", "/upstream"),
    ];
    let refusals = all.pointer("/edge/top_refusals").unwrap_or(&none);
    if refusals.as_array().is_some_and(|rows| !rows.is_empty()) {
        text.push_str(&format!("\n{}", table(refusals, &columns)));
    }
    let troubles = all.get("trouble").and_then(Value::as_array).into_iter().flatten();
    let troubles = troubles.map(|one| {
        let field = |name: &str| word(one.get(name).unwrap_or(&Value::Null));
        format!(
            "TROUBLE   {}\n          to do ({}): {}\n",
            field("problem"),
            field("who_must_act"),
            field("what_to_do")
        )
    });
    let troubles: Vec<String> = troubles.collect();
    text.push_str(&format!(
        "\n{}",
        if troubles.is_empty() { "No problems found.".to_owned() } else { troubles.concat() }
    ));
    text
}

/// Certificates with their expiry as text.
fn with_dates(certificates: Option<&Value>) -> Value {
    let rows = certificates.and_then(Value::as_array).into_iter().flatten().map(|certificate| {
        let mut row = certificate.clone();
        let at =
            certificate.get("ends_at").and_then(Value::as_i64).and_then(|at| jiff::Timestamp::from_second(at).ok());
        if let (Some(at), Some(fields)) = (at, row.as_object_mut()) {
            fields.insert("ends".to_owned(), json!(at.to_string()));
        }
        row
    });
    rows.collect()
}

fn one_line(value: &Value) -> String {
    match value.as_object() {
        Some(object) => {
            object.iter().map(|(name, value)| format!("{name} {}", word(value))).collect::<Vec<_>>().join(", ")
        }
        None => word(value),
    }
}
