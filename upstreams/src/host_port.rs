//! The endpoints of an upstream as the settings have them: a scheme, and an address or a name with a port.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use super::EndpointAddress;

/// Address or name, and port: `127.0.0.1:7001` or `orders-service:7001`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPort {
    /// An address.
    Address(EndpointAddress),
    /// A name and a port; the name is looked up.
    Name(String, u16),
}

impl HostPort {
    /// Whether it is a Unix socket.
    pub fn is_socket(&self) -> bool {
        matches!(self, Self::Address(EndpointAddress::Unix(_)))
    }

    /// Whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name, _) => name == "localhost",
        }
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(address.into()));
        }
        let wrong = || "use an address or a name, and a port: 127.0.0.1:7001 or orders-service:7001".to_owned();
        let (name, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        // Only digits and dots: a malformed address.
        let is_name = !name.is_empty() && name.len() <= 253 && name.bytes().all(good);
        if !is_name || name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(wrong());
        }
        Ok(Self::Name(name.to_owned(), port))
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address.into())
    }
}

/// The protocol: the scheme of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP/1.1 in clear text; the default.
    Http,
    /// HTTP/2 in clear text.
    H2c,
    /// TLS.
    Https,
}

/// The most bytes of the name of a socket's file: with its directory, a path may have 107.
const SOCKET_NAME_BYTES_MAX: usize = 80;

/// An endpoint: `127.0.0.1:7001`, `https://shop.internal`, `h2c://127.0.0.1:50051`, `unix:shop.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointUrl {
    /// The protocol.
    pub scheme: Scheme,
    /// Address or name, and port; of a Unix socket the name of its file.
    pub host_port: HostPort,
}

impl EndpointUrl {
    /// The endpoint, with the directory of Unix sockets.
    ///
    /// # Errors
    /// A Unix socket, without a directory.
    pub fn within(self, sockets: Option<&Path>) -> Result<HostPort, &'static str> {
        match (self.host_port, sockets) {
            (HostPort::Address(EndpointAddress::Unix(name)), Some(directory)) => {
                Ok(HostPort::Address(EndpointAddress::Unix(directory.join(name).into())))
            }
            (HostPort::Address(EndpointAddress::Unix(_)), None) => {
                Err("set sockets_directory: the directory of the Unix sockets of upstreams")
            }
            (other, _) => Ok(other),
        }
    }

    /// A socket by the name of its file: no other directory can be reached.
    fn socket(scheme: Scheme, name: &str) -> Result<Self, String> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_name = (1..=SOCKET_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(good);
        if !is_name || name.starts_with('.') {
            return Err("use the name of a file in sockets_directory, without a path: unix:shop.sock".to_owned());
        }
        Ok(Self { scheme, host_port: HostPort::Address(EndpointAddress::Unix(Path::new(name).into())) })
    }
}

impl FromStr for EndpointUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("unix:") {
            return Self::socket(Scheme::Http, name);
        }
        if let Some(name) = text.strip_prefix("unix+h2c:") {
            return Self::socket(Scheme::H2c, name);
        }
        let (scheme, rest) = match text.split_once("://") {
            None => return Ok(Self { scheme: Scheme::Http, host_port: text.parse()? }),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("h2c", rest)) => (Scheme::H2c, rest),
            Some(_) => return Err("begin it with http://, https://, h2c:// (HTTP/2 without TLS) or unix:".to_owned()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let usual = if scheme == Scheme::Https { 443 } else { 80 };
        let host_port = if has_port { rest.parse()? } else { format!("{rest}:{usual}").parse()? };
        Ok(Self { scheme, host_port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_or_a_name_with_a_port() {
        for address in ["127.0.0.1:7001", "[::1]:7001"] {
            assert_eq!(address.parse(), Ok(HostPort::from(address.parse::<SocketAddr>().unwrap())));
        }
        assert_eq!("orders-service:7001".parse(), Ok(HostPort::Name("orders-service".to_owned(), 7001)));
        for wrong in ["orders", "orders:", "orders:0", "orders:70000", ":7001", "127.0.0:7001", "a b:1", "http://a:1"] {
            let error = wrong.parse::<HostPort>().unwrap_err();
            assert!(error.contains("orders-service:7001"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_endpoint_may_begin_with_a_scheme() {
        for (text, scheme, host_port) in [
            ("127.0.0.1:7001", Scheme::Http, "127.0.0.1:7001"),
            ("http://shop", Scheme::Http, "shop:80"),
            ("https://shop.internal", Scheme::Https, "shop.internal:443"),
            ("https://shop.internal:8443/", Scheme::Https, "shop.internal:8443"),
            ("https://[::1]", Scheme::Https, "[::1]:443"),
            ("h2c://[::1]:50051", Scheme::H2c, "[::1]:50051"),
        ] {
            assert_eq!(text.parse(), Ok(EndpointUrl { scheme, host_port: host_port.parse().unwrap() }), "{text}");
        }
        for wrong in ["ftp://a:1", "https://a/b", "https://u:p@a", "https://", "HTTPS://a:1", "https://a?b"] {
            assert!(wrong.parse::<EndpointUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_socket_is_a_file_in_the_configured_directory() {
        let directory = Path::new("/run/tollhouse");
        for (text, scheme) in [("unix:shop.sock", Scheme::Http), ("unix+h2c:shop.sock", Scheme::H2c)] {
            let endpoint: EndpointUrl = text.parse().unwrap();
            assert_eq!(endpoint.scheme, scheme, "{text}");
            assert!(endpoint.clone().within(None).is_err(), "{text}");
            let HostPort::Address(address) = endpoint.within(Some(directory)).unwrap() else { panic!("{text}") };
            assert_eq!((address.to_string().as_str(), address.is_loopback()), ("unix:/run/tollhouse/shop.sock", true));
        }
        let long = format!("unix:{}", "a".repeat(81));
        for wrong in ["unix:", "unix:/etc/shop", "unix:../shop", "unix:..", "unix:a/b", "unix://a", "unix:a b", &long] {
            assert!(wrong.parse::<EndpointUrl>().is_err(), "{wrong}");
        }
        let plain: EndpointUrl = "127.0.0.1:1".parse().unwrap();
        assert_eq!(plain.clone().within(Some(directory)), Ok(plain.host_port));
    }
}
