use std::num::NonZeroU32;

use super::*;
use crate::ledger::bucket::{Bucket, StoreState};
use crate::ledger::{Generation, Incarnation, Reply};

/// 2023-11-14T22:13:20Z, 20 seconds into its minute, when the monotonic clock shows 0.
const START: UnixMillis = UnixMillis(1_700_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

/// A process with a place of its own.
fn node(number: u32) -> NodeId {
    NodeId { place: number.into(), generation: Generation { start: 1, stay: 0, process: number } }
}

/// A node and a store that answers when the test decides.
struct Pair {
    node: NodeBucket,
    store: Bucket,
    limits: Limits,
    now: Duration,
}

impl Pair {
    fn new(per_minute: u32, per_day: u32) -> Self {
        let limits = Limits::new(per_minute, per_day).unwrap();
        let around = Self::around(Duration::ZERO);
        let node = NodeBucket::new(node(1), limits);
        Self { node, store: Bucket::new(&around), limits, now: Duration::ZERO }
    }

    fn around(now: Duration) -> StoreState {
        let now = START.plus(i64::try_from(now.as_millis()).unwrap());
        StoreState { now, incarnation: Incarnation(1), learning_until: UnixMillis(i64::MIN) }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn spend(&mut self) -> Step {
        self.node.spend(self.now, self.limits)
    }

    /// Executes a statement at the store and lets the node read the reply.
    fn exchange(&mut self, purpose: Purpose) -> Executed {
        let statement = self.node.ask(self.now, purpose).unwrap();
        let Reply::Executed(executed) = self.store.apply(&statement, &Self::around(self.now)) else { unreachable!() };
        assert!(self.node.receive(self.now, statement.seq, &executed));
        executed
    }

    /// One request, with a call to the store if the node needs it.
    fn request(&mut self) -> Step {
        match self.spend() {
            Step::Ask => {
                self.exchange(Purpose::Spend(1));
                let step = self.node.serve(self.now);
                self.node.keep_rest();
                step
            }
            step => step,
        }
    }

    /// Requests until the node holds a lease.
    fn warm_up(&mut self) {
        while self.node.claim().held < 5 {
            assert!(matches!(self.request(), Step::Admit(_)));
            self.pass(Duration::from_millis(10));
        }
    }

    fn day_charged(&self) -> u64 {
        self.store.view(Self::around(self.now).now).day_charged
    }
}

#[test]
fn a_slow_bucket_calls_the_store_per_request_and_a_busy_one_holds_a_lease() {
    let mut slow = Pair::new(60, 1_000);
    for _ in 0..20 {
        assert_eq!(slow.spend(), Step::Ask);
        slow.exchange(Purpose::Spend(1));
        assert!(matches!(slow.node.serve(slow.now), Step::Admit(_)));
        assert_eq!(slow.node.claim().held, 0);
        slow.pass(2 * SECOND);
    }
    let mut busy = Pair::new(1_000, 100_000);
    busy.warm_up();
    assert!(matches!(busy.spend(), Step::Admit(_)));
}

#[test]
fn at_a_thousand_per_minute_on_three_nodes_one_call_serves_a_dozen_requests() {
    let mut pair = Pair::new(1_000, 100_000);
    let mut calls = 0;
    for _ in 0..200 {
        calls += u32::from(pair.spend() == Step::Ask);
        if pair.node.claim().held == 0 {
            pair.exchange(Purpose::Spend(1));
            pair.node.serve(pair.now);
            pair.node.keep_rest();
        } else if pair.node.wants_prefetch(pair.now) {
            calls += 1;
            pair.exchange(Purpose::Prefetch);
        }
        // 5.6 requests per second: a third of 1000 per minute.
        pair.pass(Duration::from_millis(180));
    }
    assert!(calls <= 24, "{calls} calls for 200 requests");
}

#[test]
fn units_are_valid_from_the_moment_of_asking_and_never_reach_into_the_next_minute() {
    let mut pair = Pair::new(1_000, 100_000);
    pair.warm_up();
    // The reply takes a second: the store read its clock at the end of it, the node counts from its beginning.
    let statement = pair.node.ask(pair.now, Purpose::Prefetch).unwrap();
    let asked_at = pair.now;
    pair.pass(SECOND);
    let Reply::Executed(executed) = pair.store.apply(&statement, &Pair::around(pair.now)) else { unreachable!() };
    pair.node.receive(pair.now, statement.seq, &executed);
    let ends = asked_at + millis(executed.millis_left(Window::Minute));
    pair.now = ends.saturating_sub(Duration::from_millis(2));
    assert!(matches!(pair.spend(), Step::Admit(_)), "the last moment it is surely still this minute");
    pair.now = ends.saturating_sub(Duration::from_millis(1));
    assert_eq!(pair.spend(), Step::Ask, "units held here are worthless now");
    let before = pair.day_charged();
    pair.now = Duration::from_secs(41);
    pair.exchange(Purpose::HandBack);
    assert!(pair.day_charged() < before, "the day gets them back");
}

#[test]
fn a_reply_to_an_abandoned_statement_is_ignored() {
    let mut pair = Pair::new(60, 1_000);
    pair.spend();
    let lost = pair.node.ask(pair.now, Purpose::Spend(3)).unwrap();
    let Reply::Executed(executed) = pair.store.apply(&lost, &Pair::around(pair.now)) else { unreachable!() };
    assert!(pair.node.abandon(lost.seq));
    assert!(!pair.node.abandon(lost.seq));
    assert!(!pair.node.receive(pair.now, lost.seq, &executed));
    assert_eq!(pair.spend(), Step::Ask);
    assert!(pair.node.owes(), "what became of the statement is unknown");
    assert_eq!(pair.exchange(Purpose::Spend(1)).day_charged, 1);
}

#[test]
fn one_statement_at_a_time() {
    let mut pair = Pair::new(60, 1_000);
    pair.spend();
    assert!(pair.node.ask(pair.now, Purpose::Spend(1)).is_some());
    assert!(pair.node.ask(pair.now, Purpose::Spend(2)).is_none());
}

// rule: 8.1
#[test]
fn a_refusal_is_remembered_until_the_minute_ends_and_dropped_when_the_plan_changes() {
    let mut pair = Pair::new(1, 1_000);
    assert!(matches!(pair.request(), Step::Admit(_)));
    for _ in 0..100 {
        assert!(matches!(pair.spend(), Step::Refuse(_, Window::Minute)), "without asking");
    }
    pair.pass(Duration::from_millis(39_999));
    assert!(matches!(pair.spend(), Step::Refuse(..)), "the last millisecond");
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.spend(), Step::Ask, "the first request after it");
    let mut pair = Pair::new(1, 1_000);
    pair.request();
    pair.limits = Limits::new(5, 1_000).unwrap();
    let Step::Admit(allowances) = pair.request() else { unreachable!() };
    assert_eq!((allowances.minute.limit, allowances.minute.remaining), (5, 3));
}

#[test]
fn when_both_windows_are_spent_the_day_refuses() {
    let mut pair = Pair::new(3, 3);
    for _ in 0..3 {
        pair.request();
    }
    assert!(matches!(pair.request(), Step::Refuse(_, Window::Day)));
}

#[test]
fn remaining_never_rises_even_when_another_node_hands_back() {
    let mut pair = Pair::new(60, 1_000);
    let other = |seq, held, need, pair: &mut Pair| {
        let claim = Claim { minute: 28_333_333, named: 28_333_333, minute_spent: 0, day_spent: 0, held };
        let node = node(2);
        let statement = Statement { node, seq, acked: seq - 1, claim, need, spare: 0, limits: pair.limits };
        pair.store.apply(&statement, &Pair::around(pair.now))
    };
    other(1, 0, 50, &mut pair);
    let Step::Admit(low) = pair.request() else { unreachable!() };
    assert_eq!(low.minute.remaining, 9);
    other(2, 0, 0, &mut pair);
    let Step::Admit(after) = pair.request() else { unreachable!() };
    assert_eq!(after.minute.remaining, 9, "58 are left, but 9 was shown before");
}

#[test]
fn a_grant_under_limits_that_changed_meanwhile_is_not_used() {
    let mut pair = Pair::new(1_000, 100_000);
    pair.spend();
    let statement = pair.node.ask(pair.now, Purpose::Spend(1)).unwrap();
    let Reply::Executed(executed) = pair.store.apply(&statement, &Pair::around(pair.now)) else { unreachable!() };
    pair.limits = Limits::new(1, 1).unwrap();
    pair.spend();
    pair.node.receive(pair.now, statement.seq, &executed);
    assert_eq!(pair.node.serve(pair.now), Step::Ask);
    assert_eq!(pair.exchange(Purpose::Spend(1)).granted, 1, "the first grant was returned by the same statement");
}

#[test]
fn a_refund_after_the_minute_returns_units_to_the_day_only() {
    let mut pair = Pair::new(2, 1_000);
    let Step::Admit(allowances) = pair.request() else { unreachable!() };
    pair.pass(41 * SECOND);
    assert!(matches!(pair.request(), Step::Admit(_)));
    pair.node.refund(pair.now, &allowances);
    pair.pass(5 * SECOND);
    assert!(pair.node.wants_hand_back(pair.now));
    let executed = pair.exchange(Purpose::HandBack);
    assert_eq!((executed.minute_charged, executed.day_charged), (1, 1));
}

#[test]
fn a_degraded_node_spends_its_share_and_claims_it_afterwards() {
    let mut pair = Pair::new(60, 1_000);
    let three = DegradedPolicy::Share(Share::new(NonZeroU32::new(3).unwrap(), 0));
    let mut admitted = 0;
    for _minute in 0..2 {
        for _ in 0..100 {
            assert_eq!(pair.spend(), Step::Ask);
            let clock = DegradedClock::Received(Pair::around(pair.now).now);
            let step = pair.node.spend_degraded(pair.now, clock, three);
            admitted += u32::from(matches!(step, DegradedStep::Admit(_)));
        }
        pair.pass(60 * SECOND);
    }
    assert_eq!(admitted, 40);
    let executed = pair.exchange(Purpose::Assert);
    assert_eq!(executed.day_charged, 40);
    assert!(executed.learning_until.is_some(), "if this node was alone, others were");
}

#[test]
fn without_the_store_a_day_known_to_be_spent_is_refused() {
    let mut pair = Pair::new(5, 5);
    for _ in 0..5 {
        pair.request();
    }
    pair.pass(60 * SECOND);
    assert_eq!(pair.spend(), Step::Ask);
    let clock = DegradedClock::Received(START);
    let step = pair.node.spend_degraded(pair.now, clock, DegradedPolicy::Share(Share::new(NonZeroU32::MIN, 0)));
    assert!(matches!(step, DegradedStep::Refuse(_, Window::Day)), "{step:?}");
    let step = pair.node.spend_degraded(pair.now, clock, DegradedPolicy::Everything);
    assert!(matches!(step, DegradedStep::Admit(_)), "{step:?}");
}

#[test]
fn the_shares_of_all_nodes_add_up_to_the_limit() {
    for nodes in (1..8).filter_map(NonZeroU32::new) {
        for limit in 0..100 {
            for window in [-1, 0, 28_333_333, i64::MAX] {
                let shares = (7..7 + nodes.get()).map(|index| Share::new(nodes, index).of(limit, window));
                assert_eq!(shares.sum::<u32>(), limit, "{nodes} nodes, window {window}");
            }
        }
    }
}

#[test]
fn a_node_with_a_wrong_clock_names_no_minute_that_the_store_has_not_named() {
    for wrong_by in [-600, -50, 50, 600, 86_400] {
        let mut pair = Pair::new(60, 1_000);
        let clock = DegradedClock::Own(START.plus(wrong_by * 1_000));
        let all = DegradedPolicy::Share(Share::new(NonZeroU32::MIN, 0));
        for _ in 0..5 {
            assert_eq!(pair.spend(), Step::Ask);
            assert!(matches!(pair.node.spend_degraded(pair.now, clock, all), DegradedStep::Admit(_)));
        }
        let asked = pair.exchange(Purpose::Spend(1));
        assert_eq!((asked.granted, asked.minute), (0, Window::Minute.index(START)), "{wrong_by} s");
        assert!(pair.node.wants_assert());
        let echo = pair.exchange(Purpose::Assert);
        assert_eq!((echo.minute, echo.minute_charged, echo.day_charged), (asked.minute, 5, 5), "{wrong_by} s");
    }
}

// rule: 8.1
#[test]
fn units_of_a_minute_ahead_of_the_store_are_charged_to_the_stores_minute() {
    for (ahead, spent_before) in [(60, 0), (60, 4), (180, 4)] {
        let mut pair = Pair::new(60, 1_000);
        let all = DegradedPolicy::Share(Share::new(NonZeroU32::MIN, 0));
        for _ in 0..spent_before {
            assert!(matches!(pair.request(), Step::Admit(_)));
        }
        // The node's copy of the store's time is ahead of the store's clock.
        let fast = pair.now + Duration::from_secs(ahead);
        for _ in 0..5 {
            let clock = DegradedClock::Received(Pair::around(fast).now);
            assert!(matches!(pair.node.spend_degraded(fast, clock, all), DegradedStep::Admit(_)));
        }
        let minute = Window::Minute.index(START);
        let sent = pair.node.ask(fast, Purpose::Spend(1)).unwrap();
        let Reply::Executed(executed) = pair.store.apply(&sent, &Pair::around(pair.now)) else { unreachable!() };
        assert!(pair.node.receive(fast, sent.seq, &executed));
        assert_eq!((executed.granted, executed.minute), (0, minute), "the record stays");
        assert!(pair.node.wants_assert());
        let echo = pair.node.ask(fast, Purpose::Assert).unwrap();
        let Reply::Executed(echo) = pair.store.apply(&echo, &Pair::around(pair.now)) else { unreachable!() };
        let spent: u64 = 5 + spent_before;
        assert_eq!(
            (echo.minute, echo.minute_charged, echo.day_charged),
            (minute, spent, spent),
            "{ahead} {spent_before}"
        );
    }
}

/// A second process that holds `units` of the same bucket.
fn hold_elsewhere(pair: &mut Pair, process: u32, units: u32) -> NodeBucket {
    let mut other = NodeBucket::new(node(process), pair.limits);
    let statement = other.ask(pair.now, Purpose::Spend(units)).unwrap();
    let Reply::Executed(executed) = pair.store.apply(&statement, &Pair::around(pair.now)) else { unreachable!() };
    assert!(other.receive(pair.now, statement.seq, &executed));
    other
}

#[test]
fn before_a_refusal_it_recalls_held_units_three_times_with_growing_waits() {
    let mut pair = Pair::new(60, 1_000);
    let _other = hold_elsewhere(&mut pair, 2, 60);
    for wait in [5, 10, 20].map(Duration::from_millis) {
        assert_eq!(pair.spend(), Step::Ask);
        assert_eq!(pair.exchange(Purpose::Spend(1)).granted, 0);
        assert!(pair.node.take_recall() && !pair.node.take_recall(), "requested once");
        assert_eq!(pair.node.quiet_until(), pair.now + wait);
        // Other replies meanwhile neither shorten the wait nor count as another recall.
        pair.pass(wait / 2);
        pair.exchange(Purpose::Spend(1));
        assert!(!pair.node.take_recall());
        assert_eq!(pair.spend(), Step::Ask, "not refused before the others had their time");
        pair.pass(wait / 2);
        assert!(pair.node.quiet_until() <= pair.now);
    }
    pair.exchange(Purpose::Spend(1));
    assert!(!pair.node.take_recall());
    assert!(matches!(pair.spend(), Step::Refuse(_, Window::Minute)), "they had their time");
    // A new minute starts a new count of recalls.
    pair.pass(60 * SECOND);
    let _other = hold_elsewhere(&mut pair, 3, 60);
    assert_eq!(pair.spend(), Step::Ask);
    pair.exchange(Purpose::Spend(1));
    assert!(pair.node.take_recall());
}

#[test]
fn units_that_others_return_in_time_are_granted() {
    let mut pair = Pair::new(60, 1_000);
    let mut other = hold_elsewhere(&mut pair, 2, 60);
    pair.exchange(Purpose::Spend(1));
    assert!(pair.node.take_recall());
    other.keep_rest();
    let statement = other.ask(pair.now, Purpose::HandBack).unwrap();
    pair.store.apply(&statement, &Pair::around(pair.now));
    pair.pass(RECALL_WAIT);
    assert_eq!(pair.exchange(Purpose::Spend(1)).granted, 1);
    assert!(matches!(pair.node.serve(pair.now), Step::Admit(_)));
}

#[test]
fn a_restarted_node_claims_only_units_that_are_not_charged_yet() {
    let mut pair = Pair::new(1_000, 100_000);
    pair.warm_up();
    let (charged, held) = (pair.day_charged(), pair.node.claim().held);
    let next = NodeId { generation: Generation { stay: 1, ..node(1).generation }, ..node(1) };
    let seq = pair.node.ask(pair.now, Purpose::Prefetch).unwrap().seq;
    assert!(pair.node.begin_anew(seq, next) && !pair.node.begin_anew(seq, next));
    assert_eq!(
        (pair.node.claim().day_units(), pair.node.owes()),
        (0, false),
        "all of it is charged to the old generation"
    );
    for _ in 0..held {
        assert!(matches!(pair.spend(), Step::Admit(_)), "granted units are charged, so they may be spent");
    }
    assert_eq!(pair.node.claim().day_units(), 0);
    assert_eq!(pair.spend(), Step::Ask);
    let executed = pair.exchange(Purpose::Spend(1));
    assert_eq!(
        (executed.granted > 0, executed.own_day, executed.day_charged),
        (true, executed.granted, charged + u64::from(executed.granted))
    );
    assert!(executed.learning_until.is_none(), "a new generation does not look like a loss of memory");
    assert!(matches!(pair.node.serve(pair.now), Step::Admit(_)));
    assert_eq!(pair.node.claim().day_units(), executed.granted);
    pair.node.store_forgot(pair.now);
    assert_eq!(
        u64::from(pair.node.claim().day_units()),
        charged + u64::from(executed.granted),
        "new data accepts every statement"
    );
}
