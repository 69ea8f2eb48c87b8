//! The page that adds a domain: it shows the required records first.

use askama::Template;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Redirect};
use contract::key::Scope;
use serde::Deserialize;
use serde_json::json;

use super::{detail, view};
use crate::fault::{Fault, PageResult};
use crate::form::Posted;
use crate::session::Session;
use crate::shell::{Outcome, Section, Shell, html_with};
use crate::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::types::{DomainCheck, Problem, Project};
use verification::verdict::Records;

/// The problems of a name, without those of every new one: missing records.
fn conflicts(check: &DomainCheck) -> Vec<&Problem> {
    let expected = ["DNS_NO_RECORD", "OWNERSHIP_TXT_MISSING"];
    check.problems.iter().filter(|problem| !expected.contains(&problem.code.as_str())).collect()
}

fn is_ready(check: &DomainCheck) -> bool {
    check.records.iter().all(|record| record.state == Records::Pass) && check.problems.is_empty()
}

#[derive(Deserialize)]
pub(crate) struct NameQuery {
    name: Option<String>,
}

#[derive(Template)]
#[template(path = "domain_add.html")]
struct Page {
    shell: Shell,
    project: Project,
    name: String,
    check: Option<DomainCheck>,
    /// The second name to attach: visitors try a name with www. and without.
    pair: Option<String>,
}

/// `GET …/domains/new?name=`: without a name, the form; with a name, its requirements.
pub(crate) async fn show(session: Session, Path(id): Path<String>, Query(wanted): Query<NameQuery>) -> PageResult {
    let name = clean(&wanted.name.unwrap_or_default());
    let project = load(&session, &id).await?;
    if name.is_empty() || project.domain_limit == 0 {
        return page(&session, &id, project, name, None, None);
    }
    let query = format!("name={}", segment(&name));
    match session.get(Operation::CheckDomain, &[&id], &query).await {
        Ok(check) => page(&session, &id, project, name, Some(check), None),
        Err(refused) => page(&session, &id, project, name, None, Some(Err(refused))),
    }
}

/// For an apex its name with www.; for a name with www. its apex.
fn pair_of(check: &DomainCheck) -> Option<String> {
    match check.name.as_str().strip_prefix("www.") {
        _ if check.local => None,
        Some(below) => (!check.is_apex).then(|| below.to_owned()),
        None => check.is_apex.then(|| format!("www.{}", check.name)),
    }
}

/// `POST …/domains/new`.
pub(crate) async fn add(Path(id): Path<String>, Posted { session, fields }: Posted) -> PageResult {
    let name = clean(fields.text("name"));
    let project = load(&session, &id).await?;
    let body = json!({ "name": name, "primary": fields.is_set("primary") });
    match session.call(Operation::AddDomain, (&[&id], ""), &body).await {
        Ok(answered) => {
            let added = answered.body.get("name").and_then(|name| name.as_str()).unwrap_or(&name);
            let pair = fields.text("pair");
            if pair.strip_prefix("www.") == Some(added) || added.strip_prefix("www.") == Some(pair) {
                let body = json!({ "name": pair });
                if let Err(refused) = session.call(Operation::AddDomain, (&[&id], ""), &body).await {
                    // The first was added; the page of the other shows its problem.
                    return detail::page(&session, &id, added, Some(Err(refused))).await;
                }
            }
            Ok(Redirect::to(&format!("/projects/{}/domains/{}", segment(&id), segment(added))).into_response())
        }
        Err(refused) => page(&session, &id, project, name, None, Some(Err(refused))),
    }
}

async fn load(session: &Session, id: &str) -> Result<Project, Fault> {
    session.authorise(id, Some(Scope::DomainsWrite))?;
    Ok(session.get(Operation::ShowProject, &[id], "").await?)
}

/// Users paste the addresses of pages: only the host is used.
fn clean(text: &str) -> String {
    let text = text.trim();
    let text = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
    text.split('/').next().unwrap_or_default().to_owned()
}

fn page(
    session: &Session,
    id: &str,
    project: Project,
    name: String,
    check: Option<DomainCheck>,
    outcome: Outcome,
) -> PageResult {
    let project_id = session.authorise(id, None)?;
    let shell = Shell::within(session, &project_id, Section::Domains, w::ADD_DOMAIN).after(outcome);
    let pair = check.as_ref().and_then(pair_of);
    Ok(html_with(shell.status(), &Page { shell, project, name, check, pair }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_addresses_name_their_host() {
        for (typed, host) in [
            (" shop.example.com ", "shop.example.com"),
            ("https://shop.example.com/cart?x=1", "shop.example.com"),
            ("http://shop.example.com", "shop.example.com"),
            ("", ""),
        ] {
            assert_eq!(clean(typed), host);
        }
    }
}
