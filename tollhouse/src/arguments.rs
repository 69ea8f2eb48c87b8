//! What a person types.

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
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Arguments {
    /// What was typed. Options of every command may stand before or after the command; those of `up` belong to it.
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
    /// Where everything of the platform is kept.
    #[arg(long, global = true, default_value = "data", env = "TOLLHOUSE_DATA_DIR")]
    pub data_dir: PathBuf,
    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub json: bool,
}

/// A name or an address, and a port; or, as in settings, a network for our own address in it.
fn asked(text: &str) -> Result<Address, String> {
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
    /// Publish projects and change them.
    #[command(subcommand)]
    Project(Project),
    /// Create, list, rotate and revoke API keys.
    #[command(subcommand)]
    Key(Key),
    /// Attach customers' domains to a project.
    #[command(subcommand)]
    Domain(Domain),
    /// Tell a receiver what happens to a project's domains.
    #[command(subcommand)]
    Webhook(Webhook),
    /// Import and export a project's orders.
    #[command(subcommand)]
    Orders(Orders),
    /// What a project has left of its minute and its day.
    #[command(subcommand)]
    Quota(Quota),
    /// Keys that are refused for a while.
    #[command(subcommand)]
    Ban(Ban),
    /// Gateways: who may follow the control plane.
    #[command(subcommand)]
    Node(Node),
    /// Tokens for operators who have not this machine's data directory.
    #[command(subcommand)]
    Token(Token),
    /// Write the DNS of the test world (`./up --test-world`).
    #[command(subcommand)]
    Dns(Dns),
    /// What the edge believes about a hostname, a project, a request or a key, and why.
    Explain {
        /// A hostname or a URL, a project's name, the X-Request-Id of a response, the id of a key, or a key itself.
        #[arg(value_name = "HOST|URL|PROJECT|REQUEST-ID|KEY-ID|KEY")]
        about: String,
    },
    /// How the running platform is: every process, what it leans on, what ends soon, what is refused, what is wrong.
    Status,
    /// A link that signs an operator in to the dashboard: once, within five minutes.
    DashboardLink,
    /// Who uses the edge right now, and how that ends: the last minutes by project, host, key or code.
    Top(Top),
    /// What changed, newest first: starts, counting, the control plane lost and found, settings, what was published.
    Changes {
        /// The newest so many.
        #[arg(long, default_value_t = 30)]
        limit: usize,
    },
    /// Take a gateway out of rotation: it says it is not ready and asks its clients to reconnect, and goes on serving.
    Drain {
        /// Which gateway, by its name in `tollhouse status`, or the id of one of its processes there; needed where there are
        /// several.
        node: Option<String>,
        /// Put it back.
        #[arg(long)]
        resume: bool,
    },
    /// Copy the databases, while the platform runs, and check the copies. Secrets are not among them. Not for PostgreSQL:
    /// docs/operator/backup.md has the commands of its own tools.
    Backup(Databases),
    /// Put the databases of a backup back, with everything stopped. What was there is kept, and what it had revoked or removed
    /// is withdrawn again. A backup that was changed by others is refused.
    Restore(Restore),
    /// Make databases ready that PostgreSQL's tools have put back, before the services start.
    FinishRestore(FinishRestore),
    /// Make the secrets and certificates of a platform that runs as several processes. What is there stays.
    Init(Init),
    /// Make the demo projects on a running platform, unless they are there.
    Demo,
    /// Print the certificate of the local authority, for whoever chooses to trust it.
    Ca,
    /// Ask a process of the platform whether it may be sent traffic; for health checks of containers.
    Healthcheck {
        /// Its admin listener; a network and a port stand for the address that this machine has there.
        #[arg(default_value = "127.0.0.1:9901", value_parser = asked)]
        address: Address,
        /// It speaks TLS: the name that its certificate is for. The authority is `ca/internal.pem` in the data directory.
        #[arg(long, value_name = "NAME")]
        server_name: Option<String>,
    },
    /// Check configuration files without serving: gateway.toml, orders-service.toml, domains-service.toml.
    CheckConfig {
        /// Files; the name says which process reads it. Default: all three under config/.
        files: Vec<PathBuf>,
        /// Show what differs between the files and the settings of the running processes. Exit code 3 if anything does.
        #[arg(long)]
        running: bool,
    },
}

/// `tollhouse key`.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Create a key. It is shown once.
    Create {
        /// The project.
        project: ProjectId,
        /// What it may do; repeatable. Default: everything.
        #[arg(long = "scope")]
        scopes: Vec<Scope>,
        /// A word for lists.
        #[arg(long, default_value = "")]
        label: String,
        /// Days until it expires. Default: never.
        #[arg(long)]
        expires_in_days: Option<u32>,
    },
    /// All keys of a project.
    List {
        /// The project.
        project: ProjectId,
    },
    /// A new key in place of an old one, which stays good for a while.
    Rotate {
        /// The project.
        project: ProjectId,
        /// The old key's id.
        key: contract::key::KeyId,
        /// Seconds the old key stays good.
        #[arg(long, default_value_t = 86_400)]
        overlap_seconds: u32,
    },
    /// Refuse a key from now on, on every node within a second.
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
    /// Import orders from a JSON-lines file: all of them, or none.
    Import {
        /// One order per line: id, petId, quantity, shipDate, complete, and optionally status.
        file: PathBuf,
        /// The project.
        #[arg(long, default_value = "demo-free")]
        project: ProjectId,
    },
    /// Export orders to a JSON-lines file; `-` is the terminal.
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
    /// Both windows of a project.
    Show {
        /// The project.
        project: ProjectId,
    },
}

/// `tollhouse ban`.
#[derive(Debug, Subcommand)]
pub enum Ban {
    /// All bans in force.
    List,
    /// Refuse a key for a while.
    Add {
        /// The key's id.
        key: contract::key::KeyId,
        /// For this long, at most a day.
        #[arg(long, default_value_t = 3_600)]
        seconds: u32,
    },
    /// Let a key in again.
    Lift {
        /// The key's id.
        key: contract::key::KeyId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_data_is_may_be_said_before_or_after_the_command() {
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
