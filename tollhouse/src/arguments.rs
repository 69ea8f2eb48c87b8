//! Options of every command, and of `up`.

use std::path::PathBuf;

use clap::Args;
use contract::project::UpstreamName;

use crate::test_world::AuthorityMode;

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Data directory of the platform.
    #[arg(long, global = true, default_value = "data", env = "TOLLHOUSE_DATA_DIR")]
    pub data_dir: PathBuf,
    /// Print JSON, for programs.
    #[arg(long, global = true)]
    pub json: bool,
}

const HTTP_PORT: u16 = 8080;
const HTTPS_PORT: u16 = 8443;
const ADMIN_PORT: u16 = 9901;

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
    /// Address for HTTP and HTTPS. The default is loopback; 0.0.0.0 opens both to the network.
    #[arg(long, default_value = "127.0.0.1")]
    pub listen: std::net::IpAddr,
    /// Platform domain: projects are at {project}.NAME. Names below .localhost mean this machine and need no DNS. Set
    /// at the first start (default tollhouse.localhost); cannot be changed later.
    #[arg(long, value_name = "NAME")]
    pub platform_domain: Option<contract::hostname::Hostname>,
    /// Kind of API keys: live (`th_live_…`), or test (`th_test_…`) for staging. Set at the
    /// first start (default live); cannot be changed later.
    #[arg(long, value_name = "live|test")]
    pub environment: Option<contract::key::Environment>,
    /// Upstream for projects, for example echo=http://127.0.0.1:9000; https:// and h2c:// (HTTP/2 without TLS)
    /// work as well. Repeatable; saved in the data directory.
    #[arg(long = "upstream", value_name = "NAME=URL")]
    pub upstreams: Vec<UpstreamArgument>,
    /// Setting of such an upstream, for example `echo.first_byte_timeout=10m` or
    /// `echo.tls.ca_certificate_file=shop-ca.pem`: any setting of `[upstreams.NAME]` in gateway.toml. Repeatable; saved
    /// in the data directory; an empty value removes it.
    #[arg(long = "upstream-setting", value_name = "NAME.SETTING=VALUE")]
    pub upstream_settings: Vec<UpstreamSetting>,
    /// Do not create the demo projects on the first start.
    #[arg(long)]
    pub no_demo: bool,
    /// Send traces of all requests to this OTLP/HTTP collector, for example `http://127.0.0.1:4318`.
    #[arg(long, value_name = "URL")]
    pub trace_to: Option<String>,
    /// Also start a test world for custom domains: DNS for names under .test and .example, changed with `tollhouse
    /// dns`, and an ACME certificate authority (`pebble` must be installed). MODE: gentle (answers at once), strict
    /// (rejects half of all nonces and validates slowly), brief (certificates valid for one minute). Needs a build with
    /// the feature `test-world`, which `./up --test-world` makes.
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "gentle")]
    pub test_world: Option<AuthorityMode>,
}

impl Up {
    /// The options of a start without arguments.
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

    /// Parses the words of a command line after the program's name.
    #[cfg(test)]
    pub(crate) fn read(words: &[&str]) -> Self {
        let words = ["up"].into_iter().chain(words.iter().copied());
        let matches = Self::augment_args(clap::Command::new("up")).try_get_matches_from(words).unwrap();
        clap::FromArgMatches::from_arg_matches(&matches).unwrap()
    }
}

/// `NAME=URL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamArgument {
    /// The upstream's name.
    pub name: UpstreamName,
    /// Host and port of the URL, with its scheme if that is not `http`.
    pub endpoint: String,
}

impl std::str::FromStr for UpstreamArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "use NAME=URL, for example echo=http://127.0.0.1:9000";
        let (name, url) = text.split_once('=').ok_or(form)?;
        let name = name.parse().map_err(|error| format!("{name:?}: {error}"))?;
        let (scheme, authority) = url.split_once("://").ok_or(form)?;
        let authority = authority.trim_end_matches('/');
        let usual = match scheme {
            "http" | "h2c" => 80,
            "https" => 443,
            _ => {
                return Err("use an upstream URL with http://, https:// or h2c:// (HTTP/2 without TLS)".to_owned());
            }
        };
        if authority.is_empty() || authority.contains('/') {
            return Err("use an upstream URL with a host and a port, without a path".to_owned());
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
    /// Name of the setting. That of a setting in a table below begins with the table's name and a dot.
    pub setting: String,
    /// Value in TOML; `None` removes the setting.
    pub value: Option<String>,
}

impl std::str::FromStr for UpstreamSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "use NAME.SETTING=VALUE, for example echo.first_byte_timeout=10m";
        let (place, value) = text.split_once('=').ok_or(form)?;
        let (name, setting) = place.split_once('.').ok_or(form)?;
        let name = name.parse().map_err(|error| format!("{name:?}: {error}"))?;
        // Digits are in `http2`.
        let is_word = |word: &str| {
            word.starts_with(|first: char| first.is_ascii_lowercase())
                && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        if !setting.split('.').all(is_word) {
            return Err(format!("{setting:?} is not a valid name of a setting; {form}"));
        }
        if setting == "endpoints" {
            return Err("use --upstream NAME=URL for the address of an upstream".to_owned());
        }
        // Numbers, lists and tables are TOML; any other value is text, with or without quotes.
        let written = |value: &str| match value.parse::<toml_edit::Value>() {
            Ok(_) => value.to_owned(),
            Err(_) => toml_edit::Value::from(value).to_string(),
        };
        let value = (!value.is_empty()).then(|| written(value));
        Ok(Self { name, setting: setting.to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_converted_to_toml() {
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
        for name in ["ca_certificate_file", "http2"] {
            let in_table = (format!("tls.{name}"), Some("\"x\"".to_owned()));
            assert_eq!(read(&format!("echo.tls.{name}=x")), Ok(in_table));
        }
        for wrong in [
            "echo",
            "echo=1",
            "echo.=1",
            "echo.a b=1",
            "echo.a..b=1",
            "echo.a.=1",
            "echo.2=1",
            "echo.endpoints=x",
            "E cho.cors=open",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
