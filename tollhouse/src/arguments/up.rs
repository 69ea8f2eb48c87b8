//! Options of `up` and `init`: what is said when a platform begins.

use std::path::PathBuf;

use clap::Args;
use contract::project::UpstreamName;

use crate::directory::{Address, GatewayAdmin, InternalTls};
use crate::test_world::AuthorityMode;

const HTTP_PORT: u16 = 8080;
const HTTPS_PORT: u16 = 8443;
const ADMIN_PORT: u16 = 9901;

/// Those of `docker-compose.yml`.
const GATEWAYS: [&str; 3] = ["gateway-1=gateway-1:9901", "gateway-2=gateway-2:9901", "gateway-more=gateway-more:9901"];

/// Options of `up`.
#[derive(Clone, Debug, Args)]
pub struct Up {
    /// Port for plain HTTP; 0 takes any free port.
    #[arg(long, default_value_t = HTTP_PORT)]
    pub http_port: u16,
    /// Port for HTTPS; 0 takes any free port.
    #[arg(long, default_value_t = HTTPS_PORT)]
    pub https_port: u16,
    /// Port for health, metrics and status, on loopback; 0 takes any free port.
    #[arg(long, default_value_t = ADMIN_PORT)]
    pub admin_port: u16,
    /// The address HTTP and HTTPS listen on. The default is this machine alone; 0.0.0.0 is everybody.
    #[arg(long, default_value = "127.0.0.1")]
    pub listen: std::net::IpAddr,
    /// Projects are published at {project}.NAME. Names below .localhost reach this machine without DNS. Said at the first
    /// start (else it is tollhouse.localhost) and remembered with the data; it cannot be changed later.
    #[arg(long, value_name = "NAME")]
    pub platform_domain: Option<contract::hostname::Hostname>,
    /// live, or test for staging beside production: whose keys are made and accepted (`th_live_…` or `th_test_…`). Said at the
    /// first start (else it is live) and remembered with the data; it cannot be changed later.
    #[arg(long, value_name = "live|test")]
    pub environment: Option<contract::key::Environment>,
    /// A backend for projects, as NAME=URL, for example echo=http://127.0.0.1:9000; https:// and h2c:// (HTTP/2 without TLS)
    /// work as well. Repeatable; remembered.
    #[arg(long = "upstream", value_name = "NAME=URL")]
    pub upstreams: Vec<UpstreamArgument>,
    /// A setting of such a backend, as NAME.SETTING=VALUE, for example `echo.first_byte_timeout=10m` or
    /// `echo.body_bytes_max=1073741824`: whatever `[upstreams.NAME]` of gateway.toml knows. Repeatable; remembered; without a
    /// value it is forgotten.
    #[arg(long = "upstream-setting", value_name = "NAME.SETTING=VALUE")]
    pub upstream_settings: Vec<UpstreamSetting>,
    /// Do not create the demo projects on the first start.
    #[arg(long)]
    pub no_demo: bool,
    /// Send traces of all requests to this collector (OTLP over HTTP), such as `http://127.0.0.1:4318`.
    #[arg(long, value_name = "URL")]
    pub trace_to: Option<String>,
    /// Also start a test world for custom domains: DNS for names under .test and .example that `tollhouse dns` writes,
    /// and a certificate authority that speaks ACME (`pebble` must be installed). MODE is gentle, strict or brief
    /// (certificates valid for a minute). Only in a build with the feature `test-world`, as `./up --test-world` makes.
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "gentle")]
    pub test_world: Option<AuthorityMode>,
}

impl Up {
    /// What a start without options is given.
    pub fn usual() -> Self {
        Self {
            http_port: HTTP_PORT,
            https_port: HTTPS_PORT,
            admin_port: ADMIN_PORT,
            listen: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            platform_domain: None,
            environment: None,
            upstreams: Vec::new(),
            upstream_settings: Vec::new(),
            no_demo: false,
            trace_to: None,
            test_world: None,
        }
    }
}

/// `NAME=URL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamArgument {
    /// The upstream's name.
    pub name: UpstreamName,
    /// Host and port of the URL, with its scheme where that is not `http`.
    pub endpoint: String,
}

impl std::str::FromStr for UpstreamArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write it as NAME=URL, for example echo=http://127.0.0.1:9000";
        let (name, url) = text.split_once('=').ok_or(form)?;
        let name = name.parse().map_err(|error| format!("{name:?}: {error}"))?;
        let (scheme, authority) = url.split_once("://").ok_or(form)?;
        let authority = authority.trim_end_matches('/');
        let usual = match scheme {
            "http" | "h2c" => 80,
            "https" => 443,
            _ => {
                return Err("an upstream's URL begins with http://, https:// or h2c:// (HTTP/2 without TLS)".to_owned());
            }
        };
        if authority.is_empty() || authority.contains('/') {
            return Err("an upstream's URL has a host and a port and no path".to_owned());
        }
        let authority = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:{usual}") };
        let endpoint = if scheme == "http" { authority } else { format!("{scheme}://{authority}") };
        Ok(Self { name, endpoint })
    }
}

/// `NAME.SETTING=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSetting {
    /// The upstream's name.
    pub name: UpstreamName,
    /// What is set.
    pub setting: String,
    /// As it stands in TOML; `None`: it is no longer set.
    pub value: Option<String>,
}

impl std::str::FromStr for UpstreamSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write it as NAME.SETTING=VALUE, for example echo.first_byte_timeout=10m";
        let (place, value) = text.split_once('=').ok_or(form)?;
        let (name, setting) = place.split_once('.').ok_or(form)?;
        let name = name.parse().map_err(|error| format!("{name:?}: {error}"))?;
        let is_setting = !setting.is_empty() && setting.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !is_setting {
            return Err(format!("{setting:?} is no setting of an upstream; {form}"));
        }
        if setting == "endpoints" {
            return Err("where an upstream is said with --upstream NAME=URL".to_owned());
        }
        // Numbers, lists and tables are written as in the file; everything else is a text, with or without quotes.
        let written = |value: &str| match value.parse::<toml_edit::Value>() {
            Ok(_) => value.to_owned(),
            Err(_) => toml_edit::Value::from(value).to_string(),
        };
        let value = (!value.is_empty()).then(|| written(value));
        Ok(Self { name, setting: setting.to_owned(), value })
    }
}

/// Options of `init`.
#[derive(Clone, Debug, Args)]
pub struct Init {
    /// The platform's domain.
    #[arg(long, default_value = "tollhouse.localhost")]
    pub platform_domain: contract::hostname::Hostname,
    /// A gateway, by its name on record, and its admin listener; a host may stand for several processes of that gateway.
    /// Repeatable.
    #[arg(long = "edge", value_name = "NAME=ADDRESS", default_values = GATEWAYS)]
    pub edges: Vec<GatewayAdmin>,
    /// Internal listener of the domains-service.
    #[arg(long, default_value = "domains-service:7003")]
    pub control: Address,
    /// Internal listener of the orders-service.
    #[arg(long, default_value = "orders-service:7004")]
    pub orders: Address,
    /// Which of these listeners speak TLS, with the certificates that this command makes in `tls/`: `off_loopback`,
    /// `everywhere`, or `nowhere`, if nobody else can read on the way.
    #[arg(long, value_name = "WHERE", default_value = InternalTls::OffLoopback.as_str())]
    pub internal_tls: InternalTls,
    /// The port of https URLs as clients see it.
    #[arg(long, default_value_t = 443)]
    pub https_port: u16,
    /// The port of http URLs as clients see it.
    #[arg(long, default_value_t = 80)]
    pub http_port: u16,
    /// Give each process copies of the secrets it needs, and of no others, in DIRECTORY/{process}.
    #[arg(long, value_name = "DIRECTORY")]
    pub shares: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_written_as_the_file_has_it() {
        let read = |text: &str| text.parse::<UpstreamSetting>().map(|one| (one.setting, one.value));
        for (text, setting, value) in [
            ("echo.first_byte_timeout=10m", "first_byte_timeout", "\"10m\""),
            ("echo.body_bytes_max=1073741824", "body_bytes_max", "1073741824"),
            ("echo.pass_headers=[\"Via\"]", "pass_headers", "[\"Via\"]"),
            ("echo.shared_connections=true", "shared_connections", "true"),
            ("echo.cors=open", "cors", "\"open\""),
            ("echo.a=b\nc = 1", "a", "\"\"\"\nb\nc = 1\"\"\""),
        ] {
            assert_eq!(read(text), Ok((setting.to_owned(), Some(value.to_owned()))), "{text}");
        }
        assert_eq!(read("echo.cors="), Ok(("cors".to_owned(), None)));
        for wrong in ["echo", "echo=1", "echo.=1", "echo.a b=1", "echo.a.b=1", "echo.endpoints=x", "E cho.cors=open"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
