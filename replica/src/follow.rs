//! Follows the change stream: requests it, reads lines, applies and reports them, and restarts after any error.
//!
//! While the control plane is unavailable the replica serves its data; attempts continue with a pause of 100 ms to 2 s
//! and a third of jitter, so that a fleet does not reconnect at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::peer::Peer;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::error::ErrorBody;
use contract::feed::{AmongGateways, Change, Entity, LINE_BYTES_MAX, NodeReport, Position, Revision};
use contract::hostname::Hostname;
use contract::time::UnixMillis;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use super::EnrolledName;
use super::acceptance::Refused;
use super::stream::{ChangeStream, StreamEvent};
use super::{Invalid, REPAIR_DISK, Replica, ReplicaError, Unregistered, Unusable};
use chassis::names;

/// Heartbeats come every second; after three missing ones the stream counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(3);
const CONNECT_MAX: Duration = Duration::from_secs(2);
const REPORT_MAX: Duration = Duration::from_secs(1);
/// The longest time for reporting the shutdown.
const GOODBYE_MAX: Duration = Duration::from_secs(2);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Changes applied in one commit.
const BATCH_MAX: usize = 1_000;

/// Reacts to changes of the replica.
pub trait Watcher: Send + Sync {
    /// Hostnames that are no longer served. Called after every batch, before its revision is reported.
    fn retired(&self, hostnames: &[Hostname]);
    /// Changes were applied.
    fn applied(&self, changes: &[Change]);
    /// A whole snapshot replaced everything.
    fn replaced(&self);
    /// The control plane was reachable.
    fn received(&self, newest: Revision, at: UnixMillis, among: Option<AmongGateways>);
    /// A held replica is served from now on.
    fn served(&self);
    /// Content was refused for this reason (one of [`Invalid::REASONS`]).
    fn refused(&self, reason: &'static str);
}

/// Stores the sealed keys of the gateways; called where it may block.
pub type TakeKeyring = Arc<dyn Fn(&str) -> anyhow::Result<()> + Send + Sync>;

/// The control plane to follow, and this gateway's identity.
pub struct Follower {
    /// The control plane's internal listener.
    pub control: Peer,
    /// The token for it.
    pub token: Secret,
    /// The enrolled name of this gateway, for the log.
    pub gateway: EnrolledName,
    /// The id of this process.
    pub node: String,
    /// The identity of its data directory.
    pub place: u64,
    /// Stores the keys that the control plane sends.
    pub keyring: TakeKeyring,
    /// The replica to keep current.
    pub replica: Arc<Replica>,
    /// Is notified of changes.
    pub watcher: Arc<dyn Watcher>,
    /// For jitter.
    pub clock: Arc<dyn Clock>,
}

impl Follower {
    /// Follows until `end`, when nothing is served any more, and says goodbye.
    pub async fn run(&self, end: Shutdown) {
        // Everything is served meanwhile.
        let (replica, ends) = (self.replica.clone(), end.clone());
        let verified = tokio::task::spawn_blocking(move || replica.file.verify(|| !ends.has_begun()));
        self.follow(&end).await;
        // A panic is recorded as damage.
        let _ = tokio::time::timeout(GOODBYE_MAX, verified).await;
        match tokio::time::timeout(GOODBYE_MAX, self.say_goodbye()).await {
            Ok(Ok(())) => tracing::debug!(
                "sent goodbye to the control plane; the next start with this data directory serves nothing \
                 until it has reached the control plane"
            ),
            Ok(Err(error)) => self.goodbye_failed(&error),
            Err(late) => self.goodbye_failed(&late.into()),
        }
    }

    fn goodbye_failed(&self, error: &anyhow::Error) {
        tracing::info!(
            gateway = self.gateway.load().as_deref(),
            node = self.node,
            error = format!("{error:#}"),
            "cannot tell the control plane that this gateway has stopped; removals wait for it until a gateway starts \
             with this data directory, its credential is revoked, or 24 hours have passed"
        );
    }

    /// The goodbye is recorded before it is sent: if its answer is lost, it may have been received. So it is sent only
    /// to a reachable control plane; otherwise the next process with this replica serves at once.
    async fn say_goodbye(&self) -> anyhow::Result<()> {
        let client = self.client().await?;
        let applied = if self.replica.refusal().is_some() { None } else { self.replica.position()? };
        self.send_report(&client, applied, false).await?;
        self.written(Replica::stop).await?;
        self.send_report(&client, applied, true).await
    }

    async fn follow(&self, shutdown: &Shutdown) {
        let mut pause = PAUSE_MIN;
        let mut said = false;
        while !shutdown.has_begun() {
            let (before, accepted) = (self.replica.revision(), self.replica.accepts());
            let ended = tokio::select! {
                () = shutdown.begun() => return,
                ended = self.follow_once() => ended,
            };
            match ended {
                Ok(()) => tracing::debug!("the change stream ended"),
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        what_to_do = remedy(&error),
                        "lost the change stream; reconnecting"
                    );
                    self.warn_unregistered(&mut said);
                }
            }
            let goes_on = self.replica.revision() > before || (self.replica.accepts() && !accepted);
            pause = if goes_on { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            let jitter = pause / 3 * u32::try_from(self.clock.now().0.rem_euclid(100)).unwrap_or(0) / 100;
            shutdown.pause(pause + jitter).await;
        }
    }

    /// A client with resolved addresses of the control plane: it would resolve them within the connect timeout, which
    /// is shorter than some nameservers need.
    async fn client(&self) -> anyhow::Result<reqwest::Client> {
        let client = self.control.client()?.connect_timeout(CONNECT_MAX).read_timeout(SILENCE_MAX);
        let client = match self.control.place() {
            (Some(name), Some(port)) => {
                let found = names::look_up(name, port).await.context("looking up the control plane")?;
                client.resolve_to_addrs(name, &found.collect::<Vec<_>>())
            }
            _ => client,
        };
        Ok(client.build()?)
    }

    async fn follow_once(&self) -> anyhow::Result<()> {
        let client = self.client().await?;
        let (accepted, mut damaged) =
            (self.replica.accepted_place(self.clock.monotonic()), self.replica.file.damage.needs_snapshot());
        let response = self.ask(&client, accepted, damaged).await?;
        let bytes = response.bytes_stream().map_err(std::io::Error::other);
        let lines = FramedRead::new(StreamReader::new(bytes), LinesCodec::new_with_max_length(LINE_BYTES_MAX));
        let mut lines = std::pin::pin!(lines.ready_chunks(BATCH_MAX));
        let mut stream = ChangeStream::default();
        let mut newest = None;
        loop {
            let chunk = tokio::select! {
                // Requests a snapshot.
                () = self.replica.accepted(), if accepted.is_none() => return Ok(()),
                chunk = lines.next() => chunk,
            };
            let Some(chunk) = chunk else { return Ok(()) };
            let mut changes = Vec::new();
            for line in chunk {
                let line = line.context("reading the change stream")?;
                match stream.read(&line).map_err(|error| self.refuse(error))? {
                    StreamEvent::Change(change) => changes.push(change),
                    StreamEvent::Heartbeat(revision, at, among) => {
                        newest = Some(revision);
                        self.watcher.received(revision, at, among);
                    }
                    StreamEvent::SnapshotPart => {}
                    StreamEvent::Keyring(sealed) => self.take_keys(sealed).await,
                    StreamEvent::Snapshot(entities, position) => {
                        let replaced = self.replace(entities, position).await;
                        replaced.inspect_err(|_| self.replica.file.damage.pause())?;
                        damaged = false;
                    }
                }
            }
            self.apply(changes).await?;
            self.replica.set_refusal(None);
            if !damaged && self.replica.file.damage.needs_snapshot() {
                return Ok(());
            }
            // The report follows the commit: the reported state is stored, dropped from the caches, and cut off.
            let applied = self.replica.position()?;
            let revision = applied.map_or(Revision::default(), |applied| applied.revision);
            if self.report(&client, applied).await && newest.is_some_and(|newest| newest <= revision) {
                self.confirm_registration().await?;
            }
        }
    }

    /// The control plane has registered this process: it waits for this process at later withdrawals.
    async fn confirm_registration(&self) -> anyhow::Result<()> {
        if self.replica.unregistered().is_none() {
            return Ok(());
        }
        let served = self.replica.is_present();
        self.written(|replica| {
            replica.confirm_registration();
            Ok(())
        })
        .await?;
        self.watcher.served();
        if !served {
            tracing::info!(revision = self.replica.revision().0, "reached the control plane; serving from the replica");
        }
        Ok(())
    }

    /// Logs once why nothing is served.
    fn warn_unregistered(&self, said: &mut bool) {
        if self.replica.unregistered() == Some(Unregistered::Held) && !std::mem::replace(said, true) {
            tracing::warn!(
                gateway = self.gateway.load().as_deref(),
                node = self.node,
                control = self.control.at(""),
                "this gateway serves nothing until it reaches the control plane: after a graceful shutdown, or with a \
                 copied data directory, its replica may have keys, names and projects removed since. Bring back the \
                 control plane or the network to it; else set serve_before_registered = true under [feed] and restart"
            );
        }
    }

    /// Requests the changes after the replica's position, or everything: of the database with the `accepted` position,
    /// or for a damaged replica. Like a replica that does not open, one without a readable position has none.
    async fn ask(
        &self,
        client: &reqwest::Client,
        accepted: Option<Position>,
        damaged: bool,
    ) -> anyhow::Result<reqwest::Response> {
        let position = match accepted {
            None if damaged => self.replica.position().ok().flatten(),
            None => self.replica.position()?,
            accepted => accepted,
        };
        let mut place = position.map_or_else(
            || "after=0".to_owned(),
            |Position { revision, mark }| format!("after={revision}&mark={mark}"),
        );
        if accepted.is_some() || damaged {
            place.push_str("&whole=1");
        }
        let url = self.control.at(&format!("/internal/edge/feed?node={}&{place}&keyring=1", self.node));
        let response = client.get(url).bearer_auth(&*self.token.to_token()).send().await?;
        if response.status() == reqwest::StatusCode::CONFLICT {
            // Nothing of this history is applied, at any revision: until then, this gateway lags behind.
            if self.report(client, None).await {
                self.confirm_registration().await?;
            }
            if accepted.is_some() {
                self.replica.end_acceptance("the control plane's database is not the accepted one");
            }
            let body: Option<ErrorBody> = response.json().await.ok();
            let there = body.and_then(|body| serde_json::from_value(body.details?).ok());
            return Err(self.refuse(Invalid::History { known: self.replica.revision(), there }));
        }
        Ok(response.error_for_status()?)
    }

    /// Applies a snapshot.
    pub(super) async fn replace(&self, entities: Vec<Entity>, position: Position) -> anyhow::Result<()> {
        let count = entities.len();
        let unusable = self.written(move |replica| replica.replace(&entities, position)).await?;
        self.watcher.replaced();
        self.report_unusable(&unusable);
        tracing::info!(revision = position.revision.0, entities = count, "replaced the replica with a snapshot");
        Ok(())
    }

    /// Stores keys. Invalid keys change nothing: tokens signed with the previous ones are valid for a day.
    async fn take_keys(&self, sealed: String) {
        let keyring = self.keyring.clone();
        let taken = tokio::task::spawn_blocking(move || keyring(&sealed)).await;
        if let Err(error) = taken.map_err(anyhow::Error::from).and_then(|taken| taken) {
            tracing::error!(
                error = format!("{error:#}"),
                "refused the keys from the control plane; check that it has the same sealing secret as this gateway"
            );
        }
    }

    /// Applies changes.
    pub(super) async fn apply(&self, changes: Vec<Change>) -> anyhow::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let applied = move |replica: &Replica| replica.apply(&changes).map(|done| (changes, done));
        let (changes, done) = self.written(applied).await?;
        self.watcher.applied(&changes);
        self.watcher.retired(&done.retired);
        self.report_unusable(&done.unusable);
        Ok(())
    }

    fn report_unusable(&self, certificates: &[Unusable]) {
        for certificate in certificates {
            self.watcher.refused(Unusable::REASON);
            certificate.log();
        }
    }

    /// Writes to the replica on a blocking thread: reading and writing the certificates of a million domains takes half
    /// a minute, which would block this runtime until its watchdog ends the process.
    async fn written<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Replica) -> Result<T, ReplicaError> + Send + 'static,
    ) -> anyhow::Result<T> {
        let replica = self.replica.clone();
        let written = tokio::task::spawn_blocking(move || write(&replica)).await.context("writing the replica");
        // The database library panics on some damage.
        let written = written.inspect_err(|error| self.replica.file.damage.found(error))?;
        written.map_err(|error| self.explain(error))
    }

    /// Sends a report; returns whether it was received.
    async fn report(&self, client: &reqwest::Client, applied: Option<Position>) -> bool {
        let reported = self.send_report(client, applied, false).await;
        if let Err(error) = &reported {
            // The next heartbeat reports again.
            tracing::debug!(error = format!("{error:#}"), "cannot report the applied revision");
        }
        reported.is_ok()
    }

    async fn send_report(
        &self,
        client: &reqwest::Client,
        applied: Option<Position>,
        goodbye: bool,
    ) -> anyhow::Result<()> {
        let report = NodeReport {
            node: self.node.clone(),
            place: Some(format!("{:016x}", self.place)),
            applied: applied.map_or(Revision::default(), |applied| applied.revision),
            mark: applied.map(|applied| applied.mark),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            goodbye,
            unserved: self.replica.unserved.take(),
        };
        let request = client.post(self.control.at("/internal/edge/nodes")).bearer_auth(&*self.token.to_token());
        request.timeout(REPORT_MAX).json(&report).send().await?.error_for_status()?;
        Ok(())
    }

    fn explain(&self, error: ReplicaError) -> anyhow::Error {
        match error {
            ReplicaError::Invalid(invalid) => self.refuse(invalid),
            // The missing revisions are requested.
            gap @ ReplicaError::Gap { .. } => gap.into(),
            ReplicaError::File(_) => {
                let error = anyhow::Error::from(error);
                let why = format!("{error:#}");
                self.replica.set_refusal(Some(Refused { why, what_to_do: REPAIR_DISK, there: None }));
                error
            }
        }
    }

    fn refuse(&self, invalid: Invalid) -> anyhow::Error {
        self.watcher.refused(invalid.reason());
        self.replica.set_refusal(Some(Refused {
            why: invalid.to_string(),
            what_to_do: invalid.remedy(),
            there: invalid.acceptable(),
        }));
        anyhow::Error::new(invalid).context("refused; keeping the last good state")
    }
}

/// The operator's next step after this end of the change stream.
fn remedy(error: &anyhow::Error) -> &'static str {
    match (error.downcast_ref::<Invalid>(), error.downcast_ref()) {
        (Some(invalid), _) => invalid.remedy(),
        (None, Some(ReplicaError::File(_))) => REPAIR_DISK,
        _ => "start the domains-service, or correct feed.url, the network or the credential of this gateway",
    }
}
