//! Names of header fields: where each may occur, and which fields of clients are not forwarded.

/// The field is allowed in a forwarded request.
const REQUEST: u8 = 1;
/// The field is allowed in a forwarded response.
const RESPONSE: u8 = 2;
/// The field is allowed in trailers, in either direction.
const TRAILER: u8 = 4;
/// `Connection` may list it.
const NOMINATED: u8 = 8;

/// Where all other fields may occur. `Connection` may not list them: listed fields are removed on the way, so a client
/// could delete a field that the gateway or the upstream needs.
const OTHERS: u8 = REQUEST | RESPONSE | TRAILER;

/// Fields with restrictions, and where each may occur: fields of one connection (RFC 9110 section 7.6.1), and fields
/// that frame, route, authenticate or describe a message, which are not allowed in trailers (section 6.5.1). Only those
/// with the first letter of `name` are returned.
fn rows(name: &str) -> &'static [(&'static str, u8)] {
    match name.as_bytes().first().map(u8::to_ascii_lowercase) {
        Some(b'a') => &[("authorization", REQUEST | RESPONSE)],
        Some(b'c') => &[
            ("cache-control", REQUEST | RESPONSE),
            ("close", RESPONSE | NOMINATED),
            ("connection", 0),
            ("content-encoding", REQUEST | RESPONSE),
            ("content-length", REQUEST | RESPONSE),
            ("content-range", REQUEST | RESPONSE),
            ("content-type", REQUEST | RESPONSE),
            ("cookie", REQUEST | RESPONSE),
        ],
        Some(b'e') => &[("expect", REQUEST | RESPONSE)],
        Some(b'h') => &[("host", REQUEST | RESPONSE), ("http2-settings", RESPONSE | NOMINATED)],
        Some(b'k') => &[("keep-alive", NOMINATED)],
        Some(b'm') => &[("max-forwards", REQUEST | RESPONSE)],
        Some(b'o') => &[("origin", REQUEST | RESPONSE)],
        Some(b'p') => {
            &[("proxy-authenticate", RESPONSE), ("proxy-authorization", RESPONSE), ("proxy-connection", NOMINATED)]
        }
        Some(b'r') => &[("range", REQUEST | RESPONSE)],
        Some(b's') => &[("set-cookie", REQUEST | RESPONSE)],
        Some(b't') => &[("te", NOMINATED), ("trailer", NOMINATED), ("transfer-encoding", 0)],
        Some(b'u') => &[("upgrade", NOMINATED)],
        _ => &[],
    }
}

/// Whether a field of this name, in any spelling, is allowed in this place. Called for every field of every message:
/// only rows that differ from [`OTHERS`] in this place are compared.
fn may_stand_in<const PLACE: u8>(name: &str) -> bool {
    let usually = OTHERS & PLACE != 0;
    let differs = |(known, places): &(&str, u8)| (places & PLACE != 0) != usually && known.eq_ignore_ascii_case(name);
    rows(name).iter().any(differs) != usually
}

/// Whether a field of this name, in any spelling, is allowed in a request to an upstream.
pub fn may_stand_in_request(name: &str) -> bool {
    may_stand_in::<REQUEST>(name)
}

/// Whether a field of this name, in any spelling, is allowed in a response to a client.
pub fn may_stand_in_response(name: &str) -> bool {
    may_stand_in::<RESPONSE>(name)
}

/// Whether a field of this name, in any spelling, is allowed in trailers.
pub fn may_stand_in_trailers(name: &str) -> bool {
    may_stand_in::<TRAILER>(name)
}

/// Whether `Connection` of a client may list this name, in any spelling.
pub fn may_be_nominated(name: &str) -> bool {
    may_stand_in::<NOMINATED>(name)
}

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

    #[test]
    fn every_field_has_its_places() {
        let may = |name: &str| {
            let all = [may_stand_in_request, may_stand_in_response, may_stand_in_trailers, may_be_nominated];
            all.map(|may| u8::from(may(name)))
        };
        assert_eq!(may("X-Sum"), [1, 1, 1, 0]);
        assert_eq!(may("Content-Type"), [1, 1, 0, 0]);
        assert_eq!(may("Transfer-Encoding"), [0, 0, 0, 0]);
        assert_eq!(may("te"), [0, 0, 0, 1]);
        assert_eq!(may("Proxy-Authenticate"), [0, 1, 0, 0]);
        let nominated = ["Close", "Keep-Alive", "Upgrade", "TE", "Trailer", "Proxy-Connection", "HTTP2-Settings"];
        assert!(nominated.into_iter().all(|name| may_be_nominated(name) && !may_stand_in_request(name)));
    }

    /// The list in the documentation equals this one.
    #[test]
    fn the_documentation_names_every_reserved_field() {
        let text = include_str!("../../docs/tenant/http.md");
        let (_, list) = text.split_once("<!-- reserved -->").expect("the start of the list");
        let (list, _) = list.split_once("<!-- end -->").expect("the end of the list");
        let mut documented: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        let endings = RESERVED_ENDINGS.iter().map(|ending| format!("*{ending}"));
        let all = RESERVED.iter().flat_map(|(_, patterns)| patterns.iter().map(|pattern| (*pattern).to_owned()));
        let mut known: Vec<String> = all.chain(endings).collect();
        known.sort();
        documented.sort_unstable();
        assert_eq!(documented, known);
        let letters_fit = |(letter, patterns): &(u8, &[&str])| {
            patterns.iter().all(|pattern| pattern.as_bytes().first() == Some(letter))
        };
        assert!(RESERVED.iter().all(letters_fit));
    }
}
