//! The process metrics of every Prometheus client, read from `/proc` at each scrape. Only on Linux.
//!
//! The prometheus crate reads them with procfs, at 3 % of the build time (docs/develop/decisions/structure.md).

use std::sync::Mutex;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The figures of this process.
pub(super) struct ProcessFigures {
    /// The counter increases by the difference: one reader at a time.
    cpu_seconds: Mutex<Counter>,
    open_files: IntGauge,
    open_files_max: IntGauge,
    virtual_bytes: IntGauge,
    resident_bytes: IntGauge,
    started_at: Gauge,
    threads: IntGauge,
}

/// The fields of `/proc/self/stat` (proc(5)), in its units.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: i64,
    started_ticks: u64,
    virtual_bytes: i64,
    resident_pages: i64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field, the program's name in parentheses, may hold anything; the third is number 0 here.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number)?.parse::<i64>().ok();
        Some(Self {
            cpu_ticks: field(11)?.unsigned_abs() + field(12)?.unsigned_abs(),
            threads: field(17)?,
            started_ticks: field(19)?.unsigned_abs(),
            virtual_bytes: field(20)?,
            resident_pages: field(21)?,
        })
    }
}

/// When the system booted, in Unix seconds: the line `btime` of `/proc/stat`.
fn booted_at(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[expect(clippy::cast_precision_loss, reason = "ticks since the system was started stay below 2^52")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

impl ProcessFigures {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            cpu_seconds: Mutex::new(Counter::new("process_cpu_seconds_total", "Processor time, user and system.")?),
            open_files: IntGauge::new("process_open_fds", "Open file descriptors.")?,
            open_files_max: IntGauge::new("process_max_fds", "The limit of open file descriptors.")?,
            virtual_bytes: IntGauge::new("process_virtual_memory_bytes", "Virtual memory.")?,
            resident_bytes: IntGauge::new("process_resident_memory_bytes", "Resident memory.")?,
            started_at: Gauge::new("process_start_time_seconds", "When the process was started, in Unix seconds.")?,
            threads: IntGauge::new("process_threads", "Threads.")?,
        })
    }

    fn read(&self) -> Option<()> {
        let stat = Stat::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)?;
        let cpu = self.cpu_seconds.lock().ok()?;
        cpu.inc_by((seconds(stat.cpu_ticks) - cpu.get()).max(0.0));
        self.threads.set(stat.threads);
        self.virtual_bytes.set(stat.virtual_bytes);
        self.resident_bytes.set(stat.resident_pages.saturating_mul(i64::try_from(page_size()).ok()?));
        let booted_at = booted_at(&std::fs::read_to_string("/proc/stat").ok()?)?;
        self.started_at.set(f64::from(u32::try_from(booted_at).ok()?) + seconds(stat.started_ticks));
        self.open_files.set(i64::try_from(std::fs::read_dir("/proc/self/fd").ok()?.count()).ok()?);
        self.open_files_max
            .set(i64::try_from(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)).unwrap_or(i64::MAX));
        Some(())
    }

    fn gauges(&self) -> [&dyn Collector; 6] {
        [
            &self.open_files,
            &self.open_files_max,
            &self.virtual_bytes,
            &self.resident_bytes,
            &self.started_at,
            &self.threads,
        ]
    }
}

impl Collector for ProcessFigures {
    fn desc(&self) -> Vec<&Desc> {
        // Descriptions are read once, at registration; the counter's is behind its lock, and names are unique anyway.
        self.gauges().iter().flat_map(|gauge| gauge.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if self.read().is_none() {
            return Vec::new();
        }
        let mut families: Vec<MetricFamily> = self.gauges().iter().flat_map(|gauge| gauge.collect()).collect();
        if let Ok(cpu) = self.cpu_seconds.lock() {
            families.extend(cpu.collect());
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_moves_no_field() {
        let text =
            "42 (a) b) (c) S 1 42 42 0 -1 4194560 5130 0 0 0 70 30 0 0 20 0 7 0 360 1048576 250 18446744073709551615 1";
        let stat =
            Stat { cpu_ticks: 100, threads: 7, started_ticks: 360, virtual_bytes: 1_048_576, resident_pages: 250 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("42 (cut) S 1 42"), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the system's own clock is what the figure is compared with")]
    fn all_seven_figures_are_of_this_process() {
        let figures = ProcessFigures::new().unwrap();
        let value = |name: &str| {
            let families = figures.collect();
            let family = families.iter().find(|family| family.name() == name).unwrap_or_else(|| panic!("no {name}"));
            let metric = family.get_metric().first().unwrap().clone();
            if name.ends_with("_total") { metric.get_counter().get_value() } else { metric.get_gauge().get_value() }
        };
        let before = value("process_open_fds");
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(value("process_open_fds") > 0.0 && before > 0.0);
        drop(file);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_resident_memory_bytes") > 1e6, "a test program has more than a megabyte");
        assert!(value("process_threads") >= 1.0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..3_600.0).contains(&age), "started {age} s ago");
        // Computing uses processor time, and the counter follows it.
        let spent = value("process_cpu_seconds_total");
        let mut numbers = 0_u64;
        while value("process_cpu_seconds_total") <= spent {
            numbers = std::hint::black_box(numbers.wrapping_add(1));
        }
    }
}
