//! What the platform says: refusals of the catalogue, and `tollhouse status`.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Instant;

use serde_json::Value;

use crate::broken::{Broken, broken};
use crate::faults::{How, Part, Possible};

/// The status of every code in docs/reference/errors.md.
static CATALOGUE: LazyLock<BTreeMap<&str, u16>> = LazyLock::new(|| {
    let text = include_str!("../../../docs/reference/errors.md");
    let entries = text.split("\n### `").skip(1).filter_map(|entry| {
        let (code, rest) = entry.split_once("`\n")?;
        Some((code, rest.split(' ').next()?.parse().ok()?))
    });
    entries.collect()
});

/// A refusal must be one of the catalogue, and no internal error.
pub(crate) fn is_in_the_catalogue(status: u16, code: &str) -> Result<(), Broken> {
    match CATALOGUE.get(code) {
        Some(known) if *known == status && status != 500 => Ok(()),
        _ => broken("a refusal is of the catalogue, and no internal error", format!("{status} {code}")),
    }
}

/// The problems in a status.
pub(crate) fn trouble(status: &Value) -> Vec<String> {
    let troubles = status["trouble"].as_array().unwrap();
    troubles.iter().map(|trouble| trouble["problem"].as_str().unwrap().to_owned()).collect()
}

/// What must never be said, whatever fails.
pub(crate) fn is_defect(line: &str) -> bool {
    ["panicked", "damaged file", "internal_error", "cannot read column", "another history", "lacks changes"]
        .iter()
        .any(|word| line.contains(word))
}

/// Whether a line is about something after this moment. Faults of databases are told for a minute, with their age.
pub(crate) fn is_new(line: &str, since: Instant) -> bool {
    let age =
        line.split_once(" failed ").or(line.split_once(" resolver ")).and_then(|(_, rest)| rest.split(' ').next());
    let age = age.and_then(|age| age.parse::<u64>().ok());
    // Ages are whole seconds.
    age.is_none_or(|age| age + 1 < since.elapsed().as_secs())
}

/// What `tollhouse status` must say during a fault: a line with one of these words for each of these names.
pub(crate) fn expected(what: &Possible, active: &[&Possible]) -> Vec<(String, &'static [&'static str])> {
    const ALONE: &[&str] = &["counts without the quota store"];
    let answers = |number: usize| !active.iter().any(|one| one.gateway_down() == Some(number));
    let has = |part: Part| active.iter().any(|one| one.part == part);
    let gateways = || (0..2).filter(|number| answers(*number));
    let name = |number: usize| format!("gateway-{}", number + 1);
    match (what.part, what.how) {
        (Part::Store, How::Stop | How::Kill) => gateways().map(|number| (name(number), ALONE)).collect(),
        (Part::StoreLink(number), _) if what.is_outage() && answers(number) => vec![(name(number), ALONE)],
        (Part::Database, How::Stop | How::Kill) if !has(Part::Control) => {
            vec![("the domains-service".to_owned(), &["the database of the domains-service failed"])]
        }
        (Part::Control, _) => vec![("the domains-service".to_owned(), &["does not answer"])],
        (Part::Gateway(number), _) if what.gateway_down().is_some() => vec![(name(number), &["does not answer"])],
        (Part::ControlLink(number), How::Cut | How::Silence) if answers(number) => {
            vec![(name(number), &["received nothing from the control plane", "revisions behind"])]
        }
        (Part::Clock(number), How::Step(by)) if by.abs() > 60 && answers(number) => {
            let others =
                [Part::Store, Part::StoreLink(number), Part::Control, Part::ControlLink(number), Part::Database];
            let is_told = !others.into_iter().any(has) && !has(Part::StoreClock);
            if is_told { vec![(name(number), &["the clock"])] } else { Vec::new() }
        }
        (Part::StoreClock, _) => gateways()
            .filter(|number| ![Part::Store, Part::StoreLink(*number), Part::Clock(*number)].into_iter().any(has))
            .map(|number| (name(number), &["and of the quota store differ"][..]))
            .collect(),
        // Nothing is said unless it is needed, or the fault is over at once.
        _ => Vec::new(),
    }
}

#[test]
fn the_catalogue_is_read() {
    assert!(is_in_the_catalogue(401, "invalid_api_key").is_ok());
    assert!(is_in_the_catalogue(503, "storage_unavailable").is_ok());
    assert!(is_in_the_catalogue(401, "storage_unavailable").is_err());
    assert!(is_in_the_catalogue(500, "internal_error").is_err());
    assert!(is_in_the_catalogue(418, "teapot").is_err());
}

#[test]
fn only_the_age_of_a_fault_makes_it_old() {
    let since = Instant::now().checked_sub(std::time::Duration::from_secs(10)).unwrap();
    assert!(!is_new("the database of the orders-service failed 12 seconds ago: unreachable", since));
    assert!(is_new("the database of the orders-service failed 3 seconds ago: unreachable", since));
    assert!(is_new("gateway gateway-1 (127.0.0.1:1) does not answer", since));
}
