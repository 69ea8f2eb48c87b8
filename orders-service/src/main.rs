//! `orders-service`: the orders API as a separate process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chassis::clock::SystemClock;
use chassis::config::{FileWatch, Source, keep_log_filter};
use chassis::logs::Logs;
use chassis::shutdown::Shutdown;
use clap::Parser;
use orders_service::{Config, ENVIRONMENT_PREFIX};

/// Serve the orders API of the pet store behind the gateway.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Configuration file. Default: none, settings come from the environment (`TOLLHOUSE_ORDERS_…`).
    #[arg(long)]
    config: Option<PathBuf>,
    /// Check the configuration and exit: 0 if it is valid.
    #[arg(long)]
    check_config: bool,
    /// Write the OpenAPI documents into this directory and exit.
    #[arg(long, value_name = "DIRECTORY")]
    write_openapi: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(directory) = arguments.write_openapi {
        for (name, text) in orders_service::openapi_documents() {
            std::fs::write(directory.join(name), text)?;
        }
        return Ok(());
    }
    let config = Config::read(&Source::read(arguments.config.as_deref(), ENVIRONMENT_PREFIX)?)?;
    if arguments.check_config {
        println!("The configuration is valid.");
        return Ok(());
    }
    chassis::process::prepare()?;
    let logs = Arc::new(Logs::start(config.log_format, &config.log_filter, std::io::stdout())?);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals()?;
        if let Some(path) = &arguments.config {
            let read = |path: &Path| Ok(Config::read(&Source::read(Some(path), ENVIRONMENT_PREFIX)?)?.log_filter);
            tokio::spawn(keep_log_filter(FileWatch::new(path)?, read, logs.clone()));
        }
        let running = orders_service::start(config, Arc::new(SystemClock::new()), shutdown).await?;
        running.stopped().await
    })
}
