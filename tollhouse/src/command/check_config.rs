//! `tollhouse check-config`: reports all problems of configuration files without serving; with `--running` it lists the
//! settings that a restart with these files would change.

pub(super) mod running;

use std::path::{Path, PathBuf};

use chassis::config::{EffectiveSettings, Problems, Source};
use serde_json::json;

use crate::arguments::Common;
use crate::output::answer;

pub(super) fn run(common: &Common, files: &[PathBuf]) -> anyhow::Result<()> {
    let files = files_or_default(files);
    let mut wrong = Vec::new();
    for file in &files {
        let process = Process::of(file)?;
        if let Err(problems) = process.read(&Source::read(Some(file), process.environment_prefix())?) {
            wrong.push(problems);
        }
    }
    if wrong.is_empty() {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        answer(common, &json!({ "good": names }), |_| names.iter().map(|name| format!("{name} is valid\n")).collect());
        return Ok(());
    }
    let reports: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    anyhow::bail!("\n{}", reports.join("\n\n"))
}

contract::words! {
    /// The process that reads a file, by the file's name.
    enum Process {
        Gateway = "gateway",
        Orders = "orders-service",
        Domains = "domains-service",
    }
}

impl Process {
    fn of(file: &Path) -> anyhow::Result<Self> {
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        name.parse().map_err(|_| {
            let known = "gateway.toml, orders-service.toml or domains-service.toml";
            anyhow::anyhow!("cannot tell the process of {} from its name; name it {known}", file.display())
        })
    }

    const fn environment_prefix(self) -> &'static str {
        match self {
            Self::Gateway => gateway::config::ENVIRONMENT_PREFIX,
            Self::Orders => orders_service::ENVIRONMENT_PREFIX,
            Self::Domains => domains_service::config::ENVIRONMENT_PREFIX,
        }
    }

    /// The settings of a file, or all its problems.
    fn read(self, source: &Source) -> Result<EffectiveSettings, Problems> {
        match self {
            Self::Gateway => gateway::config::Config::read(source).map(|config| config.effective),
            Self::Orders => orders_service::Config::read(source).map(|config| config.effective),
            Self::Domains => domains_service::Config::read(source).map(|config| config.effective),
        }
    }
}

/// These files, or those of all three processes.
fn files_or_default(files: &[PathBuf]) -> Vec<PathBuf> {
    if files.is_empty() {
        Process::ALL.iter().map(|process| PathBuf::from(format!("config/{process}.toml"))).collect()
    } else {
        files.to_vec()
    }
}
