//! The demo: projects on every plan with keys and orders, and two domains of which one redirects to the other.
//!
//! Created at the first start through the operators' internal interfaces. `demo.json` is written last; later starts
//! read it. It contains keys, so a person can delete it: then the demo is neither created again nor removed. A demo
//! that an interrupted start left incomplete is completed.

use anyhow::Context as _;
use chassis::clock::Clock;
use contract::plan::Plan;
use domains_service::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Client;
use crate::directory::{Address, Directory};

pub(super) const FILE: &str = "demo.json";

/// The plans the demo shows, each with a project `demo-{plan}`.
const PLANS: [Plan; 3] = [Plan::Free, Plan::Pro, Plan::Business];

/// The project with domains, the domain that is primary, and the one that redirects to it.
const WITH_DOMAINS: Plan = Plan::Pro;
const PRIMARY: &str = "www.petshop.localhost";
const SECONDARY: &str = "petshop.localhost";

/// Orders per project: the first half pending, then shipped, then cancelled.
const ORDERS: i64 = 40;

/// The demo as `demo.json` describes it, if it is there and can be read.
pub(crate) fn known(directory: &Directory, client: &Client) -> Option<Value> {
    let text = directory.read(FILE).ok()??;
    let read = serde_json::from_slice(&text)
        .inspect_err(|error| tracing::warn!(%error, "cannot read demo.json; starting without the demo's commands"));
    let mut demo: Value = read.ok()?;
    // The ports can differ from the last start.
    describe_run(&mut demo, directory, client);
    if let Err(error) = directory.write_json(FILE, &demo) {
        tracing::warn!(%error, "cannot update demo.json; it may name old ports");
    }
    Some(demo)
}

/// Creates the missing parts of the demo with new keys, and writes `demo.json`.
///
/// # Errors
/// If a process refuses a request, with its message.
pub(crate) async fn make(directory: &Directory, client: &Client, clock: &dyn Clock) -> anyhow::Result<Value> {
    let mut projects = Vec::new();
    for plan in PLANS {
        projects.push(
            project(plan, client, clock)
                .await
                .with_context(|| format!("creating the demo project of the {plan} plan"))?,
        );
    }
    let mut demo = json!({ "projects": projects });
    describe_run(&mut demo, directory, client);
    directory.write_json(FILE, &demo)?;
    Ok(demo)
}

fn describe_run(demo: &mut Value, directory: &Directory, client: &Client) {
    let ca = directory.path("ca/ca.pem");
    let ca = ca.canonicalize().unwrap_or(ca);
    if let Some(demo) = demo.as_object_mut() {
        demo.insert("http_port".to_owned(), json!(client.run.http.port()));
        demo.insert("https_port".to_owned(), json!(client.run.https.port()));
        demo.insert("admin_port".to_owned(), json!(client.run.admin().map(Address::port)));
        demo.insert("platform_domain".to_owned(), json!(client.run.platform_domain));
        demo.insert("ca_certificate".to_owned(), json!(ca.display().to_string()));
    }
}

async fn project(plan: Plan, client: &Client, clock: &dyn Clock) -> anyhow::Result<Value> {
    let id = format!("demo-{plan}");
    let published = client.call(Operation::ShowProject, &[&id], "").await;
    if published.is_err() {
        let project = json!({ "id": id, "plan": plan, "upstream": "orders", "access": "key" });
        client.send(Operation::CreateProject, &[], &project).await?;
    }
    client.call(Operation::DeployProject, &[&id], "").await?;
    let all = ["orders:read", "orders:write", "domains:read", "domains:write", "keys:write"];
    let mut keys = Vec::new();
    for (label, scopes) in [("demo, everything", &all[..]), ("demo, read only", &["orders:read"][..])] {
        let body = json!({ "label": label, "scopes": scopes });
        let key = client.send(Operation::CreateKey, &[&id], &body).await?;
        keys.push(json!({ "key": key.get("key"), "scopes": scopes }));
    }
    let orders = orders(client, &id, clock).await?;
    let domains = if plan == WITH_DOMAINS { domains(client, &id).await? } else { Vec::new() };
    let host = format!("{id}.{}", client.run.platform_domain);
    Ok(json!({ "id": id, "plan": plan, "host": host, "keys": keys, "domains": domains, "orders": orders }))
}

async fn orders(client: &Client, project: &str, clock: &dyn Clock) -> anyhow::Result<Value> {
    let (mut pending, mut shipped) = (Vec::new(), Vec::new());
    let mut lines = String::new();
    for id in 1..=ORDERS {
        let status = match id {
            id if id <= ORDERS / 2 => "pending",
            id if id <= ORDERS * 3 / 4 => "shipped",
            _ => "cancelled",
        };
        match status {
            "pending" => pending.push(id),
            "shipped" => shipped.push(id),
            _ => {}
        }
        let shipped_at = clock.now_seconds().plus(86_400 * (id % 20 - 10));
        let ship_date = jiff::Timestamp::from_second(shipped_at.0).map(|date| date.to_string()).unwrap_or_default();
        let order = json!({
            "id": id,
            "petId": 100 + id % 7,
            "quantity": 1 + id % 3,
            "shipDate": ship_date,
            "complete": status == "shipped" && id % 2 == 0,
            "status": status,
        });
        lines.push_str(&order.to_string());
        lines.push('\n');
    }
    let of_project = format!("/internal/orders/{}", client.identity_of(project).await?);
    let kept = client.orders_json(&format!("{of_project}/summary")).await?;
    if kept.as_object().into_iter().flatten().any(|(_, count)| count.as_i64().is_some_and(|count| count > 0)) {
        return Ok(json!({ "pending": [], "shipped": [] })); // the demo does not know these orders
    }
    let path = format!("{of_project}/import");
    client.orders(Method::POST, &path, lines.into()).await?;
    Ok(json!({ "pending": pending, "shipped": shipped }))
}

/// Names below `.localhost` mean this machine by definition (RFC 6761), so they are verified and certified at once.
async fn domains(client: &Client, project: &str) -> anyhow::Result<Vec<Value>> {
    client.send(Operation::AddDomain, &[project], &json!({ "name": PRIMARY, "primary": true })).await?;
    active(client, project, PRIMARY).await?;
    client.send(Operation::ChangeDomain, &[project, PRIMARY], &json!({ "primary": true })).await?;
    client.send(Operation::AddDomain, &[project], &json!({ "name": SECONDARY })).await?;
    active(client, project, SECONDARY).await?;
    let redirect = json!({ "redirect": { "to": "primary", "status": 301 } });
    client.send(Operation::ChangeDomain, &[project, SECONDARY], &redirect).await?;
    Ok(vec![
        json!({ "name": PRIMARY, "primary": true, "redirect_status": null }),
        json!({ "name": SECONDARY, "primary": false, "redirect_status": 301 }),
    ])
}

/// Waits until a domain is live. The local authority issues in milliseconds.
async fn active(client: &Client, project: &str, name: &str) -> anyhow::Result<()> {
    let mut last = Value::Null;
    for _ in 0..200 {
        last = client.call(Operation::ShowDomain, &[project, name], "").await?;
        if last.get("status") == Some(&json!("active")) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    anyhow::bail!("the domain did not become active: {last}")
}
