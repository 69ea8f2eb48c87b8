//! Upstreams given with `--upstream`: resolved at the start and saved, so that later starts keep the upstreams of
//! projects.

use std::collections::BTreeMap;

use anyhow::Context as _;
use contract::project::UpstreamName;

use crate::arguments::{Up, UpstreamArgument, UpstreamSetting};
use crate::directory::Directory;

const FILE: &str = "upstreams.json";
const SETTINGS_FILE: &str = "upstream-settings.json";

/// Settings of upstreams by name, in TOML.
pub(super) type Settings = BTreeMap<UpstreamName, BTreeMap<String, String>>;

/// An upstream from the options.
#[derive(Debug)]
pub(super) struct GivenUpstream {
    /// Its endpoints, with their scheme for TLS and HTTP/2 without TLS.
    pub(super) endpoints: Vec<String>,
    /// Its settings in TOML.
    pub(super) settings: BTreeMap<String, String>,
}

/// All upstreams of this platform with their settings: the current options override the saved ones. The caller saves
/// them after it has validated them.
///
/// # Errors
/// If a new upstream cannot be resolved or has a reserved name, or a setting names an unknown upstream.
pub(super) async fn read(
    directory: &Directory,
    options: &Up,
) -> anyhow::Result<(BTreeMap<UpstreamName, GivenUpstream>, Settings)> {
    let resolved = resolve(directory, &options.upstreams).await?;
    let settings = settings(directory, &options.upstream_settings, &resolved)?;
    let with_settings = |(name, endpoints)| {
        let settings = settings.get(&name).cloned().unwrap_or_default();
        (name, GivenUpstream { endpoints, settings })
    };
    Ok((resolved.into_iter().map(with_settings).collect(), settings))
}

/// Saves the settings of upstreams.
pub(super) fn remember(directory: &Directory, settings: &Settings) -> anyhow::Result<()> {
    directory.write_json(SETTINGS_FILE, settings)
}

fn settings(
    directory: &Directory,
    given: &[UpstreamSetting],
    known: &BTreeMap<UpstreamName, Vec<String>>,
) -> anyhow::Result<Settings> {
    let mut remembered: Settings = match directory.read(SETTINGS_FILE)? {
        Some(text) => serde_json::from_slice(&text).context("reading the saved settings of upstreams")?,
        None => Settings::new(),
    };
    for UpstreamSetting { name, setting, value } in given {
        anyhow::ensure!(
            known.contains_key(name),
            "--upstream-setting {name}.{setting}: unknown upstream {name}; add --upstream {name}=http://HOST:PORT"
        );
        let of_one = remembered.entry(name.clone()).or_default();
        match value {
            Some(value) => of_one.insert(setting.clone(), value.clone()),
            None => of_one.remove(setting),
        };
    }
    Ok(remembered)
}

/// All upstreams of this platform with their endpoints: the current options override the saved ones. Without TLS the
/// endpoints are addresses; with TLS they are names, for the certificate.
async fn resolve(
    directory: &Directory,
    given: &[UpstreamArgument],
) -> anyhow::Result<BTreeMap<UpstreamName, Vec<String>>> {
    let mut remembered: BTreeMap<UpstreamName, String> = match directory.read(FILE)? {
        Some(text) => serde_json::from_slice(&text).context("reading the saved upstreams")?,
        None => BTreeMap::new(),
    };
    for upstream in given {
        anyhow::ensure!(
            !matches!(upstream.name.as_str(), "orders" | "domains" | "dashboard"),
            "{} is a reserved upstream name; use another one",
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
                return Err(error).with_context(|| format!("upstream {name}: cannot resolve {authority}"));
            }
            Err(error) => {
                tracing::warn!(%name, authority, %error, "cannot resolve a saved upstream; its projects answer 503");
                continue;
            }
        };
        resolved.insert(name, endpoints);
    }
    Ok(resolved)
}
