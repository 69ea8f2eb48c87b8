//! Orders a certificate and puts it into service.
//!
//! A working certificate is never replaced by a worse one. A failed order changes nothing that is served: it is
//! recorded with the time of the next attempt.

use std::net::IpAddr;
use std::time::Duration;

use chassis::random::jitter;
use contract::certificate::CertificateBundle;
use tokio::time::Instant;

use super::apply;
use crate::app::Issuing;
use crate::common::Core;
use crate::domain::Domain;
use crate::domain::order::{self, CertificateFacts, Round, Verdict};
use crate::domain::reconcile::Permitted;
use crate::issuer::{IssueError, IssueRequest, Issuer, bundle};
use crate::publish;
use crate::store::leased::Leased;
use crate::store::{Result, Write, acme, domains};

/// Maximum duration of all attempts of one reconciliation, shorter than the lease.
const ORDER_TIME_MAX: Duration = Duration::from_mins(2);

/// Orders a certificate from the first permitted authority that issues one, and publishes it.
pub(super) async fn order(issuing: &Issuing, leased: Leased<Domain>, permitted: &Permitted) -> Result<()> {
    let core = &issuing.core;
    let domain = leased.record();
    let local = core.settings.attachable(domain.name.as_str()).is_ok_and(|name| name.local);
    let edge: Vec<IpAddr> = issuing.edge_addresses.iter().chain(&permitted.target_addresses).copied().collect();
    let mut round = Round::begin(&domain.certificate);
    let deadline = Instant::now() + ORDER_TIME_MAX;
    let chosen = issuing.authorities.choose(local, &permitted.authorities);
    let is_excluded = |name: &&str| chosen.iter().all(|(issuer, _)| issuer.name() != *name);
    round.excludes(issuing.authorities.public.iter().map(|issuer| issuer.name()).filter(is_excluded));
    for (issuer, methods) in chosen {
        if round.skips(issuer.name(), core.clock.now_seconds()) {
            continue;
        }
        match ask(core, domain, issuer.as_ref(), (methods, edge.clone()), deadline).await {
            Ok(certificate) => {
                let has_advice = issuing.authorities.find(issuer.name()).is_some();
                return deploy(core, leased, (issuer.name(), has_advice), certificate).await;
            }
            Err(verdict) => {
                if !round.record(issuer.name(), verdict) {
                    break;
                }
            }
        }
    }
    wait(core, leased, round).await
}

/// Orders from one authority.
async fn ask(
    core: &Core,
    domain: &Domain,
    authority: &dyn Issuer,
    (methods, edge): (Vec<String>, Vec<IpAddr>),
    deadline: Instant,
) -> std::result::Result<(Box<CertificateBundle>, CertificateFacts), Verdict> {
    // An authority learns which of its own certificates the new one replaces.
    let replaces = match &domain.certificate.ca {
        Some(ca) if ca == authority.name() => core.store.published_chain(&domain.name).await.unwrap_or_default(),
        _ => None,
    };
    let request = IssueRequest {
        hostname: domain.name.clone(),
        methods,
        now: core.clock.now_seconds(),
        project: domain.project.uid.clone(),
        attempt: domain.certificate.attempts,
        edge,
        replaces,
    };
    let issued = tokio::time::timeout_at(deadline, authority.issue(&request)).await;
    let issued = issued.unwrap_or_else(|_| Err(IssueError::Unavailable("it did not finish in time".to_owned())));
    let warn = |error: &dyn std::fmt::Display| {
        tracing::warn!(domain = %domain.name, authority = authority.name(), %error, "certificate order failed; the domain shows when it is tried again");
    };
    let issued = issued.map_err(|error| {
        // An outage or a queue is logged once, not for each name.
        if !error.keeps_place() {
            warn(&error);
        }
        Verdict::Refused(error)
    })?;
    // An order takes time: the certificate may have become valid during it.
    let now = core.clock.now_seconds();
    let made = bundle::bundle(&issued, &domain.name, now, domain.certificate.not_before, &core.sealing);
    let (bundle, facts) = made.map_err(|unfit| {
        warn(&format!("{unfit}: {}", unfit.cause()));
        Verdict::Unfit(unfit.to_string())
    })?;
    Ok((Box::new(bundle), facts))
}

/// Puts a certificate into service. `has_advice`: the authority advises on the time of its renewal.
async fn deploy(
    core: &Core,
    leased: Leased<Domain>,
    (authority, has_advice): (&str, bool),
    (bundle, facts): (Box<CertificateBundle>, CertificateFacts),
) -> Result<()> {
    let mut write = core.store.write().await?;
    let now = write.now();
    // What came too late is not served.
    let Some(domain) = leased.reload(&mut write).await? else { return abandon(write, leased.record()).await };
    let (before, renewed) = (domain.status, domain.certificate.not_after.is_some());
    tracing::info!(domain = %domain.name, authority, chain = bundle::fingerprint(&bundle.chain_pem),
        not_after = bundle.not_after.0, "issued a certificate");
    let (domain, actions) = order::issued(domain, (authority, has_advice), (bundle, facts), now, jitter());
    apply(&core.metrics, write, leased, (before, domain), actions).await?;
    core.metrics.certificate_orders.with_label_values(&[if renewed { "renewed" } else { "issued" }]).inc();
    Ok(())
}

/// Records a round without a certificate, and the time of the next attempt.
async fn wait(core: &Core, leased: Leased<Domain>, round: Round) -> Result<()> {
    core.metrics.certificate_orders.with_label_values(&[round.label()]).inc();
    let mut write = core.store.write().await?;
    let now = write.now();
    let Some(domain) = leased.reload(&mut write).await? else { return abandon(write, leased.record()).await };
    let before = domain.status;
    let (domain, actions) = order::unissued(domain, round, now, jitter());
    apply(&core.metrics, write, leased, (before, domain), actions).await?;
    Ok(())
}

/// The domain was removed or lost while its order was in progress: abandons the order, unless a project still
/// holds the name.
async fn abandon(mut write: Write, gone: &Domain) -> Result<()> {
    let now = write.now();
    acme::abandon_orders(write.connection(), &gone.name, now).await?;
    // Another project may be proving the name by now.
    if domains::find_claims(write.connection(), &gone.name).await?.holder.is_none() {
        publish::withdraw_challenges(&mut write, &gone.name).await?;
    }
    write.commit().await.map(drop)
}
