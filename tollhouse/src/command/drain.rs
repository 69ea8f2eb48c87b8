//! `tollhouse drain`: a gateway out of rotation, and back. It goes on serving; ending it is SIGTERM's business.

use reqwest::Method;
use serde_json::Value;

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, word};

pub(super) async fn run(common: &Common, client: &Client, node: Option<&str>, resume: bool) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for (edge, status) in client.every_edge(&Method::GET, "/status").await {
        if let Ok(status) = status {
            let name = status.get("node").and_then(Value::as_str).unwrap_or_default().to_owned();
            found.push((name, edge));
        }
    }
    let names = || found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let chosen = match node {
        Some(node) => found.iter().find(|(name, _)| name == node),
        None if found.len() > 1 => anyhow::bail!("say which gateway: {}", names()),
        None => found.first(),
    };
    let Some((name, edge)) = chosen else {
        anyhow::bail!(
            "no gateway called so answers; these do: {}",
            if found.is_empty() { "none".to_owned() } else { names() }
        );
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
