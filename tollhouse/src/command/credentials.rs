//! Credentials at the control plane, for `tollhouse node` and `tollhouse token`.

use anyhow::Context as _;
use domains_service::Operation;
use serde_json::{Value, json};

use crate::client::Client;
use crate::output::table;

/// Creates a credential; returns the response and its field with the text.
pub(super) async fn make(client: &Client, body: Value, field: &str) -> anyhow::Result<(Value, String)> {
    let made = client.send(Operation::CreateCredential, &[], &body).await?;
    let text = made.get(field).and_then(Value::as_str).context("the response has no credential")?.to_owned();
    Ok((made, text))
}

/// The credentials that `keep` accepts; `None` if the response has no list.
async fn matching(client: &Client, keep: impl Fn(&Value) -> bool) -> anyhow::Result<Option<Value>> {
    let mut found = client.call(Operation::ListCredentials, &[], "").await?;
    let mut all = found.get_mut("credentials").map(Value::take);
    if let Some(all) = all.as_mut().and_then(Value::as_array_mut) {
        all.retain(keep);
    }
    Ok(all)
}

/// Lists credentials of operators, or of gateways and services.
pub(super) async fn list(client: &Client, operators: bool) -> anyhow::Result<Value> {
    let is_listed = |one: &Value| (one.get("kind") == Some(&json!("operator"))) == operators;
    Ok(matching(client, is_listed).await?.unwrap_or_default())
}

/// Lists valid credentials of every kind.
pub(super) async fn good(client: &Client) -> anyhow::Result<Value> {
    let is_good = |one: &Value| one.get("revoked_at").is_none_or(Value::is_null);
    matching(client, is_good).await?.context("the response has no list of credentials")
}

/// Revokes a credential; with `made`, also those that it created.
pub(super) async fn revoke(client: &Client, kind: &str, name: &str, made: bool) -> anyhow::Result<Value> {
    client.call(Operation::RevokeCredential, &[kind, name], &format!("made={made}")).await
}

/// Credentials as a table.
pub(super) fn readable(all: &Value) -> String {
    let columns = [
        ("NAME", "/name"),
        ("KIND", "/kind"),
        ("MADE BY", "/made_by"),
        ("CREATED", "/created_at"),
        ("EXPIRES", "/expires_at"),
        ("LAST USED", "/last_used_at"),
        ("REVOKED", "/revoked_at"),
        ("FILE", "/file"),
    ];
    table(all, &columns)
}
