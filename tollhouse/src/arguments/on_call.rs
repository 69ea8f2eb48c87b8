//! Options of what operators ask and do at any hour: `top`, `backup`, `restore`.

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
    /// A file with the URL of the database of the domains-service, where it is PostgreSQL's.
    #[arg(long, conflicts_with = "domains_database", env = "TOLLHOUSE_BACKUP_DOMAINS_URL_FILE")]
    pub domains_url_file: Option<PathBuf>,
    /// The database of the orders-service. Default: where the data directory has it.
    #[arg(long)]
    pub orders_database: Option<PathBuf>,
    /// A file with the URL of the database of the orders-service, where it is PostgreSQL's.
    #[arg(long, conflicts_with = "orders_database", env = "TOLLHOUSE_BACKUP_ORDERS_URL_FILE")]
    pub orders_url_file: Option<PathBuf>,
}

/// `tollhouse restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Where from, and where to.
    #[command(flatten)]
    pub databases: Databases,
    /// Restore a backup that the secret of this platform did not sign: one of another secret, or of a version that did not
    /// sign. Read it before: who writes a backup decides whose keys are good, and the SQL of a dump of PostgreSQL runs as
    /// the owner of the database (`pg_restore --file=- orders.dump`).
    #[arg(long)]
    pub accept_unsigned: bool,
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
