//! Refuses banned keys, then charges one unit of the minute and one of the day: both or neither.

use contract::window::Window;

use super::Pipeline;
use crate::answer::{Answer, Refusal};
use crate::facts::{Facts, QuotaFigures};
use contract::rejection::Rejection;
use quota::ChargeError;
use quota::allowance::QuotaOutcome;

impl Pipeline {
    pub(super) async fn charge(&self, facts: &mut Facts) -> Result<(), Answer> {
        // Authentication has set both, or refused the request.
        let (Some(key), Some(payer)) = (facts.caller.key.clone(), facts.caller.payer.clone()) else {
            return Err(Rejection::InternalError.into());
        };
        let bucket = payer.uid.clone();
        let in_shadow = self.shadow_plans.contains(&payer.plan);
        let charged = if in_shadow {
            self.quota.try_charge(&bucket, payer.limits, &key.id).await
        } else {
            self.quota.charge(&bucket, payer.limits, &key.id).await
        };
        facts.quota.mode = Some(self.quota.mode());
        match charged {
            Ok(allowances) => {
                facts.quota.charged = Some(allowances);
                facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
                Ok(())
            }
            // In shadow mode the refusal is counted and its figures are shown, and the request continues.
            Err(ChargeError::Exceeded { allowances, .. }) if in_shadow => {
                facts.quota.in_shadow = true;
                facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
                Ok(())
            }
            Err(ChargeError::Exceeded { allowances, window }) => {
                let rejection = match window {
                    Window::Minute => Rejection::RateLimitExceeded,
                    Window::Day => Rejection::DailyQuotaExceeded,
                };
                Err(refuse(facts, rejection, QuotaFigures { allowances, outcome: QuotaOutcome::Refused(window) }))
            }
            Err(ChargeError::Banned { until, allowances }) => Err(refuse(
                facts,
                Rejection::ApiKeyBanned,
                QuotaFigures { allowances, outcome: QuotaOutcome::Banned { until } },
            )),
            Err(ChargeError::Unavailable { retry_after_seconds, spent, allowances }) => {
                let outcome = spent.map_or(QuotaOutcome::Admitted, QuotaOutcome::Refused);
                facts.quota.figures = Some(QuotaFigures { allowances, outcome });
                Err(Refusal::new(Rejection::QuotaUnavailable).retry_after(i64::from(retry_after_seconds)).into())
            }
        }
    }
}

fn refuse(facts: &mut Facts, rejection: Rejection, figures: QuotaFigures) -> Answer {
    facts.quota.figures = Some(figures);
    let wait = figures.allowances.retry_after_seconds(figures.outcome).unwrap_or(1);
    Refusal::new(rejection).retry_after(i64::from(wait)).into()
}
