//! Address ranges with a meaning: those to which no packet is sent, and those of content delivery networks.

use std::net::IpAddr;
use std::sync::LazyLock;

use ipnet::IpNet;

/// Networks of a content delivery network that hides a name's CNAME behind its addresses: cloudflare.com/ips.
const CLOUDFLARE: &[&str] = &[
    "173.245.48.0/20 103.21.244.0/22 103.22.200.0/22 103.31.4.0/22 141.101.64.0/18 108.162.192.0/18 190.93.240.0/20",
    "188.114.96.0/20 197.234.240.0/22 198.41.128.0/17 162.158.0.0/15 104.16.0.0/13 104.24.0.0/14 172.64.0.0/13",
    "131.0.72.0/22",
    "2400:cb00::/32 2606:4700::/32 2803:f800::/32 2405:b500::/32 2405:8100::/32 2a06:98c0::/29 2c0f:f248::/32",
];

/// Networks that are not public (RFC 6890 and its registry).
const NOT_PUBLIC: &[&str] = &[
    // All of IPv6 but its global part, 2000::/3: this machine, private networks and NAT64, 64:ff9b::/96, among it.
    "::/3 4000::/2 8000::/1",
    // This machine, private networks, link-local, shared by a provider's customers.
    "0.0.0.0/8 127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 100.64.0.0/10",
    // Protocols of their own (Teredo, 2001::/32, among them), benchmarks, multicast, reserved.
    "192.0.0.0/24 2001::/23 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4",
    // 6to4, which embeds an IPv4 address chosen by its author, and its relays.
    "2002::/16 192.88.99.0/24",
    // Documentation.
    "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    // What clouds use for services inside of them: metadata, agents of virtual machines, resolvers. Azure, then IBM
    // Cloud; all other known ones are link-local, private or in 100.64.0.0/10.
    "168.63.129.16/32 161.26.0.0/16 166.8.0.0/14",
];

static PROXIES: LazyLock<Vec<IpNet>> = LazyLock::new(|| parsed(CLOUDFLARE).collect());
static SPECIAL: LazyLock<Vec<IpNet>> = LazyLock::new(|| parsed(NOT_PUBLIC).collect());

fn parsed(lines: &'static [&'static str]) -> impl Iterator<Item = IpNet> {
    lines.iter().flat_map(|line| line.split(' ')).filter_map(|network| network.parse().ok())
}

/// The content delivery network of an address, if it is a known one.
pub fn proxy_of(address: IpAddr) -> Option<&'static str> {
    PROXIES.iter().any(|network| network.contains(&address)).then_some("Cloudflare")
}

/// Whether packets may be sent to a nameserver at this address. The customer chose it, so it must not be this machine,
/// a private network, or a cloud's metadata service.
pub fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    !SPECIAL.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_is_parsed() {
        for lines in [CLOUDFLARE, NOT_PUBLIC] {
            assert_eq!(parsed(lines).count(), lines.join(" ").split(' ').count());
        }
    }

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
