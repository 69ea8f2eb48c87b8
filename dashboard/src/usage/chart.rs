//! Thirty days as bars: admitted plain, refused and banned hatched on top, for people who do not see the colours.

use jiff::Timestamp;

use domains_api::types::UsageOfDay;

/// Size of the drawing, in its own units.
const HEIGHT: i64 = 200;
const STEP: i64 = 24;
const BAR: i64 = 16;

/// One day's bar, in units of the drawing.
pub(super) struct Bar {
    pub(super) x: i64,
    pub(super) admitted_y: i64,
    pub(super) admitted_height: i64,
    pub(super) refused_y: i64,
    pub(super) refused_height: i64,
    /// `2026-06-15`.
    pub(super) date: String,
    /// Written below every seventh bar.
    pub(super) label: Option<String>,
    pub(super) usage: UsageOfDay,
}

/// The drawing.
pub(super) struct Chart {
    pub(super) bars: Vec<Bar>,
    pub(super) width: i64,
    /// The number at the upper line.
    pub(super) top: String,
    pub(super) half: String,
    pub(super) admitted: String,
    pub(super) refused: String,
    pub(super) banned: String,
    pub(super) is_empty: bool,
}

impl Chart {
    /// The days from `first` to `last`, those without requests included.
    pub(super) fn of(days: &[UsageOfDay], first: i64, last: i64) -> Self {
        let most = days.iter().map(|day| day.admitted + day.refused + day.banned).max().unwrap_or(0);
        let top = round_up(most);
        let height = |count: i64| match count {
            0 => 0,
            // A day with one request is not a day without.
            _ => (count.saturating_mul(HEIGHT) / top).max(2),
        };
        let bar = |day: i64| {
            let date = date(day);
            let usage = days.iter().find(|usage| usage.date == date).cloned().unwrap_or_default();
            let (admitted, refused) = (height(usage.admitted), height(usage.refused + usage.banned));
            Bar {
                x: (day - first) * STEP,
                admitted_y: HEIGHT - admitted,
                admitted_height: admitted,
                refused_y: HEIGHT - admitted - refused,
                refused_height: refused,
                label: ((last - day) % 7 == 0).then(|| date.chars().skip(5).collect()),
                date,
                usage,
            }
        };
        let sum = |of: fn(&UsageOfDay) -> i64| thousands(days.iter().map(of).sum());
        Self {
            bars: (first..=last).map(bar).collect(),
            width: (last - first) * STEP + BAR,
            top: thousands(top),
            half: thousands(top / 2),
            admitted: sum(|day| day.admitted),
            refused: sum(|day| day.refused),
            banned: sum(|day| day.banned),
            is_empty: most == 0,
        }
    }
}

/// `2026-06-15`, from days since the epoch.
pub(super) fn date(day: i64) -> String {
    Timestamp::from_second(day * 86_400).unwrap_or_default().to_string().chars().take(10).collect()
}

/// The next of 2, 4, 10, 20, 40, 100 …: a round number with a round half.
fn round_up(count: i64) -> i64 {
    let steps = std::iter::successors(Some(1_i64), |step| step.checked_mul(10));
    let mut round = steps.flat_map(|step| [2, 4, 10].map(|factor| step.saturating_mul(factor)));
    round.find(|round| count <= *round).unwrap_or(i64::MAX)
}

/// `1234567` as `1 234 567`, with narrow spaces.
pub(super) fn thousands(count: i64) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join("\u{202f}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_start_at_the_baseline_and_end_below_the_top() {
        let days = [
            UsageOfDay { date: date(9), admitted: 1, refused: 0, banned: 0 },
            UsageOfDay { date: date(10), admitted: 900, refused: 60, banned: 40 },
        ];
        let chart = Chart::of(&days, 8, 10);
        assert_eq!((chart.bars.len(), chart.top.as_str()), (3, "1\u{202f}000"));
        for bar in &chart.bars {
            assert_eq!(bar.admitted_y + bar.admitted_height, HEIGHT);
            assert_eq!(bar.refused_y + bar.refused_height, bar.admitted_y);
            assert!(bar.refused_y >= 0);
        }
        let heights: Vec<i64> = chart.bars.iter().map(|bar| bar.admitted_height).collect();
        assert_eq!(heights, [0, 2, 180]);
        assert!(Chart::of(&[], 1, 30).is_empty);
    }

    #[test]
    fn lines_are_at_round_numbers() {
        for (count, top) in [(0, 2), (2, 2), (3, 4), (5, 10), (11, 20), (999, 1_000), (2_001, 4_000)] {
            assert_eq!(round_up(count), top, "{count}");
        }
        assert_eq!((thousands(0).as_str(), thousands(1_234_567).as_str()), ("0", "1\u{202f}234\u{202f}567"));
    }
}
