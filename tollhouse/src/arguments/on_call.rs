//! Arguments of `top`, `backup`, `restore` and `finish-restore`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `tollhouse backup`, shared with `tollhouse restore`.
#[derive(Debug, Args)]
pub struct Databases {
    /// The directory of the backup.
    pub directory: PathBuf,
    /// The database of the domains-service. Default: the one in the data directory.
    #[arg(long)]
    pub domains_database: Option<PathBuf>,
    /// The database of the orders-service. Default: the one in the data directory.
    #[arg(long)]
    pub orders_database: Option<PathBuf>,
}

/// `tollhouse restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup and the databases.
    #[command(flatten)]
    pub databases: Databases,
    /// Accept a backup without a valid signature of this platform's secret. Its writer could have added API keys: check
    /// it before.
    #[arg(long)]
    pub accept_unsigned: bool,
    /// Restore this backup although a newer one exists.
    #[arg(long)]
    pub older: bool,
    /// Do not repeat the removals, and the revocations of API keys, made since the backup; list them.
    #[arg(long)]
    pub bring_back: bool,
}

/// `tollhouse finish-restore`.
#[derive(Debug, Args)]
pub struct FinishRestore {
    /// File with the URL of the restored database of the domains-service.
    #[arg(long, env = "TOLLHOUSE_RESTORED_DOMAINS_URL_FILE")]
    pub domains_url_file: PathBuf,
    /// File with the URL of the restored database of the orders-service.
    #[arg(long, env = "TOLLHOUSE_RESTORED_ORDERS_URL_FILE")]
    pub orders_url_file: PathBuf,
    /// Name of the lost database of the domains-service at the same server; its revocations and removals are
    /// applied again.
    #[arg(long)]
    pub lost: Option<String>,
    /// The domains-service's file of revoked credentials; they are revoked again. The service does it as well when it
    /// starts.
    #[arg(long, env = "TOLLHOUSE_RESTORED_REVOCATIONS_FILE")]
    pub revocations_file: Option<PathBuf>,
    /// Do not repeat the removals, and the revocations of API keys, made since the backup; list them.
    #[arg(long)]
    pub bring_back: bool,
}

/// `tollhouse top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Column to group by.
    #[arg(long, default_value = "project")]
    pub by: By,
    /// Minutes to look back, including the current one, 1 to 5.
    #[arg(long, default_value_t = 5)]
    pub minutes: u64,
    /// Maximum number of rows.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
}

contract::words! {
    /// The column that `tollhouse top` groups by.
    #[derive(clap::ValueEnum)]
    pub enum By {
        /// Project.
        Project = "project",
        /// Hostname.
        Host = "host",
        /// API key.
        Key = "key",
        /// Status or error code.
        Code = "code",
    }
}
