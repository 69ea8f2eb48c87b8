//! `tollhouse up`: the whole platform in one process, with nothing else installed.
//!
//! The first start makes everything under the data directory: secrets, a local certificate authority with a wildcard
//! certificate, databases, demo projects. Later starts find it again. Ctrl-C drains and stops; a second Ctrl-C stops at
//! once.

pub(crate) mod authority;
pub(crate) mod demo;
mod greet;
mod logfile;
mod platform;
mod upstreams;

use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::{Clock, SystemClock};
use chassis::logs::{Format, Logs};
use chassis::shutdown::Shutdown;

use crate::arguments::{Common, Up};
use crate::client::Client;
use crate::directory::Directory;
use crate::output::say;
use crate::test_world::TestWorld;

/// Starts the platform and runs it until a signal.
///
/// # Errors
/// When a part cannot start, with the reason.
pub async fn run(common: &Common, options: &Up) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    shutdown.on_signals()?;
    // First, so that everything below is made private.
    chassis::process::prepare()?;
    let directory = Directory::new(&common.data_dir);
    let _lock = directory.take()?;
    let logs = Arc::new(start_logs(&directory)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    authority::ensure(&directory, &options.platform_domain, clock.now_seconds())?;
    let upstreams = upstreams::resolve(&directory, &options.upstreams).await?;
    let mut world = match options.test_world {
        Some(manners) => Some(TestWorld::start(&directory.path(""), &options.platform_domain, manners).await?),
        None => None,
    };
    let platform =
        platform::Platform::start(&directory, options, world.as_ref(), &upstreams, logs, clock.clone()).await?;
    if let Some(world) = &mut world {
        world.open(&directory.path(""), (platform.run.http.port(), platform.run.https.port())).await?;
    }
    let client = Client::new(platform.run.clone(), &directory.platform_secret()?)?;
    platform.ready(&client).await?;
    let demo = if options.no_demo { None } else { Some(demo::ensure(&directory, &client, clock.as_ref()).await?) };
    directory.write_json("run.json", &platform.run)?;
    greet::print(common, &directory, &platform.run, demo.as_ref());
    if let (Some(world), false) = (&world, common.json) {
        greet::print_test_world(&directory, &platform.run, world);
    }
    shutdown.begun().await;
    if !common.json {
        say("\nStopping: finishing requests in progress (press Ctrl-C again to stop at once).");
    }
    let stopped = platform.stop().await;
    // A command that comes now is told that nothing runs here.
    let _ = std::fs::remove_file(directory.path("run.json"));
    stopped
}

/// JSON lines in files: the terminal is for people.
fn start_logs(directory: &Directory) -> anyhow::Result<Logs> {
    let folder = directory.path("logs");
    let file = logfile::LogFile::open(&folder).with_context(|| format!("opening the log in {}", folder.display()))?;
    Logs::start(
        Format::Json,
        "info,pingora_core=warn,pingora_proxy=warn,hickory_proto=warn,hickory_resolver=warn",
        file,
    )
}
