//! An endpoint and its subscribed events.

use anyhow::Context as _;
use chassis::seal::SealingKey;
use chassis::webhook::SigningSecret;
use contract::event::ORDER_EVENTS;
use contract::time::UnixMillis;
pub(crate) use domains_api::types::{DisabledReason, WANTED_MAX};

use super::EVENTS;
use crate::project::ProjectRef;

/// The events an endpoint wants: names, or prefixes that end in `.*`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Wanted(Vec<String>);

impl Wanted {
    /// The events of an endpoint that lists none: every kind that its owner may see.
    pub(crate) fn everything(with_orders: bool) -> Self {
        let orders = with_orders.then_some("order.*");
        Self(std::iter::once("domain.*").chain(orders).map(str::to_owned).collect())
    }

    /// Parses a list of events. The error is the entry that matches no event, or `None` if the list is empty or too
    /// long.
    pub(crate) fn parse(entries: Vec<String>) -> Result<Self, Option<String>> {
        if entries.is_empty() || entries.len() > WANTED_MAX {
            return Err(None);
        }
        let unknown = entries.iter().find(|entry| !EVENTS.iter().any(|event| fits(entry, event))).cloned();
        unknown.map_or(Ok(Self(entries)), |unknown| Err(Some(unknown)))
    }

    /// The events and prefixes, as they were typed.
    pub(crate) fn entries(&self) -> &[String] {
        &self.0
    }

    /// Whether events of orders are among them.
    pub(crate) fn include_orders(&self) -> bool {
        ORDER_EVENTS.iter().any(|event| self.include(event))
    }

    /// Whether an event is among them.
    pub(crate) fn include(&self, event: &str) -> bool {
        self.0.iter().any(|entry| fits(entry, event))
    }
}

fn fits(entry: &str, event: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(prefix) => prefix.ends_with('.') && event.starts_with(prefix),
        None => entry == event,
    }
}

/// An endpoint's record.
#[derive(Clone, Debug)]
pub(crate) struct EndpointRecord {
    pub(crate) id: String,
    pub(crate) project: ProjectRef,
    pub(crate) url: String,
    pub(crate) description: String,
    pub(crate) events: Wanted,
    pub(crate) sealed_secret: String,
    /// The secret before the last rotation, sealed, and until when it signs as well.
    pub(crate) previous: Option<(String, UnixMillis)>,
    pub(crate) failing_since: Option<UnixMillis>,
    pub(crate) delivered_at: Option<UnixMillis>,
    pub(crate) disabled: Option<(UnixMillis, DisabledReason)>,
    pub(crate) created_at: UnixMillis,
    pub(crate) updated_at: UnixMillis,
    /// The first unreadable column of its row, if any. Such an endpoint is listed and can be removed, and is not saved.
    pub(crate) unreadable: Option<&'static str>,
}

impl EndpointRecord {
    /// The secrets that sign messages at `now`, the newest first.
    pub(crate) fn secrets(&self, sealing: &SealingKey, now: UnixMillis) -> anyhow::Result<Vec<SigningSecret>> {
        let open = |sealed: &str| -> anyhow::Result<SigningSecret> {
            let bytes = sealing.open(sealed, &place(&self.id)).context("a webhook's secret")?;
            Ok(SigningSecret::from_bytes(bytes.to_vec())?)
        };
        let previous = self.previous.iter().filter(|(_, until)| now < *until).map(|(sealed, _)| sealed);
        std::iter::once(&self.sealed_secret).chain(previous).map(|sealed| open(sealed)).collect()
    }
}

/// A new secret for the endpoint `id`, and its stored form.
pub(crate) fn generate_secret(sealing: &SealingKey, id: &str) -> anyhow::Result<(SigningSecret, String)> {
    let secret = SigningSecret::generate()?;
    let sealed = sealing.seal(secret.reveal(), &place(id))?;
    Ok((secret, sealed))
}

/// The name for which an endpoint's secret is sealed.
pub(crate) fn place(id: &str) -> String {
    format!("webhook {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[&str]) -> Result<Wanted, Option<String>> {
        Wanted::parse(entries.iter().map(|entry| (*entry).to_owned()).collect())
    }

    #[test]
    fn events_are_wanted_by_name_or_by_prefix() {
        let wanted = parse(&["domain.active", "domain.certificate.*"]).unwrap();
        for (event, is) in [
            ("domain.active", true),
            ("domain.certificate.failed", true),
            ("domain.removed", false),
            ("domain.activex", false),
        ] {
            assert_eq!(wanted.include(event), is, "{event}");
        }
        let of_domains = |event: &&&str| event.starts_with("domain.");
        assert!(EVENTS.iter().filter(of_domains).all(|event| Wanted::everything(false).include(event)));
        assert!(!Wanted::everything(false).include_orders());
        assert!(EVENTS.iter().all(|event| Wanted::everything(true).include(event)));
        assert!(parse(&["order.*"]).unwrap().include_orders());
        assert!(parse(&["domain.active", "order.shipped"]).unwrap().include_orders());
    }

    #[test]
    fn an_entry_that_matches_no_event_is_named() {
        for wrong in ["domain.verify_requested", "domain", "dom*", "*", "orders.*", ""] {
            assert_eq!(parse(&["domain.active", wrong]), Err(Some(wrong.to_owned())));
        }
        assert_eq!(parse(&[]), Err(None));
        assert_eq!(parse(&["domain.*"; WANTED_MAX + 1]), Err(None));
    }
}
