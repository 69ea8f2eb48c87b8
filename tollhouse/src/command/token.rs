//! `tollhouse token`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::credentials;
use crate::arguments::Common;
use crate::client::Client;
use crate::output::answer;

/// `tollhouse token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token for an operator and print it once.
    Create {
        /// Name of the operator, for the audit log.
        name: String,
        /// Days until it expires, at most 366.
        #[arg(long, default_value_t = 90)]
        days: u32,
    },
    /// List tokens: creator, expiry and last use.
    List,
    /// Revoke a token, and list the tokens and credentials that it created.
    Revoke {
        /// Name of the token's operator.
        name: String,
        /// Also revoke everything that it created, directly or indirectly.
        #[arg(long)]
        made: bool,
    },
}

pub(super) async fn run(common: &Common, client: &Client, action: Token) -> anyhow::Result<()> {
    match action {
        Token::Create { name, days } => {
            let body = json!({ "kind": "operator", "name": name, "days": days });
            let (made, token) = credentials::make(client, body, "token").await?;
            answer(common, &made, |_| {
                format!(
                    "{token}\n\nThis is the token of {name}, shown once. It opens the internal listener of the control \
                     plane: Authorization: Bearer <token>."
                )
            });
        }
        Token::List => answer(common, &credentials::list(client, true).await?, credentials::readable),
        Token::Revoke { name, made } => {
            let answered = credentials::revoke(client, "operator", &name, made).await?;
            answer(common, &answered, |answered| revoked(&name, answered));
        }
    }
    Ok(())
}

/// The revoked credentials, and those created by the token that stay valid.
fn revoked(name: &str, answered: &Value) -> String {
    let all = |field: &str| answered.get(field).cloned().unwrap_or_default();
    let mut text = format!("Revoked:\n{}", credentials::readable(&all("revoked")));
    if all("made").as_array().is_some_and(|made| !made.is_empty()) {
        text.push_str(&format!(
            "\n{name} created these, which are still valid. `tollhouse token revoke {name} --made` revokes them:\n{}",
            credentials::readable(&all("made"))
        ));
    }
    text
}
