//! One check of a name's DNS: the query and the expected records.

use crate::app::App;
use crate::domain::Domain;
use crate::domain::reconcile::DnsCheck;
use crate::store::domains::NameClaims;
use crate::store::projects::ProjectRecord;
use verification::collect::{Subject, collect};
use verification::facts::Claim;
use verification::verdict::{self, Expectation, Judgement};

/// The state of a domain's ownership before the DNS check.
pub(crate) fn claim(claims: &NameClaims, project: &ProjectRecord, domain: &Domain) -> Claim {
    if claims.contest(&project.id, &project.salt) {
        Claim::Contested
    } else if domain.status.is_served() && claims.holder.as_ref() == Some(&project.id) {
        Claim::Proven
    } else {
        Claim::Open
    }
}

/// Checks the DNS of a name as a project's domain. `None` if the name can no longer be attached.
pub(crate) async fn check_dns(app: &App, project: &ProjectRecord, domain: &Domain, claim: Claim) -> Option<DnsCheck> {
    let attachable = app.core.settings.attachable(domain.name.as_str()).ok()?;
    if attachable.local {
        return Some(DnsCheck { judged: Judgement::local(claim == Claim::Contested), checks: None, claim });
    }
    let issuing = &app.issuing;
    let target = issuing.prover.target(project.proof());
    let text = issuing.prover.ownership_text(project.proof(), &domain.name);
    let authorities = issuing.authorities.caa();
    let subject = Subject {
        name: &domain.name,
        registrable: &attachable.delegable,
        target: &target,
        claim,
        caa: !authorities.is_empty(),
    };
    let facts = collect(issuing.dns.as_ref(), &issuing.dns_config, app.core.clock.as_ref(), &subject).await;
    let expected = Expectation {
        name: &domain.name,
        target: &target,
        edge: &issuing.edge_addresses,
        text: &text,
        claim,
        authorities: &authorities,
    };
    let judged = verdict::judge(&facts, &expected);
    let checks = verdict::checks(&facts, &expected, &judged, app.core.clock.now().0);
    Some(DnsCheck { judged, checks: Some(checks), claim })
}
