//! The table of docs/reference/fault-campaign.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The result of a fault. Times are seconds since the fault began, or since it ended.
pub(crate) struct Row {
    pub(crate) fault: &'static str,
    pub(crate) status: Option<f64>,
    pub(crate) words: String,
    pub(crate) process: &'static str,
    pub(crate) log: Option<f64>,
    pub(crate) line: String,
    pub(crate) metric: &'static str,
    pub(crate) board: Option<String>,
    pub(crate) metric_after: Option<f64>,
    pub(crate) alerts: &'static [&'static str],
    pub(crate) alerts_after: Option<f64>,
    /// The runbooks of the alerts.
    pub(crate) pages: Vec<String>,
    pub(crate) gone_after: Option<f64>,
    pub(crate) answers: BTreeMap<String, u64>,
}

impl Row {
    /// Whether all symptoms appeared and ended.
    pub(crate) fn is_good(&self) -> bool {
        let seen = [self.status, self.log, self.metric_after, self.alerts_after, self.gone_after];
        seen.iter().all(Option::is_some) && self.board.is_some()
    }

    pub(crate) fn in_short(&self) -> String {
        format!(
            "status {}, log {}, metric {}, alerts {}, gone {}: {}",
            after(self.status),
            after(self.log),
            after(self.metric_after),
            after(self.alerts_after),
            after(self.gone_after),
            self.customers()
        )
    }

    fn customers(&self) -> String {
        let all: u64 = self.answers.values().sum();
        let good = self.answers.get("good").copied().unwrap_or(0);
        let mut text = format!("{good} of {all} good");
        for (answer, count) in self.answers.iter().filter(|(answer, _)| *answer != "good") {
            let _ = write!(text, ", {count} × {answer}");
        }
        text
    }
}

fn after(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "NEVER".to_owned(), |seconds| format!("{seconds:.1} s"))
}

const HEAD: &str = "# Faults

Written by `bench/run fault-campaign`, which makes each fault that an operator can cause, waits until it is seen, takes it back, and waits until
`tollhouse status` and the alerts are quiet. Two gateways, both services, Redis and a real Prometheus; services over files first, then over PostgreSQL. Programs,
settings and rules are the shipped ones, except that Prometheus' copy of the rules counts an hour as a minute and a minute as a second.

Status names the party that must act and its next step; the log line of a process has its next step, and the runbook of each alert says what the
alert means and what to do.

Where customers got errors, `EdgeErrorBudgetBurnFast` must fire, and it and `EdgeErrorBudgetBurnSlow` must end before the fault counts as gone;
`EdgeErrorBudgetBurnTicket`, which lasts six hours, is not waited for (`promtool test rules config/alerts.test.yml` tests its times). The last column is what
customers got between fault and recovery; every fifth request makes an order.

| Fault | `tollhouse status` says | Log | Metric, and its dashboard | Alerts | Runbooks | Gone after | Customers |
|---|---|---|---|---|---|---|---|
";

pub(crate) fn write(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for row in rows {
        let alerts: Vec<String> = row.alerts.iter().map(|alert| format!("`{alert}`")).collect();
        let pages: Vec<String> = row.pages.iter().map(|page| link(page)).collect();
        let _ = writeln!(
            text,
            "| {} | after {}: {} | `{}` after {}: {} | after {}: `{}` ({}) | after {}: {} | {} | {} | {} |",
            row.fault,
            after(row.status),
            nameless(&row.words),
            row.process,
            after(row.log),
            nameless(&row.line),
            after(row.metric_after),
            row.metric.replace('|', "\\|"),
            row.board.as_deref().unwrap_or("on NO dashboard"),
            after(row.alerts_after),
            alerts.join(", "),
            pages.join(", "),
            after(row.gone_after),
            row.customers(),
        );
    }
    text
}

/// A link to a page of the repository, from docs/reference.
fn link(page: &str) -> String {
    let name = page.rsplit('/').next().unwrap_or_default().trim_end_matches(".md");
    format!("[{name}]({})", page.replacen("docs/", "../", 1))
}

/// Removes names, ports and directories, which differ in every run.
fn nameless(words: &str) -> String {
    let words: Vec<&str> = words
        .split(' ')
        .map(|word| {
            let bare = word.trim_matches(['(', ')', ':']);
            match bare.rsplit_once('/') {
                _ if bare.contains("/gw-") || bare.starts_with("127.0.0.1:") => "…",
                Some((directory, name)) if directory.starts_with('/') => name,
                _ => word,
            }
        })
        .collect();
    words.join(" ").replace("… …", "…")
}
