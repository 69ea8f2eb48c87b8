//! `tollhouse check-config`: what is wrong with configuration files, all of it, without serving.

use std::path::PathBuf;

use anyhow::Context as _;
use chassis::config::{Problems, Source};
use serde_json::json;

use crate::arguments::Common;
use crate::output::answer;

pub(super) fn run(common: &Common, files: &[PathBuf]) -> anyhow::Result<()> {
    let defaults = default_files();
    let files = if files.is_empty() { &defaults } else { files };
    let mut wrong = Vec::new();
    for file in files {
        if let Err(problems) = check(file)? {
            wrong.push(problems);
        }
    }
    if wrong.is_empty() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        answer(common, &json!({ "good": names }), |_| names.iter().map(|name| format!("{name} is good\n")).collect());
        return Ok(());
    }
    let reports: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    anyhow::bail!("\n{}", reports.join("\n\n"))
}

/// The files that are meant when none is named.
pub(super) fn default_files() -> Vec<PathBuf> {
    let names = ["gateway", "orders-service", "domains-service"];
    names.iter().map(|name| PathBuf::from(format!("config/{name}.toml"))).collect()
}

fn check(file: &std::path::Path) -> anyhow::Result<Result<(), Problems>> {
    let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let read = |prefix| Source::read(Some(file), prefix);
    Ok(match name {
        "gateway" => gateway::config::Config::read(&read(gateway::config::ENVIRONMENT_PREFIX)?).map(drop),
        "orders-service" => orders_service::Config::read(&read(orders_service::ENVIRONMENT_PREFIX)?).map(drop),
        "domains-service" => {
            domains_service::Config::read(&read(domains_service::config::ENVIRONMENT_PREFIX)?).map(drop)
        }
        _ => {
            return Err(anyhow::anyhow!("call it gateway.toml, orders-service.toml or domains-service.toml"))
                .with_context(|| format!("{} belongs to no process", file.display()));
        }
    })
}
