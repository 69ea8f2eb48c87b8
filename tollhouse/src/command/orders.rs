//! `tollhouse orders`: imports and exports files of orders in constant memory, with a progress line.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Subcommand;
use contract::project::ProjectId;
use futures_util::StreamExt as _;
use reqwest::{Body, Method};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, is_watched, overwrite, word};

/// `tollhouse orders`.
#[derive(Debug, Subcommand)]
pub enum Orders {
    /// Import orders from a JSON-lines file, all or none.
    Import {
        /// One order per line: id, petId, quantity, shipDate, complete, and optionally status.
        file: PathBuf,
        /// The project.
        #[arg(long, default_value = "demo-free")]
        project: ProjectId,
    },
    /// Export orders to a JSON-lines file; `-` prints them.
    Export {
        /// The file.
        file: PathBuf,
        /// The project.
        #[arg(long, default_value = "demo-free")]
        project: ProjectId,
    },
}

pub(super) async fn run(common: &Common, client: &Client, action: Orders) -> anyhow::Result<()> {
    match action {
        Orders::Import { file, project } => import(common, client, &file, &project).await,
        Orders::Export { file, project } => export(common, client, &file, &project).await,
    }
}

async fn import(common: &Common, client: &Client, file: &Path, project: &ProjectId) -> anyhow::Result<()> {
    // Orders belong to the project's identity: its name can belong to another project later.
    let path = format!("/internal/orders/{}/import", client.identity_of(project.as_str()).await?);
    let opened = tokio::fs::File::open(file).await.with_context(|| format!("opening {}", file.display()))?;
    let size = opened.metadata().await?.len();
    let mut progress = Progress::new(common, Some(size), "importing");
    let stream = ReaderStream::with_capacity(opened, 64 * 1024).inspect(move |chunk| {
        if let Ok(chunk) = chunk {
            progress.add(chunk.len());
        }
    });
    let outcome = client.orders(Method::POST, &path, Body::wrap_stream(stream)).await;
    let imported: Value = outcome.with_context(|| format!("importing {}", file.display()))?.json().await?;
    answer(common, &imported, |imported| {
        format!("{} orders imported into {project}", word(imported.get("imported").unwrap_or(&Value::Null)))
    });
    Ok(())
}

async fn export(common: &Common, client: &Client, file: &Path, project: &ProjectId) -> anyhow::Result<()> {
    let path = format!("/internal/orders/{}/export", client.identity_of(project.as_str()).await?);
    let response = client.orders(Method::GET, &path, Body::default()).await?;
    let mut chunks = response.bytes_stream();
    if file == Path::new("-") {
        let mut out = std::io::stdout().lock();
        while let Some(chunk) = chunks.next().await {
            out.write_all(&chunk?)?;
        }
        return Ok(out.flush()?);
    }
    // Under another name until it is complete, so that a broken export never looks complete.
    let unfinished = file.with_extension("unfinished");
    let mut out =
        tokio::fs::File::create(&unfinished).await.with_context(|| format!("making {}", unfinished.display()))?;
    let mut progress = Progress::new(common, None, "exporting");
    let mut lines = 0_usize;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.context("the export was interrupted; the file was not written")?;
        lines += chunk.split(|byte| *byte == b'\n').count() - 1;
        progress.add(chunk.len());
        out.write_all(&chunk).await?;
    }
    out.sync_all().await?;
    tokio::fs::rename(&unfinished, file).await.with_context(|| format!("writing {}", file.display()))?;
    drop(progress);
    let exported = serde_json::json!({ "exported": lines, "file": file.display().to_string() });
    answer(common, &exported, |_| format!("{lines} orders of {project} exported to {}", file.display()));
    Ok(())
}

/// The progress of a transfer, twice a second on the error stream of a terminal; silent without a terminal or if a
/// program reads the output. Dropping this removes the line.
struct Progress {
    verb: &'static str,
    total: Option<u64>,
    done: u64,
    said: Option<Instant>,
}

impl Progress {
    const PAUSE: Duration = Duration::from_millis(500);

    fn new(common: &Common, total: Option<u64>, verb: &'static str) -> Self {
        let is_watched = !common.json && is_watched();
        Self { verb, total, done: 0, said: is_watched.then(Instant::now) }
    }

    fn add(&mut self, bytes: usize) {
        self.done += u64::try_from(bytes).unwrap_or(0);
        let Some(said) = self.said.as_mut().filter(|said| said.elapsed() >= Self::PAUSE) else { return };
        *said = Instant::now();
        let tenths = |bytes: u64| format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000);
        let total = self.total.map_or_else(String::new, |total| format!(" of {}", tenths(total)));
        overwrite(&format!("{} {}{total}", self.verb, tenths(self.done)));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.said.is_some() {
            overwrite("");
        }
    }
}
