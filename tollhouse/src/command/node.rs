//! `tollhouse node`.

use anyhow::Context as _;
use chassis::percent::segment;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::{Common, Node};
use crate::client::Client;
use crate::output::{answer, table};

pub(super) async fn run(common: &Common, client: &Client, action: Node) -> anyhow::Result<()> {
    match action {
        Node::Add { name, service } => {
            let kind = if service { "service" } else { "gateway" };
            let body = json!({ "name": name, "kind": kind });
            let made = client.control(Method::POST, "/internal/gateways", &body).await?;
            let credential =
                made.get("credential").and_then(Value::as_str).context("an answer without a credential")?;
            let credential = credential.to_owned();
            answer(common, &made, |_| {
                format!(
                    "{credential}\n\nThis is the credential of {name}, shown once. Put it into a file that only the \
                     {kind} may read, and name that file in its settings: credential_file."
                )
            });
        }
        Node::List => {
            let found = client.control(Method::GET, "/internal/gateways", &Value::Null).await?;
            let rows = found.get("gateways").cloned().unwrap_or(found);
            let columns = [
                ("NAME", "/name"),
                ("KIND", "/kind"),
                ("ADDED", "/created_at"),
                ("LAST SEEN", "/last_seen_at"),
                ("REVOKED", "/revoked_at"),
                ("FILE", "/file"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Node::Revoke { name } => {
            let path = format!("/internal/gateways/{}", segment(&name));
            let answered = client.control(Method::DELETE, &path, &Value::Null).await?;
            answer(common, &answered, |answered| revoked(&name, answered));
        }
        Node::Accept => {
            let mut answers = client.every_edge(&Method::POST, "/replica/accept").await;
            let silent = answers.extract_if(.., |(_, answer)| answer.is_err());
            let silent: Vec<_> = silent.map(|(address, _)| address).collect();
            anyhow::ensure!(silent.is_empty(), "these gateways do not answer: {}", silent.join(", "));
            let addresses: Vec<_> = answers.into_iter().map(|(address, _)| address).collect();
            answer(common, &json!({ "gateways": addresses }), |_| {
                "all gateways take the next state, whatever it is".to_owned()
            });
        }
        Node::Rotate => {
            let answered = client.control(Method::POST, "/internal/gateway-keys", &Value::Null).await?;
            answer(common, &answered, |_| "all gateways have new keys".to_owned());
        }
    }
    Ok(())
}

/// What an operator has to know, and to do, after a revocation.
fn revoked(name: &str, answered: &Value) -> String {
    let mut text = format!(
        "{name} is refused from now on, and the other gateways have new keys. If it is in wrong hands, change the sealing \
         secret too: docs/operating.md says how.\n"
    );
    if let Some(file) = answered.get("file").and_then(Value::as_str) {
        text.push_str(&format!(
            "\nIts credential came from the file {file}. That credential is never taken again. Before {name} can come \
             back: `tollhouse node add {name}`, put the new credential into that file, and restart {name}. In containers \
             replace the original in the data directory of `tollhouse init`, which copies it at each start.\n"
        ));
    }
    text
}
