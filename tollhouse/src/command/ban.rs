//! `tollhouse ban`.

use clap::Subcommand;
use contract::key::KeyId;
use reqwest::Method;

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, table};

/// `tollhouse ban`.
#[derive(Debug, Subcommand)]
pub enum Ban {
    /// List the current bans.
    List,
    /// Refuse a key for a while.
    Add {
        /// The key's id.
        key: KeyId,
        /// Duration in seconds, at most 86400.
        #[arg(long, default_value_t = 3_600)]
        seconds: u32,
    },
    /// End the ban of a key.
    Lift {
        /// The key's id.
        key: KeyId,
    },
}

pub(super) async fn run(common: &Common, client: &Client, action: Ban) -> anyhow::Result<()> {
    match action {
        Ban::List => {
            let bans = client.edge(Method::GET, "/bans").await?;
            let rows = bans.get("bans").cloned().unwrap_or(bans);
            answer(common, &rows, |rows| table(rows, &[("KEY", "/key"), ("UNTIL", "/until"), ("REASON", "/reason")]));
        }
        Ban::Add { key, seconds } => {
            let answered = client.edge(Method::POST, &format!("/bans/{key}?seconds={seconds}")).await?;
            answer(common, &answered, |_| format!("{key} is banned for {seconds} seconds"));
        }
        Ban::Lift { key } => {
            let answered = client.edge(Method::DELETE, &format!("/bans/{key}")).await?;
            answer(common, &answered, |_| format!("{key} is no longer banned"));
        }
    }
    Ok(())
}
