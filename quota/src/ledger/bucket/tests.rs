use contract::plan::Limits;
use proptest::prelude::*;

use super::*;
use crate::ledger::Generation;

/// 2023-11-14T22:13:20Z, 20 seconds into minute 28 333 333.
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);
const MINUTE: i64 = 28_333_333;

fn around(now: UnixMillis) -> StoreState {
    StoreState { now, incarnation: Incarnation(1), learning_until: UnixMillis(i64::MIN) }
}

/// A process with a place of its own.
fn node(number: u64) -> NodeId {
    NodeId { place: number, generation: Generation { start: 1, stay: 0, process: u32::try_from(number).unwrap() } }
}

fn claim(minute: i64, minute_spent: u32, day_spent: u32, held: u32) -> Claim {
    Claim { minute, named: minute, minute_spent, day_spent, held }
}

fn statement(process: u64, seq: u64, claim: Claim, need: u32, limits: (u32, u32)) -> Statement {
    let limits = Limits::new(limits.0, limits.1).unwrap();
    Statement { node: node(process), seq, acked: 0, claim, need, spare: 0, limits }
}

fn execute(bucket: &mut Bucket, statement: &Statement, around: &StoreState) -> Executed {
    match bucket.apply(statement, around) {
        Reply::Executed(executed) => executed,
        other => panic!("{other:?}: {statement:?}"),
    }
}

#[test]
fn a_statement_that_is_not_newer_changes_nothing() {
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 2, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
    let before = bucket.clone();
    for seq in [1, 2] {
        let late = statement(1, seq, claim(MINUTE, 3, 3, 0), 5, (60, 1_000));
        assert_eq!(bucket.apply(&late, &around(NOW)), Reply::Stale);
        assert_eq!(bucket, before);
    }
}

#[test]
fn the_next_statement_returns_what_a_lost_reply_had_granted() {
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
    let executed = execute(&mut bucket, &statement(1, 2, Claim::NOTHING, 2, (60, 1_000)), &around(NOW));
    assert_eq!((executed.granted, executed.minute_charged, executed.day_charged), (2, 2, 2));
}

// rule: 8.1
#[test]
fn minute_and_day_are_charged_together_or_not_at_all() {
    for limits in [(3, 1_000), (1_000, 3)] {
        let mut bucket = Bucket::new(&around(NOW));
        let executed = execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, limits), &around(NOW));
        assert_eq!((executed.granted, executed.minute_charged, executed.day_charged), (3, 3, 3));
        let executed = execute(&mut bucket, &statement(2, 1, Claim::NOTHING, 5, limits), &around(NOW));
        assert_eq!((executed.granted, executed.minute_charged, executed.day_charged), (0, 3, 3));
    }
}

#[test]
fn the_last_millisecond_is_the_old_minute_and_the_next_one_is_new() {
    let limits = (2, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    let last = around(UnixMillis((MINUTE + 1) * 60_000 - 1));
    let first = around(UnixMillis((MINUTE + 1) * 60_000));
    assert_eq!(execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 9, limits), &last).granted, 2);
    let executed = execute(&mut bucket, &statement(1, 2, claim(MINUTE, 2, 2, 0), 9, limits), &first);
    assert_eq!(
        (executed.granted, executed.minute, executed.minute_charged, executed.day_charged),
        (2, MINUTE + 1, 2, 4)
    );
}

#[test]
fn at_midnight_both_windows_start_anew() {
    let midnight = day_of(MINUTE) * 1_440 + 1_440;
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 5)), &around(NOW));
    let after = around(UnixMillis(midnight * 60_000));
    let executed = execute(&mut bucket, &statement(1, 2, claim(MINUTE, 5, 5, 0), 5, (60, 5)), &after);
    assert_eq!((executed.granted, executed.day_charged, executed.own_day), (5, 5, 5));
}

#[test]
fn units_that_expired_unspent_return_to_the_day() {
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 10, (60, 1_000)), &around(NOW));
    let later = around(NOW.plus(60_000));
    let executed = execute(&mut bucket, &statement(1, 2, claim(MINUTE, 4, 4, 0), 0, (60, 1_000)), &later);
    assert_eq!((executed.minute_charged, executed.day_charged), (0, 4));
}

// promise: faults.9
#[test]
fn a_clock_that_steps_back_a_little_never_reopens_a_window() {
    let limits = (5, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, limits), &around(NOW));
    for back in [1, 90_000, CLOCK_STEP_BACK_MINUTES_MAX * 60_000 - 60_000] {
        let executed =
            execute(&mut bucket.clone(), &statement(2, 1, Claim::NOTHING, 1, limits), &around(NOW.plus(-back)));
        assert_eq!((executed.granted, executed.minute), (0, MINUTE));
    }
    let far = around(NOW.plus(-(CLOCK_STEP_BACK_MINUTES_MAX + 2) * 60_000));
    assert_eq!(execute(&mut bucket, &statement(2, 1, Claim::NOTHING, 1, limits), &far).granted, 1);
}

#[test]
fn a_store_that_was_emptied_and_is_slow_learns_the_window_from_its_nodes() {
    let slow = around(NOW.plus(-90_000));
    let mut bucket = Bucket::new(&slow);
    let executed = execute(&mut bucket, &statement(1, 9, claim(MINUTE, 5, 5, 0), 1, (60, 1_000)), &slow);
    assert_eq!((executed.minute, executed.minute_charged), (MINUTE, 5));
}

// rule: 8.1
#[test]
fn a_minute_that_only_a_node_has_named_has_no_effect() {
    let limits = (60, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 7, limits), &around(NOW));
    for (seq, minutes) in [(2, 1), (3, 3), (4, 15), (5, 1_440)] {
        let opinion = Claim { named: MINUTE, ..claim(MINUTE + minutes, 9, 16, 0) };
        let executed = execute(&mut bucket, &statement(1, seq, opinion, 5, limits), &around(NOW));
        assert_eq!((executed.granted, executed.minute, executed.learning_until), (0, MINUTE, None), "{minutes} ahead");
        assert_eq!((executed.minute_charged, executed.day_charged, executed.own_day), (7, 7, 7), "{minutes} ahead");
    }
    let newcomer = Claim { named: i64::MIN, ..claim(MINUTE + 3, 9, 9, 0) };
    let executed = execute(&mut bucket, &statement(2, 1, newcomer, 5, limits), &around(NOW));
    assert_eq!((executed.granted, executed.minute, executed.day_charged, executed.own_day), (0, MINUTE, 7, 0));
}

// rule: 8.1
#[test]
fn a_minute_that_has_begun_here_counts_even_if_a_node_named_it() {
    let limits = (60, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    let opinion = Claim { named: i64::MIN, ..claim(MINUTE, 9, 9, 0) };
    let executed = execute(&mut bucket, &statement(1, 1, opinion, 5, limits), &around(NOW));
    assert_eq!((executed.minute_charged, executed.day_charged, executed.learning_until.is_some()), (9, 9, true));
}

#[test]
fn a_store_that_lost_data_waits_for_statements_before_it_grants() {
    let limits = (60, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    let first = execute(&mut bucket, &statement(1, 7, claim(MINUTE, 30, 30, 2), 5, limits), &around(NOW));
    assert_eq!((first.granted, first.minute_charged), (0, 32));
    assert_eq!(first.learning_until, Some(NOW.plus(LEARNING_MILLIS)));
    let other = execute(&mut bucket, &statement(2, 4, claim(MINUTE, 20, 20, 0), 20, limits), &around(NOW.plus(100)));
    assert_eq!((other.granted, other.minute_charged), (0, 52));
    let learned = other.learning_until.unwrap();
    let after = execute(&mut bucket, &statement(2, 5, claim(MINUTE, 20, 20, 0), 20, limits), &around(learned));
    assert_eq!((after.granted, after.learning_until), (8, None));
}

#[test]
fn a_lagging_copy_learns_again_even_if_the_first_statement_shows_no_loss() {
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
    let reborn = StoreState { incarnation: Incarnation(2), ..around(NOW) };
    let executed = execute(&mut bucket, &statement(2, 1, Claim::NOTHING, 5, (60, 1_000)), &reborn);
    assert_eq!((executed.granted, executed.learning_until.is_some()), (0, true));
}

#[test]
fn a_reply_that_was_read_but_is_not_in_the_record_shows_a_loss() {
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
    let knows_more = Statement { acked: 3, ..statement(1, 4, claim(MINUTE, 2, 2, 0), 1, (60, 1_000)) };
    assert!(execute(&mut bucket, &knows_more, &around(NOW)).learning_until.is_some());
}

#[test]
fn a_lease_shrinks_to_zero_near_the_limit_but_waiting_requests_get_the_last_units() {
    let limits = (100, 10_000);
    let mut bucket = Bucket::new(&around(NOW));
    let lease = |seq, held, need| Statement { spare: 50, ..statement(1, seq, claim(MINUTE, 0, 0, held), need, limits) };
    execute(&mut bucket, &statement(2, 1, Claim::NOTHING, 20, limits), &around(NOW));
    assert_eq!(execute(&mut bucket, &lease(1, 0, 0), &around(NOW)).granted, 20, "a quarter of the 80 left for two");
    assert_eq!(execute(&mut bucket, &lease(2, 20, 57), &around(NOW)).granted, 57, "three are left: no lease");
    assert_eq!(execute(&mut bucket, &lease(3, 77, 9), &around(NOW)).granted, 3);
}

#[test]
fn a_refused_node_learns_what_others_hold() {
    let limits = (10, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 10, limits), &around(NOW));
    execute(&mut bucket, &statement(1, 2, claim(MINUTE, 6, 6, 4), 0, limits), &around(NOW));
    let refused = execute(&mut bucket, &statement(2, 1, Claim::NOTHING, 1, limits), &around(NOW));
    assert_eq!((refused.granted, refused.held_elsewhere, refused.nodes), (0, 4, 2));
}

#[test]
fn a_restart_loop_neither_grows_a_bucket_nor_frees_units() {
    let limits = (1_000, 10_000);
    let mut bucket = Bucket::new(&around(NOW));
    for start in 1..=1_000 {
        let generation = Generation { start, stay: 0, process: start * 7 };
        let first = Statement { node: NodeId { place: 1, generation }, ..statement(1, 1, Claim::NOTHING, 1, limits) };
        assert_eq!(execute(&mut bucket, &first, &around(NOW)).own_day, 1);
    }
    let view = bucket.view(NOW);
    assert_eq!((view.nodes.len(), view.minute_charged, view.day_charged), (1, 1_000, 1_000));
}

#[test]
fn a_new_generation_of_a_place_begins_a_new_sequence_and_units_of_the_old_one_stay_charged() {
    let limits = (60, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 9, Claim::NOTHING, 5, limits), &around(NOW));
    let again = NodeId { generation: Generation { start: 2, stay: 0, process: 77 }, ..node(1) };
    let first = Statement { node: again, ..statement(1, 1, Claim::NOTHING, 1, limits) };
    let executed = execute(&mut bucket, &first, &around(NOW));
    assert_eq!((executed.granted, executed.own_day, executed.day_charged, executed.nodes), (1, 1, 6, 1));
    assert_eq!(executed.held_elsewhere, 0, "units of the old generation cannot be recalled");
    let late = statement(1, 10, claim(MINUTE, 5, 5, 0), 9, limits);
    assert_eq!(bucket.apply(&late, &around(NOW)), Reply::Displaced);
    let forgot = NodeId { generation: Generation { stay: 1, ..again.generation }, ..again };
    let next = Statement { node: forgot, ..statement(1, 1, Claim::NOTHING, 1, limits) };
    assert_eq!(execute(&mut bucket, &next, &around(NOW)).day_charged, 7);
    assert_eq!(bucket.apply(&Statement { seq: 2, ..first }, &around(NOW)), Reply::Stale, "a stay that is over");
}

#[test]
fn the_second_of_two_processes_over_copies_of_one_directory_is_displaced_and_nothing_counts_twice() {
    let limits = (60, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    execute(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, limits), &around(NOW));
    let copy = NodeId { generation: Generation { process: 2, ..node(1).generation }, ..node(1) };
    let before = bucket.clone();
    let second = Statement { node: copy, ..statement(1, 1, Claim::NOTHING, 5, limits) };
    assert_eq!(bucket.apply(&second, &around(NOW)), Reply::Displaced);
    assert_eq!(bucket, before);
    let elsewhere = Statement { node: NodeId { place: 2, ..copy }, ..second };
    assert_eq!(execute(&mut bucket, &elsewhere, &around(NOW)).day_charged, 10);
    let executed = execute(&mut bucket, &statement(1, 2, claim(MINUTE, 5, 5, 0), 1, limits), &around(NOW));
    assert_eq!((executed.granted, executed.own_day, executed.day_charged), (1, 6, 11));
}

/// A gateway that follows the node's rules: it spends its grants at once, and claims them all.
struct Client {
    node: NodeId,
    seq: u64,
    acked: u64,
    claim: Claim,
}

impl Client {
    fn at(place: u64) -> Self {
        Self { node: node(place), seq: 0, acked: 0, claim: Claim::NOTHING }
    }

    /// The process ends, and another one starts in the same directory.
    fn restart(&mut self) {
        let generation = Generation {
            start: self.node.generation.start + 1,
            stay: 0,
            process: self.node.generation.process + 100_000,
        };
        *self = Self { node: NodeId { generation, ..self.node }, ..Self::at(self.node.place) };
    }

    /// Asks for one unit. Returns whether the gateway was evicted on the way, and the final reply.
    fn ask(&mut self, bucket: &mut Bucket, limits: (u32, u32), now: UnixMillis) -> (bool, Reply) {
        let mut was_evicted = false;
        loop {
            self.seq += 1;
            let limits = Limits::new(limits.0, limits.1).unwrap();
            let statement = Statement {
                node: self.node,
                seq: self.seq,
                acked: self.acked,
                claim: self.claim,
                need: 1,
                spare: 0,
                limits,
            };
            let reply = bucket.apply(&statement, &around(now));
            match reply {
                Reply::Executed(executed) => {
                    let same_minute = self.claim.minute == executed.minute;
                    let same_day = day_of(self.claim.minute) == day_of(executed.minute);
                    let (minute, day) = (self.claim.minute_spent, self.claim.day_spent);
                    let minute = if same_minute { minute } else { 0 } + executed.granted;
                    let day = if same_day { day } else { 0 } + executed.granted;
                    (self.acked, self.claim) = (self.seq, claim(executed.minute, minute, day, 0));
                }
                Reply::Evicted => {
                    assert!(!was_evicted, "once is enough");
                    was_evicted = true;
                    self.node.generation.stay += 1;
                    (self.acked, self.claim) = (0, claim(self.claim.minute, 0, 0, 0));
                    continue;
                }
                Reply::Stale | Reply::Displaced | Reply::Crowded => {}
            }
            return (was_evicted, reply);
        }
    }
}

/// `gateways` gateways ask in turn, one request every `gap` milliseconds; one of them is restarted every
/// `restart_every` requests. After each statement, the day's charge equals the grants, and nothing is refused while the
/// minute has room. Returns how often a gateway was evicted.
fn a_fleet_counts_right(gateways: u64, gap: i64, requests: u64, restart_every: u64) -> u64 {
    let limits = (1_000, 1_000_000);
    let mut bucket = Bucket::new(&around(NOW));
    let mut clients: Vec<_> = (1..=gateways).map(Client::at).collect();
    let (mut now, mut granted, mut evicted) = (NOW, 0, 0);
    for number in 0..requests {
        now = now.plus(gap);
        let client = &mut clients[usize::try_from(number % gateways).unwrap()];
        if number % restart_every == restart_every - 1 {
            client.restart();
        }
        let (was_evicted, reply) = client.ask(&mut bucket, limits, now);
        let Reply::Executed(executed) = reply else { panic!("{gateways} gateways, request {number}: {reply:?}") };
        granted += u64::from(executed.granted);
        evicted += u64::from(was_evicted);
        assert_eq!(executed.day_charged, granted, "{gateways} gateways, request {number}");
        assert!(
            executed.granted == 1 || executed.minute_charged == 1_000,
            "{gateways} gateways, request {number}: {executed:?}"
        );
        assert!(executed.learning_until.is_none(), "{gateways} gateways, request {number}: {executed:?}");
        assert!(executed.minute_charged <= 1_000);
    }
    evicted
}

// rule: 8.1
#[test]
fn sixty_five_a_hundred_and_a_thousand_gateways_count_as_one() {
    for gateways in [64, 65, 100, 1_000] {
        for (gap, restart_every) in [(76, 1_000_000), (76, 7), (20, 100), (50, 3)] {
            assert_eq!(a_fleet_counts_right(gateways, gap, 4_000, restart_every), 0, "{gateways}");
        }
    }
}

// rule: 8.1
#[test]
fn more_places_than_a_bucket_has_room_for_come_and_go_and_count_right() {
    let more = PLACES_MAX as u64 + 300;
    assert!(a_fleet_counts_right(more, 500, 3 * more, 1_000_000) > 300, "places return that had been evicted");
    assert!(a_fleet_counts_right(more, 500, 3 * more, 11) > 100);
}

#[test]
fn one_place_too_many_is_refused_until_another_was_silent_for_long() {
    let limits = (60_000, 1_000_000);
    let mut bucket = Bucket::new(&around(NOW));
    let mut clients: Vec<_> = (1..=PLACES_MAX as u64).map(Client::at).collect();
    for client in &mut clients {
        assert!(matches!(client.ask(&mut bucket, limits, NOW).1, Reply::Executed(_)));
    }
    let mut newcomer = Client::at(PLACES_MAX as u64 + 1);
    for seconds in [0, 1, 60, 120, 159] {
        assert_eq!(newcomer.ask(&mut bucket, limits, NOW.plus(seconds * 1_000)).1, Reply::Crowded, "{seconds} s");
        let known = clients[0].ask(&mut bucket, limits, NOW.plus(seconds * 1_000)).1;
        assert!(matches!(known, Reply::Executed(executed) if executed.granted == 1), "{known:?}");
    }
    let (_, reply) = newcomer.ask(&mut bucket, limits, NOW.plus(160_000));
    assert!(
        matches!(reply, Reply::Executed(executed) if executed.granted == 1 && executed.day_charged == 1_024 + 5 + 1),
        "{reply:?}"
    );
    assert!(!clients[0].ask(&mut bucket, limits, NOW.plus(160_000)).0, "a place that spoke lately keeps its component");
}

#[test]
fn a_bucket_may_be_dropped_only_when_no_clock_can_return_to_its_day() {
    let bucket = Bucket::new(&around(NOW));
    let midnight = UnixMillis((day_of(MINUTE) + 1) * 86_400_000);
    assert!(!bucket.is_over(midnight));
    assert!(!bucket.is_over(midnight.plus(CLOCK_STEP_BACK_MINUTES_MAX * 60_000 - 1)));
    assert!(bucket.is_over(midnight.plus(CLOCK_STEP_BACK_MINUTES_MAX * 60_000)));
    assert_eq!(bucket.view(midnight).day_charged, 0);
}

proptest! {
    /// Honest nodes with randomly lost replies: the charge is always the sum of the components and never above a limit,
    /// and a grant never exceeds the request.
    // rule: 8.1
    #[test]
    fn charges_are_sums_and_stay_within_both_limits(
        limits in (1_u32..40, 1_u32..100),
        steps in prop::collection::vec((0_u64..4, 0_u32..10, 0_u32..10, any::<bool>(), 0_i64..25_000), 1..60),
    ) {
        let mut bucket = Bucket::new(&around(NOW));
        let mut now = NOW;
        let mut nodes = [Claim::NOTHING; 4];
        for (seq, (process, need, spare, lost, pause)) in steps.into_iter().enumerate() {
            now = now.plus(pause);
            let mine = &mut nodes[usize::try_from(process).unwrap()];
            // Half of the held units are spent before the next statement.
            let spent = mine.held.div_ceil(2);
            *mine = claim(mine.minute, mine.minute_spent + spent, mine.day_spent + spent, mine.held - spent);
            let sent = Statement { spare, ..statement(process, seq as u64 + 1, *mine, need, limits) };
            let executed = execute(&mut bucket, &sent, &around(now));
            prop_assert!(executed.granted <= need + spare);
            prop_assert!(executed.learning_until.is_none(), "honest nodes look forgetful");
            prop_assert!(executed.minute_charged <= u64::from(limits.0));
            prop_assert!(executed.day_charged <= u64::from(limits.1));
            let view = bucket.view(now);
            prop_assert_eq!(view.minute_charged, view.nodes.iter().map(|node| u64::from(node.minute_units)).sum::<u64>());
            prop_assert_eq!(view.day_charged, view.nodes.iter().map(|node| u64::from(node.day_units)).sum::<u64>());
            if !lost {
                let same_minute = mine.minute == executed.minute;
                let same_day = day_of(mine.minute) == day_of(executed.minute);
                *mine = claim(
                    executed.minute,
                    if same_minute { mine.minute_spent } else { 0 },
                    if same_day { mine.day_spent } else { 0 },
                    if same_minute { mine.held } else { 0 } + executed.granted,
                );
            }
        }
    }
}
