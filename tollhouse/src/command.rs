//! The command line: its commands, one file per noun with its arguments and help. Each sends requests to the running
//! platform and prints the responses.

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

use std::path::PathBuf;

use chassis::config::{Listen, NoPlace};
use chassis::percent::segment;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use domains_service::Operation;
use serde_json::Value;

use crate::arguments::{Common, Up};
use crate::client::Client;
use crate::directory::{Address, Directory};
use crate::test_world::Dns;

/// Tollhouse, a self-hosted edge for multi-tenant platforms.
///
/// Without a subcommand it starts the platform: `tollhouse` is `tollhouse up`.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Arguments {
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
    /// Options of `up`, when no command is given.
    #[command(flatten)]
    pub up: Up,
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Arguments {
    /// Parses a command line. Common options can come before or after the command; options of `up` only belong to `up`.
    pub fn read<I, T>(line: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let matches = Self::command().try_get_matches_from(line)?;
        if let Some((command, _)) = matches.subcommand() {
            let of_up = Up::augment_args(clap::Command::new("up"));
            let typed = |id: &clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
            if let Some(option) = of_up.get_arguments().find(|option| typed(option.get_id())) {
                let words =
                    format!("--{} is an option of `up`, not of `{command}`", option.get_long().unwrap_or_default());
                return Err(Self::command().error(ErrorKind::ArgumentConflict, words));
            }
        }
        Self::from_arg_matches(&matches)
    }
}

/// Parses a name or an address and a port, or a network and a port for this machine's address in that network.
fn listener(text: &str) -> Result<Address, String> {
    if text.contains('/') {
        let at: Listen = text.parse().map_err(|error: NoPlace| error.to_string())?;
        return Ok(at.0.into());
    }
    text.parse()
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the whole platform on this machine.
    Up(Up),
    /// Create, change, suspend and remove projects.
    #[command(subcommand)]
    Project(project::Project),
    /// Create, list, rotate and revoke API keys.
    #[command(subcommand)]
    Key(key::Key),
    /// Attach customers' domains to a project.
    #[command(subcommand)]
    Domain(domain::Domain),
    /// Send events of a project (domains, orders) to a URL.
    #[command(subcommand)]
    Webhook(webhook::Webhook),
    /// Import and export a project's orders.
    #[command(subcommand)]
    Orders(orders::Orders),
    /// Show the remaining requests of a project.
    #[command(subcommand)]
    Quota(quota::Quota),
    /// List, add and lift bans of API keys.
    #[command(subcommand)]
    Ban(ban::Ban),
    /// Manage credentials of gateways and services.
    #[command(subcommand)]
    Node(node::Node),
    /// Manage API tokens for operators on other machines.
    #[command(subcommand)]
    Token(token::Token),
    /// Change DNS records of the test world (`./up --test-world`).
    #[command(subcommand)]
    Dns(Dns),
    /// Show how the gateways handle a hostname, project, request or key, and why.
    Explain {
        /// A hostname or a URL, a project's name, the X-Request-Id of a response, the id of a key, or a key itself.
        #[arg(value_name = "HOST|URL|PROJECT|REQUEST-ID|KEY-ID|KEY")]
        about: String,
    },
    /// Show the health of every process: dependencies, expiring certificates, refusals, problems.
    Status,
    /// Print a link that signs an operator in to the dashboard, once and within five minutes.
    DashboardLink,
    /// Show the most frequent projects, hosts, keys or codes of the last minutes, with errors.
    Top(top::Top),
    /// List recent changes, newest first: starts, quota mode, control plane outages, settings, published
    /// changes.
    Changes {
        /// Maximum number of changes.
        #[arg(long, default_value_t = 30)]
        limit: usize,
    },
    /// Drain a gateway: it becomes not ready and asks clients to reconnect, but still serves requests.
    Drain {
        /// Gateway name or process id, as in `tollhouse status`. Required if the platform has
        /// several gateways.
        node: Option<String>,
        /// End the draining.
        #[arg(long)]
        resume: bool,
    },
    /// Back up the SQLite databases of a running platform and verify the copies. Secrets are not included. For
    /// PostgreSQL see docs/operator/backup.md.
    Backup(backup::Databases),
    /// Restore a backup while all processes are stopped. The current databases are kept beside it; their revocations
    /// and removals are applied again. An altered backup is refused.
    Restore(backup::Restore),
    /// Prepare PostgreSQL databases after a restore with its own tools, before the services start.
    FinishRestore(backup::FinishRestore),
    /// Create secrets and certificates for a platform of several processes. Existing files are kept.
    Init(init::Init),
    /// Create the missing demo projects on a running platform.
    Demo,
    /// Print the certificate of the local CA, for `curl --cacert` and trust stores.
    Ca,
    /// Exit 0 if a process is ready; for health checks of containers.
    Healthcheck {
        /// Admin listener: an address and a port, or a network and a port for this machine's address in that network.
        #[arg(default_value = "127.0.0.1:9901", value_parser = listener)]
        address: Address,
        /// Use TLS with this name in the certificate, verified with `ca/internal.pem` of the data directory.
        #[arg(long, value_name = "NAME")]
        server_name: Option<String>,
    },
    /// Check configuration files without serving: gateway.toml, orders-service.toml, domains-service.toml.
    CheckConfig {
        /// Files, named after their process. Default: all three in config/.
        files: Vec<PathBuf>,
        /// Compare the files with the settings of the running processes. Exit code 3 if they differ.
        #[arg(long)]
        running: bool,
    },
}

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
        Command::Status => status::run(common, client).await,
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

    #[test]
    fn the_data_directory_can_be_given_before_or_after_the_command() {
        for line in [["tollhouse", "--data-dir", "/x", "status"], ["tollhouse", "status", "--data-dir", "/x"]] {
            let arguments = Arguments::read(line).unwrap();
            assert_eq!(arguments.common.data_dir, PathBuf::from("/x"), "{line:?}");
            assert!(matches!(arguments.command, Some(Command::Status)));
        }
    }

    #[test]
    fn options_of_up_belong_to_up() {
        let error = Arguments::read(["tollhouse", "--http-port", "1", "status"]).unwrap_err().to_string();
        assert!(error.contains("--http-port is an option of `up`, not of `status`"), "{error}");
        assert_eq!(Arguments::read(["tollhouse", "--http-port", "1"]).unwrap().up.http_port, 1);
        assert!(Arguments::read(["tollhouse", "up", "--http-port", "1"]).is_ok());
    }

    #[cfg(not(feature = "test-world"))]
    #[test]
    fn without_the_test_world_its_option_says_how_to_get_it() {
        for option in ["--test-world", "--test-world=strict"] {
            let error = Arguments::read(["tollhouse", "up", option]).unwrap_err().to_string();
            assert!(error.contains("./up --test-world") && error.contains("--features test-world"), "{error}");
        }
        let arguments = Arguments::read(["tollhouse", "dns", "set", "--help", "a.test", "A"]).unwrap();
        let Some(Command::Dns(words)) = arguments.command else { panic!("{:?}", arguments.command) };
        let error = crate::test_world::carry_out(std::path::Path::new("data"), words).unwrap_err().to_string();
        assert!(error.contains("--features test-world"), "{error}");
    }
}
