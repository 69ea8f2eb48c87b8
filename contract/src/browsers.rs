//! Rules for browsers: which origins may read responses (CORS), and that a host requires TLS (HSTS).
//!
//! An upstream has a rule in the gateway's settings, and a project may have its own, which takes precedence. Headers of
//! the application itself always stay; the gateway's rule applies only if the application sets none.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::schema::{Schema, SharedSchemas, Value, json};
use crate::text::words;

/// A project's rules; absent ones come from its upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Browsers {
    /// Who answers cross-origin requests of browsers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors: Option<Cors>,
    /// Who announces that the host requires TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hsts: Option<Hsts>,
}

impl Browsers {
    /// Whether both rules come from the upstream.
    pub fn is_unsaid(&self) -> bool {
        *self == Self::default()
    }
}

/// Origins in one list.
pub const ORIGINS_MAX: usize = 32;

/// Bytes of one origin.
const ORIGIN_BYTES_MAX: usize = 300;

/// Who answers cross-origin requests of browsers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// The upstream: preflights reach it, also those of an API, which carry no key.
    #[default]
    Upstream,
    /// The gateway: any origin may read.
    Open,
    /// The gateway: these origins may read.
    Origins(Vec<Origin>),
    /// No one: a preflight is handled like any other request.
    Off,
}

/// An origin as browsers send it, for example `https://app.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// The text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use origins as browsers write them, such as https://app.example or http://localhost:3000")]
pub struct InvalidOrigin;

impl Origin {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or(InvalidOrigin)?;
        let is_host = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b':' | b'[' | b']');
        let fits = !host.is_empty() && text.len() <= ORIGIN_BYTES_MAX && host.bytes().all(is_host);
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidOrigin) }
    }
}

/// The text is not a CORS rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use \"upstream\", \"open\", \"off\", or a list of origins such as [\"https://app.example\"]")]
pub struct InvalidCors;

/// In an environment variable, commas separate origins.
impl FromStr for Cors {
    type Err = InvalidCors;

    fn from_str(text: &str) -> Result<Self, InvalidCors> {
        match text {
            "upstream" => Ok(Self::Upstream),
            "open" => Ok(Self::Open),
            "off" => Ok(Self::Off),
            origins => {
                let origins = origins.split(',').map(|origin| origin.trim().parse());
                origins.collect::<Result<_, _>>().map(Self::Origins).map_err(|InvalidOrigin| InvalidCors)
            }
        }
    }
}

impl Schema for Cors {
    fn schema(_: &mut SharedSchemas) -> Value {
        let origins = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": ORIGINS_MAX });
        json!({ "anyOf": [{ "type": "string", "enum": ["upstream", "open", "off"] }, origins] })
    }
}

/// In JSON the words are strings, and origins an array.
impl Serialize for Cors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Upstream => serializer.serialize_str("upstream"),
            Self::Open => serializer.serialize_str("open"),
            Self::Off => serializer.serialize_str("off"),
            Self::Origins(origins) => serializer.collect_seq(origins.iter().map(Origin::as_str)),
        }
    }
}

impl<'de> Deserialize<'de> for Cors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Word(String),
            Origins(Vec<String>),
        }
        let wrong = |_| serde::de::Error::custom(InvalidCors);
        match Raw::deserialize(deserializer).map_err(|_| serde::de::Error::custom(InvalidCors))? {
            Raw::Word(word) if ["upstream", "open", "off"].contains(&word.as_str()) => word.parse().map_err(wrong),
            Raw::Origins(origins) if (1..=ORIGINS_MAX).contains(&origins.len()) => {
                let origins = origins.iter().map(|origin| origin.parse::<Origin>());
                origins.collect::<Result<_, _>>().map(Self::Origins).map_err(serde::de::Error::custom)
            }
            _ => Err(serde::de::Error::custom(InvalidCors)),
        }
    }
}

words! {
    /// Who announces that a host requires TLS.
    #[derive(Default)]
    pub enum Hsts {
        /// The upstream.
        #[default]
        Upstream = "upstream",
        /// The gateway, if the upstream does not.
        On = "on",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_write_them() {
        for good in ["https://app.example", "http://localhost:3000", "https://[2001:db8::1]:8443"] {
            good.parse::<Origin>().unwrap();
        }
        for bad in
            ["app.example", "https://", "https://app.example/", "https://App.example", "null", "*", "https://a b"]
        {
            assert_eq!(bad.parse::<Origin>(), Err(InvalidOrigin), "{bad}");
        }
        let two: Cors = "https://a.example, https://b.example".parse().unwrap();
        assert!(matches!(&two, Cors::Origins(origins) if origins.len() == 2));
        assert_eq!("opne".parse::<Cors>(), Err(InvalidCors));
    }

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for text in [r#""upstream""#, r#""open""#, r#""off""#, r#"["https://a.example","http://localhost:3000"]"#] {
            let cors: Cors = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&cors).unwrap(), text);
        }
        let many = format!("[{}]", vec![r#""https://a.example""#; ORIGINS_MAX + 1].join(","));
        for bad in [r#""https://a.example""#, "[]", r#"["*"]"#, "1", r#""opne""#, &many] {
            assert!(serde_json::from_str::<Cors>(bad).is_err(), "{bad}");
        }
        assert_eq!(serde_json::from_str::<Hsts>(r#""on""#).unwrap(), Hsts::On);
        assert_eq!(serde_json::to_string(&Browsers::default()).unwrap(), "{}");
    }
}
