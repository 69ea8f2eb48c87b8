//! Commits to a file survive a power failure.

use super::*;

/// Number of commits; each was acknowledged before the next began.
const COMMITS: i64 = 20;

#[test]
fn a_committed_change_survives_a_power_failure() {
    let test = "sql::tests::power::a_committed_change_survives_a_power_failure";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = async |directory: &Path| {
        let location = directory.join("data/x.db").into();
        Database::open(&location, &migrations()).await.unwrap()
    };
    let left = crate::power::fails_after(test, |directory| {
        runtime.block_on(async {
            let database = open(directory).await;
            query(TABLE).execute(&database.write).await.unwrap();
            for id in 1..=COMMITS {
                let mut write = database.write.begin(Begin::Write).await.unwrap();
                query("INSERT INTO things (id) VALUES ($1)").bind(id).execute(&mut write).await.unwrap();
                write.commit().await.unwrap();
            }
            // Begun and not committed, so not acknowledged.
            let mut unfinished = database.write.begin(Begin::Write).await.unwrap();
            query("INSERT INTO things (id) VALUES (0)").execute(&mut unfinished).await.unwrap();
            std::process::exit(crate::power::DONE);
        });
    });
    runtime.block_on(async {
        let database = open(left.path()).await;
        let ids: Vec<i64> = query_scalar("SELECT id FROM things ORDER BY id").fetch_all(&database.read).await.unwrap();
        assert_eq!(ids, (1..=COMMITS).collect::<Vec<_>>());
    });
}
