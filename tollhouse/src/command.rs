//! The operator's commands: one file per noun, each a request to the running platform and a way to read its answer.

mod ban;
mod check_config;
mod dns;
mod domain;
mod init;
mod key;
mod orders;
mod project;
mod quota;
mod status;

use crate::arguments::{Command, Common};
use crate::client::Client;
use crate::directory::Directory;

/// Carries out a command.
///
/// # Errors
/// What went wrong, in words that say what to do.
pub async fn run(common: &Common, command: Command) -> anyhow::Result<()> {
    let directory = Directory::new(&common.data_dir);
    if let Command::CheckConfig { files } = command {
        return check_config::run(common, &files);
    }
    if let Command::Init(options) = command {
        return init::init(common, &directory, &options);
    }
    if matches!(command, Command::Ca) {
        return init::print_authority(&directory);
    }
    if let Command::Healthcheck { address } = command {
        return init::healthcheck(&address).await;
    }
    if let Command::Dns(action) = command {
        return dns::run(common, action);
    }
    let client = Client::of(&directory)?;
    match command {
        Command::Demo => init::make_demo(common, &directory, &client).await,
        Command::Project(action) => project::run(common, &client, action).await,
        Command::Key(action) => key::run(common, &client, action).await,
        Command::Domain(action) => domain::run(common, &client, action).await,
        Command::Orders(action) => orders::run(common, &client, action).await,
        Command::Quota(action) => quota::run(common, &client, action).await,
        Command::Ban(action) => ban::run(common, &client, action).await,
        Command::Explain { host } => status::explain(common, &client, &host).await,
        Command::Status => status::run(common, &client).await,
        // These were dealt with before a client was needed.
        Command::Up(_)
        | Command::CheckConfig { .. }
        | Command::Init(_)
        | Command::Ca
        | Command::Healthcheck { .. }
        | Command::Dns(_) => Ok(()),
    }
}
