//! `tollhouse domain`.

use clap::Subcommand;
use contract::project::ProjectId;
use contract::site::RedirectStatus;
use domains_service::Operation;
use serde_json::{Value, json};

use super::{all_pages, lagging, waiting};
use crate::arguments::Common;
use crate::client::Client;
use crate::output::{Attention, answer, lines, table, word};
use chassis::percent::segment;

/// `tollhouse domain`.
#[derive(Debug, Subcommand)]
pub enum Domain {
    /// Attach a domain and print the DNS records to create.
    Add {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Make it the primary domain.
        #[arg(long)]
        primary: bool,
        /// Redirect visitors to another domain of the project; `primary` means the current primary domain.
        #[arg(long, value_name = "DOMAIN", conflicts_with = "primary")]
        redirect_to: Option<String>,
        /// Status of the redirect: 301, 302, 307 or 308.
        #[arg(long, requires = "redirect_to")]
        status: Option<RedirectStatus>,
    },
    /// Print the records to create and the conflicts of a domain, without attaching it.
    Check {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// List the domains of a project.
    List {
        /// The project.
        project: ProjectId,
    },
    /// Show a domain with its records, checks, problems and certificate.
    Show {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Check DNS now.
    Verify {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Set the primary domain.
    Primary {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Redirect a domain to another domain of the project, or end the redirect.
    Redirect {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Target; `primary` means the current primary domain.
        #[arg(long, value_name = "DOMAIN", default_value = "primary")]
        to: String,
        /// Status of the redirect: 301, 302, 307 or 308.
        #[arg(long)]
        status: Option<RedirectStatus>,
        /// End the redirect.
        #[arg(long, conflicts_with_all = ["status", "to"])]
        off: bool,
    },
    /// Remove a domain; every gateway stops serving it at once.
    Remove {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Also remove the domains that redirect to it.
        #[arg(long)]
        with_redirects: bool,
    },
    /// List events of a domain or of a whole project, newest first.
    Events {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: Option<String>,
        /// Maximum number of events.
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
}

pub(super) async fn run(common: &Common, client: &Client, action: Domain) -> anyhow::Result<()> {
    match action {
        Domain::Add { project, name, primary, redirect_to, status } => {
            let redirect = redirect_to.map(|to| redirect(&to, status));
            let body = json!({ "name": name, "primary": primary, "redirect": redirect });
            let domain = client.send(Operation::AddDomain, &[project.as_str()], &body).await?;
            answer(common, &domain, |domain| format!("{}\n{}", story(domain), next_step(&project, domain)));
        }
        Domain::Check { project, name } => {
            let query = format!("name={}", segment(&name));
            let seen = client.call(Operation::CheckDomain, &[project.as_str()], &query).await?;
            answer(common, &seen, story);
        }
        Domain::List { project } => {
            let rows =
                all_pages(client, Operation::ListDomains, &[project.as_str()], "limit=200", "domains", usize::MAX)
                    .await?;
            let columns = [
                ("DOMAIN", "/name"),
                ("STATUS", "/status"),
                ("PRIMARY", "/primary"),
                ("REDIRECTS TO", "/redirect/to"),
                ("CERTIFICATE", "/certificate/status"),
                ("UNTIL", "/certificate/not_after"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Domain::Show { project, name } => {
            let domain = client.call(Operation::ShowDomain, &[project.as_str(), &name], "").await?;
            answer(common, &domain, |domain| format!("{}\n{}", story(domain), details(domain)));
        }
        Domain::Verify { project, name } => {
            let domain = client.call(Operation::VerifyDomain, &[project.as_str(), &name], "").await?;
            answer(common, &domain, story);
        }
        Domain::Primary { project, name } => {
            change(common, client, &project, &name, json!({ "primary": true })).await?;
        }
        Domain::Redirect { project, name, to, status, off } => {
            let rule = if off { Value::Null } else { redirect(&to, status) };
            change(common, client, &project, &name, json!({ "redirect": rule })).await?;
        }
        Domain::Remove { project, name, with_redirects } => {
            let query = format!("with_redirects={with_redirects}");
            let answered = client.call(Operation::RemoveDomain, &[project.as_str(), &name], &query).await?;
            // The body is empty if all gateways confirmed; programs get the same fields in both cases.
            let lagging = lagging(&answered);
            let removed = json!({ "name": name, "removed": true, "lagging": lagging });
            answer(common, &removed, |_| {
                waiting(&format!("{name} is no longer served on any gateway"), &format!("{name} is removed"), &lagging)
            });
            Attention::when(!lagging.is_empty())?;
        }
        Domain::Events { project, name, limit } => {
            let (operation, parameters) = match &name {
                Some(name) => (Operation::ListDomainEvents, vec![project.as_str(), name.as_str()]),
                None => (Operation::ListEvents, vec![project.as_str()]),
            };
            let rows = all_pages(client, operation, &parameters, "", "events", limit).await?;
            let mut columns =
                vec![("AT", "/at"), ("EVENT", "/type"), ("DOMAIN", "/domain"), ("BY", "/actor"), ("DETAIL", "/detail")];
            columns.retain(|(title, _)| name.is_none() || *title != "DOMAIN");
            answer(common, &rows, |rows| table(rows, &columns));
        }
    }
    Ok(())
}

async fn change(common: &Common, client: &Client, project: &ProjectId, name: &str, body: Value) -> anyhow::Result<()> {
    let domain = client.send(Operation::ChangeDomain, &[project.as_str(), name], &body).await?;
    let lagging = lagging(domain.get("withdrawal").unwrap_or(&Value::Null));
    answer(common, &domain, |domain| {
        waiting(&story(domain), &format!("{}\nThe domain is changed", story(domain)), &lagging)
    });
    Attention::when(!lagging.is_empty())
}

/// The owner's next step after adding a domain.
fn next_step(project: &ProjectId, domain: &Value) -> String {
    let name = domain.get("name").map(word).unwrap_or_default();
    let has = |list: &str| domain.get(list).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let show = format!("tollhouse domain show {project} {name}");
    match domain.get("status").and_then(Value::as_str) {
        Some("active") => format!("It is live at https://{name}/"),
        _ if has("records") => {
            format!(
                "Create the records, then: tollhouse domain verify {project} {name}\nDNS is also checked automatically; see the result with: {show}"
            )
        }
        _ => format!("Verification and certificate are automatic; see the state with: {show}"),
    }
}

/// The fields that `story` does not show.
fn details(domain: &Value) -> String {
    let mut rest = domain.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.retain(|name, _| !["name", "status", "problems"].contains(&name.as_str()));
    }
    lines(&rest)
}

/// The state of a domain, and what its owner must do.
fn story(domain: &Value) -> String {
    let field = |pointer: &str| word(domain.pointer(pointer).unwrap_or(&Value::Null));
    // A domain that was only checked has no status.
    let status = if domain.get("status").is_some() { field("/status") } else { "not attached".to_owned() };
    let mut text = format!("{}: {status}\n", field("/name"));
    let list = |name: &str| domain.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let missing: Vec<Value> =
        list("records").into_iter().filter(|record| record.get("state") != Some(&json!("ok"))).collect();
    if !missing.is_empty() && status != "active" {
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

/// Without a status the redirect is 301 for GET and HEAD, 308 for other methods.
fn redirect(to: &str, status: Option<RedirectStatus>) -> Value {
    json!({ "to": to, "status": status.map(RedirectStatus::code) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_after_adding_depends_on_the_domain() {
        let project = "my-site".parse().unwrap();
        let local = json!({ "name": "www.my-site.localhost", "status": "pending_dns", "records": [] });
        assert!(next_step(&project, &local).contains("tollhouse domain show my-site www.my-site.localhost"));
        let remote = json!({ "name": "shop.example.com", "status": "pending_dns", "records": [{ "type": "CNAME" }] });
        assert!(next_step(&project, &remote).contains("tollhouse domain verify my-site shop.example.com"));
    }

    #[test]
    fn a_shown_domain_begins_with_its_state() {
        let domain = json!({ "name": "a.example", "checks": null, "problems": [], "rev": 3, "status": "active" });
        assert_eq!(format!("{}\n{}", story(&domain), details(&domain)), "a.example: active\n\nchecks  -\nrev     3\n");
    }
}
