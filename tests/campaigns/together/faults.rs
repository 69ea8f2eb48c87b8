//! The faults as data: which part of the platform, and what happens to it.

/// A part that can fail; a schedule has one fault of each at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The quota store (Redis), which keeps nothing on disk.
    Store,
    /// The database (PostgreSQL).
    Database,
    /// The control plane (domains-service).
    Control,
    /// A gateway.
    Gateway(usize),
    /// The network between a gateway and the quota store.
    StoreLink(usize),
    /// The network between a gateway and the control plane.
    ControlLink(usize),
    /// The wall clock of a gateway.
    Clock(usize),
    /// The wall clock of the quota store.
    StoreClock,
    /// The DNS resolver.
    Resolver,
    /// The certificate authority.
    Authority,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// SIGSTOP.
    Stop,
    /// `kill -9`.
    Kill,
    /// SIGTERM.
    Quit,
    /// Its data is lost.
    Wipe,
    /// Its disk is full. Needs root.
    Fill,
    /// Replies come this many milliseconds late.
    Delay(u64),
    /// Connections break and cannot be made.
    Cut,
    /// Connections stay and carry nothing.
    Silence,
    /// The clock is this many seconds off.
    Step(i64),
}

/// A fault that a schedule can have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Possible {
    pub(crate) name: &'static str,
    pub(crate) part: Part,
    pub(crate) how: How,
}

const fn fault(name: &'static str, part: Part, how: How) -> Possible {
    Possible { name, part, how }
}

/// Longest call to the quota store, in milliseconds, in this campaign: the longest that can be set, because a busy machine
/// must not seem to be an outage.
pub(crate) const CALL_BUDGET: u64 = 1_000;

/// Every fault.
pub(crate) const POSSIBLE: &[Possible] = &[
    fault("store.stop", Part::Store, How::Stop),
    fault("store.kill", Part::Store, How::Kill),
    fault("store.wipe", Part::Store, How::Wipe),
    fault("database.stop", Part::Database, How::Stop),
    fault("database.kill", Part::Database, How::Kill),
    fault("database.fill", Part::Database, How::Fill),
    fault("control.stop", Part::Control, How::Stop),
    fault("control.kill", Part::Control, How::Kill),
    fault("gateway-1.stop", Part::Gateway(0), How::Stop),
    fault("gateway-1.kill", Part::Gateway(0), How::Kill),
    fault("gateway-1.quit", Part::Gateway(0), How::Quit),
    fault("gateway-1.wipe", Part::Gateway(0), How::Wipe),
    fault("gateway-2.stop", Part::Gateway(1), How::Stop),
    fault("gateway-2.kill", Part::Gateway(1), How::Kill),
    fault("gateway-2.quit", Part::Gateway(1), How::Quit),
    fault("gateway-2.wipe", Part::Gateway(1), How::Wipe),
    fault("gateway-2.fill", Part::Gateway(1), How::Fill),
    fault("store-link-1.delay", Part::StoreLink(0), How::Delay(CALL_BUDGET + 500)),
    fault("store-link-1.cut", Part::StoreLink(0), How::Cut),
    fault("store-link-2.slow", Part::StoreLink(1), How::Delay(100)),
    fault("store-link-2.silence", Part::StoreLink(1), How::Silence),
    fault("control-link-1.cut", Part::ControlLink(0), How::Cut),
    fault("control-link-2.delay", Part::ControlLink(1), How::Delay(1_500)),
    fault("control-link-2.silence", Part::ControlLink(1), How::Silence),
    fault("clock-1.ahead", Part::Clock(0), How::Step(4_000)),
    fault("clock-1.behind", Part::Clock(0), How::Step(-90)),
    fault("clock-2.ahead", Part::Clock(1), How::Step(40)),
    fault("clock-2.behind", Part::Clock(1), How::Step(-4_000)),
    fault("store-clock.ahead", Part::StoreClock, How::Step(100)),
    fault("store-clock.behind", Part::StoreClock, How::Step(-100)),
    fault("resolver.stop", Part::Resolver, How::Stop),
    fault("resolver.kill", Part::Resolver, How::Kill),
    fault("authority.stop", Part::Authority, How::Stop),
    fault("authority.kill", Part::Authority, How::Kill),
];

impl Possible {
    pub(crate) fn needs_root(&self) -> bool {
        self.how == How::Fill
    }

    /// The gateway that does not run meanwhile.
    pub(crate) fn gateway_down(&self) -> Option<usize> {
        match self.part {
            Part::Gateway(number) if self.how != How::Fill => Some(number),
            _ => None,
        }
    }

    /// The gateway that starts again afterwards, and so has lost the units that it held.
    pub(crate) fn gateway_restarted(&self) -> Option<usize> {
        self.gateway_down().filter(|_| self.how != How::Stop)
    }

    /// Whether a gateway counts without the store meanwhile. A stopped one may do so for a moment when it goes on, because
    /// its calls are late then.
    pub(crate) fn is_outage(&self) -> bool {
        match (self.part, self.how) {
            (Part::Store, how) => how != How::Wipe,
            (Part::StoreLink(_), How::Delay(by)) => by > CALL_BUDGET,
            (Part::StoreLink(_), _) | (Part::Gateway(_), How::Stop) => true,
            _ => false,
        }
    }

    /// Whether gateways may count without the store, or wait for one that only learns.
    pub(crate) fn troubles_counting(&self) -> bool {
        self.is_outage() || self.empties_store()
    }

    /// Whether the store loses its data.
    pub(crate) fn empties_store(&self) -> bool {
        self.part == Part::Store && self.how != How::Stop
    }

    /// Whether changes may fail, or their answer may be lost.
    pub(crate) fn troubles_changes(&self) -> bool {
        matches!(self.part, Part::Database | Part::Control)
    }
}
