//! PROXY protocol, versions 1 and 2: a trusted load balancer names the client of a connection.
//!
//! Only TCP over IPv4 and IPv6, parsed strictly: a header with two possible meanings would let a client choose its own
//! address. The listener decides which peers are trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of version 1.
const WORD: &[u8; 6] = b"PROXY ";
/// The longest line of version 1 after [`WORD`], with its line end.
const LINE_BYTES_MAX: usize = 101;
/// Length of the fixed part of version 2.
const FIXED_BYTES: usize = 16;
/// The most bytes after the fixed part: addresses and a few type-length-value fields.
const REST_BYTES_MAX: usize = 2_048;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Why no client address could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyHeaderError {
    /// The bytes are not a valid header.
    #[error("not a PROXY protocol header for TCP")]
    Malformed,
    /// The connection broke first.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The source address in a connection's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxySource {
    /// The client at this address.
    Client(SocketAddr),
    /// The balancer itself: a health check.
    Balancer,
}

/// Reads the header and no byte after it. The caller sets the deadline.
pub(crate) async fn read<S: AsyncRead + Unpin>(io: &mut S) -> Result<ProxySource, ProxyHeaderError> {
    let mut fixed = [0; FIXED_BYTES];
    let (word, rest) = fixed.split_at_mut(WORD.len());
    io.read_exact(word).await?;
    if word == WORD {
        return read_line(io).await;
    }
    io.read_exact(rest).await?;
    let length = rest_length(&fixed).ok_or(ProxyHeaderError::Malformed)?;
    let mut rest = [0; REST_BYTES_MAX];
    let rest = rest.get_mut(..length).ok_or(ProxyHeaderError::Malformed)?;
    io.read_exact(rest).await?;
    proxy_source(&fixed, rest).ok_or(ProxyHeaderError::Malformed)
}

/// Reads the rest of a version 1 line. The line has no length, so it is read byte by byte, and no later byte is
/// consumed.
async fn read_line<S: AsyncRead + Unpin>(io: &mut S) -> Result<ProxySource, ProxyHeaderError> {
    let mut line = Vec::with_capacity(LINE_BYTES_MAX);
    while line.last() != Some(&b'\n') {
        if line.len() == LINE_BYTES_MAX {
            return Err(ProxyHeaderError::Malformed);
        }
        line.push(io.read_u8().await?);
    }
    let text = std::str::from_utf8(&line).ok().and_then(|text| text.strip_suffix("\r\n"));
    text.and_then(source_of_line).ok_or(ProxyHeaderError::Malformed)
}

fn source_of_line(text: &str) -> Option<ProxySource> {
    // The specification says to ignore the rest of the line.
    if text == "UNKNOWN" || text.starts_with("UNKNOWN ") {
        return Some(ProxySource::Balancer);
    }
    let (family, addresses) = text.split_once(' ')?;
    match family {
        "TCP4" => source::<Ipv4Addr>(addresses),
        "TCP6" => source::<Ipv6Addr>(addresses),
        _ => None,
    }
}

/// `source destination source-port destination-port`, one space between them.
fn source<A: FromStr + Into<IpAddr>>(addresses: &str) -> Option<ProxySource> {
    let mut parts = addresses.split(' ');
    let (source, destination) = (parts.next()?.parse::<A>().ok()?, parts.next()?.parse::<A>().ok());
    let (port, other_port) = (port(parts.next()?)?, port(parts.next()?));
    let is_whole = destination.is_some() && other_port.is_some() && parts.next().is_none();
    is_whole.then(|| ProxySource::Client((source.into(), port).into()))
}

/// Parses a port: digits only, at most 65535, no leading zero.
fn port(text: &str) -> Option<u16> {
    let is_canonical = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_canonical)
}

/// The number of bytes that follow; `None` for an invalid header.
fn rest_length(fixed: &[u8; FIXED_BYTES]) -> Option<usize> {
    let [high, low] = *fixed.strip_prefix(SIGNATURE)?.last_chunk::<2>()?;
    Some(usize::from(u16::from_be_bytes([high, low]))).filter(|length| *length <= REST_BYTES_MAX)
}

/// The source in a version 2 header; `None` for an unsupported one.
fn proxy_source(fixed: &[u8; FIXED_BYTES], rest: &[u8]) -> Option<ProxySource> {
    let [command, family, ..] = fixed.strip_prefix(SIGNATURE)? else {
        return None;
    };
    match (command, family) {
        // LOCAL: the specification says to ignore the addresses.
        (0x20, _) => Some(ProxySource::Balancer),
        (0x21, 0x11) => {
            let (addresses, fields) = rest.split_first_chunk::<12>()?;
            let (source, ports) = (addresses.first_chunk::<4>()?, addresses.last_chunk::<4>()?);
            well_formed(fields).then(|| ProxySource::Client((Ipv4Addr::from(*source), source_port(*ports)).into()))
        }
        (0x21, 0x21) => {
            let (addresses, fields) = rest.split_first_chunk::<36>()?;
            let (source, ports) = (addresses.first_chunk::<16>()?, addresses.last_chunk::<4>()?);
            well_formed(fields).then(|| ProxySource::Client((Ipv6Addr::from(*source), source_port(*ports)).into()))
        }
        _ => None,
    }
}

fn source_port([high, low, ..]: [u8; 4]) -> u16 {
    u16::from_be_bytes([high, low])
}

/// Whether the type-length-value fields fill the remaining bytes exactly. Their content is ignored.
fn well_formed(mut fields: &[u8]) -> bool {
    while let [_, high, low, rest @ ..] = fields {
        match rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) {
            Some(next) => fields = next,
            None => return false,
        }
    }
    fields.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x30, 0x39, 0x01, 0xBB];

    async fn parse(bytes: &[u8]) -> Result<Option<String>, ()> {
        let mut io = bytes;
        let proxy_source = read(&mut io).await.map_err(|_| ())?;
        assert_eq!(io, b"GET", "not a byte more than the header is read");
        Ok(match proxy_source {
            ProxySource::Client(address) => Some(address.to_string()),
            ProxySource::Balancer => None,
        })
    }

    #[tokio::test]
    async fn the_client_of_a_header_is_its_source() {
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        v6[32..34].copy_from_slice(&443_u16.to_be_bytes());
        let with_field = [&V4[..], &[0x04, 0, 2, 9, 9]].concat();
        for (bytes, expected) in [
            (header(0x21, 0x11, &V4), Some("192.0.2.7:12345")),
            (header(0x21, 0x11, &with_field), Some("192.0.2.7:12345")),
            (header(0x21, 0x21, &v6), Some("[2001:db8::7]:443")),
            (header(0x20, 0x00, &[]), None),
            (header(0x20, 0x11, &V4), None),
            (b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(), Some("192.0.2.7:12345")),
            (b"PROXY TCP6 2001:db8::7 2001:db8::1 0 443\r\n".to_vec(), Some("[2001:db8::7]:0")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
        ] {
            assert_eq!(parse(&[&bytes[..], b"GET"].concat()).await, Ok(expected.map(str::to_owned)));
        }
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
        let truncated_field = [&V4[..], &[0x04, 0, 3, 9, 9]].concat();
        let half_a_field = [&V4[..], &[0x04]].concat();
        for bytes in [
            header(0x21, 0x11, &V4[..11]),
            header(0x21, 0x12, &V4),
            header(0x21, 0x21, &V4),
            header(0x21, 0x31, &[0; 216]),
            header(0x22, 0x11, &V4),
            header(0x11, 0x11, &V4),
            header(0x21, 0x11, &truncated_field),
            header(0x21, 0x11, &half_a_field),
            header(0x21, 0x11, &[0; 2_049]),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\n".to_vec(),
            b"PROXY TCP4 192.0.2.7  198.51.100.1 12345 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 012345 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 +1 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 12345\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 12345 443 \r\n".to_vec(),
            b"PROXY TCP4 2001:db8::7 2001:db8::1 12345 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.07 198.51.100.1 12345 443\r\n".to_vec(),
            b"PROXY TCP6 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(),
            b"PROXY UDP4 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(),
            b"PROXY UNKNOWNS\r\n".to_vec(),
            b"PROXY \r\n".to_vec(),
            b"proxy TCP4 192.0.2.7 198.51.100.1 12345 443\r\n".to_vec(),
            [&b"PROXY UNKNOWN "[..], &[b'x'; 100], b"\r\n"].concat(),
            b"PROXY TCP4 192.0.2.7".to_vec(),
            b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(),
            header(0x21, 0x11, &V4)[..20].to_vec(),
        ] {
            let mut io = &bytes[..];
            assert!(read(&mut io).await.is_err(), "{}", bytes.escape_ascii());
        }
    }
}
