//! What is looked at: `tollhouse status`, Prometheus' answers, its alerts.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

use crate::faults::Fault;
use crate::fleet::Fleet;
use crate::table::Row;
use crate::traffic::Traffic;

/// How long a fault may take to be seen, or to be gone: status forgets trouble of a database after a minute.
const PATIENCE: Duration = Duration::from_secs(150);

/// What this one tells lasts: for six hours after the last error it says how much of the budget is gone. Those that
/// wake somebody over the same budget look at minutes as well, and must end.
const LASTS: &str = "EdgeErrorBudgetBurnTicket";

const PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Watch {
    client: reqwest::Client,
    prometheus: String,
    /// Titles of dashboards with their text.
    boards: Vec<(String, String)>,
}

/// What is seen at one moment.
#[derive(Default)]
struct Seen {
    status: Option<f64>,
    metric: Option<f64>,
    alerts: Option<f64>,
}

impl Watch {
    pub(crate) fn new(fleet: &Fleet, repository: &Path) -> anyhow::Result<Self> {
        let mut boards = Vec::new();
        for entry in std::fs::read_dir(repository.join("config/grafana/dashboards"))? {
            let text = std::fs::read_to_string(entry?.path())?;
            let board: Value = serde_json::from_str(&text)?;
            boards.push((board.get("title").and_then(Value::as_str).unwrap_or("?").to_owned(), text));
        }
        boards.sort();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
        Ok(Self { client, prometheus: format!("http://127.0.0.1:{}", fleet.ports.prometheus), boards })
    }

    /// Waits until nothing is wrong and no alert fires.
    pub(crate) async fn quiet(&self, fleet: &Fleet) -> anyhow::Result<f64> {
        let began = Instant::now();
        loop {
            let trouble = trouble(fleet)?;
            let firing = self.firing().await?;
            if trouble.is_empty() && firing.is_empty() {
                return Ok(began.elapsed().as_secs_f64());
            }
            anyhow::ensure!(began.elapsed() < PATIENCE, "still wrong: {trouble:?}; still firing: {firing:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Makes a fault, waits until it is seen everywhere, takes it back, and waits until it is gone everywhere.
    pub(crate) async fn carry_out(&self, fleet: &mut Fleet, traffic: &Traffic, fault: &Fault) -> anyhow::Result<Row> {
        traffic.take().await;
        (fault.inject)(fleet)?;
        let began = Instant::now();
        let mut seen = Seen::default();
        let mut words = String::new();
        while began.elapsed() < PATIENCE && !(seen.status.is_some() && seen.metric.is_some() && seen.alerts.is_some()) {
            let now = || began.elapsed().as_secs_f64();
            if seen.status.is_none()
                && let Some(found) = trouble(fleet)?.into_iter().find(|trouble| trouble.contains(fault.status))
            {
                seen.status = Some(now());
                words = found;
            }
            if seen.metric.is_none() && !self.ask(fault.metric).await?.is_empty() {
                seen.metric = Some(now());
            }
            if seen.alerts.is_none() {
                let firing = self.firing().await?;
                seen.alerts = fault.alerts.iter().all(|alert| firing.iter().any(|one| one == alert)).then(now);
            }
            tokio::time::sleep(PAUSE).await;
        }
        let answers = traffic.take().await;
        (fault.recover)(fleet)?;
        let gone = self.quiet(fleet).await.inspect_err(|error| eprintln!("  {error:#}")).ok();
        let boards = self.boards.iter().filter(|(_, text)| text.contains(fault.shown));
        Ok(Row {
            fault: fault.name,
            status: seen.status,
            words,
            metric: fault.metric,
            board: boards.map(|(title, _)| title.as_str()).next().map(str::to_owned),
            metric_after: seen.metric,
            alerts: fault.alerts,
            alerts_after: seen.alerts,
            gone_after: gone,
            answers,
        })
    }

    async fn ask(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let url = format!("{}/api/v1/query?query={}", self.prometheus, chassis::percent::segment(query));
        let answer: Value = self.client.get(url).send().await?.json().await?;
        let result = answer.pointer("/data/result").and_then(Value::as_array);
        result.cloned().with_context(|| format!("{query}: {answer}"))
    }

    async fn firing(&self) -> anyhow::Result<Vec<String>> {
        let url = format!("{}/api/v1/alerts", self.prometheus);
        let answer: Value = self.client.get(url).send().await?.json().await?;
        let alerts = answer.pointer("/data/alerts").and_then(Value::as_array).with_context(|| format!("{answer}"))?;
        let firing = alerts.iter().filter(|alert| alert.get("state").is_some_and(|state| state == "firing"));
        let mut names: Vec<String> = firing
            .filter_map(|alert| alert.pointer("/labels/alertname").and_then(Value::as_str))
            .filter(|name| *name != LASTS)
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }
}

/// What `tollhouse status` says is wrong.
fn trouble(fleet: &Fleet) -> anyhow::Result<Vec<String>> {
    let status = fleet.tollhouse(&["status"])?;
    let list = status.get("trouble").and_then(Value::as_array).context("status has no trouble")?;
    Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
