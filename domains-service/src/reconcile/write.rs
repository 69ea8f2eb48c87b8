//! Writes a decision: the domain, its events, and the changes for the edge, in one transaction.

use contract::feed::Entity;
use serde_json::json;

use super::primary;
use crate::actor::Actor;
use crate::domain::reconcile::{Action, LostDomain, Permitted};
use crate::domain::{Domain, Status};
use crate::metrics::Metrics;
use crate::project::ProjectRef;
use crate::publish;
use crate::store::leased::Leased;
use crate::store::withdrawals::What;
use crate::store::{Result, Write, acme, domains, queue};

/// Applies the actions in order to a domain that was in the state `before`, and commits. Returns the lease and the
/// authorities if an order is among the actions; otherwise releases the lease.
pub(super) async fn apply(
    metrics: &Metrics,
    mut write: Write,
    mut leased: Leased<Domain>,
    (before, mut domain): (Status, Domain),
    actions: Vec<Action>,
) -> Result<Option<(Leased<Domain>, Permitted)>> {
    let mut order = None;
    for action in actions {
        match action {
            Action::SetHolder => domains::set_holder(write.connection(), &domain.name, &domain.project).await?,
            Action::TakeOver(loser, lost) => take_over(metrics, &mut write, &domain, &loser, lost).await?,
            Action::Record(event, detail) => {
                write.record(&domain.project, Some(&domain.name), event, &Actor::system(), detail).await?;
            }
            Action::BecomePrimaryIfWanted => primary::become_if_wanted(&mut write, &mut domain).await?,
            Action::Save => leased.save(&mut write, domain.clone()).await?,
            Action::Publish => publish::site_and_dependants(&mut write, &domain).await?,
            Action::WithdrawFrom(loser) if write.changes_the_edge() => {
                write.withdrawn(What::Name, domain.name.as_str(), &loser).await?;
            }
            Action::WithdrawFrom(_) => {}
            Action::Deploy(bundle) => write.put(Entity::Certificate(*bundle)).await?,
            Action::FinishOrders => acme::finish_orders(write.connection(), &domain.name).await?,
            Action::ForgetOrder(authority) => {
                acme::forget_order(write.connection(), &authority, &domain.name).await?;
            }
            Action::LeaveQueue => queue::leave(write.connection(), &domain.name, &domain.project.uid).await?,
            Action::LeaveQueueAt(authority) => queue::leave_one(write.connection(), &authority, &domain.name).await?,
            Action::WithdrawChallenges => publish::withdraw_challenges(&mut write, &domain.name).await?,
            Action::Order(permitted) => order = Some(permitted),
        }
    }
    let next = if let Some(permitted) = order {
        Some((leased.while_held(), permitted))
    } else {
        leased.release(&mut write).await?;
        None
    };
    write.commit().await?;
    metrics.moved(before, domain.status);
    if before != domain.status {
        tracing::info!(domain = %domain.name, project.id = %domain.project, from = before.as_str(),
            to = domain.status.as_str(), "domain changed its state");
    }
    Ok(next)
}

/// Gives the name to the domain's project, and notifies the project that loses it. Domains of the loser stop redirecting
/// to the name in the same transaction.
async fn take_over(
    metrics: &Metrics,
    write: &mut Write,
    domain: &Domain,
    loser: &ProjectRef,
    lost: Option<LostDomain>,
) -> Result<()> {
    queue::leave(write.connection(), &domain.name, &loser.uid).await?;
    let Some(LostDomain { before, was_primary, domain: lost }) = lost else {
        return domains::set_holder(write.connection(), &domain.name, &domain.project).await;
    };
    // Read before the row changes: afterwards it is the target of no redirect to the primary domain.
    let dependants = domains::dependants(write.connection(), &lost, was_primary).await?;
    // An unreadable row stays as it is: after its repair the next check finds that another project holds the name.
    if lost.unreadable.is_none() {
        domains::save_domain(write.connection(), &lost).await?;
    }
    let detail = json!({ "to_another_project": true });
    write.record(loser, Some(&lost.name), "domain.transferred", &Actor::system(), detail).await?;
    domains::set_holder(write.connection(), &domain.name, &domain.project).await?;
    // Before the successor: it publishes the redirects to the primary domain with their new target.
    for dependant in dependants {
        let revision = write.revision();
        publish::site(write, &dependant).await?;
        if write.revision() != revision {
            // A gateway that misses the change would send the loser's visitors to the winner.
            write.withdrawn(What::Redirect, dependant.name.as_str(), loser).await?;
            let detail = json!({ "redirect_target_lost": lost.name });
            write.record(loser, Some(&dependant.name), "domain.updated", &Actor::system(), detail).await?;
        }
    }
    if was_primary {
        primary::succeed(write, loser).await?;
    }
    let detail = json!({ "from_another_project": true });
    write.record(&domain.project, Some(&domain.name), "domain.transferred", &Actor::system(), detail).await?;
    metrics.moved(before, lost.status);
    Ok(())
}
