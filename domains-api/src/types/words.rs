//! Closed sets of words, and the events that webhooks receive.

contract::words! {
    /// The one status a user sees.
    pub enum Status {
        PendingDns = "pending_dns",
        PendingOwnership = "pending_ownership",
        Propagating = "propagating",
        Issuing = "issuing",
        Active = "active",
        ActionRequired = "action_required",
        Degraded = "degraded",
        Suspended = "suspended",
        Removing = "removing",
    }
}

impl Status {
    /// Whether the edge serves the domain.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Active | Self::Degraded)
    }
}

contract::words! {
    /// How far a domain's certificate is.
    #[derive(Default)]
    pub enum CertificateStatus {
        /// There is none and none is being made.
        #[default]
        None = "none",
        /// Its order waits: for its turn in our queue, for the authority, or for a gateway.
        Queued = "queued",
        /// The authority has been asked.
        Ordering = "ordering",
        /// The authority is checking the proof.
        Validating = "validating",
        /// The authority is signing.
        Finalizing = "finalizing",
        /// On every gateway.
        Deployed = "deployed",
        /// On every gateway while its successor is being made.
        Renewing = "renewing",
        /// The last attempt failed; there will be another.
        Failed = "failed",
    }
}

contract::words! {
    /// The kind of a withdrawn thing.
    pub enum WithdrawalKind {
        /// A custom domain.
        Name = "name",
        /// An API key.
        Key = "key",
        /// A project, with its names and its keys.
        Project = "project",
        /// The service of a project, which was suspended.
        Suspension = "suspension",
        /// Visits of a project without a key.
        Access = "access",
        /// The upstream that a project was on.
        Upstream = "upstream",
        /// Reading of a project by pages of other origins.
        Cors = "cors",
        /// Where visitors of a custom domain were sent.
        Redirect = "redirect",
    }
}

/// Events that webhooks can receive. The others are in the audit log alone.
pub const EVENTS: &[&str] = &[
    "domain.created",
    "domain.verified",
    "domain.unverified",
    "domain.status_changed",
    "domain.active",
    "domain.degraded",
    "domain.suspended",
    "domain.plan_ended",
    "domain.updated",
    "domain.primary_changed",
    "domain.transferred",
    "domain.removed",
    "domain.certificate.issued",
    "domain.certificate.renewed",
    "domain.certificate.failed",
    "order.created",
    "order.shipped",
    "order.cancelled",
];

/// Entries of an endpoint's list of events.
pub const WANTED_MAX: usize = 50;

contract::words! {
    /// Why nothing is sent to an endpoint.
    pub enum DisabledReason {
        /// The owner disabled it.
        Owner = "owner",
        /// It has failed for days.
        Failing = "failing",
        /// The receiver answered 410 Gone.
        Gone = "gone",
        /// Too much waits for it.
        Backlog = "backlog",
    }
}

contract::words! {
    /// What became of a delivery.
    pub enum DeliveryState {
        /// It will be tried (again).
        Waiting = "waiting",
        /// The receiver has it.
        Delivered = "delivered",
        /// All attempts failed. It is sent again only on request.
        Failed = "failed",
    }
}
