//! What a server's answers are taken for, as functions of bytes, for campaigns of random input that live outside of this
//! crate. Nothing in a running gateway calls this.

use redis::{Value, parse_redis_value};

use super::{books, news};
use crate::ban::News;
use crate::ledger::Reply;
use crate::ledger::bucket::BucketView;

/// The answer to a statement; `None` when it is none, and nothing is believed.
pub fn reply(bytes: &[u8]) -> Option<Reply> {
    books::reply(&parse_redis_value(bytes).ok()?).ok()
}

/// The answers to a question for a bucket's books: its fields, and the time.
pub fn view(bytes: &[u8]) -> Option<BucketView> {
    let Value::Array(answers) = parse_redis_value(bytes).ok()? else { return None };
    let [fields, time] = answers.as_slice() else { return None };
    books::view(fields, time).ok()?
}

/// The answer to a question for the bans of before.
pub fn past(bytes: &[u8]) -> Option<Vec<News>> {
    news::past(&parse_redis_value(bytes).ok()?).ok()
}
