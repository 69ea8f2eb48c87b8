//! `tollhouse node accept`: every gateway takes what the control plane holds now, and says what that changed.

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

/// How long the gateways have for a snapshot: one of a million domains takes most of a minute.
const TAKE_MAX: Duration = Duration::from_mins(2);

/// Between two questions to the gateways.
const ASK_EVERY: Duration = Duration::from_millis(200);

const PATH: &str = "/replica/accept";

pub(super) async fn run(common: &Common, client: &Client) -> anyhow::Result<()> {
    let mut gateways = by_name(client.every_edge(&Method::POST, PATH).await);
    let deadline = tokio::time::Instant::now() + TAKE_MAX;
    while gateways.values().any(waits) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(ASK_EVERY).await;
        gateways.extend(by_name(client.every_edge(&Method::GET, PATH).await));
    }
    // Gateways know nothing of credentials: what was revoked since is found by people alone.
    let credentials = credentials::good(client).await;
    let all = json!({ "gateways": gateways, "good_credentials": credentials.as_ref().ok() });
    answer(common, &all, readable);
    credentials
        .context("which credentials are good again is not known: see tollhouse node list and tollhouse token list")?;
    Attention::when(!gateways.values().all(has_taken))
}

/// What each gateway said, or why it did not.
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
        text.push_str("these credentials are good in this database; revoke again those that were revoked before:\n");
        text.push_str(&credentials::shown(good));
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
            refused.map_or_else(|| "no snapshot came".to_owned(), |why| format!("it refused the snapshot: {why}"));
        return format!("gateway {name} still serves what it knew before; {why}\n");
    }
    let revision = word(gateway.get("revision").unwrap_or(&Value::Null));
    let mut text = format!("gateway {name} took everything anew, revision {revision}\n");
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
        text.push_str("  keys that were added are good now; if they were revoked before, revoke them again\n");
    }
    text
}

/// How many things changed in one way, and some of their names.
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
    fn what_an_acceptance_changed_is_listed() {
        let none = json!({ "count": 0, "names": [] });
        let same = json!({ "added": none, "removed": none, "changed": none });
        let keys = json!({ "added": { "count": 2, "names": ["key_a", "key_b"] }, "removed": none, "changed": none });
        let projects = json!({ "added": none, "removed": none, "changed": { "count": 21, "names": ["shop"] } });
        let taken = json!({ "state": "taken", "revision": 7, "keys": keys, "hostnames": same, "projects": projects });
        assert_eq!(
            of_gateway("a:1", &taken),
            "gateway a:1 took everything anew, revision 7\n  keys added: 2 (key_a, key_b)\n  projects changed: 21 (shop, …)\n  \
             keys that were added are good now; if they were revoked before, revoke them again\n"
        );
        let taken = json!({ "state": "taken", "revision": 7, "keys": same, "hostnames": same, "projects": same });
        assert!(of_gateway("a:1", &taken).ends_with("\n  no key, hostname or project differs\n"));
    }

    #[test]
    fn what_an_acceptance_makes_good_again_is_listed() {
        let stolen =
            json!({ "name": "edge-9", "kind": "gateway", "made_by": "ada", "created_at": "2026-01-01T00:00:00Z" });
        let text = readable(&json!({ "gateways": {}, "good_credentials": [stolen] }));
        assert!(text.starts_with("these credentials are good in this database"), "{text}");
        assert!(text.contains("edge-9") && text.contains("ada"), "{text}");
        assert_eq!(readable(&json!({ "gateways": {}, "good_credentials": null })), "");
    }

    #[test]
    fn a_gateway_that_took_nothing_says_why() {
        let waiting = json!({ "state": "waiting", "refused": null });
        assert!(of_gateway("a:1", &waiting).ends_with("still serves what it knew before; no snapshot came\n"));
        let refused = json!({ "state": "waiting", "refused": "a certificate does not open" });
        assert!(of_gateway("a:1", &refused).ends_with("it refused the snapshot: a certificate does not open\n"));
        assert!(of_gateway("a:1", &json!({ "failed": "refused" })).contains("did not accept: refused"));
    }
}
