//! Metrics of charges: their decisions, and how requests are counted.

use chassis::metrics::{self, IntCounter, IntGaugeVec, Registry};
use contract::plan::Plan;

use super::position;
use crate::usage::Decision;
use quota::settings::Mode;

/// The counters of charges.
pub(crate) struct QuotaMetrics {
    decisions: Vec<IntCounter>,
    mode: IntGaugeVec,
}

impl QuotaMetrics {
    pub(super) fn new(registry: &Registry) -> anyhow::Result<Self> {
        let decisions = metrics::counter_vec(
            registry,
            "edge_quota_decisions_total",
            "Charges decided, by plan and outcome.",
            &["plan", "outcome"],
        )?;
        let mode = metrics::gauge_vec(
            registry,
            "edge_quota_mode",
            "1 for the present way of counting, 0 for the others.",
            &["mode"],
        )?;
        let decisions = Plan::ALL
            .iter()
            .flat_map(|plan| Decision::ALL.iter().map(move |decision| (plan, decision)))
            .map(|(plan, decision)| decisions.with_label_values(&[plan.as_str(), decision.as_str()]))
            .collect();
        Ok(Self { decisions, mode })
    }

    /// Counts a charge.
    pub(crate) fn charged(&self, plan: Plan, decision: Decision) {
        let index = position(Plan::ALL, &plan) * Decision::ALL.len() + position(Decision::ALL, &decision);
        if let Some(counter) = self.decisions.get(index) {
            counter.inc();
        }
    }

    /// Shows how requests are counted.
    pub(crate) fn show_mode(&self, now: Mode) {
        for mode in Mode::ALL {
            self.mode.with_label_values(&[mode.as_str()]).set(i64::from(*mode == now));
        }
    }
}
