//! The location of a service's database: the settings `database` and `[store]`.

use std::path::PathBuf;

use crate::config::Section;
use crate::postgres::{CONNECTIONS, CONNECTIONS_MAX, CONNECTIONS_MIN, PostgresSettings};

/// The location of a service's database.
#[derive(Clone, Debug)]
pub enum Location {
    /// A file, used by this process only.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<PostgresSettings>),
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::Sqlite(path)
    }
}

impl From<PostgresSettings> for Location {
    fn from(settings: PostgresSettings) -> Self {
        Self::Postgres(Box::new(settings))
    }
}

contract::words! {
    /// `sqlite` or `postgres`.
    pub enum StoreKind {
        /// SQLite.
        Sqlite = "sqlite",
        /// PostgreSQL.
        Postgres = "postgres",
    }
}

/// Reads `database` (the file; `default` if absent) and `[store]`: `kind`, `url` or `url_file`, `connections`. `None`:
/// a mistake was reported, never with the URL, which contains a password.
pub fn read_location(root: &Section<'_>, default: &str) -> Option<Location> {
    let file = root.value("database", PathBuf::from(default));
    let section = root.section("store");
    let kind = section.value("kind", StoreKind::Sqlite);
    let url = section.password("url");
    let connections = section.integer("connections", CONNECTIONS, CONNECTIONS_MIN..=CONNECTIONS_MAX);
    let (file, kind, url, connections) = (file?, kind?, url?, u32::try_from(connections?).ok()?);
    match (kind, url) {
        (StoreKind::Sqlite, None) => Some(Location::Sqlite(file)),
        (StoreKind::Sqlite, Some(_)) => {
            section.complain("kind", "a URL is set: use \"postgres\", or remove the URL");
            None
        }
        (StoreKind::Postgres, None) => {
            section.missing("url_file", "\"/run/secrets/database.url\"");
            None
        }
        (StoreKind::Postgres, Some(url)) => match PostgresSettings::new(url, connections) {
            Ok(settings) => Some(settings.into()),
            Err(way_out) => {
                section.complain("kind", way_out.to_string());
                None
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{Problems, Source};

    fn read(text: &str) -> Result<Location, Problems> {
        let source = Source::from_text("file", text, "TOLLHOUSE_TEST", BTreeMap::new());
        let reader = source.reader()?;
        let location = read_location(&reader.root(), "data/x.db");
        reader.finish(location)
    }

    #[test]
    fn a_file_is_the_default() {
        assert!(matches!(read("").unwrap(), Location::Sqlite(path) if path.ends_with("data/x.db")));
        assert!(matches!(read("database = \"y\"").unwrap(), Location::Sqlite(path) if path.ends_with("y")));
    }

    #[test]
    fn a_server_needs_its_url_which_is_never_printed() {
        let location = read("[store]\nkind = \"postgres\"\nurl = \"postgres://u:hunter2@db.example/orders\"").unwrap();
        assert!(matches!(location, Location::Postgres(_)));
        assert!(!format!("{location:?}").contains("hunter2"));
        assert!(format!("{location:?}").contains("db.example"), "who reads it must know which server: {location:?}");
        for (text, way_out) in [
            ("[store]\nkind = \"postgres\"", "set it, for example url_file"),
            ("[store]\nkind = \"postgres\"\nurl = \"mysql://u:hunter2@h/d\"", "postgres://user:password@host"),
            ("[store]\nkind = \"postgres\"\nurl = \"hunter2\"", "postgres://user:password@host"),
            ("[store]\nkind = \"postgres\"\nurl = \"postgres://u:hunter2@h\"", "names no database"),
            ("[store]\nurl = \"postgres://u:hunter2@h/d\"", "use \"postgres\", or remove the URL"),
            ("[store]\nkind = \"mysql\"", "use one of: sqlite, postgres"),
            ("[store]\nconnections = 1", "use a whole number from 4 to 200"),
        ] {
            let problems = read(text).unwrap_err().to_string();
            assert!(problems.contains(way_out) && !problems.contains("hunter2"), "{text}: {problems}");
        }
    }
}
