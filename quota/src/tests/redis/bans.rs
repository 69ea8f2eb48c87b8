//! Bans and lifts that Redis stores for nodes that come later.

use super::*;

#[tokio::test]
async fn stored_bans_are_read_anew_from_another_server() {
    const STORED: usize = 1_500;
    let mut redis = Redis::start();
    let fill = |redis: &Redis| {
        let mut command = vec!["HSET".to_owned(), "tollhouse:bans".to_owned()];
        for until in 1..=STORED {
            let text = format!(r#"{{"banned":{{"key":"{}","since":0,"until":{until},"#, key(1))
                + r#""reason":"strikes","level":1,"shadow":false}}"#;
            command.extend([format!("field-{until}"), text]);
        }
        redis.ask(&command.iter().map(String::as_str).collect::<Vec<_>>());
    };
    fill(&redis);
    let store = store(&[redis.port], RedisMode::Standalone, 1).await;
    let (_, mut after) = store.stored_notifications(None).await.unwrap();
    assert!(after.is_some(), "one part does not have all");
    // After a restart the fields are in another order.
    redis.kill();
    redis.restart();
    fill(&redis);
    let mut part = Vec::new();
    eventually("the new server is read", async || match store.stored_notifications(after.clone()).await {
        Ok(read) => {
            (part, after) = read;
            true
        }
        Err(_) => false,
    })
    .await;
    while after.is_some() {
        let (more, next) = store.stored_notifications(after).await.unwrap();
        part.extend(more);
        after = next;
    }
    let mut texts: Vec<String> = part.into_iter().map(|stored| stored.text).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), STORED);
}
