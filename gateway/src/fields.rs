//! Which fields of a request reach an upstream as the client sent them, and which do not.
//!
//! One list ([`RESERVED`], explained in `docs/tenant/http.md`) names what would make an application take a client for the edge, for
//! another address, or for a user that somebody has signed in. Everything else is the application's own. An upstream may
//! widen or narrow the list ([`FieldRules`]); names under `tollhouse` are never a client's.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use listener::fields::{fits, has_underscore, is_method_override, is_reserved};

/// The gateway's own, and what frames a message: no setting changes them.
const FIXED: &[&str] =
    &["tollhouse-*", "x-tollhouse-*", "connection", "content-length", "host", "transfer-encoding", "expect"];

/// A name in lower case, or the beginning of names (`x-auth-*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPattern(String);

/// A text that names no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidPattern {
    /// Neither a name nor the beginning of names.
    #[error("use the name of a header, such as X-User-Id, or the start of some names, such as X-Auth-*")]
    NoName,
    /// It is decided here alone.
    #[error("leave it out: the gateway alone decides about this header")]
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
    /// What becomes of fields whose name has an underscore: `X_User` is `X-User` to servers that make variables of names.
    #[derive(Default)]
    pub enum Underscores {
        /// They stay behind.
        #[default]
        Drop = "drop",
        /// They reach the upstream, unless they would not with hyphens.
        Pass = "pass",
        /// A request with such a field is refused.
        Refuse = "refuse",
    }
}

/// What an upstream wants otherwise than `RESERVED` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldRules {
    /// Reserved names that reach it all the same, unless the gateway sets them itself.
    pub pass: Vec<FieldPattern>,
    /// More names that do not reach it; they win over those that do.
    pub drop: Vec<FieldPattern>,
    /// Its routes have rules about methods, which no field may get around.
    pub guards_methods: bool,
    /// What becomes of names with an underscore.
    pub underscores: Underscores,
}

impl FieldRules {
    /// Those of an upstream that has no wishes.
    pub(crate) const USUAL: Self =
        Self { pass: Vec::new(), drop: Vec::new(), guards_methods: false, underscores: Underscores::Drop };

    /// Whether a field, its name in lower case, stays behind. Called for every field of every request: most names are told
    /// apart by their first letter.
    pub(crate) fn stays_behind(&self, name: &str) -> bool {
        if has_underscore(name) {
            return self.underscores != Underscores::Pass || self.drops(name) || self.is_kept(&name.replace('_', "-"));
        }
        let fit = |patterns: &[FieldPattern]| patterns.iter().any(|pattern| pattern.fits(name));
        if is_reserved(name) || self.guards_methods && is_method_override(name) {
            return !fit(&self.pass) || fit(&self.drop);
        }
        fit(&self.drop)
    }

    /// Whether a field of this name, in lower case, is one that the upstream does not want.
    pub(crate) fn drops(&self, name: &str) -> bool {
        self.drop.iter().any(|pattern| pattern.fits(name))
    }

    /// Whether the upstream might take a field for one of these.
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
    fn what_impersonates_the_edge_or_a_user_stays_behind() {
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
            assert!(plain.stays_behind(name), "{name}");
        }
    }

    #[test]
    fn what_is_the_applications_own_reaches_it() {
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
            assert!(!plain.stays_behind(name), "{name}");
        }
    }

    #[test]
    fn an_upstream_widens_and_narrows_the_list() {
        let rules = rules(&["X-Authenticated-*", "CF-Ray", "x-http-method"], &["X-User-*", "cf-ray"]);
        assert!(!rules.stays_behind("x-authenticated-user"));
        assert!(rules.stays_behind("x-authentik-username"));
        assert!(rules.stays_behind("x-user-id") && !rules.stays_behind("x-use"));
        assert!(rules.stays_behind("cf-ray"), "what is dropped wins");
        assert!(!rules.stays_behind("x-http-method") && rules.stays_behind("x-http-method-override"));
        assert!(rules.stays_behind("x-method-override"));
    }

    #[test]
    fn a_name_with_an_underscore_reaches_who_wants_it_and_says_nothing_of_the_edges() {
        let with = |underscores| FieldRules { underscores, ..rules(&["X-Authenticated-*"], &["client_i*", "X-Pet-*"]) };
        let (drop, pass) = (with(Underscores::Drop), with(Underscores::Pass));
        for name in ["user_id", "x_user", "api_key"] {
            assert!(drop.stays_behind(name) && !pass.stays_behind(name), "{name}");
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
            assert!(pass.stays_behind(name), "{name}");
        }
    }

    #[test]
    fn no_setting_touches_what_is_the_gateways() {
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
