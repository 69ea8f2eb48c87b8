use contract::plan::Limits;
use proptest::prelude::*;

use super::*;
use crate::quota::ledger::Claim;

/// 2023-11-14T22:13:20Z, 20 seconds into minute 28 333 333.
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);
const MINUTE: i64 = 28_333_333;

fn around(now: UnixMillis) -> Surroundings {
    Surroundings { now, incarnation: Incarnation(1), learning_until: UnixMillis(i64::MIN) }
}

fn node(process: u64) -> NodeId {
    NodeId { process, life: 0 }
}

fn claim(minute: i64, minute_spent: u32, day_spent: u32, held: u32) -> Claim {
    Claim { minute, minute_spent, day_spent, held }
}

fn statement(process: u64, seq: u64, claim: Claim, need: u32, limits: (u32, u32)) -> Statement {
    let limits = Limits::new(limits.0, limits.1).unwrap();
    Statement { node: node(process), seq, heard: 0, claim, need, spare: 0, limits }
}

fn settled(bucket: &mut Bucket, statement: &Statement, around: &Surroundings) -> Settlement {
    match bucket.apply(statement, around) {
        Reply::Settled(settlement) => settlement,
        Reply::Stale => panic!("stale: {statement:?}"),
    }
}

#[test]
fn a_statement_that_is_not_newer_changes_nothing() {
    let mut bucket = Bucket::new(&around(NOW));
    settled(&mut bucket, &statement(1, 2, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
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
    settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
    let books = settled(&mut bucket, &statement(1, 2, Claim::NOTHING, 2, (60, 1_000)), &around(NOW));
    assert_eq!((books.granted, books.minute_charged, books.day_charged), (2, 2, 2));
}

// rule: 8.1
#[test]
fn minute_and_day_are_charged_together_or_not_at_all() {
    for limits in [(3, 1_000), (1_000, 3)] {
        let mut bucket = Bucket::new(&around(NOW));
        let books = settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, limits), &around(NOW));
        assert_eq!((books.granted, books.minute_charged, books.day_charged), (3, 3, 3));
        let books = settled(&mut bucket, &statement(2, 1, Claim::NOTHING, 5, limits), &around(NOW));
        assert_eq!((books.granted, books.minute_charged, books.day_charged), (0, 3, 3));
    }
}

#[test]
fn the_last_millisecond_is_the_old_minute_and_the_next_one_is_new() {
    let limits = (2, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    let last = around(UnixMillis((MINUTE + 1) * 60_000 - 1));
    let first = around(UnixMillis((MINUTE + 1) * 60_000));
    assert_eq!(settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 9, limits), &last).granted, 2);
    let books = settled(&mut bucket, &statement(1, 2, claim(MINUTE, 2, 2, 0), 9, limits), &first);
    assert_eq!((books.granted, books.minute, books.minute_charged, books.day_charged), (2, MINUTE + 1, 2, 4));
}

#[test]
fn at_midnight_both_windows_start_anew() {
    let midnight = day_of(MINUTE) * 1_440 + 1_440;
    let mut bucket = Bucket::new(&around(NOW));
    settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 5)), &around(NOW));
    let after = around(UnixMillis(midnight * 60_000));
    let books = settled(&mut bucket, &statement(1, 2, claim(MINUTE, 5, 5, 0), 5, (60, 5)), &after);
    assert_eq!((books.granted, books.day_charged, books.own_day), (5, 5, 5));
}

#[test]
fn what_expired_unspent_in_an_old_minute_is_returned_to_the_day() {
    let mut bucket = Bucket::new(&around(NOW));
    settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 10, (60, 1_000)), &around(NOW));
    let later = around(NOW.plus(60_000));
    let books = settled(&mut bucket, &statement(1, 2, claim(MINUTE, 4, 4, 0), 0, (60, 1_000)), &later);
    assert_eq!((books.minute_charged, books.day_charged), (0, 4));
}

#[test]
fn a_clock_that_steps_back_a_little_never_reopens_a_window() {
    let limits = (5, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, limits), &around(NOW));
    for back in [1, 90_000, CLOCK_STEP_BACK_MINUTES_MAX * 60_000 - 60_000] {
        let books = settled(&mut bucket.clone(), &statement(2, 1, Claim::NOTHING, 1, limits), &around(NOW.plus(-back)));
        assert_eq!((books.granted, books.minute), (0, MINUTE));
    }
    let far = around(NOW.plus(-(CLOCK_STEP_BACK_MINUTES_MAX + 2) * 60_000));
    assert_eq!(settled(&mut bucket, &statement(2, 1, Claim::NOTHING, 1, limits), &far).granted, 1);
}

#[test]
fn a_store_that_was_emptied_and_is_slow_learns_the_window_from_its_nodes() {
    let slow = around(NOW.plus(-90_000));
    let mut bucket = Bucket::new(&slow);
    let books = settled(&mut bucket, &statement(1, 9, claim(MINUTE, 5, 5, 0), 1, (60, 1_000)), &slow);
    assert_eq!((books.minute, books.minute_charged), (MINUTE, 5));
}

#[test]
fn a_store_that_finds_it_has_forgotten_listens_before_it_grants() {
    let limits = (60, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    let first = settled(&mut bucket, &statement(1, 7, claim(MINUTE, 30, 30, 2), 5, limits), &around(NOW));
    assert_eq!((first.granted, first.minute_charged), (0, 32));
    assert_eq!(first.learning_until, Some(NOW.plus(LEARNING_MILLIS)));
    let other = settled(&mut bucket, &statement(2, 4, claim(MINUTE, 20, 20, 0), 20, limits), &around(NOW.plus(100)));
    assert_eq!((other.granted, other.minute_charged), (0, 52));
    let heard = other.learning_until.unwrap();
    let after = settled(&mut bucket, &statement(2, 5, claim(MINUTE, 20, 20, 0), 20, limits), &around(heard));
    assert_eq!((after.granted, after.learning_until), (8, None));
}

#[test]
fn a_copy_that_lags_listens_too_even_if_the_first_to_speak_lost_nothing() {
    let mut bucket = Bucket::new(&around(NOW));
    settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
    let reborn = Surroundings { incarnation: Incarnation(2), ..around(NOW) };
    let books = settled(&mut bucket, &statement(2, 1, Claim::NOTHING, 5, (60, 1_000)), &reborn);
    assert_eq!((books.granted, books.learning_until.is_some()), (0, true));
}

#[test]
fn a_settlement_that_was_read_but_is_not_in_the_books_gives_a_loss_away() {
    let mut bucket = Bucket::new(&around(NOW));
    settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 5, (60, 1_000)), &around(NOW));
    let knows_more = Statement { heard: 3, ..statement(1, 4, claim(MINUTE, 2, 2, 0), 1, (60, 1_000)) };
    assert!(settled(&mut bucket, &knows_more, &around(NOW)).learning_until.is_some());
}

#[test]
fn a_lease_shrinks_to_nothing_near_the_limit_but_what_waits_is_granted_to_the_last_unit() {
    let limits = (100, 10_000);
    let mut bucket = Bucket::new(&around(NOW));
    let lease = |seq, held, need| Statement { spare: 50, ..statement(1, seq, claim(MINUTE, 0, 0, held), need, limits) };
    settled(&mut bucket, &statement(2, 1, Claim::NOTHING, 20, limits), &around(NOW));
    assert_eq!(settled(&mut bucket, &lease(1, 0, 0), &around(NOW)).granted, 20, "a quarter of the 80 left for two");
    assert_eq!(settled(&mut bucket, &lease(2, 20, 57), &around(NOW)).granted, 57, "three are left: no lease");
    assert_eq!(settled(&mut bucket, &lease(3, 77, 9), &around(NOW)).granted, 3);
}

#[test]
fn what_others_hold_is_known_to_who_is_refused() {
    let limits = (10, 1_000);
    let mut bucket = Bucket::new(&around(NOW));
    settled(&mut bucket, &statement(1, 1, Claim::NOTHING, 10, limits), &around(NOW));
    settled(&mut bucket, &statement(1, 2, claim(MINUTE, 6, 6, 4), 0, limits), &around(NOW));
    let refused = settled(&mut bucket, &statement(2, 1, Claim::NOTHING, 1, limits), &around(NOW));
    assert_eq!((refused.granted, refused.held_elsewhere, refused.nodes), (0, 4, 2));
}

#[test]
fn a_restart_loop_cannot_grow_a_bucket_and_frees_nothing() {
    let limits = (1_000, 10_000);
    let mut bucket = Bucket::new(&around(NOW));
    for process in 0..1_000 {
        settled(&mut bucket, &statement(process, 1, Claim::NOTHING, 1, limits), &around(NOW));
    }
    let view = bucket.view(NOW);
    assert_eq!((view.nodes.len(), view.minute_charged, view.day_charged), (NODES_MAX, 1_000, 1_000));
}

#[test]
fn a_bucket_may_be_forgotten_only_when_no_clock_can_return_to_its_day() {
    let bucket = Bucket::new(&around(NOW));
    let midnight = UnixMillis((day_of(MINUTE) + 1) * 86_400_000);
    assert!(!bucket.is_over(midnight));
    assert!(!bucket.is_over(midnight.plus(CLOCK_STEP_BACK_MINUTES_MAX * 60_000 - 1)));
    assert!(bucket.is_over(midnight.plus(CLOCK_STEP_BACK_MINUTES_MAX * 60_000)));
    assert_eq!(bucket.view(midnight).day_charged, 0);
}

proptest! {
    /// Honest nodes, whose replies are lost at random: the charge is always the sum of the components and never above
    /// a limit, and a grant never exceeds what was wanted.
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
            // Half of what is held gets spent before the next statement.
            let spent = mine.held.div_ceil(2);
            *mine = claim(mine.minute, mine.minute_spent + spent, mine.day_spent + spent, mine.held - spent);
            let sent = Statement { spare, ..statement(process, seq as u64 + 1, *mine, need, limits) };
            let books = settled(&mut bucket, &sent, &around(now));
            prop_assert!(books.granted <= need + spare);
            prop_assert!(books.learning_until.is_none(), "honest nodes look forgetful");
            prop_assert!(books.minute_charged <= u64::from(limits.0));
            prop_assert!(books.day_charged <= u64::from(limits.1));
            let view = bucket.view(now);
            prop_assert_eq!(view.minute_charged, view.nodes.iter().map(|node| u64::from(node.minute_units)).sum::<u64>());
            prop_assert_eq!(view.day_charged, view.nodes.iter().map(|node| u64::from(node.day_units)).sum::<u64>());
            if !lost {
                let same_minute = mine.minute == books.minute;
                let same_day = day_of(mine.minute) == day_of(books.minute);
                *mine = claim(
                    books.minute,
                    if same_minute { mine.minute_spent } else { 0 },
                    if same_day { mine.day_spent } else { 0 },
                    if same_minute { mine.held } else { 0 } + books.granted,
                );
            }
        }
    }
}
