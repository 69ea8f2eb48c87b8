//! The origins whose pages may read a response, if its upstream does not say (CORS).

use http::HeaderValue;

pub use contract::browsers::{Cors, Hsts, Origin};

/// The origin whose pages may read a response: `Access-Control-Allow-Origin`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// The gateway adds nothing.
    #[default]
    Unset,
    /// Every origin.
    Any,
    /// This origin.
    One(HeaderValue),
    /// Not the origin of the request.
    NotAllowed,
}

impl AllowedOrigin {
    /// By this rule, for a request from this origin.
    pub fn of(cors: &Cors, origin: Option<&HeaderValue>) -> Self {
        match cors {
            Cors::Upstream | Cors::Off => Self::Unset,
            Cors::Open => Self::Any,
            Cors::Origins(origins) => {
                let known =
                    origin.filter(|one| origins.iter().any(|other| other.as_str().as_bytes() == one.as_bytes()));
                known.map_or(Self::NotAllowed, |origin| Self::One(origin.clone()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_origins_may_read() {
        let listed: Cors = "https://a.example".parse().unwrap();
        let origin = |text| HeaderValue::from_static(text);
        let own = origin("https://a.example");
        assert_eq!(AllowedOrigin::of(&listed, Some(&own)), AllowedOrigin::One(own.clone()));
        for other in ["https://b.example", "https://a.example.evil.example", "http://a.example", "null"] {
            assert_eq!(AllowedOrigin::of(&listed, Some(&origin(other))), AllowedOrigin::NotAllowed, "{other}");
        }
        assert_eq!(
            (AllowedOrigin::of(&listed, None), AllowedOrigin::of(&Cors::Open, None)),
            (AllowedOrigin::NotAllowed, AllowedOrigin::Any)
        );
        assert_eq!(
            (AllowedOrigin::of(&Cors::Upstream, Some(&own)), AllowedOrigin::of(&Cors::Off, Some(&own))),
            (AllowedOrigin::Unset, AllowedOrigin::Unset)
        );
    }
}
