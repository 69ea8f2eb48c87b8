//! The origins whose pages may read a response, if its upstream does not say (CORS).

use http::HeaderValue;

pub(crate) use contract::browsers::{Cors, Hsts, Origin};

/// The origins that may read a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readers {
    /// The gateway adds nothing.
    #[default]
    Unsaid,
    /// All origins.
    All,
    /// This origin.
    Origin(HeaderValue),
    /// Origins other than that of the request.
    Others,
}

impl Readers {
    /// By this rule, for a request from this origin.
    pub(crate) fn of(cors: &Cors, origin: Option<&HeaderValue>) -> Self {
        match cors {
            Cors::Upstream | Cors::Off => Self::Unsaid,
            Cors::Open => Self::All,
            Cors::Origins(origins) => {
                let known =
                    origin.filter(|one| origins.iter().any(|other| other.as_str().as_bytes() == one.as_bytes()));
                known.map_or(Self::Others, |origin| Self::Origin(origin.clone()))
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
        assert_eq!(Readers::of(&listed, Some(&own)), Readers::Origin(own.clone()));
        for other in ["https://b.example", "https://a.example.evil.example", "http://a.example", "null"] {
            assert_eq!(Readers::of(&listed, Some(&origin(other))), Readers::Others, "{other}");
        }
        assert_eq!((Readers::of(&listed, None), Readers::of(&Cors::Open, None)), (Readers::Others, Readers::All));
        assert_eq!(
            (Readers::of(&Cors::Upstream, Some(&own)), Readers::of(&Cors::Off, Some(&own))),
            (Readers::Unsaid, Readers::Unsaid)
        );
    }
}
