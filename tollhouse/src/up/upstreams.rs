//! Backends given with `--upstream`: resolved once, and remembered, so that a project published on one finds it again.

use std::collections::BTreeMap;

use anyhow::Context as _;
use contract::project::UpstreamName;

use crate::arguments::UpstreamArgument;
use crate::directory::Directory;

const FILE: &str = "upstreams.json";

/// All backends of this platform with their endpoints: those given now over those given before. One without TLS is told by
/// its addresses; a certificate is for a name.
///
/// # Errors
/// When one given now cannot be resolved, or is called like a part of the platform.
pub(super) async fn resolve(
    directory: &Directory,
    given: &[UpstreamArgument],
) -> anyhow::Result<BTreeMap<UpstreamName, Vec<String>>> {
    let mut remembered: BTreeMap<UpstreamName, String> = match std::fs::read(directory.path(FILE)) {
        Ok(text) => serde_json::from_slice(&text).context("reading the remembered upstreams")?,
        Err(_) => BTreeMap::new(),
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
