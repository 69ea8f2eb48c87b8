//! Query parameters of the list. An unknown, repeated or out-of-range parameter is refused.
//!
//! If a misspelt filter were ignored, the list would show unwanted orders; therefore unknown names are refused.

use std::fmt::Display;
use std::str::FromStr;

use chassis::openapi::Parameter;
use contract::schema::{Schema as _, SharedSchemas};
use serde_json::json;

use super::cursor;
use crate::api::describe::id;
use crate::bounds::{CURSOR_PATTERN, LIMIT_DEFAULT, LIMIT_MAX, SORTS};
use crate::error::{ApiError, Code};
use crate::order::{self, ShipDate, Status};
use crate::store::{Filter, PageQuery, Sort};

/// Every parameter, in the order in which links write them.
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::query("status", "Orders in this state.", || Status::schema(&mut SharedSchemas::new())),
    Parameter::query("petId", "Orders of this pet.", id),
    Parameter::query("complete", "Orders that are (not) fulfilled.", || json!({ "type": "boolean" })),
    Parameter::query("shipDateFrom", "Ship date at this moment or later.", || {
        ShipDate::schema(&mut SharedSchemas::new())
    }),
    Parameter::query("shipDateBefore", "Ship date before this moment.", || ShipDate::schema(&mut SharedSchemas::new())),
    Parameter::query(
        "sort",
        "A minus reverses the order. Orders without a ship date come first, with a minus last.",
        || json!({ "type": "string", "enum": SORTS.map(|(word, _)| word), "default": "id" }),
    ),
    Parameter::query(
        "limit",
        "Orders of a page.",
        || json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT }),
    ),
    Parameter::query(
        "cursor",
        "`nextCursor` of the previous page, with the same filters. Its sort overrides the parameter.",
        || json!({ "type": "string", "pattern": CURSOR_PATTERN }),
    ),
];

/// The parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) query: PageQuery,
    /// The limit as given; links repeat it, and omit the default.
    limit: Option<String>,
}

impl Parameters {
    /// Parses decoded names and values.
    pub(super) fn read(pairs: &[(String, String)]) -> Result<Self, ApiError> {
        for (index, (name, _)) in pairs.iter().enumerate() {
            if !PARAMETERS.iter().any(|known| known.name == name) {
                let known = PARAMETERS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
                return Err(wrong(format!("Unknown parameter {name:?}. Known: {known}.")));
            }
            if pairs.iter().take(index).any(|(earlier, _)| earlier == name) {
                return Err(wrong(format!("The parameter {name} is given twice.")));
            }
        }
        let given = Given(pairs);
        let filter = Filter {
            status: given.parse("status")?,
            pet_id: given.read("petId", "a whole number", whole)?,
            complete: given.read("complete", "true or false", |text| text.parse().ok())?,
            ship_date_from: given.parse("shipDateFrom")?,
            ship_date_before: given.parse("shipDateBefore")?,
        };
        let sort = given.read("sort", "one of id, -id, shipDate, -shipDate", |text| {
            SORTS.iter().find(|(word, _)| *word == text).map(|(_, sort)| *sort)
        })?;
        let limit = given.read("limit", &format!("a whole number from 1 to {LIMIT_MAX}"), |text| {
            whole(text).and_then(|limit| u32::try_from(limit).ok()).filter(|limit| (1..=LIMIT_MAX).contains(limit))
        })?;
        let (sort, after) = match given.text("cursor") {
            None => (sort.unwrap_or_default(), None),
            Some(text) => {
                let (sort, after) = cursor::read(text).ok_or_else(|| Code::InvalidCursor.refuse())?;
                (sort, Some(after))
            }
        };
        Ok(Self {
            query: PageQuery { filter, sort, after, limit: limit.unwrap_or(LIMIT_DEFAULT) },
            limit: limit.map(|limit| limit.to_string()),
        })
    }

    /// The query string of a page of the same list.
    pub(super) fn link(&self, cursor: Option<&str>) -> String {
        let list = canonical(&self.query.filter, self.query.sort);
        let limit = self.limit.as_deref().map(|limit| format!("&limit={limit}")).unwrap_or_default();
        let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        format!("{list}{limit}{cursor}")
    }
}

/// Filters and sort in canonical spelling. It needs no percent-encoding: colons are allowed in a query, and dates are
/// in UTC, without a plus.
fn canonical(filter: &Filter, sort: Sort) -> String {
    let word = SORTS.iter().find(|(_, of)| *of == sort).map_or("id", |(word, _)| *word);
    let mut text = format!("sort={word}");
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.extend(["&", name, "=", &value]);
        }
    };
    add("status", filter.status.as_ref().map(Status::to_string));
    add("petId", filter.pet_id.map(|id| id.to_string()));
    add("complete", filter.complete.map(|complete| complete.to_string()));
    add("shipDateFrom", filter.ship_date_from.as_ref().map(ShipDate::to_string));
    add("shipDateBefore", filter.ship_date_before.as_ref().map(ShipDate::to_string));
    text
}

struct Given<'p>(&'p [(String, String)]);

impl Given<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn read<T>(&self, name: &str, form: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| wrong(format!("The parameter {name} must be {form}.")))
    }

    fn parse<T>(&self, name: &str) -> Result<Option<T>, ApiError>
    where
        T: FromStr,
        T::Err: Display,
    {
        let parsed = self.text(name).map(str::parse).transpose();
        parsed.map_err(|error: T::Err| wrong(format!("The parameter {name} is not valid: {error}.")))
    }
}

/// A whole number. A fraction of zeros is allowed, as JSON Schema allows it for integers.
fn whole(text: &str) -> Option<i64> {
    let digits = match text.split_once('.') {
        None => text,
        Some((digits, fraction)) if !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0') => digits,
        Some(_) => return None,
    };
    order::parse_id(digits)
}

fn wrong(message: String) -> ApiError {
    Code::InvalidParameter.because(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::After;

    fn read(pairs: &[(&str, &str)]) -> Result<Parameters, String> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Parameters::read(&pairs).map_err(|error| match error {
            ApiError::Refused(refusal) => format!("{}: {}", refusal.body().code, refusal.body().message),
            ApiError::Store(error) => error.to_string(),
        })
    }

    #[test]
    fn without_parameters_the_page_has_the_first_hundred_orders_by_id() {
        let parameters = read(&[]).unwrap();
        let expected = PageQuery { filter: Filter::default(), sort: Sort::Id, after: None, limit: LIMIT_DEFAULT };
        assert_eq!(parameters.query, expected);
        assert_eq!(parameters.link(None), "sort=id");
    }

    #[test]
    fn a_link_repeats_all_parameters_in_canonical_spelling() {
        let given = [
            ("limit", "7"),
            ("shipDateBefore", "2026-02-01T00:00:00+01:00"),
            ("complete", "true"),
            ("petId", "-4.0"),
            ("status", "shipped"),
            ("sort", "-shipDate"),
            ("shipDateFrom", "2026-01-01T00:00:00Z"),
        ];
        let parameters = read(&given).unwrap();
        assert_eq!((parameters.query.limit, parameters.query.sort), (7, Sort::ShipDateDescending));
        let cursor = cursor::write(Sort::ShipDateDescending, After { ship_date_micros: Some(5), id: 6 });
        let link = parameters.link(Some(&cursor));
        assert_eq!(
            link,
            format!(
                "sort=-shipDate&status=shipped&petId=-4&complete=true&shipDateFrom=2026-01-01T00:00:00Z\
                 &shipDateBefore=2026-01-31T23:00:00Z&limit=7&cursor={cursor}"
            )
        );
        let pairs: Vec<_> = link.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let again = read(&pairs).unwrap();
        assert_eq!(again.query.after, Some(After { ship_date_micros: Some(5), id: 6 }));
        assert_eq!(again.query.filter, parameters.query.filter);
    }

    #[test]
    fn a_cursor_keeps_its_sort() {
        let place = After { ship_date_micros: Some(5), id: 6 };
        let cursor = cursor::write(Sort::ShipDate, place);
        let parameters = read(&[("cursor", &cursor), ("sort", "-id"), ("limit", "3")]).unwrap();
        assert_eq!((parameters.query.sort, parameters.query.after), (Sort::ShipDate, Some(place)));
        assert!(parameters.link(None).starts_with("sort=shipDate&"));
        for bad in ["", "x", &cursor[1..], &format!("{cursor}A")] {
            assert!(read(&[("cursor", bad)]).unwrap_err().starts_with("invalid_cursor: "), "{bad}");
        }
    }

    #[test]
    fn every_invalid_parameter_is_named() {
        for (pair, reason) in [
            (("colour", "red"), "Unknown parameter \"colour\""),
            (("status", "lost"), "pending, shipped, cancelled"),
            (("petId", "01"), "petId must be a whole number"),
            (("petId", "1.5"), "petId must be a whole number"),
            (("petId", "1."), "petId must be a whole number"),
            (("complete", "yes"), "complete must be true or false"),
            (("shipDateFrom", "yesterday"), "RFC 3339"),
            (("sort", "petId"), "-shipDate"),
            (("limit", "0"), "from 1 to 1000"),
            (("limit", "1001"), "from 1 to 1000"),
            (("limit", "4294967297"), "from 1 to 1000"),
        ] {
            let message = read(&[pair]).unwrap_err();
            assert!(message.starts_with("invalid_parameter: ") && message.contains(reason), "{pair:?}: {message}");
        }
        assert!(read(&[("limit", "1"), ("limit", "1")]).unwrap_err().contains("given twice"));
    }
}
