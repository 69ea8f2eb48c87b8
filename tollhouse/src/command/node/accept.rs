//! `tollhouse node accept`: every gateway replaces its replica by the control plane's current data and reports the
//! changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::command::credentials;
use crate::directory::GatewayAdmin;
use crate::output::{Attention, answer, word};

/// Longest wait for a snapshot: one of a million domains takes most of a minute.
const TAKE_MAX: Duration = Duration::from_mins(2);

/// Interval between two requests to the gateways.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

const PATH: &str = "/replica/accept";

pub(super) async fn run(common: &Common, client: &Client) -> anyhow::Result<()> {
    let mut gateways = by_name(client.every_edge(&Method::POST, PATH).await);
    let deadline = tokio::time::Instant::now() + TAKE_MAX;
    while gateways.values().any(waits) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(POLL_INTERVAL).await;
        gateways.extend(by_name(client.every_edge(&Method::GET, PATH).await));
    }
    // Gateways do not know credentials, so only people can find those that were revoked since.
    let credentials = credentials::good(client).await;
    let all = json!({ "gateways": gateways, "good_credentials": credentials.as_ref().ok() });
    answer(common, &all, readable);
    credentials
        .context("cannot list credentials that are valid again: see tollhouse node list and tollhouse token list")?;
    Attention::when(!gateways.values().all(has_taken))
}

/// The result of each gateway, or its error.
fn by_name(answers: Vec<(GatewayAdmin, anyhow::Result<Value>)>) -> BTreeMap<String, Value> {
    let said = |answer: anyhow::Result<Value>| answer.unwrap_or_else(|error| json!({ "failed": format!("{error:#}") }));
    answers.into_iter().map(|(edge, answer)| (edge.to_string(), said(answer))).collect()
}

fn waits(gateway: &Value) -> bool {
    gateway.get("state") == Some(&json!("waiting"))
}

fn has_taken(gateway: &Value) -> bool {
    gateway.get("state") == Some(&json!("taken"))
}

fn readable(all: &Value) -> String {
    let gateways = all.get("gateways").and_then(Value::as_object).into_iter().flatten();
    let mut text: String = gateways.map(|(name, gateway)| of_gateway(name, gateway)).collect();
    if let Some(good) = all.get("good_credentials").filter(|good| good.is_array()) {
        text.push_str("these credentials are valid in this database; revoke again those that were revoked before:\n");
        text.push_str(&credentials::readable(good));
    }
    text
}

fn of_gateway(name: &str, gateway: &Value) -> String {
    if let Some(reason) = gateway.get("failed").and_then(Value::as_str) {
        return format!("gateway {name} did not accept: {reason}\n");
    }
    if !has_taken(gateway) {
        let refused = gateway.get("refused").and_then(Value::as_str);
        let why =
            refused.map_or_else(|| "no snapshot arrived".to_owned(), |why| format!("it refused the snapshot: {why}"));
        return format!("gateway {name} still serves its previous replica; {why}\n");
    }
    let revision = word(gateway.get("revision").unwrap_or(&Value::Null));
    let mut text = format!("gateway {name} replaced its replica, revision {revision}\n");
    let before = text.len();
    for kind in ["keys", "hostnames", "projects"] {
        for change in ["added", "removed", "changed"] {
            let found = gateway.pointer(&format!("/{kind}/{change}")).unwrap_or(&Value::Null);
            text.push_str(&line(kind, change, found));
        }
    }
    if text.len() == before {
        text.push_str("  no key, hostname or project differs\n");
    } else if gateway.pointer("/keys/added/count").and_then(Value::as_u64).unwrap_or(0) > 0 {
        text.push_str("  added keys are valid now; if they were revoked before, revoke them again\n");
    }
    text
}

/// The number of changes of a kind, with some names.
fn line(kind: &str, change: &str, found: &Value) -> String {
    let count = found.get("count").and_then(Value::as_u64).unwrap_or(0);
    if count == 0 {
        return String::new();
    }
    let names: Vec<&str> =
        found.get("names").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let more = if usize::try_from(count).is_ok_and(|count| count > names.len()) { ", …" } else { "" };
    format!("  {kind} {change}: {count} ({}{more})\n", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changes_of_an_acceptance_are_listed() {
        let none = json!({ "count": 0, "names": [] });
        let same = json!({ "added": none, "removed": none, "changed": none });
        let keys = json!({ "added": { "count": 2, "names": ["key_a", "key_b"] }, "removed": none, "changed": none });
        let projects = json!({ "added": none, "removed": none, "changed": { "count": 21, "names": ["shop"] } });
        let taken = json!({ "state": "taken", "revision": 7, "keys": keys, "hostnames": same, "projects": projects });
        assert_eq!(
            of_gateway("a:1", &taken),
            "gateway a:1 replaced its replica, revision 7\n  keys added: 2 (key_a, key_b)\n  projects changed: 21 (shop, …)\n  \
             added keys are valid now; if they were revoked before, revoke them again\n"
        );
        let taken = json!({ "state": "taken", "revision": 7, "keys": same, "hostnames": same, "projects": same });
        assert!(of_gateway("a:1", &taken).ends_with("\n  no key, hostname or project differs\n"));
    }

    #[test]
    fn an_acceptance_lists_what_becomes_valid_again() {
        let stolen =
            json!({ "name": "edge-9", "kind": "gateway", "made_by": "ada", "created_at": "2026-01-01T00:00:00Z" });
        let text = readable(&json!({ "gateways": {}, "good_credentials": [stolen] }));
        assert!(text.starts_with("these credentials are valid in this database"), "{text}");
        assert!(text.contains("edge-9") && text.contains("ada"), "{text}");
        assert_eq!(readable(&json!({ "gateways": {}, "good_credentials": null })), "");
    }

    #[test]
    fn a_gateway_without_a_new_replica_reports_the_reason() {
        let waiting = json!({ "state": "waiting", "refused": null });
        assert!(of_gateway("a:1", &waiting).ends_with("still serves its previous replica; no snapshot arrived\n"));
        let refused = json!({ "state": "waiting", "refused": "a certificate does not open" });
        assert!(of_gateway("a:1", &refused).ends_with("it refused the snapshot: a certificate does not open\n"));
        assert!(of_gateway("a:1", &json!({ "failed": "refused" })).contains("did not accept: refused"));
    }
}
