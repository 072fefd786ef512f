//! Carries out a scenario on one side, where it plays scheduler and kubelets.

use std::time::Duration;

use claimcheck_scenario::{
    ActError, Actor, Given, Names, Object, Outcome, References, Scenario, Step, Store, split,
};
use serde_json::Value;

use crate::{
    objects::{DRIVER, usual},
    side::Side,
};

/// The deadline of `until`.
const WITHIN: u64 = 25;
/// The limit of `settle` and of the end.
const SETTLED: Duration = Duration::from_secs(30);
/// How long nothing may have happened before a scenario ends, in milliseconds.
const QUIET: u64 = 3000;
/// How long nothing may have happened after the creation of the objects that are given.
const GIVEN: Duration = Duration::from_millis(150);
/// What came of a step that succeeded.
pub const DONE: &str = "done";

pub struct Runner<'a> {
    side: &'a Side,
    scenario: &'a Scenario,
    actor: Actor,
}

impl<'a> Runner<'a> {
    pub fn new(side: &'a Side, scenario: &'a Scenario) -> Self {
        let references = References::new(Names::with_dots(&scenario.name), DRIVER);
        let actor = Actor::new(side.client.clone(), side.record.clone(), references, Box::new(usual));
        Self { side, scenario, actor }
    }

    /// Runs it to its end, which is the beginning if an object that is given cannot be created.
    pub async fn run(mut self) -> Outcome {
        let name = &self.scenario.name;
        self.side.driver.follow(name, &self.scenario.driver);
        if let Err(error) = self.actor.create_namespace(name).await {
            return vec![(format!("given namespace {name}"), came(&error.into()))];
        }
        for object in &self.scenario.given {
            if let Err(error) = self.given(object).await {
                return vec![(format!("given {}", object.short().unwrap_or_default()), came(&error))];
            }
        }
        // Most controllers know them then: one that does not reports, for example, a missing class.
        self.side.record.quiet(name, GIVEN, SETTLED).await;
        let mut outcome = Outcome::new();
        for (number, step) in self.scenario.steps.iter().enumerate() {
            let title = format!("{} {}", number + 1, step.title());
            let result = self.step(step).await;
            if let Some(milliseconds) = step.rest {
                self.side.record.quiet(name, Duration::from_millis(milliseconds), SETTLED).await;
            }
            outcome.push((title, result.err().map_or_else(|| DONE.into(), |error| came(&error))));
        }
        let quiet = Duration::from_millis(self.scenario.quiet.unwrap_or(QUIET));
        self.side.record.quiet(name, quiet, SETTLED).await;
        outcome
    }

    /// Creates an object that is given, and for a node its CSINode.
    async fn given(&mut self, object: &Object) -> Result<(), ActError> {
        self.create(object, &Value::Null).await?;
        match object.short().and_then(|name| name.strip_prefix("node ")) {
            Some(node) => self.create(&format!("csi-node {node}").into(), &Value::Null).await,
            None => Ok(()),
        }
    }

    async fn create(&mut self, object: &Object, with: &Value) -> Result<(), ActError> {
        let Given::Short(name, of_object) = object.form()? else {
            return Err(ActError::Form("a manifest needs `world: cluster`: write kind and name".into()));
        };
        let mut changes = self.actor.references.filled(&of_object);
        match (&changes, with) {
            (_, Value::Null) => {}
            (Value::Null, with) => changes = with.clone(),
            (_, with) => json_patch::merge(&mut changes, with),
        }
        let (kind, name) = split(name)?;
        let object = self.actor.object(kind, name, &changes);
        self.actor.create(kind, name, &object).await
    }

    async fn step(&mut self, step: &Step) -> Result<(), ActError> {
        let with = self.actor.references.filled(&step.with);
        if let Some(script) = &step.driver {
            self.side.driver.follow(&self.scenario.name, script);
        }
        if let Some(milliseconds) = step.settle {
            let quiet = Duration::from_millis(milliseconds);
            self.side.record.quiet(&self.scenario.name, quiet, SETTLED).await;
        }
        let result = if let Some(object) = &step.create {
            self.create(object, &with).await
        } else if let Some(object) = &step.patch {
            self.actor.patch(object, &with, step.status).await
        } else if let Some(object) = &step.delete {
            self.actor.delete(object, Some(step.grace.unwrap_or(0))).await
        } else {
            Ok(())
        };
        match (result, step.rejected) {
            (Ok(()), false) | (Err(_), true) => {}
            (Ok(()), true) => return Err(ActError::Form("accepted".into())),
            (Err(error), false) => return Err(error),
        }
        match &step.until {
            Some(what) => self.until(what, step).await,
            None => Ok(()),
        }
    }

    async fn until(&self, what: &str, step: &Step) -> Result<(), ActError> {
        let limit = Duration::from_secs(step.within.unwrap_or(WITHIN));
        let name = &self.scenario.name;
        if let Some(method) = what.strip_prefix("call ") {
            let count = |store: &Store| {
                store.calls.iter().filter(|call| call.scenario == *name && call.method == method).count()
            };
            let enough = |store: &Store| (count(store) >= step.count.unwrap_or(1)).then_some(());
            let found = self.side.record.until(limit, enough).await;
            return found.ok_or_else(|| ActError::Late(String::new()));
        }
        match what.strip_prefix("event ") {
            Some(object) => self.actor.until_event(object, step, limit).await,
            None => self.actor.until_object(what, step, limit).await,
        }
    }
}

/// What came of a step, in words that are equal on both sides if the same happened.
fn came(error: &ActError) -> String {
    match error {
        ActError::Late(_) => "not in time".into(),
        other => other.to_string(),
    }
}
