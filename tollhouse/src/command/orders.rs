//! `tollhouse orders`: files of orders in and out, in constant memory, with progress.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use contract::project::ProjectId;
use futures_util::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Body, Method};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use crate::arguments::{Common, Orders};
use crate::client::Client;
use crate::output::{answer, word};

pub(super) async fn run(common: &Common, client: &Client, action: Orders) -> anyhow::Result<()> {
    match action {
        Orders::Import { file, project } => import(common, client, &file, &project).await,
        Orders::Export { file, project } => export(common, client, &file, &project).await,
    }
}

async fn import(common: &Common, client: &Client, file: &Path, project: &ProjectId) -> anyhow::Result<()> {
    // A project that is not there has no identity, and its name may be another's tomorrow.
    let path = format!("/internal/orders/{}/import", client.identity_of(project.as_str()).await?);
    let opened = tokio::fs::File::open(file).await.with_context(|| format!("opening {}", file.display()))?;
    let size = opened.metadata().await?.len();
    let bar = progress(common, Some(size), "importing");
    let seen = bar.clone();
    let stream = ReaderStream::with_capacity(opened, 64 * 1024).inspect(move |chunk| {
        if let Ok(chunk) = chunk {
            seen.inc(u64::try_from(chunk.len()).unwrap_or(0));
        }
    });
    let outcome = client.orders(Method::POST, &path, Body::wrap_stream(stream)).await;
    bar.finish_and_clear();
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
    // Under another name until it is complete: a broken export never looks like a whole one.
    let unfinished = file.with_extension("unfinished");
    let mut out =
        tokio::fs::File::create(&unfinished).await.with_context(|| format!("making {}", unfinished.display()))?;
    let bar = progress(common, None, "exporting");
    let mut lines = 0_usize;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.context("the export broke off; nothing was written")?;
        lines += chunk.split(|byte| *byte == b'\n').count() - 1;
        bar.inc(u64::try_from(chunk.len()).unwrap_or(0));
        out.write_all(&chunk).await?;
    }
    out.sync_all().await?;
    tokio::fs::rename(&unfinished, file).await.with_context(|| format!("writing {}", file.display()))?;
    bar.finish_and_clear();
    let exported = serde_json::json!({ "exported": lines, "file": file.display().to_string() });
    answer(common, &exported, |_| format!("{lines} orders of {project} exported to {}", file.display()));
    Ok(())
}

/// A bar on the terminal's error stream; nothing where there is no terminal or a program reads.
fn progress(common: &Common, total: Option<u64>, verb: &'static str) -> ProgressBar {
    if common.json {
        return ProgressBar::hidden();
    }
    let (bar, form) = match total {
        Some(total) => (ProgressBar::new(total), "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
        None => (ProgressBar::new_spinner(), "{msg} {bytes} {bytes_per_sec}"),
    };
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.with_message(verb)
}
