//! `tollhouse domain`.

use contract::project::ProjectId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arguments::{Common, Domain};
use crate::client::Client;
use crate::output::{answer, lines, table, word};

pub(super) async fn run(common: &Common, client: &Client, action: Domain) -> anyhow::Result<()> {
    match action {
        Domain::Add { project, name, primary } => {
            let body = json!({ "name": name, "primary": primary });
            let domain = client.control(Method::POST, &all(&project), &body).await?;
            answer(common, &domain, story);
        }
        Domain::List { project } => {
            let domains = client.control(Method::GET, &all(&project), &Value::Null).await?;
            let rows = domains.get("domains").cloned().unwrap_or(domains);
            let columns = [
                ("DOMAIN", "/name"),
                ("STATUS", "/status"),
                ("PRIMARY", "/primary"),
                ("REDIRECT", "/redirect/status"),
                ("CERTIFICATE", "/certificate/status"),
                ("UNTIL", "/certificate/not_after"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Domain::Show { project, name } => {
            let domain = client.control(Method::GET, &one(&project, &name), &Value::Null).await?;
            answer(common, &domain, lines);
        }
        Domain::Verify { project, name } => {
            let path = format!("{}/verify", one(&project, &name));
            let domain = client.control(Method::POST, &path, &Value::Null).await?;
            answer(common, &domain, story);
        }
        Domain::Primary { project, name } => {
            change(common, client, &project, &name, json!({ "primary": true })).await?;
        }
        Domain::Redirect { project, name, status, off } => {
            let redirect = if off {
                Value::Null
            } else {
                let mut redirect = json!({ "to": "primary" });
                if let (Some(status), Some(object)) = (status, redirect.as_object_mut()) {
                    object.insert("status".to_owned(), json!(status.code()));
                }
                redirect
            };
            change(common, client, &project, &name, json!({ "redirect": redirect })).await?;
        }
        Domain::Remove { project, name } => {
            let removed = client.control(Method::DELETE, &one(&project, &name), &Value::Null).await?;
            answer(common, &removed, |removed| match removed.get("lagging") {
                Some(nodes) => format!("{name} is removed; not yet acknowledged by {}", word(nodes)),
                None => format!("{name} is no longer served on any gateway"),
            });
        }
        Domain::Events { project, name } => {
            let path = format!("{}/events", one(&project, &name));
            let events = client.control(Method::GET, &path, &Value::Null).await?;
            let rows = events.get("events").cloned().unwrap_or(events);
            answer(common, &rows, |rows| table(rows, &[("AT", "/at"), ("EVENT", "/type"), ("DETAIL", "/detail")]));
        }
    }
    Ok(())
}

async fn change(common: &Common, client: &Client, project: &ProjectId, name: &str, body: Value) -> anyhow::Result<()> {
    let domain = client.control(Method::PATCH, &one(project, name), &body).await?;
    answer(common, &domain, story);
    Ok(())
}

/// Where a domain stands, and what its owner has to do.
fn story(domain: &Value) -> String {
    let field = |pointer: &str| word(domain.pointer(pointer).unwrap_or(&Value::Null));
    let mut text = format!("{}: {}\n", field("/name"), field("/status"));
    let list = |name: &str| domain.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let missing: Vec<Value> =
        list("records").into_iter().filter(|record| record.get("state") != Some(&json!("ok"))).collect();
    if !missing.is_empty() && field("/status") != "active" {
        text.push_str("\nCreate at your DNS provider:\n");
        let columns = [("TYPE", "/type"), ("NAME", "/name"), ("VALUE", "/value"), ("TTL", "/ttl")];
        text.push_str(&table(&Value::Array(missing), &columns));
    }
    for problem in list("problems") {
        let part = |name: &str| word(problem.get(name).unwrap_or(&Value::Null));
        text.push_str(&format!(
            "\n{} ({}, acts: {})\n  fix: {}\n",
            part("message"),
            part("code"),
            part("who"),
            part("fix")
        ));
    }
    text
}

fn all(project: &ProjectId) -> String {
    format!("/internal/projects/{project}/domains")
}

/// The name goes into a path: anything that could end a segment is escaped; whether it is a hostname is the service's
/// business, which explains it better.
fn one(project: &ProjectId, name: &str) -> String {
    let escaped: String = name
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("/internal/projects/{project}/domains/{escaped}")
}
