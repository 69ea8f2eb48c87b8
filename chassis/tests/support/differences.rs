//! Where two JSON documents differ.

use serde_json::Value;

/// One line for each place that one of the documents lacks, or where they hold other values.
pub(crate) fn differences(committed: &Value, generated: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(committed, generated, "", &mut found);
    found
}

fn compare(committed: &Value, generated: &Value, place: &str, found: &mut Vec<String>) {
    match (committed, generated) {
        (Value::Object(before), Value::Object(after)) => {
            let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let of = |members: &serde_json::Map<String, Value>| members.get(name).cloned().unwrap_or_default();
                compare(&of(before), &of(after), &format!("{place}/{}", name.replace('/', "~1")), found);
            }
        }
        (before, after) if before == after => {}
        (before, after) => found.push(format!("{place}: committed {before}, generated {after}")),
    }
}
