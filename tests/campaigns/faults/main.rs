//! Causes faults one after the other on a platform of several processes, and checks that each is visible in `tollhouse
//! status`, in the log of a process, in a metric of a dashboard, and in a firing alert of a real Prometheus with its
//! runbook; that status, log and runbook name a next step; and that status and alerts end after the recovery.
//! `bench/run fault-campaign` runs this and writes the table in docs/reference/fault-campaign.md.
//!
//! The platform uses the programs, the files in `config/` and the alert rules unchanged, except for time: in the
//! copy of the rules for Prometheus, an hour is a minute and a minute is a second.
//!
//! It runs twice: with SQLite files, then with a PostgreSQL server.
//!
//! With the word `intruders` and a number in place of a table, intruders send that many requests during these faults
//! (`bench/run intruders`).
//!
//! Needs root (small file systems that can be filled), `redis-server`, `prometheus`, `faketime` and PostgreSQL's
//! programs.

#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a part of tests that also set the clock of Redis"
)]
#[path = "../../../quota/src/tests/redis/clock.rs"]
mod clock;
mod faults;
#[expect(dead_code, reason = "the campaign of several faults uses the rest")]
#[path = "../fleet/fleet.rs"]
mod fleet;
mod intruders;
mod table;
mod traffic;
mod watch;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use faults::Fault;
use fleet::{Fleet, Store};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "fault_campaign PROGRAMS REPOSITORY (TABLE [PART OF A FAULT'S NAME] | intruders REQUESTS SEED)";
    let programs = PathBuf::from(arguments.next().context(usage)?);
    let repository = PathBuf::from(arguments.next().context(usage)?);
    let table = PathBuf::from(arguments.next().context(usage)?);
    let only = arguments.next().unwrap_or_default();
    if table.as_os_str() == "intruders" {
        let seed = arguments.next().context(usage)?;
        return let_them_try(&programs, &repository, only.parse().context(usage)?, seed.parse().context(usage)?).await;
    }
    let mut rows = Vec::new();
    for (store, faults) in [(Store::Files, faults::OVER_FILES), (Store::Server, faults::OVER_SERVER)] {
        let faults: Vec<&Fault> = faults.iter().filter(|fault| fault.name.contains(&only)).collect();
        if !faults.is_empty() {
            rows.extend(on_a_platform(&programs, &repository, store, &faults).await?);
        }
    }
    std::fs::write(&table, table::write(&rows)).with_context(|| format!("writing {}", table.display()))?;
    println!("The table is in {}.", table.display());
    let failed: Vec<&str> = rows.iter().filter(|row| !row.is_good()).map(|row| row.fault).collect();
    anyhow::ensure!(failed.is_empty(), "not everything was seen, or gone: {}", failed.join(", "));
    Ok(())
}

/// Runs the campaign on a new platform. An interrupted run leaves no processes or files.
async fn on_a_platform(
    programs: &Path,
    repository: &Path,
    store: Store,
    faults: &[&Fault],
) -> anyhow::Result<Vec<table::Row>> {
    let directory = tempfile::tempdir()?;
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut fleet = Fleet::start(programs, repository, directory.path(), store).await?;
    let outcome = tokio::select! {
        outcome = campaign(&mut fleet, repository, faults) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = stop.recv() => Err(anyhow::anyhow!("terminated")),
    };
    fleet.end();
    outcome
}

async fn campaign(fleet: &mut Fleet, repository: &Path, faults: &[&Fault]) -> anyhow::Result<Vec<table::Row>> {
    let watch = watch::Watch::new(fleet, repository)?;
    let traffic = traffic::Traffic::start(fleet)?;
    watch.quiet(fleet).await.context("a fresh platform is not quiet")?;
    let mut rows = Vec::new();
    for fault in faults {
        println!("{} ...", fault.name);
        let row = watch.carry_out(fleet, &traffic, fault).await.with_context(|| fault.name)?;
        println!("  {}", row.in_short());
        rows.push(row);
    }
    Ok(rows)
}

/// Runs this number of intruders' requests, spread over all faults of both platforms.
async fn let_them_try(programs: &Path, repository: &Path, requests: u64, seed: u64) -> anyhow::Result<()> {
    let all = [(Store::Files, faults::OVER_FILES), (Store::Server, faults::OVER_SERVER)];
    let share = requests.div_ceil(all.iter().map(|(_, faults)| faults.len() as u64).sum());
    println!("{requests} requests, seed {seed}");
    let mut asked = 0;
    for (store, faults) in all {
        let directory = tempfile::tempdir()?;
        let mut fleet = Fleet::start(programs, repository, directory.path(), store).await?;
        let key = traffic::publish_shop(&fleet)?;
        intruders::order(&fleet, &key).await?;
        let intruders = intruders::Intruders::start(&fleet, &key, seed)?;
        for fault in faults {
            let until = intruders.tally.asked() + share;
            (fault.inject)(&mut fleet)?;
            while intruders.tally.asked() < until {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            (fault.recover)(&mut fleet)?;
            intruders::order(&fleet, &key).await.with_context(|| format!("after: {}", fault.name))?;
            println!("{}: {:?}", fault.name, intruders.tally.take());
            let harm = intruders.tally.harm();
            anyhow::ensure!(harm.is_empty(), "{}: {}", fault.name, harm.join("\n"));
        }
        asked += intruders.tally.asked();
        drop(intruders);
        fleet.end();
    }
    println!("{asked} requests by whom has no good key: none succeeded, and none was told a secret.");
    Ok(())
}
