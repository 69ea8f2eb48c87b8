//! The authority's advice on when to renew a certificate (RFC 9773).
//!
//! The advice is requested twice a day, or as often as the authority says; a mass revocation is noticed within that
//! time. The advice decides, but a renewal never starts later than at a sixth of the certificate's life before its end.

use chassis::random::jitter;
use contract::time::UnixSeconds;

use crate::common::Core;
use crate::domain::Domain;
use crate::issuer::{Authorities, RenewalAdvice};
use crate::store::Result;
use crate::store::leased::Leased;

/// Between two questions when the authority gave no answer or no time.
const ASK_AGAIN_SECONDS: i64 = 12 * 3_600;

/// Bounds of the time an authority may name.
const ASK_AGAIN_BOUNDS: (i64, i64) = (60, 24 * 3_600);

/// Requests advice on the domain's certificate if that is due, and records the answer.
pub(super) async fn ask(core: &Core, authorities: &Authorities, leased: &mut Leased<Domain>) -> Result<()> {
    let domain = leased.record();
    let certificate = &domain.certificate;
    let now = core.clock.now_seconds();
    let is_due = certificate.advice_at.is_some_and(|at| at <= now);
    let authority = certificate.ca.as_deref().and_then(|name| authorities.find(name));
    let (true, Some(authority)) = (is_due, authority) else { return Ok(()) };
    let Some(chain) = core.store.published_chain(&domain.name).await? else { return Ok(()) };
    let advice = match authority.renewal(&chain).await {
        Ok(advice) => advice,
        Err(error) => {
            tracing::warn!(domain = %domain.name, authority = authority.name(), %error, "cannot read renewal information; keeping the planned time");
            None
        }
    };
    let mut write = core.store.write().await?;
    let Some(mut current) = leased.reload(&mut write).await? else { return Ok(()) };
    follow(&mut current, advice.as_ref(), now, jitter());
    leased.save(&mut write, current).await?;
    write.commit().await.map(drop)
}

/// Sets the time of renewal and of the next request for advice.
fn follow(domain: &mut Domain, advice: Option<&RenewalAdvice>, now: UnixSeconds, jitter: f64) {
    let certificate = &mut domain.certificate;
    let Some(advice) = advice else {
        certificate.advice_at = Some(now.plus(ASK_AGAIN_SECONDS));
        return;
    };
    let (least, most) = ASK_AGAIN_BOUNDS;
    let again = i64::try_from(advice.again_in.as_secs()).unwrap_or(most).clamp(least, most);
    certificate.advice_at = Some(now.plus(again));
    // The time is chosen once per window, at random within it, so that certificates issued together are not renewed
    // together.
    if certificate.advised_until == Some(advice.end) {
        return;
    }
    certificate.advised_until = Some(advice.end);
    let (Some(begin), Some(end)) = (certificate.not_before, certificate.not_after) else { return };
    let width = (advice.end.0 - advice.start.0).max(0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a window is below 2^52 seconds")]
    let chosen = advice.start.plus((width as f64 * jitter.clamp(0.0, 1.0)) as i64);
    let latest = end.plus(-(end.0 - begin.0) / 6);
    certificate.renew_at = Some(chosen.min(latest));
    if let Some(explanation) = &advice.explanation {
        tracing::info!(domain = %domain.name, explanation, "received the authority's reason for the renewal time");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::time::UnixMillis;

    use super::*;
    use crate::domain::CertificateState;

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
    const DAY: i64 = 86_400;

    fn domain() -> Domain {
        let mut domain = Domain::added("shop.customer.com".parse().unwrap(), "demo".parse().unwrap(), UnixMillis(0));
        domain.certificate = CertificateState {
            not_before: Some(NOW),
            not_after: Some(NOW.plus(90 * DAY)),
            renew_at: Some(NOW.plus(60 * DAY)),
            ..CertificateState::default()
        };
        domain
    }

    fn advice(start: i64, end: i64, again_in: u64) -> RenewalAdvice {
        let (start, end) = (NOW.plus(start * DAY), NOW.plus(end * DAY));
        RenewalAdvice { start, end, explanation: None, again_in: Duration::from_secs(again_in) }
    }

    #[test]
    fn a_time_within_the_window_is_chosen_once() {
        let mut domain = domain();
        follow(&mut domain, Some(&advice(50, 54, 21_600)), NOW, 0.5);
        assert_eq!(domain.certificate.renew_at, Some(NOW.plus(52 * DAY)));
        assert_eq!(domain.certificate.advice_at, Some(NOW.plus(21_600)));
        follow(&mut domain, Some(&advice(50, 54, 21_600)), NOW.plus(DAY), 0.9);
        assert_eq!(domain.certificate.renew_at, Some(NOW.plus(52 * DAY)), "the same window, the same moment");
        follow(&mut domain, Some(&advice(-1, 0, 21_600)), NOW.plus(DAY), 0.9);
        assert!(domain.certificate.renew_at.unwrap() <= NOW, "the window moved into the past: at once");
    }

    #[test]
    fn advice_never_delays_a_renewal_to_near_the_expiry() {
        let mut domain = domain();
        follow(&mut domain, Some(&advice(85, 89, 1)), NOW, 1.0);
        assert_eq!(domain.certificate.renew_at, Some(NOW.plus(75 * DAY)));
        assert_eq!(domain.certificate.advice_at, Some(NOW.plus(60)), "not every second");
    }

    #[test]
    fn without_advice_the_rule_applies_and_the_query_is_repeated() {
        let mut domain = domain();
        follow(&mut domain, None, NOW, 0.5);
        assert_eq!(domain.certificate.renew_at, Some(NOW.plus(60 * DAY)));
        assert_eq!(domain.certificate.advice_at, Some(NOW.plus(ASK_AGAIN_SECONDS)));
    }
}
