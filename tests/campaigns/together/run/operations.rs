//! What clients and operators do meanwhile, and what they may be answered.

use chassis::clock::{Clock as _, SystemClock};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{CLOCKS_OFF, PER_MINUTE, PER_MINUTE_CHANGED, PLATFORM, Run};
use crate::broken::{Broken, broken, eventually};
use crate::faults::{Part, Possible};
use crate::model::{Acknowledged, Answer, Kind, Thing};
use crate::said;
use crate::schedule::Operation;

impl Run<'_> {
    pub(super) async fn perform(&mut self, operation: Operation) -> Result<(), Broken> {
        match operation {
            Operation::CreateKey => {
                if let Some((id, key)) = self.create_key("keys").await? {
                    let host = format!("{}.{PLATFORM}", self.project("keys"));
                    self.add(Kind::Key, "keys", id, host, Some(key));
                }
                Ok(())
            }
            Operation::AddDomain => self.add_domain("localhost").await,
            Operation::AddVerifiedDomain => self.add_domain("test").await,
            Operation::RevokeKey => self.withdraw_one(Kind::Key).await,
            Operation::RemoveDomain => self.withdraw_one(Kind::Domain).await,
            Operation::Suspend => self.withdraw_one(Kind::Project).await,
            Operation::Resume => self.resume().await,
            Operation::Limit => self.change_limit().await,
            Operation::Spend => self.spend().await,
            Operation::Read => self.read().await,
            Operation::Status => self.look().await,
        }
    }

    /// Adds a domain below this top-level domain.
    pub(super) async fn add_domain(&mut self, top: &str) -> Result<(), Broken> {
        let (project, count) = (self.project("names"), self.things.len());
        let name = format!("shop.{project}-{count}.{top}");
        let path = format!("/projects/{project}/domains");
        if top == "test" {
            let shown = self.operator.call(Method::GET, &format!("/projects/{project}"), &Value::Null).await?;
            self.may_be_unknown(shown.is_none(), &path)?;
            let Some(shown) = shown else { return Ok(()) };
            self.world.point(&name, shown["cname_target"].as_str().unwrap());
        }
        let added = self.try_call(Method::POST, &path, &json!({ "name": name })).await?;
        self.add(Kind::Domain, "names", name.clone(), name.clone(), None);
        self.things.last_mut().unwrap().is_certain = added.is_some();
        Ok(())
    }

    /// Withdraws the newest thing of this kind that is granted.
    async fn withdraw_one(&mut self, kind: Kind) -> Result<(), Broken> {
        let Some(number) =
            self.things.iter().rposition(|thing| thing.kind == kind && thing.is_granted && thing.is_certain)
        else {
            return Ok(());
        };
        self.withdraw(number).await
    }

    pub(super) async fn withdraw(&mut self, number: usize) -> Result<(), Broken> {
        let Thing { kind, project, id, .. } = &self.things[number];
        let (method, path, body) = match kind {
            Kind::Key => (Method::DELETE, format!("/projects/{project}/keys/{id}"), Value::Null),
            Kind::Domain => (Method::DELETE, format!("/projects/{project}/domains/{id}"), Value::Null),
            Kind::Project => (Method::PATCH, format!("/projects/{project}"), json!({ "suspended": true })),
        };
        let acknowledged = match self.operator.withdraw(method, &path, &body).await {
            // Removed by an attempt whose answer was lost.
            Err(error) if error.details.contains("domain_not_found") && !self.things[number].is_certain => {
                Acknowledged::Except(Vec::new())
            }
            outcome => outcome?,
        };
        self.may_be_unknown(acknowledged == Acknowledged::Unknown, &path)?;
        self.things[number].withdrawn(&acknowledged);
        Ok(())
    }

    pub(super) async fn resume(&mut self) -> Result<(), Broken> {
        let Some(number) =
            self.things.iter().position(|thing| thing.kind == Kind::Project && !thing.is_granted && thing.is_certain)
        else {
            return Ok(());
        };
        let path = format!("/projects/{}", self.things[number].project);
        let outcome = self.try_call(Method::PATCH, &path, &json!({ "suspended": false })).await?;
        let acknowledged = outcome.map_or(Acknowledged::Unknown, |_| Acknowledged::Except(Vec::new()));
        self.things[number].granted(&acknowledged);
        Ok(())
    }

    pub(super) async fn change_limit(&mut self) -> Result<(), Broken> {
        let limits = json!({ "limits": { "per_minute": PER_MINUTE_CHANGED, "per_day": self.per_day() } });
        let path = format!("/projects/{}", self.project("spend"));
        self.per_minute = PER_MINUTE_CHANGED;
        let outcome = self.try_call(Method::PATCH, &path, &limits).await?;
        self.acknowledged_limit = outcome.map(|_| PER_MINUTE_CHANGED);
        Ok(())
    }

    /// Sends twice the units of a minute, at once, to the gateways that run.
    async fn spend(&mut self) -> Result<(), Broken> {
        let (host, key) = (format!("{}.{PLATFORM}", self.project("spend")), self.spender.clone());
        let running = self.running();
        let each = usize::try_from(2 * self.per_minute).unwrap() / running.len().max(1);
        let requests = running.iter().flat_map(|number| std::iter::repeat_n(*number, each));
        let (clients, host, key) = (&self.clients, &host, key.as_deref());
        let asked = requests.map(async |number| (number, clients.ask(number, host, key).await));
        let mut refused = Vec::new();
        for (number, outcome) in join_all(asked).await {
            match outcome? {
                (Answer::Served, minute) => {
                    self.spent.admitted += 1;
                    if let Some(minute) = minute {
                        *self.spent.minutes.entry(minute).or_default() += 1;
                    }
                }
                (Answer::Refused { code, .. }, _) => refused.push((number, code)),
                // The gateway may have counted it.
                (answer, _) if self.is_whole[number] => {
                    return broken("requests that spend are answered", format!("gateway-{}: {answer:?}", number + 1));
                }
                _ => self.spent.unknown += 1,
            }
        }
        refused.iter().try_for_each(|(number, code)| self.may_refuse_to_spend(*number, code))?;
        self.spent.judge(self.schedule, self.per_minute, self.is_one_day().then(|| self.per_day()))
    }

    fn may_refuse_to_spend(&self, number: usize, code: &str) -> Result<(), Broken> {
        let store_in_trouble = self.schedule.has(Possible::troubles_counting);
        let is_lost = |what: &Possible| what.gateway_down().is_some() || what.part == Part::StoreClock;
        // Another gateway may hold a unit.
        let all_spent = self.spent.admitted >= PER_MINUTE - 1;
        let may = match code {
            "rate_limit_exceeded" | "daily_quota_exceeded" => {
                all_spent || store_in_trouble || self.schedule.has(is_lost)
            }
            "quota_unavailable" => store_in_trouble,
            "starting" => !self.is_whole[number],
            _ => false,
        };
        let spent = self.spent.admitted;
        let details = format!("gateway-{} after {spent} units: {code}", number + 1);
        if may { Ok(()) } else { broken("units that are left can be spent", details) }
    }

    /// Whether no clock has come near to another day.
    pub(super) fn is_one_day(&self) -> bool {
        let day = |seconds: i64| seconds.div_euclid(86_400);
        day(self.began.0 - CLOCKS_OFF) == day(SystemClock::new().now_seconds().0 + CLOCKS_OFF)
    }

    /// Each thing at each gateway that runs.
    pub(super) async fn read(&mut self) -> Result<(), Broken> {
        for number in self.running() {
            let things = self.things.iter().map(|thing| self.clients.ask(number, &thing.host, thing.key.as_deref()));
            let answers = join_all(things).await;
            for (thing, answer) in self.things.iter_mut().zip(answers) {
                thing.judge(number, &answer?.0, self.is_whole[number])?;
            }
        }
        Ok(())
    }

    /// Waits until `tollhouse status` names every fault.
    async fn look(&mut self) -> Result<(), Broken> {
        let mut missing = String::new();
        let (world, active) = (&*self.world, &self.active);
        let said = async || {
            let trouble = said::trouble(&world.status().ok()?);
            if let Some(defect) = trouble.iter().find(|line| said::is_defect(line)) {
                return Some(broken("status names no defect", defect));
            }
            let expected = active.iter().flat_map(|what| said::expected(what, active));
            let unsaid: Vec<_> = expected
                .filter(|(name, words)| {
                    !trouble.iter().any(|line| line.contains(name) && words.iter().any(|word| line.contains(word)))
                })
                .collect();
            missing = format!("{unsaid:?} in {trouble:?}");
            unsaid.is_empty().then_some(Ok(()))
        };
        let outcome = eventually("status names the faults", said).await;
        outcome.map_err(|error| error.with(missing))?
    }

    /// A call whose outcome may be unknown if the control plane or its database is in trouble.
    async fn try_call(&self, method: Method, path: &str, body: &Value) -> Result<Option<Value>, Broken> {
        let outcome = self.operator.call(method, path, body).await?;
        self.may_be_unknown(outcome.is_none(), path)?;
        Ok(outcome)
    }

    fn may_be_unknown(&self, is_unknown: bool, path: &str) -> Result<(), Broken> {
        if is_unknown && !self.schedule.has(Possible::troubles_changes) {
            return broken("without a fault of control plane and database, changes are answered", path);
        }
        Ok(())
    }

    pub(super) async fn create_key(&self, role: &str) -> Result<Option<(String, String)>, Broken> {
        let path = format!("/projects/{}/keys", self.project(role));
        let made = self.try_call(Method::POST, &path, &json!({ "scopes": ["orders:read"] })).await?;
        let text = |made: &Value, name: &str| made[name].as_str().unwrap().to_owned();
        Ok(made.map(|made| (text(&made, "id"), text(&made, "key"))))
    }
}
