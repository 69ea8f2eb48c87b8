//! The syntax of `Host`: a name or an address, and an optional port. The pipeline decides whether the host exists; it
//! also folds case, a trailing dot and the default port.

use contract::rejection::Rejection;

/// The longest name with its trailing dot.
const NAME_BYTES_MAX: usize = 254;

/// Accepts `name`, `name:port`, `192.0.2.1`, `[2001:db8::1]:port`.
pub(super) fn check(value: &[u8]) -> Result<(), Rejection> {
    let (name, port) = split(value).ok_or(Rejection::BadHost)?;
    if !port.is_none_or(is_port) {
        return Err(Rejection::BadHost);
    }
    let well_formed = match name {
        [b'[', address @ .., b']'] => is_ipv6(address),
        name => is_name(name),
    };
    if well_formed { Ok(()) } else { Err(Rejection::BadHost) }
}

/// Whether a port is present, even an empty one.
pub(super) fn has_port(value: &[u8]) -> bool {
    split(value).is_some_and(|(_, port)| port.is_some())
}

/// Splits into the name and the text after the port's colon.
fn split(value: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let name_bytes = if value.first() == Some(&b'[') {
        value.iter().position(|byte| *byte == b']')? + 1
    } else {
        value.iter().position(|byte| *byte == b':').unwrap_or(value.len())
    };
    match value.split_at_checked(name_bytes)? {
        (name, []) => Some((name, None)),
        (name, [b':', port @ ..]) => Some((name, Some(port))),
        _ => None,
    }
}

/// 1 to 65535, without sign or leading zero: some servers would treat two spellings of a port as two hosts.
fn is_port(text: &[u8]) -> bool {
    if !(1..=5).contains(&text.len()) || text.first() == Some(&b'0') || !text.iter().all(u8::is_ascii_digit) {
        return false;
    }
    u16::try_from(text.iter().fold(0_u32, |port, digit| port * 10 + u32::from(digit - b'0'))).is_ok()
}

fn is_name(name: &[u8]) -> bool {
    let name_without_dot = name.strip_suffix(b".").unwrap_or(name);
    name.len() <= NAME_BYTES_MAX
        && name_without_dot.len() < NAME_BYTES_MAX
        && name_without_dot.split(|byte| *byte == b'.').all(|label| {
            (1..=63).contains(&label.len()) && label.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        })
}

fn is_ipv6(address: &[u8]) -> bool {
    std::str::from_utf8(address).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}
