//! Validates a name for attaching: a public name below a public suffix, outside of the platform's own zone.

use contract::hostname::{Hostname, InvalidHostname};

use crate::config::NameRules;

/// Reserved names, refused as domains: RFC 2606, 6761, 6762, 7686, 8375, 9476, and ICANN's `internal`.
const RESERVED: &[&str] = &[
    "localhost",
    "local",
    "invalid",
    "test",
    "example",
    "example.com",
    "example.net",
    "example.org",
    "onion",
    "alt",
    "internal",
    "arpa",
];

/// Why a text cannot be attached as a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameError {
    /// Not a fully qualified hostname; the word for `details.reason` and a sentence.
    Invalid(&'static str, String),
    /// A name reserved for other uses.
    Reserved,
    /// Names are registered under it by different people.
    PublicSuffix,
    /// It is in the platform's own zone.
    Platform,
}

/// A name that may be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachable {
    pub(crate) name: Hostname,
    /// The name always means this machine, without DNS.
    pub(crate) local: bool,
    /// The part that its owner registered, by the public suffix list.
    pub(crate) registrable: Hostname,
    /// The part registered with a public registry. Names below a private suffix of the list, such as `github.io`, are
    /// often in that suffix's own zone.
    pub(crate) delegable: Hostname,
}

impl Attachable {
    /// Whether the name seems to be the apex of its zone, before DNS has been checked.
    pub(crate) fn seems_apex(&self) -> bool {
        self.name == self.registrable
    }
}

/// Validates `text`, as a user typed it, as a domain to attach.
pub(crate) fn attachable(text: &str, platform: &Hostname, rules: NameRules) -> Result<Attachable, NameError> {
    if text.trim_start().starts_with("*.") {
        return Err(NameError::Invalid("wildcard", "wildcards cannot be attached; add each name".to_owned()));
    }
    let name = Hostname::parse(text).map_err(invalid)?;
    if !name.as_str().contains('.') {
        return Err(NameError::Invalid("not_fqdn", "give the whole name, for example shop.example.com".to_owned()));
    }
    if name.is_under(platform) {
        return Err(NameError::Platform);
    }
    let local = is_under(&name, "localhost");
    let for_tests = is_under(&name, "test") || is_under(&name, "example");
    let permitted = (local && rules.allow_local) || (for_tests && rules.allow_test);
    if !permitted && RESERVED.iter().any(|reserved| is_under(&name, reserved)) {
        return Err(NameError::Reserved);
    }
    let registrable = psl::domain_str(name.as_str()).and_then(|text| Hostname::from_ascii(text).ok());
    let registrable = registrable.ok_or(NameError::PublicSuffix)?;
    Ok(Attachable { delegable: delegable(&registrable), name, local, registrable })
}

/// The name that a public registry delegated: the registrable name, or the registration of the private suffix above it.
fn delegable(registrable: &Hostname) -> Hostname {
    let mut name = registrable.as_str();
    while psl::suffix(name.as_bytes()).and_then(|suffix| suffix.typ()) == Some(psl::Type::Private) {
        let Some(suffix) = psl::suffix_str(name) else { break };
        match suffix.split_once('.') {
            // The suffix is directly below a registry's, so it is the registered name.
            Some((_, above)) if is_registry(above) => return owned(suffix, registrable),
            Some((_, above)) => name = above,
            None => break,
        }
    }
    owned(psl::domain_str(name).unwrap_or(name), registrable)
}

/// Whether this is a public registry's suffix.
fn is_registry(name: &str) -> bool {
    let suffix = psl::suffix(name.as_bytes());
    psl::suffix_str(name) == Some(name) && suffix.is_some_and(|suffix| suffix.typ() != Some(psl::Type::Private))
}

fn owned(name: &str, otherwise: &Hostname) -> Hostname {
    Hostname::from_ascii(name).unwrap_or_else(|_| otherwise.clone())
}

fn is_under(name: &Hostname, zone: &str) -> bool {
    name.as_str().strip_suffix(zone).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn invalid(error: InvalidHostname) -> NameError {
    NameError::Invalid(error.reason(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: NameRules = NameRules { allow_local: false, allow_test: false };

    fn check(text: &str, rules: NameRules) -> Result<Attachable, NameError> {
        attachable(text, &"apps.tollhouse.dev".parse().unwrap(), rules)
    }

    fn reason(text: &str) -> String {
        match check(text, NONE) {
            Ok(_) => "ok".to_owned(),
            Err(NameError::Invalid(reason, _)) => reason.to_owned(),
            Err(other) => format!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_of_wrong_name_has_its_own_reason() {
        let long_label = format!("{}.customer.com", "a".repeat(64));
        let long_name = format!("{}customer.com", "abcdefgh.".repeat(30));
        for (text, expected) in [
            ("shop.customer.com", "ok"),
            ("Shop.Customer.COM.", "ok"),
            ("customer.com", "ok"),
            ("customer.co.uk", "ok"),
            ("me.github.io", "ok"),
            ("bücher.de", "ok"),
            ("βόλος.com", "ok"),
            ("", "empty"),
            ("localhost", "not_fqdn"),
            ("com", "not_fqdn"),
            ("10.0.0.1", "ip_address"),
            ("2001:db8::1", "ip_address"),
            ("[2001:db8::1]", "ip_address"),
            ("*.customer.com", "wildcard"),
            ("_acme.customer.com", "character"),
            ("https://customer.com", "character"),
            ("customer.com/path", "character"),
            ("customer..com", "label"),
            ("-a.customer.com", "label"),
            (long_label.as_str(), "label"),
            (long_name.as_str(), "length"),
            ("xn--a.com", "ok"),
            ("a.localhost", "Reserved"),
            ("a.test", "Reserved"),
            ("shop.example.com", "Reserved"),
            ("x.onion", "Reserved"),
            ("router.home.arpa", "Reserved"),
            ("db.internal", "Reserved"),
            ("printer.local", "Reserved"),
            ("x.invalid", "Reserved"),
            ("a.alt", "Reserved"),
            ("co.uk", "PublicSuffix"),
            ("github.io", "PublicSuffix"),
            ("apps.tollhouse.dev", "Platform"),
            ("demo.apps.tollhouse.dev", "Platform"),
        ] {
            assert_eq!(reason(text), expected, "{text:?}");
        }
    }

    #[test]
    fn names_below_a_private_suffix_may_share_its_zone() {
        for (name, registrable, delegable) in [
            ("shop.customer.com", "customer.com", "customer.com"),
            ("shop.customer.co.uk", "customer.co.uk", "customer.co.uk"),
            ("me.github.io", "me.github.io", "github.io"),
            ("www.me.github.io", "me.github.io", "github.io"),
            ("foo.is-a.dev", "foo.is-a.dev", "is-a.dev"),
            ("bucket.s3.us-east-1.amazonaws.com", "bucket.s3.us-east-1.amazonaws.com", "amazonaws.com"),
        ] {
            let found = check(name, NONE).unwrap();
            assert_eq!((found.registrable.as_str(), found.delegable.as_str()), (registrable, delegable), "{name}");
        }
    }

    #[test]
    fn a_long_but_legal_name_is_fine() {
        let name = format!("{}.{}.{}.{}.customer.com", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(47));
        assert_eq!(name.len(), 252);
        assert_eq!(reason(&name), "ok");
    }

    #[test]
    fn local_and_test_names_need_their_switch() {
        let local = check("shop.localhost", NameRules { allow_local: true, allow_test: false }).unwrap();
        assert!(local.local);
        assert!(check("shop.test", NameRules { allow_local: true, allow_test: false }).is_err());
        let test = check("shop.customer.example", NameRules { allow_local: false, allow_test: true }).unwrap();
        assert!(!test.local && !test.seems_apex());
        assert_eq!(test.registrable.as_str(), "customer.example");
    }

    #[test]
    fn spellings_of_one_name_are_one_domain() {
        let names = ["BÜCHER.de", "bücher.de.", "xn--bcher-kva.de", " bücher.de "];
        for text in names {
            assert_eq!(check(text, NONE).unwrap().name.as_str(), "xn--bcher-kva.de");
        }
        // Final and medial sigma are different letters.
        assert_ne!(check("ς.com", NONE).unwrap().name, check("σ.com", NONE).unwrap().name);
    }
}
