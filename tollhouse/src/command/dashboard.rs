//! `tollhouse dashboard-link`: signs an operator, who has no API key, in to the dashboard.

use domains_service::Operation;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, word};

pub(super) async fn link(common: &Common, client: &Client) -> anyhow::Result<()> {
    let made = client.call(Operation::MakeDashboardLink, &[], "").await?;
    let text = |name: &str| made.get(name).and_then(Value::as_str).unwrap_or_default();
    let url = format!("https://{}:{}{}", text("host"), client.run.https.port(), text("path"));
    answer(common, &json!({ "url": url, "expires_at": text("expires_at") }), |link| {
        word(link.get("url").unwrap_or(&Value::Null))
    });
    Ok(())
}
