//! One run of a schedule on a platform: projects are made, faults begin and end between operations, and in the end all that
//! was acknowledged must be so at every gateway.

mod operations;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chassis::clock::{Clock as _, SystemClock};
use contract::time::UnixSeconds;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ask::{CALM, Clients, HASTE, Operator};
use crate::broken::{Broken, PATIENCE, broken, eventually, within};
use crate::faults::{How, Part, Possible};
use crate::model::{Acknowledged, Answer, Kind, Must, Spent, Thing, may_lose_units};
use crate::schedule::{Operation, Schedule};
use crate::world::World;

/// The domain of all projects.
const PLATFORM: &str = "tollhouse.localhost";

/// Units per minute of the project that spends, at first and after a change.
const PER_MINUTE: u64 = 20;
const PER_MINUTE_CHANGED: u64 = 30;

/// The store's clock is off by less than this, in seconds.
const CLOCKS_OFF: i64 = 300;

/// A domain whose check died with the control plane is checked when its lease has ended.
const LEASE: Duration = Duration::from_secs(3 * 60 + 30);

/// The projects of this process have different names.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// See the module.
pub(crate) struct Run<'a> {
    world: &'a mut World,
    schedule: &'a Schedule,
    operator: Operator,
    clients: Clients,
    /// Keys, domains and projects.
    things: Vec<Thing>,
    spent: Spent,
    spender: Option<String>,
    /// Units per minute that may be in force, at most; those that were acknowledged last, if that is certain.
    per_minute: u64,
    acknowledged_limit: Option<u64>,
    active: Vec<&'static Possible>,
    /// Whether each gateway has a replica with the projects of this run, and its counts.
    is_whole: [bool; 2],
    number: u64,
    began: UnixSeconds,
}

impl<'a> Run<'a> {
    /// Runs the schedule, then restores health. The error is a broken promise.
    pub(crate) async fn carry_out(world: &'a mut World, schedule: &'a Schedule) -> Result<(), Broken> {
        let mut run = Self {
            operator: Operator::new(&world.fleet.directory, world.fleet.ports.control),
            clients: Clients::new(world.fleet.ports.https),
            world,
            schedule,
            things: Vec::new(),
            spent: Spent::default(),
            spender: None,
            per_minute: PER_MINUTE,
            acknowledged_limit: Some(PER_MINUTE),
            active: Vec::new(),
            is_whole: [false; 2],
            number: RUNS.fetch_add(1, Ordering::Relaxed),
            began: SystemClock::new().now_seconds(),
        };
        run.set_up().await.map_err(|error| error.with("before any fault"))?;
        if schedule.has(Possible::troubles_changes) {
            run.operator.patience = HASTE;
        }
        for (number, operation) in schedule.operations.iter().enumerate() {
            run.change_faults(number).await?;
            let outcome = run.perform(*operation).await;
            outcome.map_err(|error| error.with(format_args!("operation {number}, {operation:?}")))?;
        }
        run.operator.patience = CALM;
        run.recover().await.map_err(|error| error.with("after the last fault"))
    }

    fn project(&self, role: &str) -> String {
        format!("{role}-{}-{}", std::process::id(), self.number)
    }

    /// Three projects that hold keys, domains and a suspension, and one that spends.
    async fn set_up(&mut self) -> Result<(), Broken> {
        let plenty = json!({ "per_minute": 1_000_000, "per_day": 100_000_000 });
        let few = json!({ "per_minute": PER_MINUTE, "per_day": self.per_day() });
        for (role, access, limits) in [
            ("keys", "key", &plenty),
            ("names", "public", &plenty),
            ("state", "public", &plenty),
            ("spend", "key", &few),
        ] {
            let project = json!({ "id": self.project(role), "plan": "enterprise", "upstream": "site", "access": access, "limits": limits });
            self.call(Method::POST, "/projects", &project).await?;
            self.call(Method::POST, &format!("/projects/{}/deploy", self.project(role)), &Value::Null).await?;
        }
        let Some((_, spender)) = self.create_key("spend").await? else {
            return broken("a platform without faults answers operators", "the first key");
        };
        self.spender = Some(spender);
        self.perform(Operation::CreateKey).await?;
        self.perform(Operation::AddDomain).await?;
        let state = self.project("state");
        let host = format!("{state}.{PLATFORM}");
        self.add(Kind::Project, "state", state, host, None);
        self.agree().await?;
        self.is_whole = [true; 2];
        Ok(())
    }

    fn per_day(&self) -> u64 {
        // Sometimes the day is the tighter limit.
        if self.number.is_multiple_of(3) { PER_MINUTE * 3 / 2 } else { 100_000 }
    }

    fn add(&mut self, kind: Kind, role: &str, id: String, host: String, key: Option<String>) {
        let (project, at) = (self.project(role), [Must::Either; 2]);
        self.things.push(Thing { kind, project, id, host, key, is_granted: true, is_certain: true, at });
    }

    /// A call that must succeed.
    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Value, Broken> {
        let answer = self.operator.call(method, path, body).await?;
        answer.map_or_else(|| broken("a platform without faults answers operators", path), Ok)
    }

    /// Ends and begins the faults that are due before this operation.
    async fn change_faults(&mut self, number: usize) -> Result<(), Broken> {
        for fault in self.schedule.faults.iter().filter(|fault| fault.until == number) {
            self.active.retain(|what| *what != fault.what);
            self.world.end(fault.what).await?;
        }
        for fault in self.schedule.faults.iter().filter(|fault| fault.from == number && fault.until > number) {
            self.world.begin(fault.what);
            self.active.push(fault.what);
            if let (Some(gateway), How::Wipe | How::Quit) = (fault.what.gateway_restarted(), fault.what.how) {
                self.is_whole[gateway] = false;
                self.things.iter_mut().for_each(|thing| thing.forgotten_by(gateway));
            }
        }
        Ok(())
    }

    fn running(&self) -> Vec<usize> {
        let down = |number: &usize| self.active.iter().any(|what| what.gateway_down() == Some(*number));
        (0..2).filter(|number| !down(number)).collect()
    }

    /// Ends every fault, and checks that all that was acknowledged is so at every gateway.
    async fn recover(&mut self) -> Result<(), Broken> {
        let last = self.schedule.operations.len();
        for fault in &self.schedule.faults {
            if self.active.contains(&fault.what) && fault.until >= last {
                self.world.end(fault.what).await?;
            }
        }
        self.active.clear();
        self.world.heal(self.schedule.has(|what| what.part == Part::Database)).await?;
        let answers = async || self.operator.call(Method::GET, "/status", &Value::Null).await.ok().flatten();
        eventually("the control plane and its database answer", answers).await?;
        self.world.healed(PATIENCE, Instant::now()).await?;
        self.is_whole = [true; 2];
        self.repeat_what_is_uncertain().await?;
        self.remove_what_waits().await?;
        self.agree().await?;
        self.counts().await?;
        // An authority that failed is left alone for a quarter of a minute and more.
        let is_patient = self.world.is_patient;
        let verifies = |what: &Possible| {
            what.part == Part::Resolver || what.troubles_changes() || (what.part == Part::Authority && is_patient)
        };
        if self.schedule.has(verifies) {
            self.add_domain("test").await?;
            self.agree().await?;
        }
        self.tear_down().await
    }

    /// A name of which a fault hindered the verification or the certificate is active by now, or shows a problem and the
    /// time of the next check: then it is removed, because that may be later than a draw waits. So is one whose check may
    /// have died with the control plane, unless the draw waits for the end of its lease.
    async fn remove_what_waits(&mut self) -> Result<(), Broken> {
        let (may_die, patience) = (self.control_dies(), self.patience());
        for number in 0..self.things.len() {
            let Thing { kind, project, id, is_granted, at, .. } = &self.things[number];
            let is_verified = *kind == Kind::Domain && !id.ends_with("localhost");
            if !is_verified || !is_granted || !at.contains(&Must::Either) {
                continue;
            }
            let path = format!("/projects/{project}/domains/{id}");
            let is_active = async || {
                let shown = self.operator.call(Method::GET, &path, &Value::Null).await.ok().flatten()?;
                let is_active = shown["status"] == "active";
                let next: jiff::Timestamp = shown["next_check_at"].as_str()?.parse().ok()?;
                let is_later = next.as_second() > SystemClock::new().now_seconds().0;
                let waits = is_later && shown["problems"].as_array().is_some_and(|problems| !problems.is_empty());
                (is_active || waits || !self.world.is_patient && may_die).then_some(is_active)
            };
            let promise = "a domain is active, or shows a problem and the time of the next check";
            let outcome = within(patience, promise, is_active).await;
            if !outcome.map_err(|error| error.with(path))? {
                self.withdraw(number).await?;
            }
        }
        Ok(())
    }

    /// Repeats every change without an acknowledgement until it has one.
    async fn repeat_what_is_uncertain(&mut self) -> Result<(), Broken> {
        for number in 0..self.things.len() {
            let began = Instant::now();
            while !self.things[number].is_certain {
                if began.elapsed() > PATIENCE {
                    return broken("a change is acknowledged in the end", format!("{:?}", self.things[number]));
                }
                match (self.things[number].is_granted, self.things[number].kind) {
                    (false, _) | (true, Kind::Domain) => self.withdraw(number).await?,
                    (true, _) => {
                        self.things[number].is_granted = false;
                        self.things[number].is_certain = true;
                        self.resume().await?;
                    }
                }
            }
        }
        if self.acknowledged_limit.is_none() {
            let changed =
                async || self.change_limit().await.is_ok_and(|()| self.acknowledged_limit.is_some()).then_some(());
            eventually("the limit is changed", changed).await?;
        }
        Ok(())
    }

    fn control_dies(&self) -> bool {
        self.schedule.has(|what| (what.part, what.how) == (Part::Control, How::Kill))
    }

    /// How long a domain may take to be served.
    fn patience(&self) -> Duration {
        if self.control_dies() { LEASE } else { PATIENCE }
    }

    /// Waits until each gateway does what was acknowledged, and never the opposite.
    async fn agree(&mut self) -> Result<(), Broken> {
        let patience = self.patience();
        let agrees = async || {
            let outcome = self.read().await;
            let wrong = |thing: &&Thing| {
                let must = if thing.is_granted { Must::Serve } else { Must::Refuse };
                thing.at.iter().any(|at| *at != must)
            };
            let late = self.things.iter().find(wrong).cloned();
            (outcome.is_err() || late.is_none()).then_some(outcome)
        };
        let outcome = within(patience, "every gateway has every change", agrees).await;
        let late: Vec<_> = self.things.iter().filter(|thing| thing.at.contains(&Must::Either)).collect();
        outcome.map_err(|error| error.with(format_args!("{late:?}")))??;
        // A visitor with a new connection gets the same.
        for number in self.running() {
            for thing in &mut self.things {
                let answer = self.clients.ask_newly(number, &thing.host, thing.key.as_deref()).await?;
                thing.judge(number, &answer.0, true)?;
            }
        }
        Ok(())
    }

    /// The store knows every unit that was admitted.
    async fn counts(&mut self) -> Result<(), Broken> {
        if may_lose_units(self.schedule) || !self.is_one_day() {
            return Ok(());
        }
        let admitted = self.spent.admitted;
        let project = self.project("spend");
        let uid = self.call(Method::GET, &format!("/projects/{project}"), &Value::Null).await?;
        let uid = uid["uid"].as_str().unwrap().to_owned();
        let mut charged = 0;
        let counted = async || {
            let record =
                self.world.fleet.redis_says(&["HGET", &format!("tollhouse:bucket:{{{uid}}}"), "record"]).ok()?;
            charged = record.split(' ').nth(2).and_then(|day| day.parse::<u64>().ok()).unwrap_or(0);
            (charged >= admitted).then_some(())
        };
        let outcome = eventually("every admitted unit is charged", counted).await;
        outcome.map_err(|error| error.with(format_args!("{charged} of {admitted}")))
    }

    /// Removes the projects; nothing of them is served from then on.
    async fn tear_down(&mut self) -> Result<(), Broken> {
        for role in ["keys", "names", "state", "spend"] {
            let path = format!("/projects/{}?now=true", self.project(role));
            let removed = async || match self.operator.withdraw(Method::DELETE, &path, &Value::Null).await {
                Ok(Acknowledged::Except(lagging)) if lagging.is_empty() => Some(Ok(())),
                // Every gateway had confirmed it when the answer was repeated.
                Err(error) if error.details.contains("project_not_found") => Some(Ok(())),
                Err(error) => Some(Err(error)),
                _ => None,
            };
            let outcome = eventually("every gateway confirms the removal of a project", removed).await;
            outcome.map_err(|error| error.with(path))??;
        }
        for thing in &self.things {
            for number in 0..2 {
                let (answer, _) = self.clients.ask(number, &thing.host, thing.key.as_deref()).await?;
                if answer == Answer::Served {
                    return broken("what was removed is not served", format!("gateway-{}: {thing:?}", number + 1));
                }
            }
        }
        Ok(())
    }
}
