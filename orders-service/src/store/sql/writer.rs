//! The writer task: one with SQLite, a few with PostgreSQL, where each writes the changes of certain projects.
//!
//! A durable commit costs a disk flush, and SQLite allows one writer. So changes wait in a queue. The task takes all
//! queued changes, applies them in one transaction and answers them after its commit: under load, many cancellations
//! share one flush. Each change gets its own result; only a failure of the store, which rolls back the transaction, is
//! the result of all of its changes. Damage fails only the changes that meet it.
//!
//! A transaction holds the locks of the projects that it changes. Every writer of every replica takes them in the order
//! of the projects' identities, so no deadlock can arise.
//!
//! An import runs in its own transaction. Other changes wait for it and get "busy" after their deadline.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chassis::sql::{Begin, Connection, Kind, Pool};
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{apply, erase, import, outbox};
use crate::order::{CancelError, Order, ShipError};
use crate::store::{ChangeError, CreateError, Created, FaultKind, Idempotency, ImportError, NewOrder, StoreError};

/// Most changes in the queue; one more is refused as busy.
pub(super) const WAITING_MAX: usize = 1_024;

/// Most changes per commit. Fewer over a network, where a commit takes longer and other replicas wait for its locks.
const GROUP_MAX: usize = 256;
const GROUP_MAX_OVER_NETWORK: usize = 64;

type Reply<T> = oneshot::Sender<T>;

/// The right to decide about an import, taken once: by the writer right before it commits, or by the caller at its
/// deadline, who then reports that nothing was imported.
#[derive(Clone, Default)]
pub(super) struct CommitPermit(Arc<AtomicBool>);

impl CommitPermit {
    /// Whether this call is the first.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// A queued change.
pub(super) enum Job {
    Cancel {
        project: ProjectUid,
        id: i64,
        at: UnixMillis,
        reply: Reply<Result<Order, ChangeError<CancelError>>>,
    },
    Ship {
        project: ProjectUid,
        id: i64,
        at: UnixMillis,
        reply: Reply<Result<Order, ChangeError<ShipError>>>,
    },
    Create {
        project: ProjectUid,
        order: NewOrder,
        idempotency: Option<Idempotency>,
        at: UnixMillis,
        reply: Reply<Result<Created, CreateError>>,
    },
    Import {
        project: ProjectUid,
        orders: Vec<Order>,
        permit: CommitPermit,
        reply: Reply<Result<u64, ImportError>>,
    },
    Erase {
        project: ProjectUid,
        at: UnixMillis,
        reply: Reply<Result<bool, StoreError>>,
    },
    Forget {
        delivered: Vec<i64>,
        keep: u32,
        reply: Reply<Result<u64, StoreError>>,
    },
}

impl Job {
    /// The project whose orders it changes; `None` for the deletion of events.
    fn project(&self) -> Option<&ProjectUid> {
        match self {
            Self::Cancel { project, .. }
            | Self::Ship { project, .. }
            | Self::Create { project, .. }
            | Self::Import { project, .. }
            | Self::Erase { project, .. } => Some(project),
            Self::Forget { .. } => None,
        }
    }

    /// Whether it can create the project's first order.
    fn makes_orders(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Import { .. })
    }
}

/// The writer task and its queue.
pub(super) struct Writer {
    queue: mpsc::Sender<Job>,
    stopping: AtomicBool,
    task: Mutex<Option<JoinHandle<()>>>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

impl Writer {
    pub(super) fn start(pool: Pool) -> Self {
        let (queue, jobs) = mpsc::channel(WAITING_MAX);
        let (stop, stopped) = oneshot::channel();
        let group_max = match pool.kind() {
            Kind::Sqlite => GROUP_MAX,
            Kind::Postgres => GROUP_MAX_OVER_NETWORK,
        };
        let write = move |jobs| {
            let pool = pool.clone();
            async move { write(&pool, jobs).await }
        };
        let task = tokio::spawn(run(group_max, write, jobs, stopped));
        Self { queue, stopping: AtomicBool::new(false), task: Mutex::new(Some(task)), stop: Mutex::new(Some(stop)) }
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), StoreError> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(StoreError::new(FaultKind::Busy, "the store is closing"));
        }
        self.queue.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::new(FaultKind::Busy, "too many changes are waiting"),
            mpsc::error::TrySendError::Closed(_) => StoreError::new(FaultKind::Other, "the writer has stopped"),
        })
    }

    /// Writes the queued changes, then ends the task.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        drop(self.stop.lock().take());
        let task = self.task.lock().take();
        if let Some(task) = task {
            // A task that panicked has no changes left to write.
            let _ = task.await;
        }
    }
}

/// Passes up to `group_max` queued changes at a time to `write`, until `stopped`. A panic of `write` ends only the
/// requests of these changes.
async fn run<F>(
    group_max: usize,
    write: impl Fn(Vec<Job>) -> F,
    mut jobs: mpsc::Receiver<Job>,
    mut stopped: oneshot::Receiver<()>,
) where
    F: Future<Output = ()>,
{
    loop {
        let mut waiting = Vec::with_capacity(group_max);
        let taken = tokio::select! {
            biased;
            taken = jobs.recv_many(&mut waiting, group_max) => taken,
            _ = &mut stopped => 0,
        };
        if taken == 0 {
            return;
        }
        if AssertUnwindSafe(write(waiting)).catch_unwind().await.is_err() {
            tracing::error!(
                changes = taken,
                "a write to the database panicked: its requests failed; later writes continue. This is a defect: \
                 report it with the panic message from standard error"
            );
        }
    }
}

async fn write(pool: &Pool, jobs: Vec<Job>) {
    let mut group = Vec::with_capacity(jobs.len());
    for job in jobs {
        match job {
            Job::Import { project, orders, permit, reply } => {
                // Earlier changes are written before the import.
                write_group(pool, std::mem::take(&mut group)).await;
                let may_commit = || !reply.is_closed() && permit.take();
                let imported = import::write(pool, &project, &orders, may_commit).await;
                let _ = reply.send(imported);
            }
            Job::Erase { project, at, reply } => {
                write_group(pool, std::mem::take(&mut group)).await;
                let _ = reply.send(erase::some(pool, &project, at).await);
            }
            Job::Forget { delivered, keep, reply } => {
                // Earlier changes go first: no client waits for this deletion.
                write_group(pool, std::mem::take(&mut group)).await;
                let _ = reply.send(outbox::forget(pool, &delivered, keep).await);
            }
            change => group.push(change),
        }
    }
    write_group(pool, group).await;
}

async fn write_group(pool: &Pool, mut group: Vec<Job>) {
    if group.is_empty() {
        return;
    }
    if pool.kind() == Kind::Postgres {
        fn name(job: &Job) -> &str {
            job.project().map_or("", ProjectUid::as_str)
        }
        // Stable: changes of one project keep their order.
        group.sort_by(|left, right| name(left).cmp(name(right)));
    }
    let mut groups = vec![group];
    while let Some(mut group) = groups.pop() {
        let mut outcomes = Vec::with_capacity(group.len());
        let fate = match apply_in_transaction(pool, &group, &mut outcomes).await {
            // A statement met damage: its change gets a transaction of its own, after those before it.
            Err(error) if error.kind == FaultKind::Corrupt && group.len() > 1 => {
                let failed = outcomes.len().min(group.len() - 1);
                let after = group.split_off(failed + 1);
                let own = group.split_off(failed);
                groups.extend([after, own, group].into_iter().filter(|part| !part.is_empty()));
                continue;
            }
            Err(error) => Err(error),
            Ok(transaction) => transaction.commit().await.map_err(StoreError::from),
        };
        let mut outcomes = outcomes.into_iter();
        for job in group {
            answer(job, outcomes.next().flatten(), &fate);
        }
    }
}

/// Applies the changes in a transaction, which remains to be committed. After an error nothing of them is written.
async fn apply_in_transaction(
    pool: &Pool,
    group: &[Job],
    outcomes: &mut Vec<Option<Outcome>>,
) -> Result<Connection, StoreError> {
    let mut transaction = pool.begin(Begin::Write).await?;
    match apply_all(&mut transaction, group, outcomes).await {
        Ok(()) => Ok(transaction),
        Err(error) => {
            transaction.roll_back().await;
            Err(error)
        }
    }
}

/// Applies the changes in order; the first one with a fault of the store ends it and has no outcome. A damaged row fails
/// only its own change, because it was found before a write. Damage on which a statement failed is a fault: the
/// statements before it may have written a part of the change.
async fn apply_all(
    connection: &mut Connection,
    group: &[Job],
    outcomes: &mut Vec<Option<Outcome>>,
) -> Result<(), StoreError> {
    let mut locked = None;
    for job in group {
        // A project without orders can get its first one in this group, so jobs that create orders take the lock again.
        if let Some(project) = job.project()
            && (job.makes_orders() || locked != Some(project))
        {
            apply::lock(connection, project, job.makes_orders()).await?;
            locked = Some(project);
        }
        let outcome = apply_one(connection, job).await;
        let fault = outcome.as_ref().and_then(Outcome::store_error);
        if let Some(error) = fault.filter(|error| error.kind != FaultKind::Corrupt || connection.has_failed()) {
            return Err(error.clone());
        }
        outcomes.push(outcome);
    }
    Ok(())
}

/// The result of a change, before its transaction is committed.
enum Outcome {
    Cancel(Result<Order, ChangeError<CancelError>>),
    Ship(Result<Order, ChangeError<ShipError>>),
    Create(Result<Created, CreateError>),
}

impl Outcome {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Cancel(Err(ChangeError::Store(error)))
            | Self::Ship(Err(ChangeError::Store(error)))
            | Self::Create(Err(CreateError::Store(error))) => Some(error),
            _ => None,
        }
    }
}

/// Applies one change. `None`: the caller no longer waits, and nothing was changed.
async fn apply_one(connection: &mut Connection, job: &Job) -> Option<Outcome> {
    match job {
        Job::Cancel { project, id, at, reply } if !reply.is_closed() => {
            Some(Outcome::Cancel(apply::change(connection, project, *id, *at, apply::Change::cancel()).await))
        }
        Job::Ship { project, id, at, reply } if !reply.is_closed() => {
            Some(Outcome::Ship(apply::change(connection, project, *id, *at, apply::Change::ship(*at)).await))
        }
        Job::Create { project, order, idempotency, at, reply } if !reply.is_closed() => {
            Some(Outcome::Create(apply::create(connection, project, *order, idempotency.clone(), *at).await))
        }
        // `write` puts no other jobs into a group.
        _ => None,
    }
}

/// Answers a change with its outcome, unless the transaction took its effect back.
fn answer(job: Job, outcome: Option<Outcome>, fate: &Result<(), StoreError>) {
    match (job, outcome) {
        (Job::Cancel { reply, .. }, Some(Outcome::Cancel(outcome))) => send(reply, outcome, fate),
        (Job::Ship { reply, .. }, Some(Outcome::Ship(outcome))) => send(reply, outcome, fate),
        (Job::Create { reply, .. }, Some(Outcome::Create(outcome))) => send(reply, outcome, fate),
        (job, _) => {
            if let Err(error) = fate {
                refuse(job, error);
            }
        }
    }
}

fn send<T, E: From<StoreError>>(reply: Reply<Result<T, E>>, outcome: Result<T, E>, fate: &Result<(), StoreError>) {
    // The receiver may be gone; the change is committed all the same.
    let _ = reply.send(match (outcome, fate) {
        (Ok(_), Err(error)) => Err(error.clone().into()),
        (outcome, _) => outcome,
    });
}

fn refuse(job: Job, error: &StoreError) {
    let error = error.clone();
    match job {
        Job::Cancel { reply, .. } => drop(reply.send(Err(error.into()))),
        Job::Ship { reply, .. } => drop(reply.send(Err(error.into()))),
        Job::Create { reply, .. } => drop(reply.send(Err(error.into()))),
        Job::Import { reply, .. } => drop(reply.send(Err(error.into()))),
        Job::Erase { reply, .. } => drop(reply.send(Err(error))),
        Job::Forget { reply, .. } => drop(reply.send(Err(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_fails_the_changes_of_its_group_and_later_ones_are_written() {
        let (queue, jobs) = mpsc::channel(WAITING_MAX);
        let (stop, stopped) = oneshot::channel();
        let write = |jobs: Vec<Job>| async move {
            for job in jobs {
                let Job::Forget { keep, reply, .. } = job else { unreachable!("only these are queued") };
                assert_ne!(keep, 0, "a defect");
                let _ = reply.send(Ok(u64::from(keep)));
            }
        };
        let running = run(1, write, jobs, stopped);
        let asking = async {
            let mut answers = Vec::new();
            for keep in [1, 0, 2] {
                let (reply, answer) = oneshot::channel();
                assert!(queue.send(Job::Forget { delivered: Vec::new(), keep, reply }).await.is_ok());
                answers.push(answer.await.ok().and_then(Result::ok));
            }
            drop(stop);
            answers
        };
        assert_eq!(tokio::join!(running, asking).1, [Some(1), None, Some(2)]);
    }
}
