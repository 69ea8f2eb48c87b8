//! The operator's commands, one file per noun: each sends requests to the running platform and prints the responses.

mod backup;
mod ban;
mod changes;
mod check_config;
mod credentials;
mod dashboard;
mod domain;
mod drain;
mod explain;
mod init;
mod key;
mod node;
mod orders;
mod project;
mod quota;
mod status;
mod token;
mod top;
mod webhook;

use chassis::percent::segment;
use domains_service::Operation;
use serde_json::Value;

use crate::arguments::{Command, Common};
use crate::client::Client;
use crate::directory::Directory;

/// The gateways that have not confirmed a change, from a response.
fn lagging(answered: &Value) -> Vec<String> {
    let named = answered.get("lagging").and_then(Value::as_array).into_iter().flatten();
    named.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The result of a change: `everywhere` if all gateways confirmed it, otherwise `done` with the other gateways.
fn waiting(everywhere: &str, done: &str, lagging: &[String]) -> String {
    if lagging.is_empty() {
        return everywhere.to_owned();
    }
    let gateways = lagging.join(", ");
    format!(
        "{done}; not yet confirmed by {gateways}. These may still serve as before; `tollhouse status` lists them until they confirm"
    )
}

/// Runs a command.
pub async fn run(common: &Common, command: Command) -> anyhow::Result<()> {
    let directory = Directory::new(&common.data_dir);
    if let Command::CheckConfig { files, running: false } = command {
        return check_config::run(common, &files);
    }
    if let Command::Init(options) = command {
        return init::init(common, &directory, &options);
    }
    if matches!(command, Command::Ca) {
        return init::print_authority(&directory);
    }
    if let Command::Healthcheck { address, server_name } = command {
        return init::healthcheck(&directory, &address, server_name.as_deref()).await;
    }
    if let Command::Dns(action) = command {
        let text = crate::test_world::carry_out(&directory.path(""), action)?;
        if !text.is_empty() {
            crate::output::print(&text);
        }
        return Ok(());
    }
    if let Command::Backup(options) = command {
        return backup::backup(common, &directory, &options).await;
    }
    if let Command::Restore(options) = command {
        return backup::restore(common, &directory, &options).await;
    }
    if let Command::FinishRestore(options) = command {
        return backup::finish_restore(common, &options).await;
    }
    let client = Client::of(&directory)?;
    match command {
        Command::Demo => init::make_demo(common, &directory, &client).await,
        Command::Project(action) => project::run(common, &client, action).await,
        Command::Key(action) => key::run(common, &client, action).await,
        Command::Domain(action) => domain::run(common, &client, action).await,
        Command::Webhook(action) => webhook::run(common, &client, action).await,
        Command::Orders(action) => orders::run(common, &client, action).await,
        Command::Quota(action) => quota::run(common, &client, action).await,
        Command::Ban(action) => ban::run(common, &client, action).await,
        Command::Node(action) => node::run(common, &client, action).await,
        Command::Token(action) => token::run(common, &client, action).await,
        Command::Explain { about } => explain::run(common, &client, &about).await,
        Command::Status => status::run(common, &client).await,
        Command::DashboardLink => dashboard::link(common, &client).await,
        Command::Top(question) => top::run(common, &client, &question).await,
        Command::Changes { limit } => changes::run(common, &client, limit).await,
        Command::CheckConfig { files, .. } => check_config::running::compare(common, &client, &files).await,
        Command::Drain { node, resume } => drain::run(common, &client, node.as_deref(), resume).await,
        // These commands were handled above without a client.
        Command::Up(_)
        | Command::Init(_)
        | Command::Ca
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::FinishRestore(_)
        | Command::Healthcheck { .. }
        | Command::Dns(_) => Ok(()),
    }
}

/// All pages of a list, joined: the items under `name` of each page, up to `most`.
async fn all_pages(
    client: &Client,
    operation: Operation,
    parameters: &[&str],
    query: &str,
    name: &str,
    most: usize,
) -> anyhow::Result<Value> {
    let mut items = Vec::new();
    let mut place = query.to_owned();
    loop {
        let mut page = client.call(operation, parameters, &place).await?;
        if let Some(Value::Array(found)) = page.get_mut(name).map(Value::take) {
            items.extend(found);
        }
        match page.get("next_cursor").and_then(Value::as_str) {
            Some(next) if items.len() < most => {
                let joint = if query.is_empty() { "" } else { "&" };
                place = format!("{query}{joint}cursor={}", segment(next));
            }
            _ => break,
        }
    }
    items.truncate(most);
    Ok(Value::Array(items))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_withdrawal_names_the_gateways_that_have_not_confirmed_it() {
        assert_eq!(waiting("k is refused", "k is revoked", &lagging(&json!({}))), "k is refused");
        let waits =
            waiting("k is refused", "k is revoked", &lagging(&json!({ "lagging": ["edge/gw-1", "edge/gw-2"] })));
        assert!(waits.starts_with("k is revoked; not yet confirmed by edge/gw-1, edge/gw-2."), "{waits}");
    }
}
