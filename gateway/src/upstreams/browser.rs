//! What browsers are told for an upstream: from where its responses may be read (CORS), and that it is reached over TLS
//! alone (HSTS). What the upstream says itself always stands; this is what the gateway says where it says nothing.

use std::str::FromStr;

use http::HeaderValue;

/// Bytes of one origin.
const ORIGIN_BYTES_MAX: usize = 300;

/// Who answers browsers that ask for another site's page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// The upstream: preflights reach it, also those of an API, which come without a key.
    #[default]
    Upstream,
    /// The gateway: any origin may read.
    Open,
    /// The gateway: these origins may read.
    Origins(Vec<Origin>),
    /// Nobody: a preflight is a request like any other.
    Off,
}

/// `https://app.example`, as browsers write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// A text that is no origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use origins as browsers write them, such as https://app.example or http://localhost:3000")]
pub struct InvalidOrigin;

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or(InvalidOrigin)?;
        let is_host = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b':' | b'[' | b']');
        let fits = !host.is_empty() && text.len() <= ORIGIN_BYTES_MAX && host.bytes().all(is_host);
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidOrigin) }
    }
}

/// A text that is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use \"upstream\", \"open\", \"off\", or a list of origins such as [\"https://app.example\"]")]
pub struct InvalidCors;

/// In a variable of the environment, commas separate origins.
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

/// What a response says of who may read it, where its upstream says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readers {
    /// Nothing.
    #[default]
    Unsaid,
    /// Everybody may.
    All,
    /// This origin may.
    Origin(HeaderValue),
    /// Other origins than that of the request may.
    Others,
}

impl Cors {
    /// For a request from this origin.
    pub fn readers(&self, origin: Option<&HeaderValue>) -> Readers {
        match self {
            Self::Upstream | Self::Off => Readers::Unsaid,
            Self::Open => Readers::All,
            Self::Origins(origins) => {
                let known = origin.filter(|one| origins.iter().any(|other| other.0.as_bytes() == one.as_bytes()));
                known.map_or(Readers::Others, |origin| Readers::Origin(origin.clone()))
            }
        }
    }
}

/// Who says that a host is reached over TLS alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hsts {
    /// The upstream.
    #[default]
    Upstream,
    /// The gateway, where the upstream does not.
    On,
}

/// A text that is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use \"upstream\" or \"on\"")]
pub struct InvalidHsts;

impl FromStr for Hsts {
    type Err = InvalidHsts;

    fn from_str(text: &str) -> Result<Self, InvalidHsts> {
        match text {
            "upstream" => Ok(Self::Upstream),
            "on" => Ok(Self::On),
            _ => Err(InvalidHsts),
        }
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
    fn an_origin_reads_what_it_is_listed_for() {
        let listed: Cors = "https://a.example".parse().unwrap();
        let origin = |text| HeaderValue::from_static(text);
        let own = origin("https://a.example");
        assert_eq!(listed.readers(Some(&own)), Readers::Origin(own.clone()));
        for other in ["https://b.example", "https://a.example.evil.example", "http://a.example", "null"] {
            assert_eq!(listed.readers(Some(&origin(other))), Readers::Others, "{other}");
        }
        assert_eq!((listed.readers(None), Cors::Open.readers(None)), (Readers::Others, Readers::All));
        assert_eq!(
            (Cors::Upstream.readers(Some(&own)), Cors::Off.readers(Some(&own))),
            (Readers::Unsaid, Readers::Unsaid)
        );
    }
}
