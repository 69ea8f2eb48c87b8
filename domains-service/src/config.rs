//! Settings of the control plane.
//!
//! The text becomes a [`Config`], whose fields are valid by type. `config/domains-service.toml` is the reference, and a
//! test proves that it parses.

mod authorities;
mod webhooks;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use chassis::admin::AdminHost;
use chassis::config::{EffectiveSettings, Listen, Problems, Section, Source};
use chassis::logs::Format;
use chassis::peer::ServerTls;
use chassis::seal::SealingSecrets;
use chassis::secret::Secret;
use chassis::sql::{Location, read_location};
use chassis::trace::TraceConfig;
use contract::hostname::Hostname;
use contract::key::Environment;

use crate::plans::Plans;
use verification::{DnsConfig, DnsMode};

pub use authorities::{AcmeSettings, ChallengeKind, ExternalAccount};
pub use webhooks::WebhookConfig;

/// The prefix of environment variables that override settings.
pub const ENVIRONMENT_PREFIX: &str = "TOLLHOUSE_DOMAINS";

/// An example path of a secret's file.
const SECRET_EXAMPLE: &str = "data/secrets/platform.key";

/// The service's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The public API, reached through the gateway only.
    pub listen: SocketAddr,
    /// The change stream and the operators' API.
    pub internal_listen: SocketAddr,
    /// Health and metrics.
    pub admin_listen: SocketAddr,
    /// Names that clients may use for it, besides addresses and `localhost`.
    pub admin_hosts: Vec<AdminHost>,
    /// The certificate of `listen`; `None`: plain text.
    pub tls: Option<ServerTls>,
    /// The certificate of `internal_listen`; `None`: plain text, on loopback unless `plain_text` permits more.
    pub internal_tls: Option<ServerTls>,
    /// The database.
    pub database: Location,
    /// Whether a missing or empty database is made. If not, the service does not start without its database.
    pub create_database: bool,
    /// Projects live at `{project}.{platform_domain}`.
    pub platform_domain: Hostname,
    /// The environment of the keys that this deployment creates and accepts.
    pub environment: Environment,
    /// The platform's secret: the command line's token, passes of operators and their sessions derive from it.
    pub secret: Secret,
    /// Private keys rest sealed with a key derived from the first of these.
    pub sealing_secret: SealingSecrets,
    /// Credentials of gateways that are recorded at the start, each in a file NAME.key.
    pub gateways_directory: Option<PathBuf>,
    /// Credentials of services that are recorded at the start, each in a file NAME.key.
    pub services_directory: Option<PathBuf>,
    /// The file of revoked credentials, of this process alone; a database that went back in time lacks the last ones.
    pub revocations_file: PathBuf,
    /// Whether to drop everything that is sealed with a lost secret, and to start without it.
    pub sealing_secret_lost: bool,
    /// The limits of each plan.
    pub plans: Plans,
    /// For how many days a removed project can be restored before it is erased everywhere.
    pub removed_projects_kept_days: u16,
    /// Changes kept for followers of the stream.
    pub change_log_rows: u64,
    /// Addresses of the edge, for apex domains, in addition to those of the CNAME target.
    pub edge_addresses: Vec<IpAddr>,
    /// The special names that may be attached.
    pub names: NameRules,
    /// Settings of DNS queries.
    pub dns: DnsConfig,
    /// Public authorities that speak ACME, the preferred one first.
    pub authorities: Vec<AcmeSettings>,
    /// The local authority, if it issues the certificates of custom domains.
    pub local_authority: Option<LocalAuthorityFiles>,
    /// How outgoing webhooks are sent.
    pub webhooks: WebhookConfig,
    /// Format of log lines.
    pub log_format: Format,
    /// Filter of log lines, such as `info,sqlx=warn`.
    pub log_filter: String,
    /// Traces.
    pub tracing: TraceConfig,
    /// Every setting as text, for operators who compare processes with files.
    pub effective: EffectiveSettings,
}

/// The special names that may be attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameRules {
    /// Names under `.localhost`: they always mean this machine (RFC 6761), so they are verified by definition.
    pub allow_local: bool,
    /// Names under `.test` and `.example` (RFC 2606): only a test world resolves them.
    pub allow_test: bool,
}

/// The files of our own authority: certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAuthorityFiles {
    /// The authority's certificate, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

impl Config {
    /// Reads every setting.
    pub fn read(source: &Source) -> Result<Self, Problems> {
        let reader = source.reader()?;
        let root = reader.root();
        let config = read(&root);
        let effective = reader.effective_settings();
        reader.finish(config.map(|config| Self { effective, ..config }))
    }

    /// The zone that holds every project's CNAME target.
    ///
    /// # Errors
    /// When the platform's domain is so long that nothing fits below it.
    pub fn edge_zone(&self) -> anyhow::Result<Hostname> {
        Ok(self.platform_domain.child("edge")?)
    }
}

fn read(root: &Section<'_>) -> Option<Config> {
    // Every setting is read before any `?`, so that all mistakes are reported together.
    let at = |port| Listen(SocketAddr::from(([127, 0, 0, 1], port)));
    chassis::settings!(Config {
        listen: root.value("listen", at(7002)).map(|listen| listen.0),
        internal_listen: root.value("internal_listen", at(7003)).map(|listen| listen.0),
        admin_listen: root.value("admin_listen", at(9903)).map(|listen| listen.0),
        admin_hosts: root.list("admin_hosts"),
        tls: ServerTls::read_for(&root.section("tls"), "listen", listen),
        internal_tls: ServerTls::read_for(&root.section("internal_tls"), "internal_listen", internal_listen),
        database: read_location(root, "data/domains-service/domains.sqlite"),
        create_database: root.flag("create_database", false),
        platform_domain: root.required::<Hostname>("platform_domain", "\"apps.example.com\""),
        environment: root.value("environment", Environment::Live),
        secret: root.required_secret("secret", SECRET_EXAMPLE, root.secret("secret")),
        sealing_secret: root.required_secret("sealing_secret", SECRET_EXAMPLE, root.sealing_secrets("sealing_secret")),
        gateways_directory: root.path("gateways_directory"),
        services_directory: root.path("services_directory"),
        revocations_file: root.value("revocations_file", PathBuf::from("data/revoked-credentials.jsonl")),
        sealing_secret_lost: root.flag("sealing_secret_lost", false),
        plans: read_plans(root),
        change_log_rows: root.integer("change_log_rows", 100_000, 1_000..=10_000_000),
        removed_projects_kept_days: small(root.integer("removed_projects_kept_days", 30, 0..=3_650)),
        edge_addresses: root.list("edge_addresses"),
        names: read_names(root),
        dns: read_dns(&root.section("dns")),
        authorities: authorities::read(root),
        local_authority: read_local_authority(&root.section("local_authority")),
        webhooks: webhooks::read(&root.section("webhooks")),
        log_format: root.value("log_format", Format::Json),
        log_filter: root.value("log_filter", "info".to_owned()),
        tracing: TraceConfig::read(&root.section("tracing")),
        effective: Some(EffectiveSettings::default()),
    })
}

fn read_names(root: &Section<'_>) -> Option<NameRules> {
    chassis::settings!(NameRules {
        allow_local: root.flag("allow_local_names", false),
        allow_test: root.flag("allow_test_names", false),
    })
}

/// A number below 65,536, as its setting's range has it.
fn small(number: Option<u64>) -> Option<u16> {
    number?.try_into().ok()
}

fn read_plans(root: &Section<'_>) -> Option<Plans> {
    let Some(path) = root.path("plans")? else { return Some(Plans::stated()) };
    let plans = Source::read(Some(&path), "TOLLHOUSE_PLANS")
        .and_then(|source| Plans::read(&source).map_err(anyhow::Error::from));
    plans.map_err(|error| root.complain("plans", format!("{error:#}"))).ok()
}

fn read_dns(section: &Section<'_>) -> Option<DnsConfig> {
    chassis::settings!(DnsConfig {
        nameservers: section.list("nameservers"),
        mode: section.value("mode", DnsMode::Authoritative),
        authoritative_port: small(section.integer("authoritative_port", 53, 1..=65_535)),
        allow_private_nameservers: section.flag("allow_private_nameservers", false),
    })
}

/// The files, if they are configured; `None` when a mistake was reported.
fn read_local_authority(section: &Section<'_>) -> Option<Option<LocalAuthorityFiles>> {
    let (certificate, key) = (section.path("ca_certificate_file"), section.path("ca_key_file"));
    let (missing, example) = match (certificate?, key?) {
        (None, None) => return Some(None),
        (Some(certificate), Some(key)) => return Some(Some(LocalAuthorityFiles { certificate, key })),
        (None, Some(_)) => ("ca_certificate_file", "\"data/ca/ca.pem\""),
        (Some(_), None) => ("ca_key_file", "\"data/ca/ca.key\""),
    };
    section.missing(missing, example);
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn environment() -> BTreeMap<String, String> {
        let secret = "0123456789abcdef0123456789abcdef".to_owned();
        BTreeMap::from([
            ("TOLLHOUSE_DOMAINS_SECRET".to_owned(), secret.clone()),
            ("TOLLHOUSE_DOMAINS_SEALING_SECRET".to_owned(), secret),
        ])
    }

    fn read(text: &str) -> Result<Config, Problems> {
        Config::read(&Source::from_text("domains-service.toml", text, ENVIRONMENT_PREFIX, environment()))
    }

    #[test]
    fn the_reference_file_parses() {
        let text = include_str!("../../config/domains-service.toml")
            .replace("secret_file = \"data/secrets/platform.key\"", "")
            .replace("sealing_secret_file = \"data/secrets/sealing.key\"", "")
            .replace("plans = \"config/plans.toml\"", "plans = \"../config/plans.toml\"");
        let config = read(&text).unwrap();
        assert_eq!(config.edge_zone().unwrap().as_str(), "edge.tollhouse.localhost");
        assert!(config.names.allow_local && !config.names.allow_test);
        assert_eq!((config.dns, config.webhooks), (DnsConfig::default(), WebhookConfig::default()));
    }

    #[test]
    fn every_mistake_is_reported_with_a_fix() {
        let text = "platform_domain = \"a_b\"\nchange_log_rows = 1\n[dns]\nmode = \"guess\"\n[local_authority]\nca_key_file = \"k\"\n";
        let problems = read(text).unwrap_err().to_string();
        for part in [
            "line 1    platform_domain = \"a_b\"",
            "line 2    change_log_rows = 1",
            "use one of: authoritative, recursive",
            "set it, for example ca_certificate_file",
        ] {
            assert!(problems.contains(part), "{part} not in:\n{problems}");
        }
    }

    #[test]
    fn secrets_are_required_and_do_not_print() {
        let problems = Config::read(&Source::from_text("f", "platform_domain = \"a.b\"", "T", BTreeMap::new()));
        let text = problems.unwrap_err().to_string();
        assert!(text.contains("set it, for example secret_file"), "{text}");
        let config = read("platform_domain = \"a.b\"").unwrap();
        let printed = format!("{config:?}");
        assert!(printed.contains("secret: Secret(…)"), "{printed}");
        // The output has neither the configured text nor its bytes.
        let bytes = format!("{:?}", config.secret.reveal());
        for secret in ["0123456789abcdef", bytes.trim_matches(['[', ']'])] {
            assert!(!printed.contains(secret), "{printed}");
        }
    }
}
