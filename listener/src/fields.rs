//! Names of header fields: those that are removed from client requests, and those that are forbidden in trailers.

/// Fields that an edge, a balancer or an authenticating proxy sends to a service, by first letter. A trailing `*`
/// matches the rest of a name.
const RESERVED: &[(u8, &[&str])] = &[
    (b'c', &["cf-*", "client-cert", "client-cert-*", "client-ip", "clientip", "cloudfront-*"]),
    (b'f', &["fastly-*", "fly-*", "forwarded", "front-end-https"]),
    (b'm', &["mellon-*"]),
    (b'o', &["oidc-*"]),
    (b'p', &["proxy", "proxy-*"]),
    (b'r', &["remote-*"]),
    (b's', &["shib-*", "ssl-*"]),
    (b't', &["tailscale-*", "tollhouse-*"]),
    (b'w', &["wl-proxy-*"]),
    (
        b'x',
        &[
            "x-accel-*",
            "x-amzn-mtls-*",
            "x-amzn-oidc-*",
            "x-anonymous-consumer",
            "x-appengine-*",
            "x-arr-*",
            "x-auth-request-*",
            "x-authenticated-*",
            "x-authentik-*",
            "x-azure-*",
            "x-client-addr",
            "x-client-cert*",
            "x-client-dn",
            "x-client-verif*",
            "x-clientip",
            "x-consumer-*",
            "x-credential-*",
            "x-envoy-*",
            "x-forwarded",
            "x-forwarded-*",
            "x-goog-authenticated-user-*",
            "x-goog-iap-*",
            "x-host",
            "x-http-host-override",
            "x-https",
            "x-ms-client-principal*",
            "x-nf-client-connection-ip",
            "x-original-*",
            "x-originating-*",
            "x-pomerium-*",
            "x-proxy-*",
            "x-proxyuser-ip",
            "x-real-*",
            "x-remote-*",
            "x-request-id",
            "x-rewrite-*",
            "x-scheme",
            "x-script-name",
            "x-sendfile-type",
            "x-ssl",
            "x-ssl-*",
            "x-sucuri-*",
            "x-tls-*",
            "x-tollhouse-*",
            "x-url-scheme",
            "x-vercel-*",
            "x-webauth-*",
        ],
    ),
];

/// Endings of names that carry a client address.
const RESERVED_ENDINGS: &[&str] = &["-client-ip", "-connecting-ip"];

/// Names that override the method, and so would bypass rules about methods.
const METHOD_OVERRIDES: &[&str] = &["x-http-method*", "x-method-override"];

/// Whether a name has an underscore.
pub fn has_underscore(name: &str) -> bool {
    memchr::memchr(b'_', name.as_bytes()).is_some()
}

/// Whether clients are forbidden to send a field of this name (lower case).
pub fn is_reserved(name: &str) -> bool {
    let letter = name.as_bytes().first();
    let known = RESERVED.iter().find(|(first, _)| Some(first) == letter).map_or(&[][..], |(_, patterns)| patterns);
    known.iter().any(|pattern| fits(pattern, name))
        || name.ends_with("-ip") && RESERVED_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a field overrides the method of its request.
pub fn is_method_override(name: &str) -> bool {
    name.starts_with("x-") && METHOD_OVERRIDES.iter().any(|pattern| fits(pattern, name))
}

/// Whether a name matches a pattern: an exact name, or a prefix followed by `*`.
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list in the documentation equals this one.
    #[test]
    fn the_documentation_names_every_reserved_field() {
        let text = include_str!("../../docs/tenant/http.md");
        let (_, list) = text.split_once("<!-- reserved -->").expect("the start of the list");
        let (list, _) = list.split_once("<!-- end -->").expect("the end of the list");
        let mut told: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        let endings = RESERVED_ENDINGS.iter().map(|ending| format!("*{ending}"));
        let all = RESERVED.iter().flat_map(|(_, patterns)| patterns.iter().map(|pattern| (*pattern).to_owned()));
        let mut known: Vec<String> = all.chain(endings).collect();
        known.sort();
        told.sort_unstable();
        assert_eq!(told, known);
        let letters_fit = |(letter, patterns): &(u8, &[&str])| {
            patterns.iter().all(|pattern| pattern.as_bytes().first() == Some(letter))
        };
        assert!(RESERVED.iter().all(letters_fit));
    }
}
