//! The page that adds a domain: it shows the required records first.

use askama::Template;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Redirect};
use contract::key::Scope;
use serde::Deserialize;
use serde_json::json;

use super::detail;
use super::view::{ProblemWords as _, RecordWords as _};
use crate::control_plane::Refused;
use crate::fault::{Fault, PageResult};
use crate::form::Posted;
use crate::session::Session;
use crate::shell::{Section, Shell, html_with};
use crate::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::types::{DomainCheck, Problem, Project};
use verification::verdict::Records;

/// The result of a domain check, in words.
trait CheckWords {
    /// Its problems, without those of every new name: missing records.
    fn conflicts(&self) -> Vec<&Problem>;
    fn is_ready(&self) -> bool;
}

impl CheckWords for DomainCheck {
    fn conflicts(&self) -> Vec<&Problem> {
        let expected = ["DNS_NO_RECORD", "OWNERSHIP_TXT_MISSING"];
        self.problems.iter().filter(|problem| !expected.contains(&problem.code.as_str())).collect()
    }

    fn is_ready(&self) -> bool {
        self.records.iter().all(|record| record.state == Records::Pass) && self.problems.is_empty()
    }
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
    id: String,
    name: String,
    check: Option<DomainCheck>,
    problem: Option<Refused>,
    /// The second name to attach: visitors try a name with www. and without.
    pair: Option<String>,
}

/// `GET …/domains/new?name=`: without a name, the form; with a name, its requirements.
pub(crate) async fn show(session: Session, Path(id): Path<String>, Query(wanted): Query<NameQuery>) -> PageResult {
    let name = clean(&wanted.name.unwrap_or_default());
    let project = load(&session, &id).await?;
    let (mut check, mut problem, mut pair) = (None, None, None);
    if !name.is_empty() && project.domain_limit > 0 {
        let query = format!("name={}", segment(&name));
        match session.get::<DomainCheck>(Operation::CheckDomain, &[&id], &query).await {
            Ok(found) => {
                pair = pair_of(&found);
                check = Some(found);
            }
            Err(refused) => problem = Some(refused),
        }
    }
    page(&session, &id, project, name, (check, pair), problem)
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
                    return detail::page(&session, &id, added, None, Some(refused)).await;
                }
            }
            Ok(Redirect::to(&format!("/projects/{}/domains/{}", segment(&id), segment(added))).into_response())
        }
        Err(refused) => page(&session, &id, project, name, (None, None), Some(refused)),
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
    (check, pair): (Option<DomainCheck>, Option<String>),
    problem: Option<Refused>,
) -> PageResult {
    let project_id = session.authorise(id, None)?;
    let status = problem.as_ref().map_or(200, |refused| refused.status);
    let shell = Shell::within(session, &project_id, Section::Domains, w::ADD_DOMAIN);
    Ok(html_with(status, &Page { shell, project, id: project_id.to_string(), name, check, problem, pair }))
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
