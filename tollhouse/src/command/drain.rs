//! `tollhouse drain`: takes a gateway out of rotation and back. The gateway keeps serving; SIGTERM ends it.

use reqwest::Method;
use serde_json::Value;

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, word};

pub(super) async fn run(common: &Common, client: &Client, node: Option<&str>, resume: bool) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for (edge, status) in client.every_edge(&Method::GET, "/status").await {
        if let Ok(status) = status {
            let process = status.get("node").and_then(Value::as_str).unwrap_or_default();
            found.push((format!("{}/{process}", edge.gateway), edge));
        }
    }
    let is_meant = |name: &str| node.is_none_or(|node| name == node || name.split('/').any(|part| part == node));
    let meant: Vec<_> = found.iter().filter(|(name, _)| is_meant(name)).collect();
    let names = |of: &[&(String, _)]| of.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let (name, edge) = match *meant {
        [one] => one,
        [] if found.is_empty() => anyhow::bail!("no gateway answers"),
        [] => anyhow::bail!("unknown gateway; these answer: {}", names(&found.iter().collect::<Vec<_>>())),
        _ => anyhow::bail!("give the name of a gateway: {}", names(&meant)),
    };
    let method = if resume { Method::DELETE } else { Method::POST };
    let answered = client.edge_at(edge, method, "/drain").await?;
    answer(common, &answered, |answered| {
        let open = word(answered.get("connections").unwrap_or(&Value::Null));
        if resume {
            format!("{name} is back in rotation ({open} connections)")
        } else {
            format!(
                "{name} is out of rotation: not ready, and its clients are asked to reconnect ({open} connections left)"
            )
        }
    });
    Ok(())
}
