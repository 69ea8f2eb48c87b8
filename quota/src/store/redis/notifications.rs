//! Notifications through Redis: one channel for all nodes, and a hash of bans for nodes that connect later.
//!
//! The channel keeps no messages. Therefore every connection to it begins with [`Received::Connected`], and the
//! receiver then reads the hash. A ping each second detects a dead connection.

use std::sync::Arc;
use std::time::Duration;

use contract::key::KeyId;
use futures_util::StreamExt as _;
use redis::{Cmd, Value};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::servers::Servers;
use crate::ban::Notification;
use crate::store::{Received, StoreOutage, StoredNotification};
use chassis::names::LOOKUP_TIMEOUT;

/// The channel. In a Cluster every server passes messages on to all others.
const CHANNEL: &str = "tollhouse:notifications";
/// Bans and lifts by key: the latest notification about each.
pub(super) const BANS_KEY: &str = "tollhouse:bans";
/// Messages queued for the receiver.
const QUEUE_MAX: usize = 1_024;
/// How often the connection is checked.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The longest time for connecting to a known address, for subscribing, and for a ping.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Pause before another attempt to connect.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Serialize, Deserialize)]
struct Message {
    from: String,
    notification: Notification,
}

/// Deletes fields that still have the given values.
const FORGET: &str = "for at = 1, #ARGV, 2 do \
    if redis.call('HGET', KEYS[1], ARGV[at]) == ARGV[at + 1] then redis.call('HDEL', KEYS[1], ARGV[at]) end \
    end";

/// The key that a stored notification is about; `None` if it is not stored.
fn stored_key(notification: &Notification) -> Option<&KeyId> {
    match notification {
        Notification::Recall(_) | Notification::Struck(_) => None,
        Notification::Banned(ban) => Some(&ban.key),
        Notification::Lifted { key, .. } => Some(key),
    }
}

/// The commands that send a notification, each with the key that selects its server.
pub(super) fn commands(process: &str, notification: &Notification) -> Result<Vec<(String, Cmd)>, StoreOutage> {
    let mut commands = Vec::new();
    if let Some(key) = stored_key(notification) {
        let mut command = redis::cmd("HSET");
        command.arg(BANS_KEY).arg(key.as_str()).arg(text(notification)?);
        commands.push((BANS_KEY.to_owned(), command));
    }
    let mut command = redis::cmd("PUBLISH");
    command.arg(CHANNEL).arg(text(&Message { from: process.to_owned(), notification: notification.clone() })?);
    commands.push((CHANNEL.to_owned(), command));
    Ok(commands)
}

/// The command that removes stored notifications.
pub(super) fn forget(over: &[StoredNotification]) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(FORGET).arg(1).arg(BANS_KEY);
    for stored in over {
        if let Some(key) = stored_key(&stored.notification) {
            command.arg(key.as_str()).arg(&stored.text);
        }
    }
    command
}

fn text(value: &impl Serialize) -> Result<String, StoreOutage> {
    serde_json::to_string(value).map_err(|error| StoreOutage::Refused(error.to_string()))
}

/// Decodes a part of the hash of bans, and the cursor of the next. An unreadable entry comes from a newer version and
/// is skipped.
pub(super) fn part(answer: &Value) -> Result<(Vec<StoredNotification>, u64), StoreOutage> {
    let (cursor, fields): (u64, Vec<(String, String)>) =
        redis::from_redis_value(answer.clone()).map_err(|error| StoreOutage::Refused(error.to_string()))?;
    let known = fields.into_iter().filter_map(|(_, text)| {
        let notification = serde_json::from_str(&text).ok()?;
        Some(StoredNotification { notification, text })
    });
    Ok((known.collect(), cursor))
}

/// Receives until the receiver is dropped.
pub(super) fn listen(servers: Arc<Servers>, process: String) -> mpsc::Receiver<Received> {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(async move {
        while !sender.is_closed() {
            // After any end, the next connection reports that notifications may have been missed.
            let _ = receive(&servers, &process, &sender).await;
            tokio::time::sleep(PAUSE).await;
        }
    });
    receiver
}

async fn receive(servers: &Servers, process: &str, sender: &mpsc::Sender<Received>) -> Option<()> {
    // Any reachable server: in a Cluster all forward messages.
    let link = servers.all().ok()?.into_iter().next()?;
    let connecting = link.client.get_async_pubsub();
    let mut subscription = tokio::time::timeout(LOOKUP_TIMEOUT + ANSWER_MAX, connecting).await.ok()?.ok()?;
    tokio::time::timeout(ANSWER_MAX, subscription.subscribe(CHANNEL)).await.ok()?.ok()?;
    sender.send(Received::Connected).await.ok()?;
    let (mut sink, mut messages) = subscription.split();
    let mut ping = tokio::time::interval(PING_EVERY);
    loop {
        tokio::select! {
            message = messages.next() => {
                let text: String = message?.get_payload().ok()?;
                let Ok(message) = serde_json::from_str::<Message>(&text) else { continue };
                if message.from != process {
                    // A receiver that does not keep up reads the hash again.
                    sender.try_send(Received::Notification(message.notification)).ok()?;
                }
            }
            _ = ping.tick() => {
                tokio::time::timeout(ANSWER_MAX, sink.ping::<Value>()).await.ok()?.ok()?;
            }
            () = sender.closed() => return None,
        }
    }
}
