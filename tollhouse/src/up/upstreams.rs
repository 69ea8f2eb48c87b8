//! Backends given with `--upstream`: resolved once, and remembered, so that a project published on one finds it again.

use std::collections::BTreeMap;

use anyhow::Context as _;
use contract::project::UpstreamName;

use crate::arguments::{Up, UpstreamArgument, UpstreamSetting};
use crate::directory::Directory;

const FILE: &str = "upstreams.json";
const SETTINGS_FILE: &str = "upstream-settings.json";

/// Settings of backends by name, as they stand in TOML.
pub(super) type Settings = BTreeMap<UpstreamName, BTreeMap<String, String>>;

/// A backend as it was given.
#[derive(Debug)]
pub(super) struct Backend {
    /// Where it answers; one with TLS or known to speak HTTP/2 with its scheme.
    pub(super) endpoints: Vec<String>,
    /// What is set for it, as it stands in TOML.
    pub(super) settings: BTreeMap<String, String>,
}

/// All backends of this platform, what is given now over what was given before, and their settings, to be remembered once it
/// is known that they are good.
///
/// # Errors
/// When one given now cannot be resolved, or is called like a part of the platform, and when a setting is for none.
pub(super) async fn read(
    directory: &Directory,
    options: &Up,
) -> anyhow::Result<(BTreeMap<UpstreamName, Backend>, Settings)> {
    let resolved = resolve(directory, &options.upstreams).await?;
    let settings = settings(directory, &options.upstream_settings, &resolved)?;
    let backend = |(name, endpoints)| {
        let settings = settings.get(&name).cloned().unwrap_or_default();
        (name, Backend { endpoints, settings })
    };
    Ok((resolved.into_iter().map(backend).collect(), settings))
}

/// Remembers the settings of backends.
pub(super) fn remember(directory: &Directory, settings: &Settings) -> anyhow::Result<()> {
    directory.write_json(SETTINGS_FILE, settings)
}

fn settings(
    directory: &Directory,
    given: &[UpstreamSetting],
    known: &BTreeMap<UpstreamName, Vec<String>>,
) -> anyhow::Result<Settings> {
    let mut remembered: Settings = match directory.read(SETTINGS_FILE)? {
        Some(text) => serde_json::from_slice(&text).context("reading the remembered settings of upstreams")?,
        None => Settings::new(),
    };
    for UpstreamSetting { name, setting, value } in given {
        anyhow::ensure!(
            known.contains_key(name),
            "--upstream-setting {name}.{setting}: there is no upstream {name}; add --upstream {name}=http://HOST:PORT"
        );
        let of_one = remembered.entry(name.clone()).or_default();
        match value {
            Some(value) => of_one.insert(setting.clone(), value.clone()),
            None => of_one.remove(setting),
        };
    }
    Ok(remembered)
}

/// All backends of this platform with their endpoints: those given now over those given before. One without TLS is told by
/// its addresses; a certificate is for a name.
async fn resolve(
    directory: &Directory,
    given: &[UpstreamArgument],
) -> anyhow::Result<BTreeMap<UpstreamName, Vec<String>>> {
    let mut remembered: BTreeMap<UpstreamName, String> = match directory.read(FILE)? {
        Some(text) => serde_json::from_slice(&text).context("reading the remembered upstreams")?,
        None => BTreeMap::new(),
    };
    for upstream in given {
        anyhow::ensure!(
            !matches!(upstream.name.as_str(), "orders" | "domains" | "dashboard"),
            "{} is a part of the platform; give your upstream another name",
            upstream.name
        );
        remembered.insert(upstream.name.clone(), upstream.endpoint.clone());
    }
    if !given.is_empty() {
        directory.write_json(FILE, &remembered)?;
    }
    let mut resolved = BTreeMap::new();
    for (name, endpoint) in remembered {
        let (scheme, authority) = endpoint.split_once("://").unwrap_or(("http", &endpoint));
        let endpoints = match tokio::net::lookup_host(authority).await {
            Ok(addresses) if scheme == "http" => addresses.map(|address| address.to_string()).collect(),
            Ok(_) => vec![endpoint.clone()],
            Err(error) if given.iter().any(|upstream| upstream.name == name) => {
                return Err(error).with_context(|| format!("upstream {name}: {authority} cannot be resolved"));
            }
            Err(error) => {
                tracing::warn!(%name, authority, %error, "a remembered upstream cannot be resolved; its projects answer 503");
                continue;
            }
        };
        resolved.insert(name, endpoints);
    }
    Ok(resolved)
}
