//! `tollhouse node`.

mod accept;
mod certificates;

use std::time::Duration;

use anyhow::Context as _;
use chassis::percent::segment;
use clap::Subcommand;
use domains_service::Operation;
use serde_json::{Value, json};

use super::{all_pages, credentials};
use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, say, table};

/// How long events are kept: 400 days.
const AGO_MAX: Duration = Duration::from_hours(400 * 24);

/// A time such as `90m`, `12h` or `7d`.
fn ago(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a valid time: use 90m, 12h or 7d, at most 400 days");
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    let ago = Duration::from_secs(u64::from(number).saturating_mul(seconds));
    if ago > AGO_MAX { Err(wrong()) } else { Ok(ago) }
}

/// `tollhouse node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Create a credential for a gateway or a service and print it once.
    Add {
        /// Name of the gateway or service.
        name: String,
        /// Credential of a service that stores data of projects; erasures wait for its confirmation.
        #[arg(long)]
        service: bool,
    },
    /// List gateways and services.
    List,
    /// Refuse a gateway within a second and rotate the keys of the others; or refuse a service and no longer wait for
    /// it.
    Revoke {
        /// Name of the gateway or service.
        name: String,
        /// List changes made through it in this time: 90m, 12h or 7d.
        #[arg(long, default_value = "7d", value_parser = ago)]
        since: Duration,
    },
    /// List changes made through a gateway in all projects, newest first, to undo them after a revocation.
    Changes {
        /// Name of the gateway or service.
        name: String,
        /// Time to look back: 90m, 12h or 7d.
        #[arg(long, default_value = "7d", value_parser = ago)]
        since: Duration,
    },
    /// List the certificates of listeners between processes, which `tollhouse init` creates: names and expiry.
    Certificates {
        /// Create new certificates and keys, for all processes or for the one with this name. A process uses them
        /// within a second after its files changed.
        #[arg(long, value_name = "NAME", num_args = 0..=1)]
        replace: Option<Option<String>>,
    },
    /// Rotate the signing keys of all gateways; the old keys become invalid.
    Rotate,
    /// Replace the replica of every gateway by the current data of the control plane, and print the changes: keys,
    /// hostnames and projects. Needed after the database was restored, replaced, or lost most of
    /// its hostnames, because gateways refuse such data.
    Accept,
}

pub(super) async fn run(common: &Common, client: &Client, action: Node) -> anyhow::Result<()> {
    match action {
        Node::Add { name, service } => {
            let kind = if service { "service" } else { "gateway" };
            let body = json!({ "name": name, "kind": kind });
            let (made, credential) = credentials::make(client, body, "credential").await?;
            answer(common, &made, |_| {
                format!(
                    "{credential}\n\nThis is the credential of {name}, shown once. Put it into a file that only the \
                     {kind} may read, and name that file in its settings: credential_file."
                )
            });
        }
        Node::List => answer(common, &credentials::list(client, false).await?, credentials::readable),
        Node::Revoke { name, since } => {
            let mut answered = credentials::revoke(client, &kind_of(client, &name).await?, &name, false).await?;
            // The revocation succeeded; its changes can be listed again later.
            let changed = changes(client, &name, since).await;
            if let (Ok((changed, _)), Some(fields)) = (&changed, answered.as_object_mut()) {
                fields.insert("changes".to_owned(), changed.clone());
            }
            answer(common, &answered, |answered| revoked(&name, answered));
            if let Ok((_, true)) = changed {
                say(&cut(&name));
            }
            changed.with_context(|| {
                format!("{name} is revoked. List the changes made through it: tollhouse node changes {name}")
            })?;
        }
        Node::Changes { name, since } => {
            let (changed, is_cut) = changes(client, &name, since).await?;
            answer(common, &changed, |changed| shown(&name, changed));
            if is_cut {
                say(&cut(&name));
            }
        }
        Node::Certificates { replace } => certificates::run(common, client, replace)?,
        Node::Accept => accept::run(common, client).await?,
        Node::Rotate => {
            let answered = client.call(Operation::RotateGatewayKeys, &[], "").await?;
            answer(common, &answered, |_| "all gateways have new keys".to_owned());
        }
    }
    Ok(())
}

/// Whether this name belongs, or belonged last, to a gateway or a service.
async fn kind_of(client: &Client, name: &str) -> anyhow::Result<String> {
    let all = credentials::list(client, false).await?;
    let named = all.as_array().into_iter().flatten().filter(|one| one.get("name") == Some(&json!(name)));
    // A valid credential has no time of revocation.
    let last = named.max_by_key(|one| {
        let revoked_at = one.get("revoked_at").and_then(Value::as_str);
        (revoked_at.is_none(), revoked_at)
    });
    let kind = last.and_then(|last| last.get("kind")?.as_str());
    kind.map(str::to_owned).with_context(|| format!("{name:?} is not the name of a gateway or service"))
}

/// Most changes that are listed.
const CHANGES_MAX: usize = 100_000;

/// Changes made through a gateway, newest first, and whether there are older ones behind [`CHANGES_MAX`].
async fn changes(client: &Client, name: &str, since: Duration) -> anyhow::Result<(Value, bool)> {
    let since = jiff::Timestamp::now().checked_sub(since).context("the time to look back is too long")?;
    let query = format!("since={}", segment(&since.to_string()));
    // One more than is listed shows that there are older ones.
    let operation = Operation::ListChangesThroughGateway;
    let mut all = all_pages(client, operation, &[name], &query, "changes", CHANGES_MAX + 1).await?;
    let is_cut = all.as_array().is_some_and(|all| all.len() > CHANGES_MAX);
    if let Some(all) = all.as_array_mut() {
        all.truncate(CHANGES_MAX);
    }
    Ok((all, is_cut))
}

/// The warning that a list is not complete.
fn cut(name: &str) -> String {
    format!(
        "There are older changes through {name} in this time: the list has the newest {CHANGES_MAX} only. The events of each \
         project, in the dashboard and the API, have the others."
    )
}

/// The result of a revocation, and the operator's next steps.
fn revoked(name: &str, answered: &Value) -> String {
    let mut text = format!(
        "{name} is revoked, and so are its identities; the other gateways have new session keys. If it was stolen, \
         change the sealing secret too: see docs/operator/secrets.md.\n"
    );
    if let Some(file) = answered.pointer("/revoked/0/file").and_then(Value::as_str) {
        text.push_str(&format!(
            "\nIts credential came from the file {file}. That credential is never accepted again. To bring {name} back: \
             `tollhouse node add {name}`, put the new credential into that file, and restart {name}. In containers \
             replace the original in the data directory of `tollhouse init`, which copies it at each start.\n"
        ));
    }
    if let Some(changes) = answered.get("changes") {
        text.push_str(&format!("\n{}", shown(name, changes)));
    }
    text
}

/// Changes made through a gateway, as text.
fn shown(name: &str, changes: &Value) -> String {
    if changes.as_array().is_none_or(Vec::is_empty) {
        return format!("No changes were made through {name} in this time.\n");
    }
    let columns = [
        ("AT", "/at"),
        ("PROJECT", "/project"),
        ("CHANGE", "/type"),
        ("DOMAIN", "/domain"),
        ("BY", "/actor"),
        ("FROM", "/client"),
        ("DETAIL", "/detail"),
    ];
    format!(
        "Changes made through {name}; undo those that the projects' owners did not make:\n{}",
        table(changes, &columns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_a_unit_and_a_bound() {
        assert_eq!(ago("90m"), Ok(Duration::from_mins(90)));
        assert_eq!(ago("7d"), Ok(Duration::from_hours(7 * 24)));
        for wrong in ["", "d", "7", "-1d", "7w", "401d", "7ü", "1.5h"] {
            assert!(ago(wrong).unwrap_err().contains("use 90m, 12h or 7d"), "{wrong}");
        }
    }
}
