use std::collections::BTreeSet;
use std::time::Duration;

use contract::key::KeyId;
use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;

use super::*;

/// The first millisecond of a minute.
const MINUTE: i64 = 1_700_000_040_000;

fn key(number: u16) -> KeyId {
    let [high, low] = number.to_be_bytes();
    KeyId::from_random([high, low, 0, 0, 0, 0, 0, 0, 0, 0])
}

fn table(switch: BanSwitch) -> BanTable {
    BanTable::new(BanRules { switch, ..BanRules::default() })
}

/// Refuses one key at these times; returns the first time that led to a ban, and the ban.
fn refuse(table: &BanTable, window: Window, limit: u32, times: impl IntoIterator<Item = i64>) -> Option<(i64, Ban)> {
    times.into_iter().find_map(|at| table.refuse(&key(1), window, limit, UnixMillis(at)).map(|ban| (at, ban)))
}

// rule: 8.3
#[test]
fn two_hundred_requests_in_progress_at_the_limit_are_not_abuse() {
    let table = table(BanSwitch::On);
    assert_eq!(refuse(&table, Window::Minute, 60, (0..1_000).map(|at| MINUTE + at)), None);
    assert_eq!(refuse(&table, Window::Minute, 60, [MINUTE + 1_000]), None, "still within the second of grace");
}

// rule: 8.3, 8.11
#[test]
fn one_strike_too_many_bans_for_a_minute_and_each_further_ban_is_longer() {
    let table = table(BanSwitch::On);
    let mut begins = MINUTE;
    for (nth, seconds) in [60, 300, 900, 3_600, 3_600].into_iter().enumerate() {
        // The first is forgiven, 29 strikes are tolerated with a limit of 60, and the thirtieth bans.
        let (at, ban) = refuse(&table, Window::Minute, 60, (0..).map(|n| begins + n * 1_001)).unwrap();
        assert_eq!(at, begins + 30 * 1_001);
        assert_eq!((ban.until.0 - ban.since.0, ban.level), (seconds, u32::try_from(nth).unwrap().min(3) + 1));
        // Requests during the ban, and the first ones after it, have no effect.
        for during in 0..10 {
            assert_eq!(table.refuse(&key(1), Window::Minute, 60, UnixMillis(at + during)), None);
        }
        assert_eq!(table.holds(&key(1), || UnixMillis(ban.until.0 * 1_000 - 1)), Some(ban.until));
        assert_eq!(table.holds(&key(1), || ban.until.to_millis()), None);
        begins = (ban.until.0 / 60 + 1) * 60_000;
    }
}

// rule: 8.11
#[test]
fn after_a_day_without_bans_the_shortest_one_is_due_again() {
    let table = table(BanSwitch::On);
    let (at, _) = refuse(&table, Window::Minute, 60, (0..).map(|n| MINUTE + n * 1_001)).unwrap();
    let next_day = (at / 60_000 + 1_441) * 60_000;
    let (_, ban) = refuse(&table, Window::Minute, 60, (0..).map(|n| next_day + n * 1_001)).unwrap();
    assert_eq!((ban.level, ban.until.0 - ban.since.0), (1, 60));
}

// rule: 8.3
#[test]
fn a_large_limit_tolerates_half_of_itself_and_a_small_one_twenty() {
    for (limit, strikes) in [(1, 20), (40, 20), (60, 30), (1_000, 500)] {
        let table = table(BanSwitch::On);
        let times = std::iter::once(MINUTE).chain((0..).map(|n| MINUTE + 1_001 + n * 10));
        let (at, _) = refuse(&table, Window::Minute, limit, times).unwrap();
        assert_eq!(at, MINUTE + 1_001 + (strikes - 1) * 10, "limit {limit}");
    }
}

// rule: 8.3
#[test]
fn three_bad_minutes_in_a_row_ban_a_key_and_a_good_one_between_them_resets() {
    let bad = |minute: i64| (0..11).map(move |n| MINUTE + minute * 60_000 + n * 5_000);
    let table = table(BanSwitch::On);
    assert_eq!(refuse(&table, Window::Minute, 1_000, bad(0).chain(bad(1))), None);
    assert_eq!(refuse(&table, Window::Minute, 1_000, bad(3).chain(bad(4))), None, "minute 2 was good");
    let (at, _) = refuse(&table, Window::Minute, 1_000, bad(5)).unwrap();
    assert_eq!(at, MINUTE + 5 * 60_000 + 50_000, "the tenth strike of the third minute");
}

// rule: 8.3
#[test]
fn polling_once_in_ten_seconds_with_a_spent_day_is_tolerated() {
    let table = table(BanSwitch::On);
    assert_eq!(refuse(&table, Window::Day, 60, (0..1_000).map(|n| MINUTE + n * 10_000)), None);
}

#[test]
fn strikes_older_than_a_minute_do_not_count() {
    let table = table(BanSwitch::On);
    // 15 strikes at the end of one minute and 15 more than a minute later: never 20 within 60 seconds.
    let late = |minute: i64| (0..16).map(move |n| MINUTE + minute * 60_000 + n * 1_001);
    assert_eq!(refuse(&table, Window::Day, 2, late(0).chain(late(2))), None);
}

// rule: 8.3
#[test]
fn off_counts_nothing_and_shadow_refuses_no_request() {
    let times = || (0..100).map(|n| MINUTE + n * 500);
    let off = table(BanSwitch::Off);
    assert_eq!(refuse(&off, Window::Minute, 60, times()), None);
    let shadow = table(BanSwitch::Shadow);
    let (at, ban) = refuse(&shadow, Window::Minute, 60, times()).unwrap();
    assert!(ban.shadow);
    assert_eq!(shadow.list(UnixMillis(at)).len(), 1);
    assert_eq!(shadow.holds(&key(1), || UnixMillis(at)), None);
    for table in [off, shadow] {
        let until = UnixSeconds(at / 1_000 + 100);
        table.add(&key(2), UnixMillis(at), until).unwrap();
        assert_eq!(table.holds(&key(2), || UnixMillis(at)), Some(until), "a manual ban ignores the switch");
    }
}

#[test]
fn the_table_is_bounded_and_banned_keys_stay_in_it() {
    let table = table(BanSwitch::On);
    let until = UnixSeconds(MINUTE / 1_000 + 1_000);
    table.add(&key(0), UnixMillis(MINUTE), until).unwrap();
    for number in 1..=u16::try_from(OFFENDERS_MAX + 500).unwrap() {
        table.refuse(&key(number), Window::Minute, 60, UnixMillis(MINUTE));
    }
    assert_eq!(table.len(), OFFENDERS_MAX);
    assert_eq!(table.holds(&key(0), || UnixMillis(MINUTE)), Some(until));
    for number in 0..u16::try_from(OFFENDERS_MAX).unwrap() {
        table.add(&key(number), UnixMillis(MINUTE), until).unwrap();
    }
    assert_eq!(table.add(&key(20_000), UnixMillis(MINUTE), until), None, "the table is full of banned keys");
    let listed: BTreeSet<_> = table.list(UnixMillis(MINUTE)).into_iter().map(|ban| ban.key).collect();
    assert_eq!(listed.len(), OFFENDERS_MAX);
}

#[test]
fn a_grace_of_zero_makes_the_second_refusal_a_strike() {
    let table = BanTable::new(BanRules { grace: Duration::ZERO, strikes_min: 1, ..BanRules::default() });
    let (at, _) = refuse(&table, Window::Minute, 1, [MINUTE, MINUTE, MINUTE + 1]).unwrap();
    assert_eq!(at, MINUTE + 1);
}
