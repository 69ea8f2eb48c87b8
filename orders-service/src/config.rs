//! Settings of the orders-service: `config/orders-service.toml`, overridden by the environment (`TOLLHOUSE_ORDERS_…`).

use std::net::SocketAddr;
use std::path::PathBuf;

use chassis::admin::AdminHost;
use chassis::config::{EffectiveSettings, Listen, Problems, Section, Source};
use chassis::logs::Format;
use chassis::peer::{Peer, ServerTls};
use chassis::secret::Secret;
use chassis::sql::{Location, read_location};
use chassis::trace::TraceConfig;
use contract::key::Environment;
use contract::project::UpstreamName;
use contract::time::UnixSeconds;

use crate::deprecation::{Deprecation, LinkTarget};
use crate::order::ShipDate;

/// Prefix of the environment variables that override the file.
pub const ENVIRONMENT_PREFIX: &str = "TOLLHOUSE_ORDERS";

/// The settings. A value of this type is valid. `config/orders-service.toml` documents each setting with its default.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the API for the gateway; port 0 takes any free port.
    pub listen: SocketAddr,
    /// Address for operators: import, export, ship.
    pub internal_listen: SocketAddr,
    /// Address for health and metrics.
    pub admin_listen: SocketAddr,
    /// Host names that `admin_listen` accepts in requests, besides addresses and `localhost`.
    pub admin_hosts: Vec<AdminHost>,
    /// The database.
    pub database: Location,
    /// Whether a missing or empty database is made. If not, the service does not start without its database.
    pub create_database: bool,
    /// This service's credential at the control plane.
    pub credential: Secret,
    /// The environment of this deployment; API keys of the other one are refused.
    pub environment: Environment,
    /// The control plane's internal listener.
    pub control_plane: Peer,
    /// TLS of `listen`; `None`: plain text.
    pub tls: Option<ServerTls>,
    /// TLS of `internal_listen`; `None`: plain text, which needs loopback or `plain_text = true`.
    pub internal_tls: Option<ServerTls>,
    /// This upstream's name in the gateway's settings; identities for another upstream are refused.
    pub audience: UpstreamName,
    /// A file with the JWK set of the trusted gateway keys, reloaded when it changes. Default: the control plane's
    /// keys.
    pub key_set_file: Option<PathBuf>,
    /// File that saves the trusted keys for a start without the control plane. Default: `trust.json` beside the SQLite
    /// file, or `data/orders/trust.json`.
    pub trust_file: PathBuf,
    /// Deprecation of `GET /v1/pets/{petId}`.
    pub pets: Deprecation,
    /// Format of log lines.
    pub log_format: Format,
    /// Filter of log lines, for example `info,sqlx=warn`.
    pub log_filter: String,
    /// Traces.
    pub tracing: TraceConfig,
    /// Every given setting as text, for comparisons.
    pub effective: EffectiveSettings,
}

/// 2026-01-01T00:00:00Z.
const PETS_DEPRECATED_SINCE: UnixSeconds = UnixSeconds(1_767_225_600);

/// Default address of the control plane.
const CONTROL_PLANE: &str = "http://127.0.0.1:7003";

/// Default name of this upstream, as in the gateway's sample settings.
const AUDIENCE: &str = "orders";

/// Example of the credential's file, for the error about a missing one.
const CREDENTIAL_EXAMPLE: &str = "/run/secrets/orders-service.key";

/// Default page that explains the deprecation: the reference of the API.
const PETS_LINK: &str = "/reference#getPet";

impl Config {
    /// Reads the settings, or returns all problems.
    pub fn read(source: &Source) -> Result<Self, Problems> {
        let reader = source.reader()?;
        let root = reader.root();
        let listen = root.value("listen", Listen(SocketAddr::from(([127, 0, 0, 1], 7001))));
        let internal_listen = root.value("internal_listen", Listen(SocketAddr::from(([127, 0, 0, 1], 7004))));
        let admin_listen = root.value("admin_listen", Listen(SocketAddr::from(([127, 0, 0, 1], 9902))));
        let admin_hosts = root.list("admin_hosts");
        let database = read_location(&root, "data/orders/orders.db");
        let create_database = root.flag("create_database", false);
        let credential = root.required_secret("credential", CREDENTIAL_EXAMPLE, root.secret("credential"));
        let environment = root.value("environment", Environment::Live);
        let control_plane = Peer::read(&root.section("events"), CONTROL_PLANE);
        let address = listen.as_ref().map(|listen| listen.0);
        let tls = ServerTls::read_for(&root.section("tls"), "listen", address);
        let internal_address = internal_listen.as_ref().map(|listen| listen.0);
        let internal_tls = ServerTls::read_for(&root.section("internal_tls"), "internal_listen", internal_address);
        let identity = root.section("identity");
        let audience = AUDIENCE.parse::<UpstreamName>().ok().and_then(|usual| identity.value("audience", usual));
        let key_set_file = identity.path("key_set_file");
        let trust_file = identity.path("trust_file");
        let pets = read_pets(&root.section("pets"));
        let log = root.section("log");
        let log_format = log.value("format", Format::Json);
        let log_filter = log.value("filter", "info".to_owned());
        let tracing = TraceConfig::read(&root.section("tracing"));
        let config = (|| {
            let database = database?;
            Some(Self {
                trust_file: trust_file?.unwrap_or_else(|| default_trust_file(&database)),
                listen: listen?.0,
                internal_listen: internal_listen?.0,
                admin_listen: admin_listen?.0,
                admin_hosts: admin_hosts?,
                database,
                create_database: create_database?,
                credential: credential?,
                environment: environment?,
                control_plane: control_plane?,
                tls: tls?,
                internal_tls: internal_tls?,
                audience: audience?,
                key_set_file: key_set_file?,
                pets: pets?,
                log_format: log_format?,
                log_filter: log_filter?,
                tracing: tracing?,
                effective: EffectiveSettings::default(),
            })
        })();
        let effective = reader.effective_settings();
        reader.finish(config.map(|config| Self { effective, ..config }))
    }
}

/// A day (`2026-12-31`, 00:00 UTC) or a date and time in RFC 3339.
#[derive(PartialEq)]
struct Day(UnixSeconds);

#[derive(Debug, thiserror::Error)]
#[error("use a day such as 2026-12-31, or a date and time such as 2026-12-31T12:00:00Z")]
struct InvalidDay;

impl std::str::FromStr for Day {
    type Err = InvalidDay;

    fn from_str(text: &str) -> Result<Self, InvalidDay> {
        let moment = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
        moment.parse().map(|date: ShipDate| Self(date.seconds())).map_err(|_| InvalidDay)
    }
}

fn default_trust_file(database: &Location) -> PathBuf {
    match database {
        Location::Sqlite(file) => file.with_file_name("trust.json"),
        Location::Postgres(_) => PathBuf::from("data/orders/trust.json"),
    }
}

fn read_pets(section: &Section<'_>) -> Option<Deprecation> {
    let since = section.value("deprecated_since", Day(PETS_DEPRECATED_SINCE)).map(|day| day.0);
    let sunset = section.optional::<Day>("sunset").map(|day| day.map(|day| day.0));
    let link = PETS_LINK.parse::<LinkTarget>().ok().and_then(|usual| section.value("link", usual));
    let (since, sunset, link) = (since?, sunset?, link?);
    if sunset.is_some_and(|sunset| sunset < since) {
        section.complain("sunset", "sunset is before deprecated_since; use a later day");
        return None;
    }
    Some(Deprecation { since, sunset, link })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const CREDENTIAL: &str = "credential = \"0123456789abcdef0123456789abcdef\"\n";

    fn read(text: &str) -> Result<Config, Problems> {
        Config::read(&Source::from_text("orders-service.toml", text, ENVIRONMENT_PREFIX, BTreeMap::new()))
    }

    #[test]
    fn the_credential_is_the_only_required_setting() {
        let config = read(CREDENTIAL).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7001");
        assert_eq!(config.internal_listen.to_string(), "127.0.0.1:7004");
        assert_eq!(config.admin_listen.to_string(), "127.0.0.1:9902");
        assert_eq!(config.environment, Environment::Live);
        assert_eq!((config.pets.since, config.pets.sunset), (PETS_DEPRECATED_SINCE, None));
    }

    #[test]
    fn plain_text_needs_loopback_or_the_setting_plain_text() {
        for (setting, table) in [("listen", "tls"), ("internal_listen", "internal_tls")] {
            for away in ["10.0.0.1:7001", "[::]:7001"] {
                let text = format!("{CREDENTIAL}{setting} = \"{away}\"\n");
                let refused = read(&text).unwrap_err().to_string();
                let words = format!("{setting} is sent credentials and is not on loopback");
                assert!(
                    refused.contains(&format!("{table}.certificate_file")) && refused.contains(&words),
                    "{refused}"
                );
                assert!(read(&format!("{text}[{table}]\nplain_text = true")).is_ok(), "{away}");
            }
            assert!(read(&format!("{CREDENTIAL}{setting} = \"127.0.0.9:7001\"")).is_ok());
        }
    }

    #[test]
    fn the_sample_file_is_valid_and_has_the_defaults() {
        let text = include_str!("../../config/orders-service.toml");
        let environment = BTreeMap::from([("TOLLHOUSE_ORDERS_CREDENTIAL".to_owned(), "0123456789abcdef".repeat(2))]);
        let config = Config::read(&Source::from_text("file", text, ENVIRONMENT_PREFIX, environment)).unwrap();
        // The pattern names every field, so a new field does not compile until it is compared.
        let Config {
            listen,
            internal_listen,
            admin_listen,
            admin_hosts,
            database,
            create_database,
            credential: _,
            environment,
            control_plane,
            tls,
            internal_tls,
            audience,
            key_set_file,
            trust_file,
            pets,
            log_format,
            log_filter,
            tracing,
            effective: _,
        } = read(CREDENTIAL).unwrap();
        assert_eq!(config.listen, listen);
        assert_eq!(config.internal_listen, internal_listen);
        assert_eq!(config.admin_listen, admin_listen);
        assert_eq!(format!("{:?}", config.admin_hosts), format!("{admin_hosts:?}"));
        assert_eq!(format!("{:?}", config.database), format!("{database:?}"));
        assert_eq!(config.create_database, create_database);
        assert_eq!(config.environment, environment);
        assert_eq!(config.control_plane, control_plane);
        assert!([config.tls, tls, config.internal_tls, internal_tls].iter().all(Option::is_none));
        assert_eq!(config.audience, audience);
        assert_eq!(config.key_set_file, key_set_file);
        assert_eq!(config.trust_file, trust_file);
        assert_eq!(config.pets, pets);
        assert_eq!(config.log_format, log_format);
        assert_eq!(config.log_filter, log_filter);
        assert_eq!(format!("{:?}", config.tracing), format!("{tracing:?}"));
    }

    #[test]
    fn every_problem_has_its_line_and_a_fix() {
        let problems = read(
            "listen = \"7001\"\nenvironment = \"prod\"\ncredential = \"short\"\n[pets]\nsunset = \"2025-01-01\"\n\
             link = \"not a link\"\nsince = 1\n[log]\nformat = \"xml\"\n",
        )
        .unwrap_err();
        let lines: Vec<_> = problems.list.iter().map(|problem| (problem.line, problem.setting.as_str())).collect();
        assert_eq!(
            lines,
            [
                (Some(1), "listen"),
                (Some(2), "environment"),
                (Some(3), "credential"),
                (Some(6), "pets.link"),
                (Some(7), "pets.since"),
                (Some(9), "log.format"),
            ]
        );
        let problems = read(&format!("{CREDENTIAL}[pets]\nsunset = \"2025-01-01\"\n")).unwrap_err();
        assert!(problems.to_string().contains("sunset is before deprecated_since"), "{problems}");
        let problems = read("").unwrap_err();
        assert!(problems.to_string().contains("TOLLHOUSE_ORDERS_CREDENTIAL_FILE"), "{problems}");
    }
}
