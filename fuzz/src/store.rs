//! Answers of a quota store.

use std::time::Duration;

use contract::plan::Plan;
use contract::time::UnixMillis;
use quota::ledger::node::{NodeBucket, Purpose, Step};
use quota::ledger::{Executed, Generation, NodeId, Reply};
use quota::store::redis::fuzzing;

/// Requests that wait for the answer.
const WAITING: u32 = 3;

/// Answers of a quota store: after any accepted answer, no node spends more than it was granted, and its next statement
/// contains its charges. Readable records and bans can be shown.
pub fn store(bytes: &[u8]) {
    if let Some(Reply::Executed(executed)) = fuzzing::reply(bytes) {
        answered(&executed);
    }
    if let Some(view) = fuzzing::view(bytes) {
        assert!(view.nodes.iter().all(|node| node.held <= node.minute_units), "{view:?}");
    }
    for notification in fuzzing::stored(bytes).map(|(part, _)| part).unwrap_or_default() {
        assert!(serde_json::to_string(&notification).is_ok_and(|text| {
            serde_json::from_str(&text).is_ok_and(|read: quota::ban::Notification| read == notification)
        }));
    }
}

fn answered(executed: &Executed) {
    let limits = Plan::Pro.stated_limits();
    let now = Duration::from_hours(1);
    let mut node =
        NodeBucket::new(NodeId { place: 1, generation: Generation { start: 1, stay: 0, process: 1 } }, limits);
    assert_eq!(node.spend(now, limits), Step::Ask);
    let Some(asked) = node.ask(now, Purpose::Spend(WAITING)) else { return };
    assert!(node.receive(now, asked.seq, executed));
    let spent = (0..WAITING * 2).take_while(|_| matches!(node.serve(now), Step::Admit(_))).count();
    assert!(u32::try_from(spent).is_ok_and(|spent| spent <= executed.granted), "{spent} of {executed:?}");
    let _shown = node.peek(now, UnixMillis(0));
    let claim = node.claim();
    assert!(claim.day_units() as usize >= spent && claim.day_spent >= claim.minute_spent, "{spent}, {claim:?}");
}
