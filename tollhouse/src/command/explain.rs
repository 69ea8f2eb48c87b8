//! `tollhouse explain`: what the edge believes of a host, a request or a key, and why.

use contract::key::KeyId;
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
    } else if is_request {
        format!("/requests/{}", about.to_ascii_lowercase())
    } else {
        format!("/hosts/{}", segment(about))
    };
    let answers = client.every_edge(&Method::GET, &path).await;
    // A request was on one node; of hosts and keys all believe the same, or the difference is worth seeing.
    let nodes: Vec<Value> = answers
        .iter()
        .map(|(address, answer)| match answer {
            Ok(known) => json!({ "address": address, "why": known.get("why"), "revision": known.get("revision") }),
            Err(error) => json!({ "address": address, "why": format!("{error:#}") }),
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
        return Err(failure.unwrap_or_else(|| anyhow::anyhow!("there is no gateway to ask")));
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
