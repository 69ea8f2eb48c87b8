//! Metrics, registered where they are counted, on a registry passed as an argument.

mod disk;
mod process;

pub use disk::free_disk;
pub use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use prometheus::{HistogramOpts, Opts, TextEncoder};

/// Seconds: from half a millisecond, the proxy's own cost, to ten seconds.
pub const LATENCY_BUCKETS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A registry with the process's own figures (`process_*`) and `build_info{version}`.
pub fn registry(version: &str) -> anyhow::Result<Registry> {
    let registry = Registry::new();
    registry.register(Box::new(process::ProcessFigures::new()?))?;
    gauge_vec(&registry, "build_info", "Always 1; the label is the running version.", &["version"])?
        .with_label_values(&[version])
        .set(1);
    Ok(registry)
}

/// A counter without labels.
///
/// # Errors
/// If the name is taken or malformed: a programming mistake, found at start.
pub fn counter(registry: &Registry, name: &str, help: &str) -> anyhow::Result<IntCounter> {
    let metric = IntCounter::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// A counter with labels, whose values must come from enums.
pub fn counter_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> anyhow::Result<IntCounterVec> {
    let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// A gauge without labels.
pub fn gauge(registry: &Registry, name: &str, help: &str) -> anyhow::Result<IntGauge> {
    let metric = IntGauge::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// A gauge of fractions, for seconds and ratios.
pub fn fraction_gauge(registry: &Registry, name: &str, help: &str) -> anyhow::Result<Gauge> {
    let metric = Gauge::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// A gauge of fractions with labels, whose values must come from enums.
pub fn fraction_gauge_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> anyhow::Result<GaugeVec> {
    let metric = GaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// A gauge with labels, whose values must come from enums.
pub fn gauge_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> anyhow::Result<IntGaugeVec> {
    let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// A histogram of seconds over [`LATENCY_BUCKETS`].
pub fn latency_vec(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> anyhow::Result<HistogramVec> {
    let metric = HistogramVec::new(HistogramOpts::new(name, help).buckets(LATENCY_BUCKETS.to_vec()), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Everything in the registry in Prometheus' text format.
///
/// # Errors
/// If a metric cannot be encoded, which the types of this module exclude.
pub fn render(registry: &Registry) -> anyhow::Result<String> {
    Ok(TextEncoder::new().encode_to_string(&registry.gather())?)
}
