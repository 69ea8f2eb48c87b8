//! `tollhouse check-config --running`: the settings that a restart with these files would change.
//!
//! Compares each setting of the file with that of the running process. Skips settings
//! that the process took from its environment, which overrides the file, and secrets. `check-config` alone says
//! whether a file is valid.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::config::{EffectiveSettings, Source};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Process, files_or_default};
use crate::arguments::Common;
use crate::client::Client;
use crate::output::{Attention, answer, table};

pub(in crate::command) async fn compare(common: &Common, client: &Client, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for file in files_or_default(files) {
        let process = Process::of(&file)?;
        for (place, running) in running(client, process).await {
            let running = running.with_context(|| format!("requesting the settings of {place}"))?;
            rows.extend(differences(process, &place, &running, &effective(process, &file)?));
        }
    }
    let differ = !rows.is_empty();
    answer(common, &Value::Array(rows), |rows| {
        if rows.as_array().is_some_and(Vec::is_empty) {
            return "All running processes have the settings of the files.".to_owned();
        }
        let columns = [("PROCESS", "/process"), ("SETTING", "/setting"), ("RUNNING", "/running"), ("FILE", "/file")];
        table(rows, &columns)
    });
    Attention::when(differ)
}

/// The settings of every running process of this kind.
async fn running(client: &Client, process: Process) -> Vec<(String, anyhow::Result<Value>)> {
    match process {
        Process::Gateway => {
            let all = client.every_edge(&Method::GET, "/settings").await;
            all.into_iter().map(|(edge, settings)| (edge.to_string(), settings)).collect()
        }
        Process::Orders => {
            vec![(client.run.orders.to_string(), client.orders_json("/internal/settings").await)]
        }
        Process::Domains => {
            let settings = client.control(Method::GET, "/internal/settings", &Value::Null).await;
            vec![(client.run.control.to_string(), settings)]
        }
    }
}

/// The settings of the file, without any environment. Read as the process reads them, to know the defaults.
fn effective(process: Process, file: &Path) -> anyhow::Result<EffectiveSettings> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {name}"))?;
    let source = Source::from_text(&name, &text, "TOLLHOUSE_DIFF", BTreeMap::new());
    // A file that is not TOML is an error.
    source.reader()?;
    // A file with problems, such as missing secrets, is compared all the same.
    Ok(process.read(&source).unwrap_or_else(|problems| problems.effective))
}

fn differences(process: Process, place: &str, running: &Value, file: &EffectiveSettings) -> Vec<Value> {
    let found = |path: &str| running.get(path).and_then(|given| given.get("value")).and_then(Value::as_str);
    let is_default = |path: &str| running.pointer(&format!("/{path}/default")).is_some_and(|default| default == true);
    // A given default and a missing setting are equal.
    let given = |path: &str| found(path).filter(|_| !is_default(path));
    let from_environment =
        |path: &str| running.get(path).and_then(|given| given.get("from")).is_some_and(|from| from == "environment");
    let effective = file.to_json();
    let paths = running.as_object().into_iter().chain(effective.as_object()).flat_map(|object| object.keys());
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
    fn settings_from_the_environment_are_not_compared_with_the_file() {
        let text = "threads = 4\n[quota]\nbans = \"off\"\n[drain]\nrequests = \"9s\"\n";
        let source = Source::from_text("gateway.toml", text, "X", BTreeMap::new());
        let file = source.reader().unwrap().effective_settings();
        let running = json!({
            "threads": { "value": "2", "from": "environment" },
            "quota.bans": { "value": "on", "from": "file" },
            "listen.http": { "value": "0.0.0.0:80", "from": "file" },
            "quota.store": { "value": "memory", "from": "file", "default": true },
            "credential": { "value": "(secret)", "from": "environment" },
        });
        let found: Vec<String> = differences(Process::Gateway, "a:1", &running, &file)
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
