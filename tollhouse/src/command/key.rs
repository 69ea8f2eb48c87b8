//! `tollhouse key`.

use chassis::clock::{Clock as _, SystemClock};
use clap::Subcommand;
use contract::key::{KeyId, Scope, Scopes};
use contract::project::ProjectId;
use domains_service::Operation;
use serde_json::{Value, json};

use super::{all_pages, lagging, waiting};
use crate::arguments::Common;
use crate::client::Client;
use crate::output::{Attention, answer, table, word};

/// `tollhouse key`.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Create a key and print it once.
    Create {
        /// The project.
        project: ProjectId,
        /// Scope of the key; repeatable. Default: all scopes.
        #[arg(long = "scope")]
        scopes: Vec<Scope>,
        /// Label in lists.
        #[arg(long, default_value = "")]
        label: String,
        /// Days until it expires. Default: never.
        #[arg(long)]
        expires_in_days: Option<u32>,
    },
    /// List the keys of a project.
    List {
        /// The project.
        project: ProjectId,
    },
    /// Create a new key in place of an old one, which stays valid for a while.
    Rotate {
        /// The project.
        project: ProjectId,
        /// The old key's id.
        key: KeyId,
        /// Seconds for which the old key stays valid.
        #[arg(long, default_value_t = 86_400)]
        overlap_seconds: u32,
    },
    /// Refuse a key permanently, on every gateway within a second.
    Revoke {
        /// The project.
        project: ProjectId,
        /// The key's id.
        key: KeyId,
    },
}

pub(super) async fn run(common: &Common, client: &Client, action: Key) -> anyhow::Result<()> {
    match action {
        Key::Create { project, scopes, label, expires_in_days } => {
            let scopes = if scopes.is_empty() { Scopes::all() } else { scopes.into_iter().collect() };
            let now = SystemClock::new().now_seconds();
            let end = expires_in_days.map(|days| jiff::Timestamp::from_second(now.plus(i64::from(days) * 86_400).0));
            let body =
                json!({ "label": label, "scopes": scopes, "expires_at": end.transpose()?.map(|end| end.to_string()) });
            let key = client.send(Operation::CreateKey, &[project.as_str()], &body).await?;
            answer(common, &key, show_once);
        }
        Key::List { project } => {
            let rows =
                all_pages(client, Operation::ListKeys, &[project.as_str()], "limit=200", "keys", usize::MAX).await?;
            let columns = [
                ("KEY", "/id"),
                ("LABEL", "/label"),
                ("SCOPES", "/scopes"),
                ("LAST 4", "/last4"),
                ("CREATED", "/created_at"),
                ("EXPIRES", "/expires_at"),
                ("REVOKED", "/revoked_at"),
                ("NOT CONFIRMED BY", "/withdrawal/lagging"),
                ("LAST USED", "/last_used_at"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Key::Rotate { project, key, overlap_seconds } => {
            let body = json!({ "overlap_seconds": overlap_seconds });
            let rotated = client.send(Operation::RotateKey, &[project.as_str(), key.as_str()], &body).await?;
            let lagging = lagging(rotated.pointer("/rotated/withdrawal").unwrap_or(&Value::Null));
            answer(common, &rotated, |new| {
                waiting(&show_once(new), &format!("{}\n\n{key} ends sooner", show_once(new)), &lagging)
            });
            Attention::when(!lagging.is_empty())?;
        }
        Key::Revoke { project, key } => {
            let revoked = client.call(Operation::RevokeKey, &[project.as_str(), key.as_str()], "").await?;
            // The body is empty if all gateways confirmed; programs get the same fields in both cases.
            let lagging = lagging(&revoked);
            let revoked = json!({ "id": key, "revoked": true, "lagging": lagging });
            answer(common, &revoked, |_| {
                waiting(&format!("every gateway refuses {key} now"), &format!("{key} is revoked"), &lagging)
            });
            Attention::when(!lagging.is_empty())?;
        }
    }
    Ok(())
}

fn show_once(key: &Value) -> String {
    let field = |name: &str| word(key.get(name).unwrap_or(&Value::Null));
    format!("{}\n\nThis is the API key {}. It is shown only once: save it now.", field("key"), field("id"))
}
