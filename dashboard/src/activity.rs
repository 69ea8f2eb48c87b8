//! Project → Activity: the events of a project, with the actor and the origin of each.

use askama::Template;
use axum::extract::{Path, RawQuery};
use contract::key::Scope;
use serde_json::Value;

use super::fault::PageResult;
use super::session::Session;
use super::shell::{Section, Shell, html};
use super::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::types::Events;

/// The details of an event in one line: names and values; of a change, the differing fields.
pub(super) fn detail(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return String::new() };
    let mut parts = Vec::new();
    if let (Some(before), Some(after)) = (fields.get("before"), fields.get("after").and_then(Value::as_object)) {
        let changed = after.iter().filter(|(name, new)| before.get(name.as_str()) != Some(new));
        parts.extend(changed.map(|(name, new)| {
            format!("{}: {} → {}", spaced(name), word(before.get(name).unwrap_or(&Value::Null)), word(new))
        }));
    }
    let described = if let Some(moved) = moved(fields) {
        parts.push(moved);
        ["from", "to"]
    } else {
        ["before", "after"]
    };
    // Null and false values are left out.
    let is_said = |value: &Value| !value.is_null() && *value != Value::Bool(false);
    let others = fields.iter().filter(|(name, value)| is_said(value) && !described.contains(&name.as_str()));
    parts.extend(others.map(|(name, value)| format!("{}: {}", spaced(name), word(value))));
    parts.join(" · ")
}

/// The old and the new status, if the event changed it.
fn moved(fields: &serde_json::Map<String, Value>) -> Option<String> {
    let status = |name: &str| w::known_status(fields.get(name)?.as_str()?);
    Some(format!("{} → {}", status("from")?, status("to")?))
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// A value as people write it: lists with commas, fields with blanks.
fn word(value: &Value) -> String {
    match value {
        Value::Null => w::NONE.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(word).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            fields.values().filter(|value| !value.is_null()).map(word).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[derive(Template)]
#[template(path = "activity.html")]
struct Page {
    shell: Shell,
    events: Events,
    is_first: bool,
}

/// `GET /projects/{project}/activity`.
pub(super) async fn show(session: Session, Path(id): Path<String>, RawQuery(query): RawQuery) -> PageResult {
    let project = session.authorise(&id, Some(Scope::DomainsRead))?;
    let query = query.unwrap_or_default();
    let before = query.strip_prefix("before=");
    let cursor = before.map(|before| format!("cursor={}", segment(before))).unwrap_or_default();
    let events: Events = session.get(Operation::ListEvents, &[project.name.as_str()], &cursor).await?;
    let shell = Shell::within(&session, &project, Section::Activity, w::ACTIVITY);
    Ok(html(&Page { shell, events, is_first: before.is_none() }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_read_as_names_and_values() {
        let text = detail(&json!({ "key": "key_a", "overlap_seconds": 60, "gone": null, "scopes": ["orders:read"] }));
        assert_eq!(text, "key: key_a · overlap seconds: 60 · scopes: orders:read");
        let changed = json!({
            "before": { "primary": false, "redirect": null },
            "after": { "primary": false, "redirect": { "status": "301", "to": "primary" } },
        });
        assert_eq!(detail(&changed), "redirect: – → 301 primary");
        assert_eq!(detail(&json!({})), "");
        assert_eq!(detail(&json!({ "primary": false, "with_redirects": true })), "with redirects: true");
        let moved = json!({ "from": "pending_dns", "to": "action_required" });
        assert_eq!(detail(&moved), "Waiting for DNS → Needs you");
        assert_eq!(detail(&json!({ "from": "here", "to": "there" })), "from: here · to: there");
    }
}
