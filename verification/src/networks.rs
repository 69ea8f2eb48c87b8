//! Address ranges with a meaning: those to which no packet is sent, and those of content delivery networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of content delivery networks that hide a name's CNAME behind their addresses, with the network's name
/// (Cloudflare publishes its list at cloudflare.com/ips).
const PROXIES_V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(173, 245, 48, 0), 20, "Cloudflare"),
    (Ipv4Addr::new(103, 21, 244, 0), 22, "Cloudflare"),
    (Ipv4Addr::new(103, 22, 200, 0), 22, "Cloudflare"),
    (Ipv4Addr::new(103, 31, 4, 0), 22, "Cloudflare"),
    (Ipv4Addr::new(141, 101, 64, 0), 18, "Cloudflare"),
    (Ipv4Addr::new(108, 162, 192, 0), 18, "Cloudflare"),
    (Ipv4Addr::new(190, 93, 240, 0), 20, "Cloudflare"),
    (Ipv4Addr::new(188, 114, 96, 0), 20, "Cloudflare"),
    (Ipv4Addr::new(197, 234, 240, 0), 22, "Cloudflare"),
    (Ipv4Addr::new(198, 41, 128, 0), 17, "Cloudflare"),
    (Ipv4Addr::new(162, 158, 0, 0), 15, "Cloudflare"),
    (Ipv4Addr::new(104, 16, 0, 0), 13, "Cloudflare"),
    (Ipv4Addr::new(104, 24, 0, 0), 14, "Cloudflare"),
    (Ipv4Addr::new(172, 64, 0, 0), 13, "Cloudflare"),
    (Ipv4Addr::new(131, 0, 72, 0), 22, "Cloudflare"),
];

/// The same for IPv6.
const PROXIES_V6: &[(Ipv6Addr, u32, &str)] = &[
    (Ipv6Addr::new(0x2400, 0xcb00, 0, 0, 0, 0, 0, 0), 32, "Cloudflare"),
    (Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 0), 32, "Cloudflare"),
    (Ipv6Addr::new(0x2803, 0xf800, 0, 0, 0, 0, 0, 0), 32, "Cloudflare"),
    (Ipv6Addr::new(0x2405, 0xb500, 0, 0, 0, 0, 0, 0), 32, "Cloudflare"),
    (Ipv6Addr::new(0x2405, 0x8100, 0, 0, 0, 0, 0, 0), 32, "Cloudflare"),
    (Ipv6Addr::new(0x2a06, 0x98c0, 0, 0, 0, 0, 0, 0), 29, "Cloudflare"),
    (Ipv6Addr::new(0x2c0f, 0xf248, 0, 0, 0, 0, 0, 0), 32, "Cloudflare"),
];

/// Addresses that clouds use for services inside of them: metadata, agents of virtual machines, resolvers. All other
/// known ones are link-local, private or in 100.64.0.0/10.
const OF_CLOUDS_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure
    (Ipv4Addr::new(161, 26, 0, 0), 16),    // IBM Cloud
    (Ipv4Addr::new(166, 8, 0, 0), 14),     // IBM Cloud
];

/// Networks within the global part of IPv6 that are not public: those that embed an IPv4 address chosen by their
/// author, and those that are not routed (RFC 6890 and its registry). The prefix of NAT64, `64:ff9b::/96`, lies outside
/// of that part.
const NOT_PUBLIC_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocols of their own, Teredo (2001::/32) among them
    (Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// The content delivery network of an address, if it is a known one.
pub fn proxy_of(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            PROXIES_V4.iter().find(|(network, prefix, _)| in_v4(address, *network, *prefix)).map(|(_, _, name)| *name)
        }
        IpAddr::V6(address) => {
            PROXIES_V6.iter().find(|(network, prefix, _)| in_v6(address, *network, *prefix)).map(|(_, _, name)| *name)
        }
    }
}

fn in_v4(address: Ipv4Addr, network: Ipv4Addr, prefix: u32) -> bool {
    let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
    u32::from(address) & mask == u32::from(network) & mask
}

fn in_v6(address: Ipv6Addr, network: Ipv6Addr, prefix: u32) -> bool {
    let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
    u128::from(address) & mask == u128::from(network) & mask
}

/// Whether packets may be sent to a nameserver at this address. The customer chose it, so it must not be this machine,
/// a private network, or a cloud's metadata service.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_public_v4(mapped),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let relays = a == 192 && b == 88 && c == 99; // of 6to4
    let special = relays || (a == 192 && b == 0 && c == 0) || (a == 198 && (b == 18 || b == 19)) || a == 0 || a >= 240;
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || shared
        || special
        || OF_CLOUDS_V4.iter().any(|(network, prefix)| in_v4(address, *network, *prefix)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, ..] = address.segments();
    first & 0xe000 == 0x2000 && !NOT_PUBLIC_V6.iter().any(|(network, prefix)| in_v6(address, *network, *prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_special_addresses_receive_no_packet() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2001::1",
            "2001:0:7f00:1::1",
            "2001:1ff:ffff::1",
            "2002:a9fe:a9fe::1",
            "3fff::1",
            "3fff:fff:ffff::1",
            "192.88.99.1",
            "::ffff:192.88.99.1",
            // Metadata and agents of clouds: Azure, Oracle, Alibaba, IBM, Amazon, Google.
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "192.0.0.192",
            "100.100.100.200",
            "161.26.0.10",
            "166.11.255.255",
            "fd00:ec2::254",
            "fd20:ce::254",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.88.98.1",
            "168.63.129.15",
            "166.7.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "3fff:1000::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn proxied_addresses_are_recognised() {
        for address in
            ["104.16.1.1", "104.27.255.255", "172.67.1.1", "2606:4700:3030::1", "2a06:98c0::1", "2a06:98c7:ffff::1"]
        {
            assert_eq!(proxy_of(address.parse().unwrap()), Some("Cloudflare"), "{address}");
        }
        for address in ["104.15.255.255", "104.28.0.0", "203.0.113.7", "2001:db8::1", "2a06:98c8::1", "2a06:98bf::1"] {
            assert_eq!(proxy_of(address.parse().unwrap()), None, "{address}");
        }
    }
}
