//! `tollhouse explain`: how the gateways handle a host, a project, a request or a key, and why.

use contract::key::{KeyId, PresentedKey};
use contract::project::ProjectId;
use domains_service::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, lines};
use chassis::percent::segment;

/// Characters of a request id.
const REQUEST_ID_LENGTH: usize = 32;

pub(super) async fn run(common: &Common, client: &Client, about: &str) -> anyhow::Result<()> {
    let is_request = about.len() == REQUEST_ID_LENGTH && about.bytes().all(|byte| byte.is_ascii_hexdigit());
    let path = if about.parse::<KeyId>().is_ok() {
        format!("/keys/{about}")
    } else if let Ok(key) = PresentedKey::parse(about) {
        // Only the key's digest leaves this process.
        format!("/keys/{}", key.digest().to_text())
    } else if is_request {
        format!("/requests/{}", about.to_ascii_lowercase())
    } else {
        format!("/hosts/{}", segment(&host(client, about).await))
    };
    let answers = client.every_edge(&Method::GET, &path).await;
    // One gateway had the request. For hosts and keys, all gateways agree, or the difference is shown.
    let nodes: Vec<Value> = answers
        .iter()
        .map(|(edge, answer)| match answer {
            Ok(known) => json!({
                "gateway": edge.gateway,
                "address": edge.admin,
                "why": known.get("why"),
                "revision": known.get("revision"),
            }),
            Err(error) => json!({ "gateway": edge.gateway, "address": edge.admin, "why": format!("{error:#}") }),
        })
        .collect();
    let mut failure = None;
    let mut known = None;
    for (_, answer) in answers {
        match answer {
            Ok(found) if known.is_none() => known = Some(found),
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
    }
    let Some(mut known) = known else {
        return Err(failure.unwrap_or_else(|| anyhow::anyhow!("the platform has no gateway")));
    };
    if nodes.len() > 1
        && !is_request
        && let Some(fields) = known.as_object_mut()
    {
        fields.insert("nodes".to_owned(), Value::Array(nodes));
    }
    answer(common, &known, lines);
    Ok(())
}

/// The host of a URL, or the platform host of a project.
async fn host(client: &Client, about: &str) -> String {
    let host = host_in(about);
    if !host.contains('.')
        && let Ok(project) = host.parse::<ProjectId>()
        && let Ok(found) = client.call(Operation::ShowProject, &[project.as_str()], "").await
        && let Some(published) = found.get("host").and_then(Value::as_str)
    {
        return published.to_owned();
    }
    host.to_owned()
}

/// The host in a pasted text.
fn host_in(about: &str) -> &str {
    let rest = about.trim().split_once("://").map_or(about.trim(), |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_in_urls_and_hostnames() {
        for pasted in [
            "shop.example.com",
            "https://shop.example.com",
            "https://shop.example.com:8443/v1/orders?a=b#c",
            " http://user@shop.example.com/ ",
            "shop.example.com:8443",
            "shop.example.com/path",
        ] {
            assert_eq!(host_in(pasted), "shop.example.com", "{pasted}");
        }
        assert_eq!(host_in("my-site"), "my-site");
    }
}
