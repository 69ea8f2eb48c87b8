//! `tollhouse quota`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::{Common, Quota};
use crate::client::Client;
use crate::output::{answer, table, word};

pub(super) async fn run(common: &Common, client: &Client, action: Quota) -> anyhow::Result<()> {
    let Quota::Show { project } = action;
    let usage = client.edge(Method::GET, &format!("/usage/{project}")).await?;
    answer(common, &usage, |usage| {
        let row = |name: &str| {
            let mut row = usage.get(name).cloned().unwrap_or_else(|| json!({}));
            if let Some(object) = row.as_object_mut() {
                let figure =
                    |field: &str| usage.pointer(&format!("/{name}/{field}")).and_then(Value::as_u64).unwrap_or(0);
                object.insert("used".to_owned(), json!(figure("limit").saturating_sub(figure("remaining"))));
                object.insert("window".to_owned(), json!(name));
            }
            row
        };
        let rows = json!([row("minute"), row("day")]);
        let columns = [
            ("WINDOW", "/window"),
            ("LIMIT", "/limit"),
            ("USED", "/used"),
            ("REMAINING", "/remaining"),
            ("RESETS AT", "/resets_at"),
        ];
        let field = |name: &str| word(usage.get(name).unwrap_or(&Value::Null));
        format!(
            "{} ({} plan, counting: {})\n{}",
            field("project"),
            field("plan"),
            field("mode"),
            table(&rows, &columns)
        )
    });
    Ok(())
}
