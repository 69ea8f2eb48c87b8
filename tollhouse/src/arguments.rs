//! The command line: arguments and their help.

mod access;
mod domain;
mod on_call;
mod project;
mod up;
mod webhook;

use std::path::PathBuf;

use chassis::config::{Listen, NoPlace};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use contract::key::Scope;
use contract::project::ProjectId;

use crate::directory::Address;
use crate::test_world::Dns;

pub use access::{Node, Token};
pub use domain::Domain;
pub use on_call::{By, Databases, FinishRestore, Restore, Top};
pub use project::{OrDefault, Project};
pub use up::{Init, Up, UpstreamArgument, UpstreamSetting};
pub use webhook::Webhook;

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

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Data directory of the platform.
    #[arg(long, global = true, default_value = "data", env = "TOLLHOUSE_DATA_DIR")]
    pub data_dir: PathBuf,
    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub json: bool,
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
    Project(Project),
    /// Create, list, rotate and revoke API keys.
    #[command(subcommand)]
    Key(Key),
    /// Attach customers' domains to a project.
    #[command(subcommand)]
    Domain(Domain),
    /// Send events of a project (domains, orders) to a URL.
    #[command(subcommand)]
    Webhook(Webhook),
    /// Import and export a project's orders.
    #[command(subcommand)]
    Orders(Orders),
    /// Show the remaining requests of a project.
    #[command(subcommand)]
    Quota(Quota),
    /// List, add and lift bans of API keys.
    #[command(subcommand)]
    Ban(Ban),
    /// Manage credentials of gateways and services.
    #[command(subcommand)]
    Node(Node),
    /// Manage API tokens for operators on other machines.
    #[command(subcommand)]
    Token(Token),
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
    Top(Top),
    /// List recent changes, newest first: starts, quota mode, control plane lost and found, settings, published
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
    Backup(Databases),
    /// Restore a backup while all processes are stopped. The current databases are kept beside it; their revocations
    /// and removals are applied again. An altered backup is refused.
    Restore(Restore),
    /// Prepare PostgreSQL databases after a restore with its own tools, before the services start.
    FinishRestore(FinishRestore),
    /// Create secrets and certificates for a platform of several processes. Existing files are kept.
    Init(Init),
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
        key: contract::key::KeyId,
        /// Seconds for which the old key stays valid.
        #[arg(long, default_value_t = 86_400)]
        overlap_seconds: u32,
    },
    /// Refuse a key for good, on every gateway within a second.
    Revoke {
        /// The project.
        project: ProjectId,
        /// The key's id.
        key: contract::key::KeyId,
    },
}

/// `tollhouse orders`.
#[derive(Debug, Subcommand)]
pub enum Orders {
    /// Import orders from a JSON-lines file, all or none.
    Import {
        /// One order per line: id, petId, quantity, shipDate, complete, and optionally status.
        file: PathBuf,
        /// The project.
        #[arg(long, default_value = "demo-free")]
        project: ProjectId,
    },
    /// Export orders to a JSON-lines file; `-` prints them.
    Export {
        /// The file.
        file: PathBuf,
        /// The project.
        #[arg(long, default_value = "demo-free")]
        project: ProjectId,
    },
}

/// `tollhouse quota`.
#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Show limit and use of the current minute and day.
    Show {
        /// The project.
        project: ProjectId,
    },
}

/// `tollhouse ban`.
#[derive(Debug, Subcommand)]
pub enum Ban {
    /// List the current bans.
    List,
    /// Refuse a key for a while.
    Add {
        /// The key's id.
        key: contract::key::KeyId,
        /// Duration in seconds, at most 86400.
        #[arg(long, default_value_t = 3_600)]
        seconds: u32,
    },
    /// End the ban of a key.
    Lift {
        /// The key's id.
        key: contract::key::KeyId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

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
