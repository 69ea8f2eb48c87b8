//! What nodes tell each other: one channel for all, and a hash of bans for those who come later.
//!
//! The channel forgets what nobody hears, so every connection to it begins with [`Heard::Connected`], upon which the
//! listener reads the hash. A connection that went silent is noticed by a ping each second.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::{Cmd, Value};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::servers::Servers;
use crate::ban::News;
use crate::store::{Heard, StoreOutage};
use chassis::names::LOOK_UP_MAX;

/// The channel. In a Cluster every server passes messages on to all others.
const CHANNEL: &str = "tollhouse:news";
/// Bans and lifted bans, by key: the latest word about each.
pub(super) const BANS_KEY: &str = "tollhouse:bans";
/// Messages that wait for the listener.
const QUEUE_MAX: usize = 1_024;
/// How often the connection is looked after.
const PING_EVERY: Duration = Duration::from_secs(1);
/// How long connecting to a known address, subscribing and a ping may take.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Pause before another attempt to connect.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Serialize, Deserialize)]
struct Message {
    from: String,
    news: News,
}

/// The commands that tell something, each with the key whose server takes it.
pub(super) fn commands(process: &str, news: &News) -> Result<Vec<(String, Cmd)>, StoreOutage> {
    let mut commands = Vec::new();
    let key = match news {
        News::Recall(_) | News::Struck(_) => None,
        News::Banned(ban) => Some(&ban.key),
        News::Lifted { key, .. } => Some(key),
    };
    if let Some(key) = key {
        let mut command = redis::cmd("HSET");
        command.arg(BANS_KEY).arg(key.as_str()).arg(text(news)?);
        commands.push((BANS_KEY.to_owned(), command));
    }
    let mut command = redis::cmd("PUBLISH");
    command.arg(CHANNEL).arg(text(&Message { from: process.to_owned(), news: news.clone() })?);
    commands.push((CHANNEL.to_owned(), command));
    Ok(commands)
}

fn text(value: &impl Serialize) -> Result<String, StoreOutage> {
    serde_json::to_string(value).map_err(|error| StoreOutage::Refused(error.to_string()))
}

/// The hash of bans, read. An entry that cannot be read is one of a newer version and is left out.
pub(super) fn past(answer: &Value) -> Result<Vec<News>, StoreOutage> {
    let fields: Vec<(String, String)> =
        redis::from_redis_value(answer.clone()).map_err(|error| StoreOutage::Refused(error.to_string()))?;
    Ok(fields.iter().filter_map(|(_, text)| serde_json::from_str(text).ok()).collect())
}

/// Listens until the receiver is dropped.
pub(super) fn listen(servers: Arc<Servers>, process: String) -> mpsc::Receiver<Heard> {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(async move {
        while !sender.is_closed() {
            // Whatever ended it, the next connection says that something may have been missed.
            let _ = hear(&servers, &process, &sender).await;
            tokio::time::sleep(PAUSE).await;
        }
    });
    receiver
}

async fn hear(servers: &Servers, process: &str, sender: &mpsc::Sender<Heard>) -> Option<()> {
    // Any server that is there: in a Cluster all pass messages on.
    let link = servers.all().ok()?.into_iter().next()?;
    let connecting = link.client.get_async_pubsub();
    let mut subscription = tokio::time::timeout(LOOK_UP_MAX + ANSWER_MAX, connecting).await.ok()?.ok()?;
    tokio::time::timeout(ANSWER_MAX, subscription.subscribe(CHANNEL)).await.ok()?.ok()?;
    sender.send(Heard::Connected).await.ok()?;
    let (mut sink, mut messages) = subscription.split();
    let mut ping = tokio::time::interval(PING_EVERY);
    loop {
        tokio::select! {
            message = messages.next() => {
                let text: String = message?.get_payload().ok()?;
                let Ok(message) = serde_json::from_str::<Message>(&text) else { continue };
                if message.from != process {
                    // A listener that does not keep up is told to read everything anew.
                    sender.try_send(Heard::News(message.news)).ok()?;
                }
            }
            _ = ping.tick() => {
                tokio::time::timeout(ANSWER_MAX, sink.ping::<Value>()).await.ok()?.ok()?;
            }
            () = sender.closed() => return None,
        }
    }
}
