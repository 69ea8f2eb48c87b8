//! A database that was not made by a released version of this program is refused.

use super::*;

const SCHEMA: &str = "CREATE TABLE things (id BIGINT PRIMARY KEY)";
const NEXT: &str = "CREATE TABLE more (id BIGINT PRIMARY KEY)";

fn files(files: &[(&'static str, &'static str)]) -> Migrations {
    Migrations::new(&files.iter().map(|(file, text)| (*file, *text, *text)).collect::<Vec<_>>())
}

fn ours() -> Migrations {
    files(&[("0001_schema.sql", SCHEMA)])
}

/// A location of each kind, without a database.
fn locations(directory: &Path) -> [Location; 2] {
    let settings = PostgresSettings::new(Secret::parse_password(&Server::shared().database()).unwrap(), 4).unwrap();
    [directory.join("x.db").into(), settings.into()]
}

async fn made_by(location: &Location, migrations: &Migrations, statements: &[&'static str]) {
    let database = Database::open(location, migrations).await.unwrap();
    for statement in statements {
        query(*statement).execute(&database.write).await.unwrap();
    }
    database.close().await;
}

#[tokio::test]
async fn a_database_of_another_program_or_of_an_unreleased_version_is_refused_in_one_sentence() {
    let other = files(&[("0001_start.sql", NEXT)]);
    let cases: [(&str, &Migrations, &[&str]); 4] = [
        ("tables of another program", &migrations(), &[TABLE, "DROP TABLE _sqlx_migrations"]),
        ("another first migration", &other, &[]),
        ("a table and no migration", &ours(), &["DELETE FROM _sqlx_migrations"]),
        ("a later migration alone", &ours(), &["UPDATE _sqlx_migrations SET version = 2"]),
    ];
    for (case, made, statements) in cases {
        let directory = tempfile::tempdir().unwrap();
        for location in locations(directory.path()) {
            made_by(&location, made, statements).await;
            let refused = format!("{:#}", Database::open(&location, &ours()).await.expect_err(case));
            for word in ["the ", " database ", "`tollhouse orders export FILE", "`tollhouse orders import FILE"] {
                assert!(refused.contains(word), "{case}: {refused}");
            }
            assert!(!refused.contains('\n') && !refused.contains(". "), "one sentence: {refused}");
        }
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_its_own_version_opens_it() {
    let directory = tempfile::tempdir().unwrap();
    for location in locations(directory.path()) {
        let newer = files(&[("0001_schema.sql", SCHEMA), ("0002_next.sql", NEXT)]);
        made_by(&location, &ours(), &[]).await;
        made_by(&location, &newer, &[]).await;
        let refused = format!("{:#}", Database::open(&location, &ours()).await.unwrap_err());
        assert!(refused.contains("its schema (version 2) is newer than this program"), "{refused}");
        made_by(&location, &newer, &[]).await;
    }
}

#[tokio::test]
async fn a_start_killed_before_its_first_migration_is_continued() {
    let directory = tempfile::tempdir().unwrap();
    for location in locations(directory.path()) {
        made_by(&location, &ours(), &["DELETE FROM _sqlx_migrations", "DROP TABLE things"]).await;
        made_by(&location, &ours(), &["INSERT INTO things (id) VALUES (1)"]).await;
        made_by(&location, &ours(), &["DELETE FROM things WHERE id = 1"]).await;
    }
}

#[tokio::test]
async fn only_a_database_that_a_service_made_exists() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    let file = directory.path().join("x.db");
    for location in locations(directory.path()).into_iter().chain([empty.into()]) {
        let error = Database::must_exist(&location).await.unwrap_err().to_string();
        assert!(error.contains("start once with create_database = true"), "{error}");
        assert!(!file.exists() || !matches!(&location, Location::Sqlite(path) if *path == file), "nothing was made");
        made_by(&location, &ours(), &[]).await;
        Database::must_exist(&location).await.unwrap();
    }
}
