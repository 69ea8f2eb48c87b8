//! What a client says of codings must not decide over a request that has been carried out.
//!
//! The compression layer answers 406 to clients that forbid `identity` and name no coding it has, after the handler has
//! run: an order would be cancelled and the client told that it was refused. RFC 9110 lets a server disregard the field
//! (sections 12.1 and 12.5.3), and that is what happens here: such a client gets the plain body.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

/// Takes the prohibitions out of `Accept-Encoding`. What a client prefers stays.
pub(super) async fn always_answerable(mut request: Request, next: Next) -> Response {
    disregard_prohibitions(request.headers_mut());
    next.run(request).await
}

fn disregard_prohibitions(headers: &mut HeaderMap) {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter().map(|value| value.to_str().unwrap_or_default());
    let members: Vec<&str> = lists.flat_map(|list| list.split(',')).map(str::trim).collect();
    if !members.iter().any(|member| forbids_plain(member)) {
        return;
    }
    let left: Vec<&str> = members.into_iter().filter(|member| !forbids_plain(member)).collect();
    match HeaderValue::from_str(&left.join(", ")) {
        Ok(value) if !left.is_empty() => drop(headers.insert(header::ACCEPT_ENCODING, value)),
        _ => drop(headers.remove(header::ACCEPT_ENCODING)),
    }
}

/// Whether a member of the list gives no weight to `identity`, or to all that is not named.
fn forbids_plain(member: &str) -> bool {
    let mut parts = member.split(';').map(str::trim);
    let coding = parts.next().unwrap_or_default();
    let weightless = parts.any(|part| {
        let weight = part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
        weight.is_some_and(|(_, weight)| weight.trim().parse() == Ok(0.0_f32))
    });
    weightless && (coding == "*" || coding.eq_ignore_ascii_case("identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prohibitions_are_disregarded() {
        for (sent, expected) in [
            ("identity;q=0", None),
            ("*;q=0", None),
            ("Identity; Q=0.000 , *;q=0", None),
            ("gzip, identity;q=0", Some("gzip")),
            ("br;q=0.5, *;q=0, gzip", Some("br;q=0.5, gzip")),
            ("gzip;q=0", Some("gzip;q=0")),
            ("identity;q=0.001, *;q=0.5", Some("identity;q=0.001, *;q=0.5")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, sent.parse().unwrap());
            disregard_prohibitions(&mut headers);
            let left = headers.get(header::ACCEPT_ENCODING).map(|value| value.to_str().unwrap());
            assert_eq!(left, expected, "{sent}");
        }
    }
}
