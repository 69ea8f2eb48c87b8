//! `tollhouse ban`.

use reqwest::Method;

use crate::arguments::{Ban, Common};
use crate::client::Client;
use crate::output::{answer, table};

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
