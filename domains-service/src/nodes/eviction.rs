//! Bounds the memory for processes. A process that is dropped here and is on record is still waited for.

use std::collections::HashMap;

use contract::time::UnixMillis;

use super::{FORGOTTEN_AFTER, NODES_MAX, NODES_OF_ONE_MAX, Node, gateway_of, is_replaced, newest_of};

/// Drops a process if the maximum is reached: an ended one, else the newest. Processes on record are waited for all the
/// same.
pub(super) fn evict(nodes: &mut HashMap<String, Node>, newcomer: &str, now: UnixMillis) {
    let gateway = gateway_of(newcomer);
    let siblings: Vec<&Node> =
        nodes.values().filter(|node| gateway.is_some() && gateway_of(&node.report.node) == gateway).collect();
    let among = match siblings.len() {
        NODES_OF_ONE_MAX.. => siblings,
        _ if nodes.len() >= NODES_MAX => nodes.values().collect(),
        _ => return,
    };
    let newest = newest_of(among.iter().map(|node| (&node.report, node.first_seen)));
    let is_over = |node: &Node| {
        node.report.goodbye
            || now.since(node.last_seen) > FORGOTTEN_AFTER
            || is_replaced(&node.report, (node.first_seen, node.last_seen), &newest)
    };
    let order = |node: &&Node| {
        let recency = if is_over(node) { node.last_seen.0 } else { -node.first_seen.0 };
        (!is_over(node), !node.on_record, recency)
    };
    if let Some(name) = among.into_iter().min_by_key(order).map(|node| node.report.node.clone()) {
        nodes.remove(&name);
    }
}
