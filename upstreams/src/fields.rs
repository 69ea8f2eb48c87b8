//! Selects the fields of a request that reach an upstream as the client sent them.
//!
//! One list ([`is_reserved`], explained in `docs/tenant/http.md`) names the fields that could make an application take a
//! client for the edge, for another address, or for a signed-in user. All other fields belong to the application. An
//! upstream may widen or narrow the list ([`FieldRules`]); names under `tollhouse` never come from a client.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use listener::fields::{fits, has_underscore, is_method_override, is_reserved};

/// Fields of the gateway and of message framing: no setting changes them.
const FIXED: &[&str] =
    &["tollhouse-*", "x-tollhouse-*", "connection", "content-length", "host", "transfer-encoding", "expect"];

/// A name in lower case, or a prefix of names (`x-auth-*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPattern(String);

/// A pattern that the settings may not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// Neither a name nor a prefix of names.
    #[error("use the name of a header, such as X-User-Id, or the start of some names, such as X-Auth-*")]
    NoName,
    /// A field that only the gateway may set.
    #[error("remove it: only the gateway sets this header")]
    Fixed,
}

impl FromStr for FieldPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let text = text.trim().to_ascii_lowercase();
        let start = text.strip_suffix('*').unwrap_or(&text);
        if HeaderName::from_bytes(start.as_bytes()).is_err() || start.contains('*') {
            return Err(InvalidPattern::NoName);
        }
        let pattern = Self(text);
        let is_fixed = |fixed: &&str| fits(fixed, pattern.start()) || pattern.fits(fixed.trim_end_matches('*'));
        if FIXED.iter().any(is_fixed) { Err(InvalidPattern::Fixed) } else { Ok(pattern) }
    }
}

impl FieldPattern {
    fn start(&self) -> &str {
        self.0.trim_end_matches('*')
    }

    fn fits(&self, name: &str) -> bool {
        fits(&self.0, name)
    }
}

impl fmt::Display for FieldPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

contract::words! {
    /// What happens to fields with an underscore in the name: servers that turn names into variables read `X_User` as
    /// `X-User`.
    #[derive(Default)]
    pub enum Underscores {
        /// They are dropped.
        #[default]
        Drop = "drop",
        /// They reach the upstream, if they would with hyphens.
        Pass = "pass",
        /// A request with such a field is refused.
        Refuse = "refuse",
    }
}

/// An upstream's differences from the list of reserved fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldRules {
    /// Reserved names that reach the upstream, unless the gateway sets them itself.
    pub pass: Vec<FieldPattern>,
    /// More names that are dropped; they override `pass`.
    pub drop: Vec<FieldPattern>,
    /// The upstream's routes have rules for methods, so method override fields are dropped.
    pub guards_methods: bool,
    /// What happens to names with an underscore.
    pub underscores: Underscores,
}

impl FieldRules {
    /// The rules of an upstream without its own.
    pub const USUAL: Self =
        Self { pass: Vec::new(), drop: Vec::new(), guards_methods: false, underscores: Underscores::Drop };

    /// Whether the gateway drops a field; `name` is in lower case. Runs for every field of every request, so most names
    /// are decided by their first letter.
    pub fn removes(&self, name: &str) -> bool {
        if has_underscore(name) {
            return self.underscores != Underscores::Pass || self.drops(name) || self.is_kept(&name.replace('_', "-"));
        }
        let fit = |patterns: &[FieldPattern]| patterns.iter().any(|pattern| pattern.fits(name));
        if is_reserved(name) || self.guards_methods && is_method_override(name) {
            return !fit(&self.pass) || fit(&self.drop);
        }
        fit(&self.drop)
    }

    /// Whether the upstream's own rules drop a field; `name` is in lower case.
    pub fn drops(&self, name: &str) -> bool {
        self.drop.iter().any(|pattern| pattern.fits(name))
    }

    /// Whether the gateway sets or drops a field of this name.
    fn is_kept(&self, name: &str) -> bool {
        is_reserved(name) || is_method_override(name) || self.drops(name) || FIXED.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(pass: &[&str], drop: &[&str]) -> FieldRules {
        let parse = |patterns: &[&str]| patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        FieldRules { pass: parse(pass), drop: parse(drop), guards_methods: true, underscores: Underscores::Drop }
    }

    #[test]
    fn fields_that_impersonate_the_edge_or_a_user_are_dropped() {
        let plain = FieldRules::default();
        for name in [
            "cf-connecting-ip",
            "client-ip",
            "fastly-client-ip",
            "forwarded",
            "proxy",
            "remote-user",
            "tollhouse-identity-token",
            "true-client-ip",
            "wl-proxy-client-ip",
            "x-any-client-ip",
            "x-authenticated-user",
            "x-envoy-external-address",
            "x-forwarded-user",
            "x-host",
            "x-original-url",
            "x-real-ip",
            "x-ssl-client-cert",
            "x-tollhouse-plan",
        ] {
            assert!(plain.removes(name), "{name}");
        }
    }

    #[test]
    fn an_applications_own_fields_reach_it() {
        let plain = FieldRules::default();
        for name in [
            "authorization",
            "client",
            "cookie",
            "origin",
            "priority",
            "sec-fetch-mode",
            "x-account-id",
            "x-api-key",
            "x-auth-token",
            "x-csrf-token",
            "x-http-method-override",
            "x-key-id",
            "x-plan",
            "x-planet",
            "x-project-id",
            "x-requested-with",
            "x-tenant-id",
            "x-user-agent",
            "x-user-id",
        ] {
            assert!(!plain.removes(name), "{name}");
        }
    }

    #[test]
    fn an_upstream_widens_and_narrows_the_list() {
        let rules = rules(&["X-Authenticated-*", "CF-Ray", "x-http-method"], &["X-User-*", "cf-ray"]);
        assert!(!rules.removes("x-authenticated-user"));
        assert!(rules.removes("x-authentik-username"));
        assert!(rules.removes("x-user-id") && !rules.removes("x-use"));
        assert!(rules.removes("cf-ray"), "drop_headers wins");
        assert!(!rules.removes("x-http-method") && rules.removes("x-http-method-override"));
        assert!(rules.removes("x-method-override"));
    }

    #[test]
    fn a_name_with_an_underscore_reaches_only_an_upstream_that_allows_it() {
        let with = |underscores| FieldRules { underscores, ..rules(&["X-Authenticated-*"], &["client_i*", "X-Pet-*"]) };
        let (drop, pass) = (with(Underscores::Drop), with(Underscores::Pass));
        for name in ["user_id", "x_user", "api_key"] {
            assert!(drop.removes(name) && !pass.removes(name), "{name}");
        }
        for name in [
            "client_id",
            "x_forwarded_for",
            "x-forwarded_for",
            "tollhouse_identity",
            "x_tollhouse_plan",
            "remote_user",
            "some_client_ip",
            "x_http_method_override",
            "transfer_encoding",
            "x_authenticated_user",
            "x_pet_id",
        ] {
            assert!(pass.removes(name), "{name}");
        }
    }

    #[test]
    fn no_setting_changes_the_gateways_own_fields() {
        for fixed in
            ["Tollhouse-Identity-Token", "tollhouse-*", "x-toll*", "X-Tollhouse-Plan", "Content-Length", "h*", "expect"]
        {
            assert_eq!(fixed.parse::<FieldPattern>(), Err(InvalidPattern::Fixed), "{fixed}");
        }
        for none in ["", "*", "a b", "x-*-id", "x-**"] {
            assert_eq!(none.parse::<FieldPattern>(), Err(InvalidPattern::NoName), "{none}");
        }
        assert_eq!("X-User-*".parse::<FieldPattern>().unwrap().to_string(), "x-user-*");
    }
}
