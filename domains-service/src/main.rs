//! The control plane as a process of its own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::SystemClock;
use chassis::config::{FileWatch, Source, keep_log_filter};
use chassis::logs::Logs;
use chassis::shutdown::Shutdown;
use clap::Parser;
use domains_service::Config;
use domains_service::config::ENVIRONMENT_PREFIX;

/// The control plane of Tollhouse: projects, keys, domains, certificates, and the change stream gateways follow.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration and exit.
    #[arg(long)]
    check_config: bool,
    /// Write the interface description into this directory, and end.
    #[arg(long, value_name = "DIRECTORY")]
    write_openapi: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Err(error) = run(&Arguments::parse()) else { return ExitCode::SUCCESS };
    // Logging may not have started yet, and the person who ran this command reads the terminal.
    eprintln!("{error:#}");
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.write_openapi {
        for (name, text) in domains_service::openapi_documents() {
            std::fs::write(directory.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        return Ok(());
    }
    let config = Config::read(&Source::read(arguments.config.as_deref(), ENVIRONMENT_PREFIX)?)?;
    if arguments.check_config {
        println!("the configuration is valid");
        return Ok(());
    }
    chassis::process::prepare()?;
    let logs = Arc::new(Logs::start(config.log_format, &config.log_filter, std::io::stderr())?);
    tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals()?;
        if let Some(path) = &arguments.config {
            let read = |path: &Path| Ok(Config::read(&Source::read(Some(path), ENVIRONMENT_PREFIX)?)?.log_filter);
            tokio::spawn(keep_log_filter(FileWatch::new(path)?, read, logs.clone()));
        }
        let running = domains_service::start(config, Arc::new(SystemClock::new()), shutdown).await?;
        for (listener, address) in running.addresses() {
            tracing::info!(listener, %address, "listening");
        }
        running.stopped().await
    })
}
