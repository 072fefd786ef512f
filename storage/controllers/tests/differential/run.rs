//! Carries out a scenario on one side.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use claimcheck_model::unique_volume_name;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    objects::{CAPACITY, DRIVER, Kind, cluster_name, namespaced_name},
    record::{Key, Store},
    scenario::{Scenario, Step},
    side::Side,
};

/// The deadline of `until`.
const WITHIN: u64 = 25;
/// The limit of `settle` and of the end.
const SETTLED: Duration = Duration::from_secs(30);

/// How long nothing may have happened after the creation of the objects that are given.
const GIVEN: Duration = Duration::from_millis(150);

/// What came of each step: its title, and "done" or what happened instead.
pub type Outcome = Vec<(String, String)>;

pub struct Runner<'a> {
    side: &'a Side,
    scenario: &'a Scenario,
    /// Of each object that the scenario created, also again.
    uids: HashMap<(&'static str, String), Vec<String>>,
}

/// Finds an object of a step.
type Find = Box<dyn Fn(&Store) -> Option<Value> + Send>;

impl<'a> Runner<'a> {
    pub fn new(side: &'a Side, scenario: &'a Scenario) -> Self {
        Self { side, scenario, uids: HashMap::new() }
    }

    /// Runs it to its end.
    pub async fn run(&mut self) -> Outcome {
        let name = &self.scenario.name;
        self.side.driver.follow(name, &self.scenario.driver);
        self.create_namespace(name).await.unwrap();
        for object in &self.scenario.given {
            self.create(object, &json!({})).await.unwrap();
            if let Some(node) = object.strip_prefix("node ") {
                self.create(&format!("csi-node {node}"), &json!({})).await.unwrap();
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
            outcome.push((title, result.err().unwrap_or_else(|| "done".into())));
        }
        let quiet = Duration::from_millis(self.scenario.quiet);
        self.side.record.quiet(name, quiet, SETTLED).await;
        outcome
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let with = self.filled(&step.with);
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
            self.patch(object, &with, step.status).await
        } else if let Some(object) = &step.delete {
            self.delete(object, step.grace).await
        } else {
            Ok(())
        };
        match (result, step.rejected) {
            (Ok(()), false) | (Err(_), true) => {}
            (Ok(()), true) => return Err("accepted".into()),
            (Err(error), false) => return Err(error),
        }
        match &step.until {
            Some(what) => self.until(what, step).await,
            None => Ok(()),
        }
    }

    async fn create_namespace(&self, name: &str) -> Result<String, kube::Error> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let request =
            http::Request::post("/api/v1/namespaces").body(namespace.to_string().into_bytes()).unwrap();
        self.side.client.request_text(request).await
    }

    fn api(&self, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
        let client = self.side.client.clone();
        if kind.namespaced {
            Api::namespaced_with(client, namespace, &kind.resource())
        } else {
            Api::all_with(client, &kind.resource())
        }
    }

    async fn create(&mut self, object: &str, with: &Value) -> Result<(), String> {
        let (kind, name) = split(object);
        let value = kind.object(&self.scenario.name, name, with);
        let object: DynamicObject = serde_json::from_value(value).unwrap();
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        if namespace != self.scenario.name && !namespace.is_empty() {
            // It exists from the second object on.
            let _: Result<_, kube::Error> = self.create_namespace(&namespace).await;
        }
        let created = self.api(kind, &namespace).create(&PostParams::default(), &object).await;
        let created = created.map_err(|error| format!("rejected: {error}"))?;
        let uid = created.metadata.uid.clone().unwrap();
        self.uids.entry((kind.short, name.to_owned())).or_default().push(uid);
        Ok(())
    }

    async fn patch(&self, object: &str, with: &Value, status: bool) -> Result<(), String> {
        let key = self.key(object);
        let api = self.api(Kind::named(key.0).unwrap(), &key.1);
        let (patch, params) = (Patch::Merge(with), PatchParams::default());
        let patched = match status {
            true => api.patch_status(&key.2, &params, &patch).await,
            false => api.patch(&key.2, &params, &patch).await,
        };
        patched.map(drop).map_err(|error| format!("rejected: {error}"))
    }

    async fn delete(&self, object: &str, grace: u32) -> Result<(), String> {
        let key = self.key(object);
        let mut params = DeleteParams::default();
        if key.0 == "Pod" {
            params = params.grace_period(grace);
        }
        let deleted = self.api(Kind::named(key.0).unwrap(), &key.1).delete(&key.2, &params).await;
        deleted.map(drop).map_err(|error| format!("rejected: {error}"))
    }

    async fn until(&self, what: &str, step: &Step) -> Result<(), String> {
        let limit = Duration::from_secs(step.within.unwrap_or(WITHIN));
        let name = &self.scenario.name;
        if let Some(method) = what.strip_prefix("call ") {
            let count = |store: &Store| {
                store.calls.iter().filter(|call| call.scenario == *name && call.method == method).count()
            };
            let enough = |store: &Store| (count(store) >= step.count.unwrap_or(1)).then_some(());
            let found = self.side.record.until(limit, enough).await;
            return found.ok_or_else(|| "not in time".to_owned());
        }
        if let Some(object) = what.strip_prefix("event ") {
            let key = self.key(object);
            let mut of = json!({ "involvedObject": { "kind": key.0, "name": key.2 }, "reason": step.reason });
            if !key.1.is_empty() {
                of["involvedObject"]["namespace"] = json!(key.1);
            }
            let found = |store: &Store| {
                let mut events = store.latest.iter().filter(|(key, _)| key.0 == "Event");
                events.any(|(_, event)| matches(event, &of)).then_some(())
            };
            return self.side.record.until(limit, found).await.ok_or_else(|| "not in time".to_owned());
        }
        let has = step.has.as_ref().map(|has| self.filled(has)).unwrap_or_default();
        let find: Find = match what.strip_prefix("capacity ") {
            Some(place) => self.capacity(place),
            None => {
                let key = self.key(what);
                Box::new(move |store: &Store| store.latest.get(&key).cloned())
            }
        };
        let found = |store: &Store| {
            let object = find(store);
            let holds = if step.gone {
                object.is_none()
            } else {
                object.is_some_and(|object| matches(&object, &has))
            };
            holds.then_some(())
        };
        self.side.record.until(limit, found).await.ok_or_else(|| "not in time".to_owned())
    }

    /// Finds the published capacity of `<class> in <value of a topology label>`: its name is generated.
    fn capacity(&self, place: &str) -> Find {
        let place = self.fill(place);
        let (class, value) = place.split_once(" in ").unwrap();
        let (class, value) = (cluster_name(&self.scenario.name, class), value.to_owned());
        Box::new(move |store: &Store| {
            let mut capacities = store.latest.iter().filter(|(key, _)| key.0 == CAPACITY);
            let found = capacities.find(|(_, object)| {
                let labels = object["nodeTopology"]["matchLabels"].as_object();
                object["storageClassName"] == class
                    && labels.is_some_and(|labels| labels.values().any(|label| *label == value))
            });
            found.map(|(_, object)| object.clone())
        })
    }

    fn key(&self, object: &str) -> Key {
        let object = self.fill(object);
        let (kind, name) = split(&object);
        // `attachment data on a by other.csi`: the handle is `data` of the scenario, and `main.csi` may be omitted.
        if let (true, Some((handle, node))) = (kind.short == "attachment", name.split_once(" on ")) {
            let scenario = &self.scenario.name;
            let (node, driver) = node.split_once(" by ").unwrap_or((node, DRIVER));
            let digest = Sha256::digest(format!("{scenario}.{handle}{driver}{scenario}.{node}"));
            return (kind.kind, String::new(), format!("csi-{}", hex(&digest)));
        }
        if kind.namespaced {
            let (namespace, name) = namespaced_name(&self.scenario.name, name);
            return (kind.kind, namespace, name);
        }
        (kind.kind, String::new(), cluster_name(&self.scenario.name, name))
    }

    /// The value with all placeholders replaced.
    fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(fields) => Value::Object(
                fields.iter().map(|(key, value)| (self.fill(key), self.filled(value))).collect(),
            ),
            other => other.clone(),
        }
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (function, prefix, kind) in [
            ("$uid(", "", None),
            ("$volume(", "=pvc-", Some("claim")),
            ("$content(", "=snapcontent-", Some("snapshot")),
            ("$group-content(", "=groupsnapcontent-", Some("group")),
            ("$member(", "snapshot-", None),
            ("$in-use(", "", None),
        ] {
            while let Some(begin) = text.find(function) {
                let end = begin + text[begin..].find(')').unwrap();
                let argument = text[begin + function.len()..end].to_owned();
                let value = match (function, kind) {
                    ("$in-use(", _) => {
                        unique_volume_name(DRIVER, &format!("{}.{argument}", self.scenario.name))
                    }
                    ("$member(", _) => self.member(&argument),
                    (_, Some(kind)) => self.uid(kind, &argument),
                    (_, None) => {
                        let (kind, name) = split(&argument);
                        self.uid(kind.short, name)
                    }
                };
                // A name that is a text of its own needs no mark of a shared name.
                let prefix = if begin == 0 { prefix.trim_start_matches('=') } else { prefix };
                text.replace_range(begin..=end, &format!("{prefix}{value}"));
            }
        }
        text.replace("$s", &self.scenario.name)
    }

    /// The hash in the names of the member of a group: of `<claim> of <group>`.
    fn member(&self, argument: &str) -> String {
        let (claim, group) = argument.split_once(" of ").unwrap();
        let digest = Sha256::digest(format!("{}{}.{claim}", self.uid("group", group), self.scenario.name));
        hex(&digest)
    }

    fn uid(&self, kind: &str, name: &str) -> String {
        let (name, number) = match name.split_once('#') {
            Some((name, number)) => (name, Some(number.parse::<usize>().unwrap() - 1)),
            None => (name, None),
        };
        let kind = Kind::named(kind).unwrap();
        let uids = self.uids.get(&(kind.short, name.to_owned())).cloned().unwrap_or_default();
        number.map_or(uids.last(), |number| uids.get(number)).cloned().unwrap_or_else(|| "no-uid".into())
    }
}

/// Deletes all objects of a kind in a namespace, at once.
pub async fn clear(side: &Side, namespace: &str, kind: &Kind) {
    let api: Api<DynamicObject> = Api::namespaced_with(side.client.clone(), namespace, &kind.resource());
    let params = DeleteParams::default().grace_period(0);
    let _: Result<_, kube::Error> = api.delete_collection(&params, &ListParams::default()).await;
}

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn split(object: &str) -> (&'static Kind, &str) {
    let (kind, name) = object.split_once(' ').unwrap_or((object, ""));
    (Kind::named(kind).unwrap_or_else(|| panic!("{object}: there is no kind {kind}")), name)
}

/// Whether an object has all these fields; of lists each item must have its counterpart.
pub fn matches(object: &Value, has: &Value) -> bool {
    match has {
        Value::Null => object.is_null(),
        Value::Object(fields) if fields.is_empty() => object.is_object(),
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| matches(object.get(key).unwrap_or(&Value::Null), value))
        }
        Value::Array(items) => {
            let of = object.as_array().map(Vec::as_slice).unwrap_or_default();
            if items.is_empty() {
                of.is_empty()
            } else {
                items.iter().all(|item| of.iter().any(|one| matches(one, item)))
            }
        }
        plain => object == plain,
    }
}
