//! What a response says to browsers of who may read it, where its upstream says nothing (CORS).

use http::HeaderValue;

pub(crate) use contract::browsers::{Cors, Hsts, Origin};

/// What a response says of who may read it, where its upstream says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Nothing.
    #[default]
    Unsaid,
    /// Everybody may.
    All,
    /// This origin may.
    Origin(HeaderValue),
    /// Other origins than that of the request may.
    Others,
}

impl Readers {
    /// As a rule has it, for a request from this origin.
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
    fn an_origin_reads_what_it_is_listed_for() {
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
