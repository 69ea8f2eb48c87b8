//! `tollhouse finish-restore`: prepares databases that PostgreSQL's tools restored. Also the report of a restore, as
//! text.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::SystemClock;
use chassis::secret::Secret;
use chassis::sql::PostgresSettings;
use clap::Args;
use domains_service::{Kind, Outcome, Report};
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::output::{answer, moment, table};

/// Most connections: the minimum of the settings.
const CONNECTIONS: u32 = 4;

/// `tollhouse finish-restore`.
#[derive(Debug, Args)]
pub struct FinishRestore {
    /// File with the URL of the restored database of the domains-service.
    #[arg(long, env = "TOLLHOUSE_RESTORED_DOMAINS_URL_FILE")]
    pub domains_url_file: PathBuf,
    /// File with the URL of the restored database of the orders-service.
    #[arg(long, env = "TOLLHOUSE_RESTORED_ORDERS_URL_FILE")]
    pub orders_url_file: PathBuf,
    /// Name of the lost database of the domains-service at the same server; its revocations and removals are
    /// applied again.
    #[arg(long)]
    pub lost: Option<String>,
    /// The domains-service's file of revoked credentials; they are revoked again. The service does it as well when it
    /// starts.
    #[arg(long, env = "TOLLHOUSE_RESTORED_REVOCATIONS_FILE")]
    pub revocations_file: Option<PathBuf>,
    /// Do not repeat the removals, and the revocations of API keys, made since the backup; list them.
    #[arg(long)]
    pub bring_back: bool,
}

pub(in crate::command) async fn finish_restore(common: &Common, options: &FinishRestore) -> anyhow::Result<()> {
    let domains = server(&options.domains_url_file)?;
    let lost = match &options.lost {
        Some(name) => Ok(domains.clone().database(name).into()),
        None => Err(anyhow::anyhow!("--lost was not given")),
    };
    orders_service::store::finish_restore(&server(&options.orders_url_file)?.into()).await?;
    let revocations = options.revocations_file.as_deref();
    let clock = Arc::new(SystemClock::new());
    let report = domains_service::finish_restore(&domains.into(), lost, revocations, options.bring_back, clock).await?;
    answer(common, &json!(report), |_| format!("The databases are ready for the services.\n{}", in_words(&report)));
    Ok(())
}

fn server(url_file: &Path) -> anyhow::Result<PostgresSettings> {
    let url = Secret::load_with(url_file, Secret::parse_password)?;
    PostgresSettings::new(url, CONNECTIONS).with_context(|| format!("reading {}", url_file.display()))
}

/// The report of a restore, with the commands to check it.
pub(super) fn in_words(report: &Report) -> String {
    let rows: Vec<Value> = report
        .things
        .iter()
        .map(|(kind, things)| {
            let more = if things.count > things.names.len() { ", …" } else { "" };
            json!({
                "what": kind, "count": things.count, "names": things.names.join(", ") + more, "commands": commands(*kind),
            })
        })
        .collect();
    let at = |at| moment(at).unwrap_or_else(|| "an unknown time".to_owned());
    let lost = report.lost_changed_at.map(|lost| format!(", the lost one of {}", at(lost))).unwrap_or_default();
    let changes = format!("The newest change in the restored database is from {}{lost}.\n", at(report.changed_at));
    let words = match (report.outcome, rows.is_empty()) {
        (Outcome::Withdrawn | Outcome::Back, true) => "Nothing was revoked or removed since the backup.\n".to_owned(),
        (Outcome::Withdrawn, _) => "Withdrawn again, as in the lost database:\n\n".to_owned(),
        (Outcome::Back, _) => "Valid again, although the lost database had withdrawn it:\n\n".to_owned(),
        (Outcome::Unknown, _) => format!(
            "The lost database could not be compared: {}. Everything revoked or removed since the backup is valid \
             again and cannot be distinguished. Check the whole list, and revoke again what leaked:\n\n",
            report.why.as_deref().unwrap_or_default()
        ),
    };
    let columns = [("WHAT", "/what"), ("COUNT", "/count"), ("NAMES", "/names"), ("COMMANDS", "/commands")];
    let list = if rows.is_empty() { String::new() } else { format!("{}\n", table(&Value::Array(rows), &columns)) };
    format!(
        "{changes}{words}{list}Start the services. Gateways get a full snapshot; operators and customers sign in to \
         the dashboard again."
    )
}

/// The commands that list and withdraw items of a kind.
fn commands(kind: Kind) -> &'static str {
    match kind {
        Kind::Credential => "tollhouse node list; tollhouse node revoke NAME",
        Kind::Token => "tollhouse token list; tollhouse token revoke NAME",
        Kind::Project | Kind::Data => "tollhouse project list; tollhouse project remove PROJECT",
        Kind::Key => "tollhouse key list PROJECT; tollhouse key revoke PROJECT KEY",
        Kind::Name => "tollhouse domain list PROJECT; tollhouse domain remove PROJECT NAME",
    }
}
