//! `tollhouse up`: the whole platform in one process, without other installed programs.
//!
//! The first start creates the data directory: secrets, a local certificate authority with a wildcard
//! certificate, databases, demo projects. Later starts use it. Ctrl-C drains and stops; a second Ctrl-C stops at
//! once. A closed terminal or a closed output does not stop it.

pub(crate) mod authority;
pub(crate) mod demo;
mod greet;
mod logfile;
mod platform;
mod ports;
mod remembered;
mod upstreams;

use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::{Clock, SystemClock};
use chassis::logs::{Format, Logs};
use chassis::metrics::Registry;
use chassis::shutdown::Shutdown;
use chassis::supervise::Supervisor;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use self::remembered::Remembered;
use crate::arguments::{Common, Up};
use crate::client::Client;
use crate::directory::Directory;
use crate::output::say;
use crate::test_world::TestWorld;

/// Starts the platform and runs it until a signal.
pub async fn run(common: &Common, options: &Up) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    shutdown.on_signals()?;
    // First, so that all files below are private.
    chassis::process::prepare()?;
    let directory = Directory::new(&common.data_dir);
    let _lock = directory.take()?;
    ports::check(options)?;
    let mut remembered = Remembered::of(&directory, options)?;
    let domain = remembered.platform_domain.clone();
    let logs = Arc::new(start_logs(&directory)?);
    outlive_the_terminal()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    authority::ensure(&directory, &domain, clock.now_seconds())?;
    let (upstreams, upstream_settings) = upstreams::read(&directory, options).await?;
    let mut world = match options.test_world {
        Some(mode) => Some(TestWorld::start(&directory.path(""), &domain, mode).await?),
        None => None,
    };
    let environment = remembered.environment;
    let given = platform::Given {
        options,
        domain: &domain,
        environment,
        create_databases: !remembered.databases_made,
        world: world.as_ref(),
        upstreams: &upstreams,
    };
    let platform = platform::Platform::start(&directory, &given, logs, clock.clone()).await?;
    remembered.databases_are_made(&directory)?;
    if !options.upstream_settings.is_empty() {
        upstreams::remember(&directory, &upstream_settings)?;
    }
    if let Some(world) = &mut world {
        world.open(&directory.path(""), (platform.run.http.port(), platform.run.https.port())).await?;
    }
    let client = Client::new(platform.run.clone(), &directory.platform_secret()?, None)?;
    platform.ready(&client).await?;
    // No listener shows its metric: the log names a panic.
    let tasks = Supervisor::register(&Registry::new(), "up_task_restarts_total")?;
    let renewing = (directory.clone(), domain.clone(), clock.clone());
    tasks.spawn("platform_certificate", &shutdown, renewing, |(directory, domain, clock), end| {
        authority::keep(directory, domain, clock, authority::LOOK_INTERVAL, end)
    });
    let demo = if options.no_demo { None } else { demo_of(&directory, &client, &mut remembered, clock.as_ref()).await };
    directory.write_json("run.json", &platform.run)?;
    greet::print(common, &directory, &platform.run, options, demo.as_ref());
    if let (Some(world), false) = (&world, common.json) {
        greet::print_test_world(&directory, &platform.run, world);
    }
    tokio::select! {
        () = shutdown.begun() => {}
        // `stop` returns its error.
        () = platform.part_ends() => shutdown.begin(),
    }
    if !common.json {
        say("\nStopping: finishing requests in progress (press Ctrl-C again to stop at once).");
    }
    let stopped = platform.stop().await;
    // From now on, commands report that no platform runs here.
    let _ = std::fs::remove_file(directory.path("run.json"));
    stopped
}

/// Creates the demo at the first start. The platform also runs without it.
async fn demo_of(
    directory: &Directory,
    client: &Client,
    remembered: &mut Remembered,
    clock: &dyn Clock,
) -> Option<Value> {
    let made = match demo::known(directory, client) {
        Some(demo) => Ok(demo),
        None if remembered.demo_pending => demo::make(directory, client, clock).await,
        None => return None,
    };
    let made = made.and_then(|demo| remembered.demo_is_made(directory).map(|()| demo));
    let trouble = |error: &anyhow::Error| {
        say(&format!(
            "The demo projects could not be created: {error:#}. The platform runs; the next start tries again."
        ));
    };
    made.inspect_err(trouble).ok()
}

/// From now on a closed terminal (SIGHUP) does not stop the platform. Ctrl-C and SIGTERM
/// stop it.
fn outlive_the_terminal() -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("the terminal was closed (SIGHUP); the platform runs until SIGTERM or SIGINT");
        }
    });
    Ok(())
}

/// Starts the log: JSON lines in files.
fn start_logs(directory: &Directory) -> anyhow::Result<Logs> {
    let folder = directory.path("logs");
    let file = logfile::LogFile::open(&folder).with_context(|| format!("opening the log in {}", folder.display()))?;
    Logs::start(Format::Json, "info,pingora_core=warn,hickory_proto=warn,hickory_resolver=warn", file)
}
