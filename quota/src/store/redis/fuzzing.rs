//! Decoders of server answers as functions of bytes, for the fuzzing crate. The running gateway does not use this
//! module.

use redis::{Value, parse_redis_value};

use super::{notifications, protocol};
use crate::ban::Notification;
use crate::ledger::Reply;
use crate::ledger::bucket::BucketView;

/// Decodes the reply to a statement; `None` if it is malformed.
pub fn reply(bytes: &[u8]) -> Option<Reply> {
    protocol::reply(&parse_redis_value(bytes).ok()?).ok()
}

/// Decodes the replies for a bucket's record: its fields, and the time.
pub fn view(bytes: &[u8]) -> Option<BucketView> {
    let Value::Array(answers) = parse_redis_value(bytes).ok()? else { return None };
    let [fields, time] = answers.as_slice() else { return None };
    protocol::view(fields, time).ok()?
}

/// Decodes a part of the stored bans, and the cursor of the next.
pub fn stored(bytes: &[u8]) -> Option<(Vec<Notification>, u64)> {
    let (part, next) = notifications::part(&parse_redis_value(bytes).ok()?).ok()?;
    Some((part.into_iter().map(|stored| stored.notification).collect(), next))
}
