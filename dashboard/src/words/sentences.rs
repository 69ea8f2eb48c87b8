//! Sentences with a value: a name, a number, a reason.

use contract::ban::{Ban, BanReason};

use super::pages::REDIRECT_PRIMARY;

pub(crate) fn too_many_attempts(seconds: u64) -> String {
    let minutes = seconds.div_ceil(60);
    let plural = if minutes == 1 { "" } else { "s" };
    format!("Too many attempts. Wait {minutes} minute{plural}, then try again.")
}

pub(crate) fn remove_title(name: &str) -> String {
    format!("Remove {name}?")
}

pub(crate) fn redirects(to: &str, status: Option<u16>) -> String {
    let to = if to == "primary" { REDIRECT_PRIMARY } else { to };
    match status {
        Some(status) => format!("Redirects to {to} ({status})"),
        None => format!("Redirects to {to}"),
    }
}

/// `X-Edge-Ack`, such as `3/3; 4ms`, as a sentence.
pub(crate) fn stopped(acknowledged: &str) -> String {
    let read = || {
        let (gateways, time) = acknowledged.split_once(';')?;
        let (stopped, all) = gateways.trim().split_once('/')?;
        Some((stopped.parse::<u64>().ok()?, all.parse::<u64>().ok()?, time.trim().strip_suffix("ms")?))
    };
    match read() {
        Some((_, 0, _)) => "Traffic has stopped. No gateway is connected at the moment.".to_owned(),
        Some((1, 1, time)) => format!("Traffic stopped on the only gateway, within {time} ms."),
        Some((stopped, all, time)) => format!("Traffic stopped on {stopped} of {all} gateways, within {time} ms."),
        None => "Traffic has stopped.".to_owned(),
    }
}

pub(crate) fn resets_in(seconds: i64) -> String {
    match seconds {
        ..=90 => format!("resets in {seconds} s"),
        91..=5_400 => format!("resets in {} min", (seconds + 30) / 60),
        _ => format!("resets in {} h", (seconds + 1_800) / 3_600),
    }
}

/// The reason of a ban, for the key's owner.
pub(crate) const fn banned(reason: BanReason) -> &'static str {
    match reason {
        BanReason::Strikes => {
            "Banned for a while: it kept sending after 429 Too Many Requests. Let it wait as Retry-After says."
        }
        BanReason::Operator => "Banned for a while by the operator of the platform.",
    }
}

/// The reason of a ban, for operators.
pub(crate) fn ban_reason(ban: &Ban) -> String {
    let why = match (ban.reason, ban.level) {
        (BanReason::Operator, _) => "banned by an operator".to_owned(),
        (BanReason::Strikes, ..=1) => "went on sending after 429".to_owned(),
        (BanReason::Strikes, 2) => "went on sending after 429, for the second time in a day".to_owned(),
        (BanReason::Strikes, 3) => "went on sending after 429, for the third time in a day".to_owned(),
        (BanReason::Strikes, _) => "went on sending after 429, more than three times in a day".to_owned(),
    };
    if ban.shadow { format!("{why}; not refused, because bans are in shadow mode") } else { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_read_as_sentences() {
        for (header, sentence) in [
            ("3/3; 4ms", "Traffic stopped on 3 of 3 gateways, within 4 ms."),
            ("1/1; 2ms", "Traffic stopped on the only gateway, within 2 ms."),
            ("0/0; 0ms", "Traffic has stopped. No gateway is connected at the moment."),
            ("2/3; 1000ms", "Traffic stopped on 2 of 3 gateways, within 1000 ms."),
            ("", "Traffic has stopped."),
        ] {
            assert_eq!(stopped(header), sentence);
        }
    }

    #[test]
    fn waits_are_rounded_up() {
        assert_eq!(too_many_attempts(1), "Too many attempts. Wait 1 minute, then try again.");
        assert_eq!(too_many_attempts(61), "Too many attempts. Wait 2 minutes, then try again.");
    }
}
