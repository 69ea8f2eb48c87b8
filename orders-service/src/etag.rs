//! Entity tags of lists and their comparison (RFC 9110, sections 8.8.3 and 13.1.2).

use axum::http::{HeaderMap, header};

use crate::store::Edition;

/// The tag of a project's lists.
///
/// It is weak, because bodies with the same tag can differ in bytes: a list may be compressed, and an order can change
/// while the list is streamed. It contains the store id, so that the tags of a replaced database never match.
pub(crate) fn of(store_id: &str, edition: Edition) -> String {
    format!("W/\"{store_id}-{}\"", edition.version)
}

/// Whether `If-None-Match` contains the tag. The header demands a weak comparison.
pub(crate) fn is_current(headers: &HeaderMap, tag: &str) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    let current = opaque(tag);
    headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|list| {
        // Tags of this service contain no comma, so a split at commas finds them.
        list.split(',').map(str::trim).any(|given| given == "*" || opaque(given) == current)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_matches_in_every_form_of_the_header() {
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
