//! What is looked at: `tollhouse status`, logs, Prometheus' answers, its alerts and their runbooks.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use contract::trouble::Trouble;
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
    repository: PathBuf,
    /// Titles of dashboards with their text.
    boards: Vec<(String, String)>,
}

/// An alert that fires.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Firing {
    name: String,
    /// Its page in the repository.
    runbook: String,
}

/// The seconds after which each symptom appeared.
#[derive(Default)]
struct Seen {
    status: Option<f64>,
    log: Option<f64>,
    metric: Option<f64>,
    alerts: Option<f64>,
}

impl Seen {
    fn is_complete(&self) -> bool {
        [self.status, self.log, self.metric, self.alerts].iter().all(Option::is_some)
    }
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
        let prometheus = format!("http://127.0.0.1:{}", fleet.ports.prometheus);
        Ok(Self { client, prometheus, repository: repository.to_owned(), boards })
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
            let firing: Vec<&str> = firing.iter().map(|alert| alert.name.as_str()).collect();
            anyhow::ensure!(began.elapsed() < PATIENCE, "still wrong: {trouble:?}; still firing: {firing:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Makes a fault, waits until it is seen everywhere, takes it back, and waits until it is gone everywhere.
    pub(crate) async fn carry_out(&self, fleet: &mut Fleet, traffic: &Traffic, fault: &Fault) -> anyhow::Result<Row> {
        traffic.take().await;
        let log = fleet.directory.join(format!("{}.log", fault.log.0));
        let logged_before = std::fs::metadata(&log)?.len();
        (fault.inject)(fleet)?;
        let began = Instant::now();
        let mut seen = Seen::default();
        let (mut words, mut line, mut runbooks) = (String::new(), String::new(), Vec::new());
        while began.elapsed() < PATIENCE && !seen.is_complete() {
            let now = || began.elapsed().as_secs_f64();
            if seen.status.is_none()
                && let Some(found) = trouble(fleet)?.into_iter().find(|found| found.problem.contains(fault.status))
            {
                seen.status = Some(now());
                words = with_next_step(&found)?;
            }
            if seen.log.is_none()
                && let Some(found) = logged(&log, logged_before, fault.log.1)?
            {
                seen.log = Some(now());
                line = found;
            }
            if seen.metric.is_none() && !self.ask(fault.metric).await?.is_empty() {
                seen.metric = Some(now());
            }
            if seen.alerts.is_none() {
                let mut firing = self.firing().await?;
                firing.retain(|alert| fault.alerts.contains(&alert.name.as_str()));
                seen.alerts = (firing.len() == fault.alerts.len()).then(now);
                runbooks = firing;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let answers = traffic.take().await;
        (fault.recover)(fleet)?;
        let gone = self.quiet(fleet).await.inspect_err(|error| eprintln!("  {error:#}")).ok();
        let boards = self.boards.iter().filter(|(_, text)| text.contains(fault.shown));
        let mut pages = runbooks.iter().map(|alert| self.runbook(alert)).collect::<anyhow::Result<Vec<_>>>()?;
        pages.dedup();
        Ok(Row {
            fault: fault.name,
            status: seen.status,
            words,
            process: fault.log.0,
            log: seen.log,
            line,
            pages,
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

    /// The page of an alert, which must name the alert, its cause and the next step.
    fn runbook(&self, alert: &Firing) -> anyhow::Result<String> {
        let (name, page) = (&alert.name, &alert.runbook);
        let text = std::fs::read_to_string(self.repository.join(page)).with_context(|| format!("{name}: {page}"))?;
        let title = text.lines().next().unwrap_or_default();
        for part in ["\n- **Means.** ", "\n- **Do.** "] {
            anyhow::ensure!(title.contains(name) && text.contains(part), "{page} is not complete for {name}: {part}");
        }
        Ok(page.clone())
    }

    async fn firing(&self) -> anyhow::Result<Vec<Firing>> {
        let url = format!("{}/api/v1/alerts", self.prometheus);
        let answer: Value = self.client.get(url).send().await?.json().await?;
        let alerts = answer.pointer("/data/alerts").and_then(Value::as_array).with_context(|| format!("{answer}"))?;
        let firing = alerts.iter().filter(|alert| alert.get("state").is_some_and(|state| state == "firing"));
        let text = |alert: &Value, place: &str| alert.pointer(place).and_then(Value::as_str).unwrap_or("?").to_owned();
        let mut all: Vec<Firing> = firing
            .map(|alert| Firing {
                name: text(alert, "/labels/alertname"),
                runbook: text(alert, "/annotations/runbook_url"),
            })
            .filter(|alert| alert.name != LASTS)
            .collect();
        all.sort();
        all.dedup();
        Ok(all)
    }
}

/// What `tollhouse status` says is wrong.
fn trouble(fleet: &Fleet) -> anyhow::Result<Vec<Trouble>> {
    let status = fleet.tollhouse(&["status"])?;
    let list = status.get("trouble").context("status has no trouble")?;
    Ok(serde_json::from_value(list.clone())?)
}

/// A problem with the party that must act and its next step.
fn with_next_step(trouble: &Trouble) -> anyhow::Result<String> {
    let Trouble { problem, who_must_act, what_to_do } = trouble;
    let is_a_step = what_to_do.split(' ').count() > 2 && !what_to_do.starts_with("Nothing to do");
    anyhow::ensure!(is_a_step, "status names no next step: {trouble:?}");
    Ok(format!("{problem}. To do ({}): {what_to_do}", who_must_act.as_str()))
}

/// The first warning or error with all of these texts behind this place in a log: its message and next step.
fn logged(log: &Path, begin: u64, texts: [&str; 2]) -> anyhow::Result<Option<String>> {
    let mut file = std::fs::File::open(log)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter(|line| texts.iter().all(|text| line.contains(text)));
    let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let field = |line: &Value, name: &str| line.get(name).and_then(Value::as_str).map(str::to_owned);
    let is_loud = |line: &Value| field(line, "level").is_some_and(|level| level == "WARN" || level == "ERROR");
    Ok(lines.find(is_loud).map(|line| {
        let message = field(&line, "message").unwrap_or_default();
        let step = field(&line, "what_to_do").or_else(|| field(&line, "remedy"));
        step.map_or_else(|| message.clone(), |step| format!("{message}. To do: {step}"))
    }))
}
