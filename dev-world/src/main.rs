//! `dev-world`: the test world as a separate program, for containers.

use std::io::Write as _;
use std::path::PathBuf;

use chassis::logs::{Format, Logs};
use clap::{Parser, Subcommand};
use dev_world::{records, standalone};

/// A test world for custom domains: DNS that answers from a file, and a certificate authority that queries it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Data directory
    #[arg(long, global = true, default_value = "data", env = "TOLLHOUSE_DATA_DIR")]
    data_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prepare the certificate authority, and serve DNS until a signal
    Serve(standalone::Options),
    /// Show or change DNS records
    #[command(subcommand)]
    Dns(records::Dns),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Serve(options) => {
            let _logs = Logs::start(Format::Json, "info,hickory_server=warn", std::io::stdout())?;
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            runtime.block_on(standalone::run(&arguments.data_dir, &options))
        }
        Command::Dns(action) => {
            let text = records::carry_out(&arguments.data_dir, action)?;
            // Ignore a reader that has closed the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}
