//! `tollhouse switches`: what can I switch off?
//!
//! One row for everything that limits, refuses or stops something without a new version: how it stands, and the line
//! that changes it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, table, word};

/// Settings of the gateway that are switches: what they do, and what else they may be.
const SETTINGS: [(&str, &str, &str, &str); 4] = [
    ("quota.bans", "on", "bans by themselves", "off, shadow, on"),
    ("quota.on_store_down", "share", "requests while the quota store is gone", "share, deny, allow"),
    ("quota.shadow_plans", "", "plans whose limits are counted and not enforced", "a list of plans"),
    (
        "quota.failed_authentications_per_minute",
        "60",
        "requests without a good key, per address and minute",
        "a number",
    ),
];

pub(super) async fn run(common: &Common, client: &Client) -> anyhow::Result<()> {
    let status = client.edge(Method::GET, "/status").await?;
    let settings = client.edge(Method::GET, "/settings").await?;
    let bans = client.edge(Method::GET, "/bans").await?;
    let mut rows = Vec::new();
    let mut row = |what: &str, now: String, how: String| rows.push(json!({ "what": what, "now": now, "how": how }));
    let draining = status.get("draining") == Some(&json!(true));
    row(
        "a gateway in rotation",
        if draining { "out" } else { "in" }.to_owned(),
        "tollhouse drain NODE [--resume]".to_owned(),
    );
    row("a project", "served unless suspended".to_owned(), "tollhouse project suspend ID / resume ID".to_owned());
    row("a key", "good until revoked".to_owned(), "tollhouse key revoke PROJECT KEY".to_owned());
    let banned = bans.get("bans").and_then(Value::as_array).map_or(0, Vec::len);
    row("a key for a while", format!("{banned} banned"), "tollhouse ban add KEY --seconds N / lift KEY".to_owned());
    row("a project's plan or limits", "as published".to_owned(), "tollhouse project set ID --plan PLAN".to_owned());
    for (name, default, what, choices) in SETTINGS {
        let now = settings.get(name).and_then(|given| given.get("value")).map_or_else(|| default.to_owned(), word);
        let now = if now.is_empty() { "none".to_owned() } else { now };
        row(what, now, format!("{name} in gateway.toml: {choices}"));
    }
    for upstream in status.get("upstreams").and_then(Value::as_array).into_iter().flatten() {
        let field = |name: &str| word(upstream.get(name).unwrap_or(&Value::Null));
        let now = format!("{} of {} addresses answer", field("up"), field("endpoints"));
        row(&format!("the service {}", field("name")), now, format!("[upstreams.{}] in gateway.toml", field("name")));
    }
    answer(common, &Value::Array(rows), |rows| {
        table(rows, &[("WHAT", "/what"), ("NOW", "/now"), ("HOW TO CHANGE IT", "/how")])
    });
    Ok(())
}
