//! Removing a domain: the effects before, and the confirmations of the gateways after.

use askama::Template;
use axum::extract::Path;
use contract::key::Scope;
use serde_json::Value;

use crate::fault::PageResult;
use crate::form::Posted;
use crate::session::Session;
use crate::shell::{Outcome, Section, Shell, html, html_with};
use crate::words as w;
use domains_api::Operation;
use domains_api::types::{Domain, Domains};

#[derive(Template)]
#[template(path = "domain_remove.html")]
struct Question {
    shell: Shell,
    domain: Domain,
    redirecting: Vec<String>,
}

#[derive(Template)]
#[template(path = "domain_removed.html")]
struct Removed {
    shell: Shell,
    name: String,
    words: String,
    lagging: Vec<String>,
}

/// `GET …/remove`.
pub(crate) async fn ask(session: Session, Path((id, name)): Path<(String, String)>) -> PageResult {
    question(&session, &id, &name, None).await
}

async fn question(session: &Session, id: &str, name: &str, outcome: Outcome) -> PageResult {
    let project = session.authorise(id, Some(Scope::DomainsWrite))?;
    let project_name = project.name.as_str();
    let domain: Domain = session.get(Operation::ShowDomain, &[project_name, name], "").await?;
    let all: Domains = session.get(Operation::ListDomains, &[project_name], "limit=200").await?;
    let leads_here = |other: &&Domain| {
        other
            .redirect
            .as_ref()
            .is_some_and(|rule| rule.to == domain.name.as_str() || (rule.to == "primary" && domain.primary))
    };
    let redirecting = all.domains.iter().filter(leads_here).map(|other| other.name.to_string()).collect();
    let shell = Shell::within(session, &project, Section::Domains, w::remove_title(domain.name.as_str()));
    let shell = shell.after(outcome);
    Ok(html_with(shell.status(), &Question { shell, domain, redirecting }))
}

/// `POST …/remove`.
pub(crate) async fn remove(Path((id, name)): Path<(String, String)>, Posted { session, fields }: Posted) -> PageResult {
    let all = if fields.is_set("with_redirects") { "with_redirects=true" } else { "" };
    let answered = match session.call(Operation::RemoveDomain, (&[&id, &name], all), &Value::Null).await {
        Ok(answered) => answered,
        Err(refused) if refused.status == 409 => return question(&session, &id, &name, Some(Err(refused))).await,
        Err(refused) => return Err(refused.into()),
    };
    let project = session.authorise(&id, None)?;
    let lagging = answered.body.get("lagging").and_then(Value::as_array).into_iter().flatten();
    let lagging: Vec<String> = lagging.filter_map(Value::as_str).map(str::to_owned).collect();
    let words = w::stopped(answered.acknowledged.as_deref().unwrap_or_default());
    let shell = Shell::within(&session, &project, Section::Domains, w::REMOVED);
    Ok(html(&Removed { shell, name, words, lagging }))
}
