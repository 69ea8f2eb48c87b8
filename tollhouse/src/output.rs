//! Output of commands: tables for people, JSON for programs. All output to a terminal goes through this module.
//!
//! Customers and visitors choose much of the shown text: labels, addresses, paths. Control characters for terminals are
//! therefore escaped, in the same way in both forms.

use std::borrow::Cow;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};

use contract::text::is_deceptive;
use serde_json::Value;

use crate::arguments::Common;

/// The output of a command reports a problem: trouble, a difference, a lagging gateway. The output was printed; the
/// exit code tells programs.
#[derive(Debug)]
pub struct Attention;

impl std::fmt::Display for Attention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the output reports a problem")
    }
}

impl std::error::Error for Attention {}

impl Attention {
    /// An error if the output reports a problem.
    ///
    /// # Errors
    /// [`Attention`], if it does.
    pub fn when(needed: bool) -> anyhow::Result<()> {
        if needed { Err(Self.into()) } else { Ok(()) }
    }
}

/// Most bytes of an answer typed at the terminal.
const TYPED_BYTES_MAX: u64 = 256;

/// Prints a value: as JSON if requested, otherwise as the text of `show`.
pub fn answer(common: &Common, value: &Value, show: impl FnOnce(&Value) -> String) {
    if common.json {
        print(&format!("{value:#}"));
    } else {
        print(&show(&with_times(value.clone())));
    }
}

/// The value with times as text, in place of whole seconds or milliseconds since 1970, by the names of fields.
fn with_times(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(with_times).collect(),
        Value::Object(fields) => {
            let is_moment = |name: &str| name.ends_with("_at") || matches!(name, "until" | "now" | "expires");
            let shown = fields.into_iter().map(|(name, value)| match value.as_i64() {
                Some(at) if is_moment(&name) => (name, moment(at).map_or(value, Value::String)),
                _ => (name, with_times(value)),
            });
            Value::Object(shown.collect())
        }
        other => other,
    }
}

/// A time as text, from whole seconds or milliseconds since 1970. `None` for any other number.
pub fn moment(at: i64) -> Option<String> {
    const FIRST_SECOND: i64 = 1_000_000_000;
    const FIRST_MILLISECOND: i64 = 1_000_000_000_000;
    match at {
        FIRST_MILLISECOND.. => jiff::Timestamp::from_millisecond(at).ok(),
        FIRST_SECOND.. => jiff::Timestamp::from_second(at).ok(),
        _ => None,
    }
    .map(|at| at.to_string())
}

/// Prints a text and ends the line. A reader that closed the pipe (`| head`) is not a failure. A text that
/// could not be written, for example to a full disk, is a failure: it can contain a key that is shown only once.
pub fn print(text: &str) {
    match writeln!(std::io::stdout(), "{}", visible(text.trim_end())) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            say(&format!("tollhouse: the command succeeded, but its output could not be written: {error}"));
            std::process::exit(1);
        }
    }
}

/// Like [`print()`], for a serving process, which continues without a reader.
pub fn tell_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", visible(text));
}

/// Asks a question at the terminal; `None` without a terminal.
///
/// # Errors
/// If the terminal cannot be read.
pub fn ask(question: &str) -> std::io::Result<Option<String>> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Ok(None);
    }
    say(question);
    let mut typed = String::new();
    std::io::stdin().lock().take(TYPED_BYTES_MAX).read_line(&mut typed)?;
    Ok(Some(typed.trim().to_owned()))
}

/// Prints a message on the error stream. A closed stream is ignored.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", visible(text));
}

/// `println!`, through [`tell_line`].
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::tell_line(&format!($($text)*)) };
}
pub(crate) use tell;

/// A text of several lines in printable form: control characters, and characters that change the text direction, are
/// escaped as in JSON, so that JSON stays valid.
fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| letter != '\n' && is_deceptive(letter))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_escaped(letter) {
            shown.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// A table with a column per name; the fields of each row are looked up by name.
pub fn table(rows: &Value, columns: &[(&str, &str)]) -> String {
    let empty = Vec::new();
    let rows = rows.as_array().unwrap_or(&empty);
    if rows.is_empty() {
        return "none".to_owned();
    }
    let cells: Vec<Vec<String>> = std::iter::once(columns.iter().map(|(title, _)| (*title).to_owned()).collect())
        .chain(
            rows.iter()
                .map(|row| columns.iter().map(|(_, field)| word(row.pointer(field).unwrap_or(&Value::Null))).collect()),
        )
        .collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &cells {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A value as a cell of a table.
pub fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        // A line feed in a value could forge a row.
        Value::String(text) => escaped(text, is_deceptive).into_owned(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// An object as lines of `name  value`, nested objects indented.
pub fn lines(value: &Value) -> String {
    let mut text = String::new();
    write_lines(value, 0, &mut text);
    text
}

fn write_lines(value: &Value, depth: usize, text: &mut String) {
    let Some(object) = value.as_object() else {
        text.push_str(&word(value));
        text.push('\n');
        return;
    };
    let width = object.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in object {
        text.push_str(&"  ".repeat(depth));
        let nested = value.is_object() || value.as_array().is_some_and(|list| list.iter().any(Value::is_object));
        if !nested {
            text.push_str(&format!("{name:<width$}  {}\n", word(value)));
            continue;
        }
        text.push_str(name);
        text.push('\n');
        match value.as_array() {
            Some(list) => {
                for (index, item) in list.iter().enumerate() {
                    text.push_str(&format!("{}{}.\n", "  ".repeat(depth + 1), index + 1));
                    write_lines(item, depth + 2, text);
                }
            }
            None => write_lines(value, depth + 1, text),
        }
    }
}

/// Whether the error stream is a terminal.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Replaces the terminal's last line by this text.
pub fn overwrite(text: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{}", visible(text));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_of_tables_are_aligned() {
        let rows =
            json!([{ "id": "a", "limits": { "per_minute": 60 } }, { "id": "longer", "limits": { "per_minute": 1 } }]);
        assert_eq!(
            table(&rows, &[("PROJECT", "/id"), ("MINUTE", "/limits/per_minute")]),
            "PROJECT  MINUTE\na        60\nlonger   1\n"
        );
        assert_eq!(table(&json!([]), &[("X", "/x")]), "none");
    }

    #[test]
    fn control_characters_are_escaped_and_forge_no_row() {
        let rows = json!([{ "id": "x\u{1b}[31mRED\u{7}\nkey_forged\u{9b}\u{202e}" }]);
        assert_eq!(table(&rows, &[("KEY", "/id")]), "KEY\nx\\u001b[31mRED\\u0007\\u000akey_forged\\u009b\\u202e\n");
        assert_eq!(lines(&rows[0]).lines().count(), 1);
        let shown = visible("two\nlines, \u{1b}]0;title\u{7}bücher \u{2066}").into_owned();
        assert_eq!(shown, "two\nlines, \\u001b]0;title\\u0007bücher \\u2066");
        // Escaped JSON has the same value.
        assert_eq!(serde_json::from_str::<Value>(&visible(&format!("{rows:#}"))).unwrap(), rows);
    }

    #[test]
    fn times_are_printed_as_text() {
        let shown = with_times(json!({
            "bans": [{ "key": "key_1", "until": 1_700_000_000 }],
            "minute": { "resets_at": 1_700_000_040, "used": 1_700_000_000 },
            "feed_received_at": 0,
            "checked_at": 1_700_000_000_500_i64,
        }));
        assert_eq!(shown["bans"][0]["until"], "2023-11-14T22:13:20Z");
        assert_eq!(shown["minute"], json!({ "resets_at": "2023-11-14T22:14:00Z", "used": 1_700_000_000 }));
        assert_eq!((&shown["feed_received_at"], &shown["checked_at"]), (&json!(0), &json!("2023-11-14T22:13:20.5Z")));
    }

    #[test]
    fn objects_are_printed_as_lines() {
        assert_eq!(lines(&json!({ "id": "a", "limits": { "day": 1 } })), "id      a\nlimits\n  day  1\n");
    }
}
