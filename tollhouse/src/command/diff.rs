//! `tollhouse diff`: what a restart with these files would change.
//!
//! Compared is what was said, setting by setting: the file's text against what the running process was given when it
//! started. Where the process was told by its environment the file does not count, and is not compared. Secrets are not
//! compared. Whether a file is good is `check-config`'s to say.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::config::{Source, Told};
use reqwest::Method;
use serde_json::{Value, json};

use super::check_config::default_files;
use crate::arguments::Common;
use crate::client::Client;
use crate::output::{Attention, answer, table};

pub(super) async fn run(common: &Common, client: &Client, files: &[PathBuf]) -> anyhow::Result<()> {
    let defaults = default_files();
    let files = if files.is_empty() { &defaults } else { files };
    let mut rows = Vec::new();
    for file in files {
        let process = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        anyhow::ensure!(
            default_files().iter().any(|known| known.file_stem() == file.file_stem()),
            "{} belongs to no process: call it gateway.toml, orders-service.toml or domains-service.toml",
            file.display()
        );
        for (place, running) in running(client, process).await {
            let running = running.with_context(|| format!("asking {place} for the settings it runs with"))?;
            rows.extend(differences(process, &place, &running, &told(process, file)?));
        }
    }
    let differ = !rows.is_empty();
    answer(common, &Value::Array(rows), |rows| {
        if rows.as_array().is_some_and(Vec::is_empty) {
            return "Every process runs with what the files say.".to_owned();
        }
        let columns = [("PROCESS", "/process"), ("SETTING", "/setting"), ("RUNNING", "/running"), ("FILE", "/file")];
        table(rows, &columns)
    });
    Attention::when(differ)
}

/// What every process of this kind runs with.
async fn running(client: &Client, process: &str) -> Vec<(String, anyhow::Result<Value>)> {
    match process {
        "gateway" => client.every_edge(&Method::GET, "/settings").await,
        "orders-service" => {
            vec![(client.run.orders.to_string(), client.orders_json("/internal/settings").await)]
        }
        _ => {
            let settings = client.control(Method::GET, "/internal/settings", &Value::Null).await;
            vec![(client.run.control.to_string(), settings)]
        }
    }
}

/// What the file says, without anybody's environment. The process's own reading knows what is a default.
fn told(process: &str, file: &Path) -> anyhow::Result<Told> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {name}"))?;
    let source = Source::from_text(&name, &text, "TOLLHOUSE_DIFF", std::collections::BTreeMap::new());
    // One that is not TOML ends here.
    source.reader()?;
    let read = match process {
        "gateway" => gateway::config::Config::read(&source).map(|config| config.told),
        "orders-service" => orders_service::Config::read(&source).map(|config| config.told),
        _ => domains_service::Config::read(&source).map(|config| config.told),
    };
    // A file for processes whose secrets are elsewhere may lack something; what it says it says all the same.
    Ok(read.unwrap_or_else(|problems| problems.told))
}

fn differences(process: &str, place: &str, running: &Value, file: &Told) -> Vec<Value> {
    let found = |path: &str| running.get(path).and_then(|given| given.get("value")).and_then(Value::as_str);
    let is_default = |path: &str| running.pointer(&format!("/{path}/default")).is_some_and(|default| default == true);
    // What is said and changes nothing is no difference to who says nothing.
    let given = |path: &str| found(path).filter(|_| !is_default(path));
    let from_environment =
        |path: &str| running.get(path).and_then(|given| given.get("from")).is_some_and(|from| from == "environment");
    let told = file.to_json();
    let paths = running.as_object().into_iter().chain(told.as_object()).flat_map(|object| object.keys());
    let mut paths: Vec<&String> = paths.filter(|path| !from_environment(path)).collect();
    paths.sort_unstable();
    paths.dedup();
    let secret = |path: &str| [path, path.trim_end_matches("_file")].iter().any(|path| found(path) == Some("(secret)"));
    let different = paths.into_iter().filter(|path| !secret(path) && given(path) != file.own(path));
    different
        .map(|path| {
            json!({
                "process": format!("{process} {place}"),
                "setting": path,
                "running": found(path).unwrap_or("(default)"),
                "file": file.value(path).unwrap_or("(default)"),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_said_is_not_the_files_business() {
        let text = "threads = 4\n[quota]\nbans = \"off\"\n[drain]\nrequests = \"9s\"\n";
        let source = Source::from_text("gateway.toml", text, "X", std::collections::BTreeMap::new());
        let file = source.reader().unwrap().told();
        let running = json!({
            "threads": { "value": "2", "from": "environment" },
            "quota.bans": { "value": "on", "from": "file" },
            "listen.http": { "value": "0.0.0.0:80", "from": "file" },
            "quota.store": { "value": "memory", "from": "file", "default": true },
            "credential": { "value": "(secret)", "from": "environment" },
        });
        let found: Vec<String> = differences("gateway", "a:1", &running, &file)
            .iter()
            .map(|row| format!("{}: {} -> {}", row["setting"], row["running"], row["file"]))
            .collect();
        let expected = [
            r#""drain.requests": "(default)" -> "9s""#,
            r#""listen.http": "0.0.0.0:80" -> "(default)""#,
            r#""quota.bans": "on" -> "off""#,
        ];
        assert_eq!(found, expected);
    }
}
