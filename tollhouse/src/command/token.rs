//! `tollhouse token`.

use anyhow::Context as _;
use chassis::percent::segment;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::{Common, Token};
use crate::client::Client;
use crate::output::{answer, table};

/// Where tokens are.
const PATH: &str = "/internal/operator-tokens";

pub(super) async fn run(common: &Common, client: &Client, action: Token) -> anyhow::Result<()> {
    match action {
        Token::Create { name, days } => {
            let made = client.control(Method::POST, PATH, &json!({ "name": name, "days": days })).await?;
            let token = made.get("token").and_then(Value::as_str).context("an answer without a token")?.to_owned();
            answer(common, &made, |_| {
                format!(
                    "{token}\n\nThis is the token of {name}, shown once. It opens the internal listener of the control \
                     plane: Authorization: Bearer <token>."
                )
            });
        }
        Token::List => {
            let found = client.control(Method::GET, PATH, &Value::Null).await?;
            let rows = found.get("tokens").cloned().unwrap_or(found);
            let columns = [
                ("NAME", "/name"),
                ("CREATED", "/created_at"),
                ("EXPIRES", "/expires_at"),
                ("LAST USED", "/last_used_at"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Token::Revoke { name } => {
            let answered = client.control(Method::DELETE, &format!("{PATH}/{}", segment(&name)), &Value::Null).await?;
            answer(common, &answered, |_| format!("the token of {name} is refused from now on"));
        }
    }
    Ok(())
}
