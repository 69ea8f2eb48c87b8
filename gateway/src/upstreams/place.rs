//! Where an upstream is and how it is spoken to, as settings have it.

use std::net::SocketAddr;
use std::str::FromStr;

/// Where an upstream answers, as configured: `127.0.0.1:7001` or `orders-service:7001`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address.
    Address(SocketAddr),
    /// A name and a port, to be looked up.
    Name(String, u16),
}

impl Place {
    /// Whether what is sent there stays on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.ip().is_loopback(),
            Self::Name(name, _) => name == "localhost",
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let wrong = || "use an address or a name, and a port: 127.0.0.1:7001 or orders-service:7001".to_owned();
        let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        // Digits and dots alone are an address with a mistake in it.
        let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(good);
        if !is_name || name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(wrong());
        }
        Ok(Self::Name(name.to_owned(), port))
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

/// How an upstream is spoken to, as the start of an endpoint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// HTTP/1.1 in clear text: also where nothing is said.
    Http,
    /// HTTP/2 in clear text.
    H2c,
    /// TLS.
    Https,
}

/// An endpoint as it is written: `127.0.0.1:7001`, `https://shop.internal`, `h2c://127.0.0.1:50051`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointUrl {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Where it is.
    pub place: Place,
}

impl FromStr for EndpointUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            None => return Ok(Self { scheme: Scheme::Http, place: text.parse()? }),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("h2c", rest)) => (Scheme::H2c, rest),
            Some(_) => return Err("begin it with http://, https:// or h2c:// (HTTP/2 without TLS)".to_owned()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let usual = if scheme == Scheme::Https { 443 } else { 80 };
        let place = if has_port { rest.parse()? } else { format!("{rest}:{usual}").parse()? };
        Ok(Self { scheme, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_name_with_a_port() {
        assert_eq!("127.0.0.1:7001".parse(), Ok(Place::Address("127.0.0.1:7001".parse().unwrap())));
        assert_eq!("[::1]:7001".parse(), Ok(Place::Address("[::1]:7001".parse().unwrap())));
        assert_eq!("orders-service:7001".parse(), Ok(Place::Name("orders-service".to_owned(), 7001)));
        for wrong in ["orders", "orders:", "orders:0", "orders:70000", ":7001", "127.0.0:7001", "a b:1", "http://a:1"] {
            let error = wrong.parse::<Place>().unwrap_err();
            assert!(error.contains("orders-service:7001"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_endpoint_says_how_it_is_spoken_to() {
        for (text, scheme, place) in [
            ("127.0.0.1:7001", Scheme::Http, "127.0.0.1:7001"),
            ("http://shop", Scheme::Http, "shop:80"),
            ("https://shop.internal", Scheme::Https, "shop.internal:443"),
            ("https://shop.internal:8443/", Scheme::Https, "shop.internal:8443"),
            ("https://[::1]", Scheme::Https, "[::1]:443"),
            ("h2c://[::1]:50051", Scheme::H2c, "[::1]:50051"),
        ] {
            assert_eq!(text.parse(), Ok(EndpointUrl { scheme, place: place.parse().unwrap() }), "{text}");
        }
        for wrong in ["ftp://a:1", "https://a/b", "https://u:p@a", "https://", "HTTPS://a:1", "https://a?b"] {
            assert!(wrong.parse::<EndpointUrl>().is_err(), "{wrong}");
        }
    }
}
