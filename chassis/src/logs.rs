//! Logs: JSON lines for machines or text for terminals, through a bounded writer that never blocks a request.
//!
//! If the output is not read, lines are dropped and counted ([`Logs::dropped`]); requests continue.

mod writer;

use std::io::Write;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use self::writer::{Queue, Writing};

contract::words! {
    /// The format of log lines.
    pub enum Format {
        /// One JSON object a line.
        Json = "json",
        /// For people at a terminal.
        Text = "text",
    }
}

/// Replaces the log filter.
type Refilter = Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send + Sync>;

/// The running log writer. Dropping it writes the pending lines.
pub struct Logs {
    queue: Queue,
    refilter: Option<Refilter>,
    _writing: Writing,
}

impl Logs {
    /// Starts writing to `output` and installs the writer as the process's log, for `tracing` and for crates that use
    /// `log`. `filter` is a list such as `info,pingora_core=warn`.
    ///
    /// # Errors
    /// If the filter does not parse, the process has a log already, or no thread can be started.
    pub fn start(format: Format, filter: &str, output: impl Write + Send + 'static) -> anyhow::Result<Self> {
        let filter = EnvFilter::try_new(filter)?;
        let mut logs = Self::writer_only(output)?;
        let queue = logs.queue.clone();
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || queue.clone());
        let (started, refilter): (_, Refilter) = match format {
            Format::Json => {
                let builder = builder.json().flatten_event(true).with_current_span(false).with_span_list(false);
                let builder = builder.with_filter_reloading();
                let handle = builder.reload_handle();
                (builder.try_init(), Box::new(move |filter| Ok(handle.reload(filter)?)))
            }
            Format::Text => {
                let builder = builder.with_target(false).with_ansi(false).with_filter_reloading();
                let handle = builder.reload_handle();
                (builder.try_init(), Box::new(move |filter| Ok(handle.reload(filter)?)))
            }
        };
        started.map_err(|error| anyhow::anyhow!("the log is already started: {error}"))?;
        logs.refilter = Some(refilter);
        Ok(logs)
    }

    /// A writer without a log, for a separate stream of lines (tests, access log to a file).
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn writer_only(output: impl Write + Send + 'static) -> anyhow::Result<Self> {
        let (queue, writing) = Queue::start(output).context("starting the thread that writes the log")?;
        Ok(Self { queue, refilter: None, _writing: writing })
    }

    /// A handle that writes whole lines without waiting.
    pub fn lines(&self) -> LogLines {
        LogLines(self.queue.clone())
    }

    /// Replaces the log filter. A writer without a log has none and does nothing.
    ///
    /// # Errors
    /// If the filter does not parse; the current one stays.
    pub fn filter(&self, filter: &str) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(filter)?;
        self.refilter.as_ref().map_or(Ok(()), |refilter| refilter(filter))
    }

    /// Number of lines dropped because the output was not read, or lost because they could not be written.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped()
    }
}

/// Writes finished lines to the log's output, never blocking.
#[derive(Clone)]
pub struct LogLines(Queue);

impl LogLines {
    /// Writes one line; `line` ends with a line feed.
    pub fn write(&self, line: &[u8]) {
        self.0.push(line);
    }
}
