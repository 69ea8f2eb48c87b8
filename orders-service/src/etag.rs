//! Entity tags of lists, and whether a client has the current one (RFC 9110, sections 8.8.3 and 13.1.2).

use axum::http::{HeaderMap, header};

use crate::store::Edition;

/// The tag of everything one project's list can show.
///
/// Weak: the list is compressed when asked for, and while it streams an order may change behind its front, so two
/// bodies under one tag say the same but need not be the same bytes. The store id keeps the tags of a database
/// that was replaced from matching.
pub(crate) fn of(store_id: &str, edition: Edition) -> String {
    format!("W/\"{store_id}-{}\"", edition.version)
}

/// Whether `If-None-Match` names the tag, compared weakly, as the header demands.
pub(crate) fn is_current(headers: &HeaderMap, tag: &str) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    let current = opaque(tag);
    headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|list| {
        // Our own tags hold no comma, so splitting at commas finds them among any others.
        list.split(',').map(str::trim).any(|given| given == "*" || opaque(given) == current)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_every_form_the_header_may_have() {
        let tag = of("ab12", Edition { version: 7, orders: 3 });
        assert_eq!(tag, "W/\"ab12-7\"");
        let current = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, value.parse().unwrap());
            is_current(&headers, &tag)
        };
        assert!(current("W/\"ab12-7\""));
        assert!(current("\"ab12-7\""), "the comparison is weak");
        assert!(current("\"other\", W/\"ab12-7\" , \"x\""));
        assert!(current("*"));
        assert!(!current("W/\"ab12-8\""));
        assert!(!current("W/\"ab12-71\""));
        assert!(!current("ab12-7"));
        assert!(!is_current(&HeaderMap::new(), &tag));
    }
}
