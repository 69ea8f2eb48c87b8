//! Options of what operators ask and do at any hour: `top`, `backup`, `restore`, `finish-restore`.

use std::path::PathBuf;

use clap::Args;

/// `tollhouse backup`, and what `tollhouse restore` shares with it.
#[derive(Debug, Args)]
pub struct Databases {
    /// The directory of the backup.
    pub directory: PathBuf,
    /// The database of the domains-service. Default: where the data directory has it.
    #[arg(long)]
    pub domains_database: Option<PathBuf>,
    /// The database of the orders-service. Default: where the data directory has it.
    #[arg(long)]
    pub orders_database: Option<PathBuf>,
}

/// `tollhouse restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Where from, and where to.
    #[command(flatten)]
    pub databases: Databases,
    /// Restore a backup that the secret of this platform did not sign. Read it before: who writes a backup decides whose
    /// keys are good.
    #[arg(long)]
    pub accept_unsigned: bool,
    /// Restore a backup although a newer one is known.
    #[arg(long)]
    pub older: bool,
    /// Bring back also what was revoked or removed since the backup. It is listed.
    #[arg(long)]
    pub bring_back: bool,
}

/// `tollhouse finish-restore`.
#[derive(Debug, Args)]
pub struct FinishRestore {
    /// A file with the URL of the restored database of the domains-service.
    #[arg(long, env = "TOLLHOUSE_RESTORED_DOMAINS_URL_FILE")]
    pub domains_url_file: PathBuf,
    /// A file with the URL of the restored database of the orders-service.
    #[arg(long, env = "TOLLHOUSE_RESTORED_ORDERS_URL_FILE")]
    pub orders_url_file: PathBuf,
    /// The name that the lost database of the domains-service has now, at the same server: what it had revoked or removed is
    /// withdrawn again.
    #[arg(long)]
    pub lost: Option<String>,
    /// Bring back also what was revoked or removed since the backup. It is listed.
    #[arg(long)]
    pub bring_back: bool,
}

/// `tollhouse top`.
#[derive(Debug, Args)]
pub struct Top {
    /// What to count by.
    #[arg(long, default_value = "project")]
    pub by: By,
    /// The last so many minutes, the current one included; at most 5.
    #[arg(long, default_value_t = 5)]
    pub minutes: u64,
    /// At most so many rows.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
}

contract::words! {
    /// What `tollhouse top` counts by.
    #[derive(clap::ValueEnum)]
    pub enum By {
        /// Who pays.
        Project = "project",
        /// Where it was sent.
        Host = "host",
        /// With which key.
        Key = "key",
        /// How it ended.
        Code = "code",
    }
}
