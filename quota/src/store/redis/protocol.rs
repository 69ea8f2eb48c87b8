//! Encodes statements for the script and decodes its replies.

use contract::time::UnixMillis;
use redis::Value;

use super::super::StoreOutage;
use crate::ledger::bucket::{BucketView, RawComponent, view_of};
use crate::ledger::{Executed, Generation, Incarnation, NodeId, Reply, Statement};

/// The arguments of a statement in the script's order.
pub(super) fn arguments(statement: &Statement) -> [String; 15] {
    let claim = statement.claim;
    let limits = statement.limits;
    [
        field_of(statement.node.place),
        statement.seq.to_string(),
        statement.acked.to_string(),
        // The script counts from the epoch: an earlier minute means none.
        claim.minute.max(-1).to_string(),
        claim.minute_spent.to_string(),
        claim.day_spent.to_string(),
        claim.held.to_string(),
        statement.need.to_string(),
        statement.spare.to_string(),
        limits.of(contract::window::Window::Minute).to_string(),
        limits.of(contract::window::Window::Day).to_string(),
        claim.named.max(-1).to_string(),
        statement.node.generation.start.to_string(),
        statement.node.generation.stay.to_string(),
        statement.node.generation.process.to_string(),
    ]
}

/// Decodes the script's reply to a statement.
pub(super) fn reply(answer: &Value) -> Result<Reply, StoreOutage> {
    match answer {
        Value::Array(numbers) => match numbers.as_slice() {
            [] => return Ok(Reply::Stale),
            [Value::Int(-1)] => return Ok(Reply::Displaced),
            [Value::Int(-2)] => return Ok(Reply::Evicted),
            [Value::Int(-3)] => return Ok(Reply::Crowded),
            _ => {}
        },
        _ => return Err(foreign("no list")),
    }
    let [
        granted,
        now,
        minute,
        minute_charged,
        day_charged,
        own_minute,
        own_day,
        nodes,
        held_elsewhere,
        learning,
        incarnation,
    ] = integers::<11>(answer)?;
    Ok(Reply::Executed(Executed {
        granted: small(granted)?,
        now: UnixMillis(now),
        minute,
        minute_charged: large(minute_charged)?,
        day_charged: large(day_charged)?,
        own_minute: small(own_minute)?,
        own_day: small(own_day)?,
        nodes: small(nodes)?,
        held_elsewhere: small(held_elsewhere)?,
        learning_until: (learning >= 0).then_some(UnixMillis(learning)),
        incarnation: Incarnation(large(incarnation)?),
    }))
}

/// Decodes the fields of a bucket and the reply to TIME into a view.
pub(super) fn view(fields: &Value, time: &Value) -> Result<Option<BucketView>, StoreOutage> {
    let fields: Vec<(String, String)> = redis::from_redis_value(fields.clone()).map_err(foreign)?;
    let (seconds, micros): (i64, i64) = redis::from_redis_value(time.clone()).map_err(foreign)?;
    let now = UnixMillis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000));
    let Some((_, record)) = fields.iter().find(|(name, _)| name == "record") else { return Ok(None) };
    let [minute, minute_charged, day_charged, ..] = numbers::<10>(record)?;
    let mut components = Vec::new();
    for (name, text) in fields.iter().filter(|(name, _)| name != "record") {
        let [start, stay, process, _, minute, units, spent, day] = numbers::<8>(text)?;
        let generation = Generation { start: small(start)?, stay: small(stay)?, process: small(process)? };
        components.push(RawComponent {
            node: NodeId { place: place_of(name)?, generation },
            minute,
            minute_units: small(units)?,
            minute_spent: small(spent)?,
            day_units: small(day)?,
        });
    }
    let charged = (large(minute_charged)?, large(day_charged)?);
    Ok(Some(view_of(minute, charged, &components, now)))
}

/// Exactly `COUNT` integers.
pub(super) fn integers<const COUNT: usize>(answer: &Value) -> Result<[i64; COUNT], StoreOutage> {
    let numbers: Vec<i64> = redis::from_redis_value(answer.clone()).map_err(foreign)?;
    numbers.try_into().map_err(|_| foreign("an unexpected number of values"))
}

fn field_of(place: u64) -> String {
    format!("{place:016x}")
}

fn place_of(field: &str) -> Result<u64, StoreOutage> {
    let place = u64::from_str_radix(field, 16).ok().filter(|place| field_of(*place) == field);
    place.ok_or_else(|| foreign("the name of a place"))
}

fn numbers<const COUNT: usize>(text: &str) -> Result<[i64; COUNT], StoreOutage> {
    let numbers: Option<Vec<i64>> = text.split(' ').map(|part| part.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| foreign("an unexpected number of values"))
}

fn small(number: i64) -> Result<u32, StoreOutage> {
    u32::try_from(number).map_err(foreign)
}

fn large(number: i64) -> Result<u64, StoreOutage> {
    u64::try_from(number).map_err(foreign)
}

fn foreign(what: impl std::fmt::Display) -> StoreOutage {
    StoreOutage::Refused(format!("an unexpected answer of the quota script ({what})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_answers_are_refused() {
        let answer = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Int).collect());
        for (numbers, known) in
            [(&[] as &[i64], Reply::Stale), (&[-1], Reply::Displaced), (&[-2], Reply::Evicted), (&[-3], Reply::Crowded)]
        {
            assert_eq!(reply(&answer(numbers)), Ok(known));
        }
        let good = answer(&[1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 11]);
        assert!(matches!(reply(&good), Ok(Reply::Executed(one)) if one.granted == 1 && one.learning_until.is_none()));
        for wrong in [
            Value::Nil,
            Value::Okay,
            Value::Int(1),
            answer(&[-4]),
            answer(&[1, 2, 3]),
            answer(&[-1, 2, 3, 4, 5, 6, 7, 8, 9, -1, 11]),
            answer(&[1 << 40, 2, 3, 4, 5, 6, 7, 8, 9, -1, 11]),
            answer(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
            Value::Array(vec![Value::BulkString(b"x".to_vec()); 11]),
        ] {
            assert!(matches!(reply(&wrong), Err(StoreOutage::Refused(_))), "{wrong:?}");
        }
    }

    #[test]
    fn the_name_of_a_place_survives_encoding() {
        for place in [0, 5, u64::MAX - 5] {
            assert_eq!(place_of(&field_of(place)), Ok(place));
        }
        for wrong in ["", "1", "x", "0123456789ABCDEF", "+123456789abcdef", "00000000000000001"] {
            assert!(place_of(wrong).is_err(), "{wrong}");
        }
    }
}
