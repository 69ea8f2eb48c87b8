//! The faults, and their expected symptoms.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chassis::clock::{Clock as _, SystemClock};
use chassis::secret::write_private;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use time::OffsetDateTime;

use crate::clock;
use crate::fleet::Fleet;

/// One fault.
pub(crate) struct Fault {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// Causes the fault.
    pub(crate) inject: fn(&mut Fleet) -> anyhow::Result<()>,
    /// Ends the fault.
    pub(crate) recover: fn(&mut Fleet) -> anyhow::Result<()>,
    /// Part of a problem under `trouble` in `tollhouse status`.
    pub(crate) status: &'static str,
    /// A process, and parts of a warning or an error in its log: object or cause, and the next step.
    pub(crate) log: (&'static str, [&'static str; 2]),
    /// A Prometheus query with a result during the fault.
    pub(crate) metric: &'static str,
    /// The metric in it; a dashboard shows it.
    pub(crate) shown: &'static str,
    /// The alerts that must fire.
    pub(crate) alerts: &'static [&'static str],
}

/// The text of a log line about an upstream.
const SILENT_ADDRESS: &str = "an address of an upstream does not respond";

/// The next step of a full disk.
const FREE_SPACE: &str = "free space on the disk of the database";

/// How far the wrong clock is behind.
const CLOCK_BEHIND_SECONDS: i64 = 120;

/// Longest start of a process.
const START_MAX: Duration = Duration::from_mins(1);

/// Kills a process and starts it with these variables.
fn restart(fleet: &mut Fleet, name: &'static str, variables: Vec<(&'static str, String)>) -> anyhow::Result<()> {
    fleet.kill(name)?;
    fleet.changes.entry(name).or_default().variables = variables;
    fleet.begin(name)
}

/// The settings of the second gateway while they are not the shipped ones.
fn settings(fleet: &Fleet) -> PathBuf {
    fleet.directory.join("gateway.toml")
}

/// Starts the second gateway with a copy of the shipped settings, and then adds a mistake to them.
fn break_settings(fleet: &mut Fleet) -> anyhow::Result<()> {
    let file = settings(fleet);
    std::fs::copy(fleet.repository.join("config/gateway.toml"), &file)?;
    fleet.changes.entry("gateway-2").or_default().settings = Some(file.clone());
    restart(fleet, "gateway-2", Vec::new())?;
    let began = Instant::now();
    // A gateway that listens has read its settings.
    while TcpStream::connect(("127.0.0.1", fleet.ports.admin[1])).is_err() {
        anyhow::ensure!(began.elapsed() < START_MAX, "gateway-2 does not start");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    Ok(std::fs::File::options().append(true).open(file)?.write_all(b"\nunknown_setting = 1\n")?)
}

/// Starts the second gateway with a certificate of the platform that has five of its hundred days left.
fn let_certificate_end(fleet: &mut Fleet) -> anyhow::Result<()> {
    let directory = fleet.directory.join("ca");
    let read = |name: &str| std::fs::read_to_string(directory.join(name));
    let issuer = domains_service::signing(&read("ca.pem")?, KeyPair::from_pem(&read("ca.key")?)?)?;
    let names = ["*.tollhouse.localhost", "tollhouse.localhost"].map(str::to_owned);
    let (mut params, key) = (CertificateParams::new(names)?, KeyPair::generate()?);
    let now = OffsetDateTime::from_unix_timestamp(SystemClock::new().now_seconds().0)?;
    (params.not_before, params.not_after) = (now - time::Duration::days(95), now + time::Duration::days(5));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let [chain_file, key_file] = ["ending.pem", "ending.key"].map(|name| directory.join(name));
    std::fs::write(&chain_file, params.signed_by(&key, &issuer)?.pem())?;
    write_private(&key_file, key.serialize_pem().as_bytes())?;
    let variables = [
        ("TOLLHOUSE_GATEWAY_TLS_PLATFORM_CERTIFICATE_FILE", chain_file.display().to_string()),
        ("TOLLHOUSE_GATEWAY_TLS_PLATFORM_KEY_FILE", key_file.display().to_string()),
    ];
    restart(fleet, "gateway-2", variables.into())
}

/// A hanging Redis has the same symptoms.
const REDIS_IS_KILLED: Fault = Fault {
    name: "Redis is killed",
    inject: |fleet| fleet.kill("redis"),
    recover: |fleet| fleet.begin("redis"),
    status: "counts without the quota store (share)",
    log: ("gateway-1", ["lost the quota store", "start the quota store"]),
    metric: "edge_quota_mode{mode=\"share\"} == 1",
    shown: "edge_quota_mode",
    alerts: &["EdgeQuotaDegraded", "EdgeQuotaDegradedLong"],
};

/// A hanging domains-service has the same symptoms.
const DOMAINS_SERVICE_IS_KILLED: Fault = Fault {
    name: "The domains-service is killed",
    inject: |fleet| fleet.kill("domains-service"),
    recover: |fleet| fleet.begin("domains-service"),
    status: "the domains-service does not answer",
    log: ("gateway-1", ["lost the change stream", "start the domains-service"]),
    metric: "time() - edge_feed_received_timestamp_seconds > 5",
    shown: "edge_feed_received_timestamp_seconds",
    alerts: &["ServiceDown", "EdgeFeedStale"],
};

/// The faults of a platform with SQLite files, in this order.
pub(crate) const OVER_FILES: &[Fault] = &[
    REDIS_IS_KILLED,
    Fault {
        name: "Redis hangs (SIGSTOP)",
        inject: |fleet| fleet.signal("redis", "-STOP"),
        recover: |fleet| fleet.signal("redis", "-CONT"),
        ..REDIS_IS_KILLED
    },
    Fault {
        name: "Redis is full",
        inject: |fleet| {
            fleet.redis(&["EVAL", "return redis.call('SET', 'ballast', string.rep('x', 3000000))", "0"])?;
            fleet.redis(&["CONFIG", "SET", "maxmemory", "1mb"])
        },
        recover: |fleet| {
            fleet.redis(&["CONFIG", "SET", "maxmemory", "0"])?;
            fleet.redis(&["DEL", "ballast"])
        },
        status: "gets errors from the quota store",
        log: ("gateway-1", ["the quota store is full", "raise maxmemory of Redis"]),
        metric: "sum(rate(edge_quota_store_calls_total{result=\"out_of_memory\"}[5s])) > 0",
        shown: "edge_quota_store_calls_total",
        alerts: &["EdgeQuotaStoreFailing"],
    },
    DOMAINS_SERVICE_IS_KILLED,
    Fault {
        name: "The orders-service is killed",
        inject: |fleet| fleet.kill("orders-service"),
        recover: |fleet| fleet.begin("orders-service"),
        status: "the orders-service does not answer",
        log: ("gateway-1", [SILENT_ADDRESS, "start the service at this address"]),
        metric: "sum(rate(edge_upstream_requests_total{outcome=\"connect_error\"}[5s])) > 0",
        shown: "edge_upstream_requests_total",
        alerts: &["ServiceDown", "EdgeUpstreamFailing", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "One of two gateways is killed",
        inject: |fleet| fleet.kill("gateway-1"),
        recover: |fleet| fleet.begin("gateway-1"),
        status: "does not answer",
        log: ("domains-service", ["a gateway process fell silent", "start it, or repair the network"]),
        metric: "up{job=\"gateway\"} == 0",
        shown: "up{job=",
        alerts: &["EdgeDown"],
    },
    Fault {
        name: "The disk of the orders is full",
        inject: |fleet| fleet.fill("orders"),
        recover: |fleet| fleet.clear("orders"),
        status: "the database of the orders-service failed",
        log: ("orders-service", ["the database failed", FREE_SPACE]),
        metric: "sum(increase(orders_store_errors_total{kind=\"full\"}[5s])) > 0",
        shown: "orders_store_errors_total",
        alerts: &["OrdersStoreErrors", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "The disk of the domains is full",
        inject: |fleet| fleet.fill("domains"),
        recover: |fleet| fleet.clear("domains"),
        status: "the database of the domains-service failed",
        log: ("domains-service", ["database operation failed", FREE_SPACE]),
        metric: "sum(increase(domains_http_requests_total{status_class=\"5xx\"}[5s])) > 0",
        shown: "domains_http_requests_total",
        alerts: &["DomainsErrors"],
    },
    Fault {
        name: "The disk of one gateway is full",
        inject: |fleet| {
            fleet.fill("gateway-2")?;
            // Updates of existing rows fit into the file; new rows do not.
            fleet.attach(25)
        },
        recover: |fleet| fleet.clear("gateway-2"),
        status: "serves its previous replica",
        log: ("gateway-2", ["lost the change stream", "check the disk of data_directory"]),
        metric: "min(edge_replica_revision) < scalar(max(domains_revision offset 3s))",
        shown: "edge_replica_revision",
        alerts: &["EdgeReplicaLagging"],
    },
    Fault {
        name: "The domains-service hangs (SIGSTOP)",
        inject: |fleet| fleet.signal("domains-service", "-STOP"),
        recover: |fleet| fleet.signal("domains-service", "-CONT"),
        ..DOMAINS_SERVICE_IS_KILLED
    },
    Fault {
        name: "The orders-service hangs (SIGSTOP)",
        inject: |fleet| fleet.signal("orders-service", "-STOP"),
        recover: |fleet| fleet.signal("orders-service", "-CONT"),
        status: "it accepts connections but does not respond",
        log: ("gateway-1", [SILENT_ADDRESS, "start the service at this address"]),
        metric: "sum(rate(edge_upstream_requests_total{outcome=\"timeout\"}[5s])) > 0",
        shown: "edge_upstream_requests_total",
        alerts: &["ServiceDown", "EdgeUpstreamFailing", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "The control plane has another database: gateways refuse it",
        inject: |fleet| {
            let another = fleet.directory.join("another.sqlite").display().to_string();
            restart(fleet, "domains-service", vec![("TOLLHOUSE_DOMAINS_DATABASE", another)])
        },
        recover: |fleet| restart(fleet, "domains-service", Vec::new()),
        status: "the database went back to an earlier state, or it is another one",
        log: ("gateway-1", ["refused; keeping the last good state", "put the right database back"]),
        metric: "sum(increase(edge_replica_refused_total{reason=\"history\"}[5s])) > 0",
        shown: "edge_replica_refused_total",
        alerts: &["EdgeReplicaRefused", "DomainsWentBack"],
    },
    Fault {
        name: "A gateway's replica is damaged when it starts",
        inject: |fleet| {
            fleet.kill("gateway-1")?;
            std::fs::write(fleet.directory.join("gateway-1/replica.redb"), [0xaa_u8; 4096])?;
            fleet.begin("gateway-1")
        },
        recover: |fleet| Ok(std::fs::remove_file(fleet.directory.join("gateway-1/replica.redb.damaged"))?),
        status: "found a damaged file in its data directory",
        log: ("gateway-1", ["renamed a damaged file", "Check the disk, then remove the renamed file"]),
        metric: "max(edge_damaged_file) == 1",
        shown: "edge_damaged_file",
        alerts: &["EdgeFileDamaged"],
    },
    Fault {
        name: "A gateway does not reach the control plane",
        inject: |fleet| {
            let silent = format!("http://127.0.0.1:{}", fleet.port()?);
            restart(fleet, "gateway-2", vec![("TOLLHOUSE_GATEWAY_FEED_URL", silent)])
        },
        recover: |fleet| restart(fleet, "gateway-2", Vec::new()),
        status: "has received nothing from the control plane since its start",
        log: ("gateway-2", ["lost the change stream", "correct feed.url"]),
        metric: "time() - edge_feed_received_timestamp_seconds > 5",
        shown: "edge_feed_received_timestamp_seconds",
        alerts: &["EdgeFeedStale", "EdgeReplicaLagging"],
    },
    Fault {
        name: "A gateway's clock is two minutes behind",
        inject: |fleet| {
            let clock = clock::of_program(&fleet.directory.join("clock"), -CLOCK_BEHIND_SECONDS);
            restart(fleet, "gateway-2", clock.into())
        },
        recover: |fleet| restart(fleet, "gateway-2", Vec::new()),
        status: "the clock of gateway gateway-2",
        log: ("gateway-2", ["a clock differs from the fleet's time", "start NTP"]),
        metric: "max(abs(edge_clock_off_seconds)) > 60",
        shown: "edge_clock_off_seconds",
        alerts: &["EdgeClockOff"],
    },
    Fault {
        name: "A gateway's changed settings have a mistake",
        inject: break_settings,
        recover: |fleet| {
            std::fs::copy(fleet.repository.join("config/gateway.toml"), settings(fleet))?;
            Ok(())
        },
        status: "refuses its changed settings",
        log: ("gateway-2", ["unknown_setting", "correct the file"]),
        metric: "min(edge_config_last_reload_successful) == 0",
        shown: "edge_config_last_reload_successful",
        alerts: &["EdgeConfigReloadFailed"],
    },
    Fault {
        name: "A certificate was not renewed",
        inject: let_certificate_end,
        recover: |fleet| restart(fleet, "gateway-2", Vec::new()),
        status: "has 5 % of its lifetime left",
        log: ("gateway-2", ["a certificate should have been renewed", "replace the files of tls"]),
        metric: "min(edge_certificate_lifetime_left_ratio{kind=\"platform\"}) < 0.1",
        shown: "edge_certificate_lifetime_left_ratio",
        alerts: &["EdgeCertificateLifetimeLow", "EdgeCertificateEnding"],
    },
    Fault {
        name: "The platform's new certificate does not belong to its key",
        inject: |fleet| {
            let directory = fleet.directory.join("ca");
            std::fs::rename(directory.join("platform.pem"), directory.join("kept.pem"))?;
            std::fs::copy(directory.join("ca.pem"), directory.join("platform.pem"))?;
            Ok(())
        },
        recover: |fleet| {
            let directory = fleet.directory.join("ca");
            Ok(std::fs::rename(directory.join("kept.pem"), directory.join("platform.pem"))?)
        },
        status: "platform.pem is refused, and the certificate in use stays",
        log: ("gateway-1", ["refused the new platform certificate", "replace it with a valid certificate"]),
        metric: "max(edge_platform_certificate_fault{certificate=\"refused\"}) == 1",
        shown: "edge_platform_certificate_fault",
        alerts: &["EdgePlatformCertificateRefused"],
    },
];

/// The query for the databases of both services.
const BOTH_DOWN: &str = "orders_store_up + on () domains_store_up == 0";

/// The faults of a platform with a PostgreSQL server.
pub(crate) const OVER_SERVER: &[Fault] = &[
    Fault {
        name: "PostgreSQL is stopped",
        inject: Fleet::stop_server,
        recover: |fleet| fleet.begin("postgres"),
        status: "the database of the domains-service failed",
        log: ("domains-service", ["the database does not answer", "start the database server"]),
        metric: BOTH_DOWN,
        shown: "orders_store_up",
        alerts: &["StoreDown", "OrdersStoreErrors", "DomainsErrors", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "PostgreSQL hangs (SIGSTOP)",
        inject: |fleet| fleet.signal_server("-STOP"),
        recover: |fleet| fleet.signal_server("-CONT"),
        status: "the database of the orders-service failed",
        log: ("orders-service", ["the database does not answer", "start the database server"]),
        metric: BOTH_DOWN,
        shown: "domains_store_up",
        alerts: &["StoreDown", "OrdersStoreErrors", "DomainsErrors", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "The disk of PostgreSQL is full",
        inject: |fleet| fleet.fill("postgres"),
        recover: |fleet| {
            fleet.clear("postgres")?;
            fleet.revive_server()
        },
        status: "the database of the orders-service failed",
        log: ("orders-service", ["the database failed", FREE_SPACE]),
        metric: "sum(increase(orders_store_errors_total[5s])) > 0",
        shown: "orders_store_errors_total",
        alerts: &["OrdersStoreErrors", "EdgeErrorBudgetBurnFast"],
    },
];
