//! Acts on the objects of a scenario, and waits for what happens to them.

use std::time::Duration;

use kube::{
    Client, Resource,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    file::Step,
    kind::{CAPACITY, Kind},
    matching::{Mismatch, matches, mismatches},
    record::{Record, Store},
    reference::{Key, References, split},
};

/// A request that failed, or something that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The API server refused a request.
    #[error("rejected: {}", words(.0))]
    Rejected(Box<kube::Error>),
    /// A wait has timed out, with what was seen last.
    #[error("not in time{0}")]
    Late(String),
    /// The step cannot be carried out.
    #[error("{0}")]
    Form(String),
}

/// Reason and message of the API server, or another error.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{}: {}", status.reason, status.message),
        other => other.to_string(),
    }
}

impl From<kube::Error> for ActError {
    fn from(error: kube::Error) -> Self {
        Self::Rejected(Box::new(error))
    }
}

impl From<String> for ActError {
    fn from(what: String) -> Self {
        Self::Form(what)
    }
}

/// The usual object of a kind: of a name in the scenario.
pub type Usual = dyn Fn(&Kind, &str, &References) -> Value + Send + Sync;

/// Acts in one cluster for one scenario.
pub struct Actor {
    /// The API server.
    pub client: Client,
    /// What happens there.
    pub record: Record,
    /// What references stand for.
    pub references: References,
    usual: Box<Usual>,
    /// Unknown fields of objects are errors.
    strict: bool,
}

/// Finds an object of a step.
type Find = Box<dyn Fn(&Store) -> Option<Value> + Send + Sync>;

impl Actor {
    /// An actor; `usual` has what an object is like if its scenario does not say otherwise.
    pub fn new(client: Client, record: Record, references: References, usual: Box<Usual>) -> Self {
        Self { client, record, references, usual, strict: false }
    }

    /// The same actor, for which the API server refuses unknown fields of objects.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Creates a namespace.
    ///
    /// # Errors
    /// It exists, or the API server does not permit it.
    pub async fn create_namespace(&self, name: &str) -> Result<(), kube::Error> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let request = http::Request::post("/api/v1/namespaces").body(namespace.to_string().into_bytes());
        let request = request.map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await.map(drop)
    }

    /// An object of a kind with changes, by its name in the scenario.
    pub fn object(&self, kind: &Kind, name: &str, changes: &Value) -> Value {
        let (namespace, full) = match kind.namespaced {
            true => self.references.names.namespaced(name),
            false => (String::new(), self.references.names.cluster(name)),
        };
        let mut object = (self.usual)(kind, name, &self.references);
        if !changes.is_null() {
            json_patch::merge(&mut object, changes);
        }
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind);
        object["metadata"]["name"] = json!(full);
        if kind.namespaced {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object
    }

    /// Creates an object, named `name` in the scenario, and the scenario's second namespace if it is in that.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn create(&mut self, kind: &'static Kind, name: &str, object: &Value) -> Result<(), ActError> {
        let object = parsed(object)?;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        if namespace != self.references.names.scenario && !namespace.is_empty() {
            // It exists from the second object on.
            let _: Result<_, kube::Error> = self.create_namespace(&namespace).await;
        }
        let created = self.post(kind, &namespace, &object).await?;
        self.references.created(kind, name, created.metadata.uid.unwrap_or_default());
        Ok(())
    }

    async fn post(
        &self,
        kind: &Kind,
        namespace: &str,
        object: &DynamicObject,
    ) -> Result<DynamicObject, kube::Error> {
        if !self.strict {
            return kind.api(&self.client, Some(namespace)).create(&PostParams::default(), object).await;
        }
        let url = DynamicObject::url_path(&kind.resource(), Some(namespace).filter(|_| kind.namespaced));
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = http::Request::post(format!("{url}?fieldValidation=Strict"));
        let request = request.header("Content-Type", "application/json").body(body);
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }

    /// Applies an object.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn apply(&mut self, kind: &'static Kind, name: &str, object: &Value) -> Result<(), ActError> {
        let object = parsed(object)?;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let full = object.metadata.name.clone().unwrap_or_default();
        let params = PatchParams::apply("claimcheck-scenario").force();
        let params = if self.strict { params.validation_strict() } else { params };
        let applied =
            kind.api(&self.client, Some(&namespace)).patch(&full, &params, &Patch::Apply(&object)).await?;
        let uid = applied.metadata.uid.unwrap_or_default();
        if self.references.uid(kind.short, name) != uid {
            self.references.created(kind, name, uid);
        }
        Ok(())
    }

    /// Patches an object, or its status.
    ///
    /// # Errors
    /// There is no such kind, or the API server refuses it.
    pub async fn patch(&self, object: &str, with: &Value, status: bool) -> Result<(), ActError> {
        let key = self.references.key(object)?;
        let api = kind_of(&key)?.api(&self.client, Some(&key.1));
        let params =
            if self.strict { PatchParams::default().validation_strict() } else { PatchParams::default() };
        let patch = Patch::Merge(with);
        match status {
            true => api.patch_status(&key.2, &params, &patch).await?,
            false => api.patch(&key.2, &params, &patch).await?,
        };
        Ok(())
    }

    /// Deletes an object; a pod with this grace period in seconds, or its own.
    ///
    /// # Errors
    /// There is no such kind, or the API server refuses it.
    pub async fn delete(&self, object: &str, grace: Option<u32>) -> Result<(), ActError> {
        let key = self.references.key(object)?;
        let params = match grace.filter(|_| key.0 == "Pod") {
            Some(grace) => DeleteParams::default().grace_period(grace),
            None => DeleteParams::default(),
        };
        kind_of(&key)?.api(&self.client, Some(&key.1)).delete(&key.2, &params).await?;
        Ok(())
    }

    /// Waits for an event of an object.
    ///
    /// # Errors
    /// There is no such kind; it is not seen in time.
    pub async fn until_event(&self, object: &str, step: &Step, limit: Duration) -> Result<(), ActError> {
        let event = self.event(object, step.reason.as_deref(), step.message.as_deref())?;
        let found = |store: &Store| store.latest.values().any(|object| event.is(object)).then_some(());
        let seen = self.record.until(limit, found).await;
        seen.ok_or_else(|| ActError::Late(event.others(&self.record)))
    }

    /// The events of an object with a reason and a part of a message.
    ///
    /// # Errors
    /// There is no such kind.
    pub fn event(
        &self,
        object: &str,
        reason: Option<&str>,
        message: Option<&str>,
    ) -> Result<EventOf, ActError> {
        let key = self.references.key(object)?;
        let mut of = json!({ "involvedObject": { "kind": key.0, "name": key.2 } });
        if let Some(reason) = reason {
            of["reason"] = json!(reason);
        }
        if !key.1.is_empty() {
            of["involvedObject"]["namespace"] = json!(key.1);
        }
        Ok(EventOf { of, message: message.map(|message| self.references.fill(message)) })
    }

    /// Waits until an object has what a step says, or is gone.
    ///
    /// # Errors
    /// There is no such kind; it does not happen in time.
    pub async fn until_object(&self, object: &str, step: &Step, limit: Duration) -> Result<(), ActError> {
        let has = step.has.as_ref().map(|has| self.references.filled(has)).unwrap_or(json!({}));
        let find: Find = match object.strip_prefix("capacity ") {
            Some(place) => self.capacity(place),
            None => {
                let key = self.references.key(object)?;
                Box::new(move |store: &Store| store.latest.get(&key).cloned())
            }
        };
        let found = |store: &Store| {
            let object = find(store);
            let holds = match step.gone {
                true => object.is_none(),
                false => object.is_some_and(|object| matches(&object, &has)),
            };
            holds.then_some(())
        };
        let seen = self.record.until(limit, found).await;
        seen.ok_or_else(|| ActError::Late(self.missed(object, &self.record.read(find), &has, step.gone)))
    }

    /// What was seen last instead of what was expected.
    fn missed(&self, named: &str, last: &Option<Value>, has: &Value, gone: bool) -> String {
        // A name as it is in the cluster is written with this.
        let object = &named.replacen(" =", " ", 1);
        let Some(last) = last else { return format!(": there is no {object}") };
        if gone {
            let metadata = &last["metadata"];
            let state = match (metadata["deletionTimestamp"].as_str(), &metadata["finalizers"]) {
                (None, _) => "it is not being deleted".to_owned(),
                (Some(_), Value::Null) => "it is being deleted".to_owned(),
                (Some(_), finalizers) => format!("it is being deleted, with the finalizers {finalizers}"),
            };
            return format!(": {object} still exists: {state}");
        }
        let histories = mismatches(last, has).into_iter().map(|Mismatch { path, expected, seen }| {
            let history = self.history(named, &path);
            format!("\n  {path}: expected {expected}, last seen {seen}{history}")
        });
        format!(": {object} is not as expected:{}", histories.collect::<String>())
    }

    /// The former values of a field.
    fn history(&self, object: &str, path: &str) -> String {
        let Ok(key) = self.references.key(object) else { return String::new() };
        let pointer = format!("/{}", path.replace('.', "/"));
        let mut values: Vec<String> = self.record.read(|store| {
            let versions = store.versions.iter().filter(|version| version.key == key);
            let of = |value: &Value| value.pointer(&pointer).map_or("nothing".to_owned(), Value::to_string);
            versions.map(|version| version.object.as_ref().map_or("(deleted)".to_owned(), of)).collect()
        });
        values.dedup();
        match values.len() {
            0 | 1 => String::new(),
            _ => format!(" (its history: {})", values.join(" > ")),
        }
    }

    /// Finds the published capacity of `<class> in <value of a topology label>`: its name is generated.
    fn capacity(&self, place: &str) -> Find {
        let place = self.references.fill(place);
        let (class, value) = place.split_once(" in ").unwrap_or((&place, ""));
        let (class, value) = (self.references.names.cluster(class), value.to_owned());
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
}

/// Events of an object.
#[derive(Clone, Debug)]
pub struct EventOf {
    of: Value,
    message: Option<String>,
}

impl EventOf {
    /// Whether an object is such an event.
    pub fn is(&self, object: &Value) -> bool {
        let message = || object["message"].as_str().unwrap_or_default();
        object["kind"] == "Event"
            && matches(object, &self.of)
            && self.message.as_ref().is_none_or(|part| message().contains(part.as_str()))
    }

    /// The other events of the object.
    pub fn others(&self, record: &Record) -> String {
        let any = Self { of: json!({ "involvedObject": self.of["involvedObject"] }), message: None };
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let mut seen: Vec<String> = record.read(|store| {
            let events = store.latest.values().filter(|object| any.is(object));
            events.map(|event| format!("{} ({})", text(event, "reason"), text(event, "message"))).collect()
        });
        seen.dedup();
        match seen.is_empty() {
            true => ": it has no events".to_owned(),
            false => format!(": its events are {}", seen.join(", ")),
        }
    }
}

fn parsed(object: &Value) -> Result<DynamicObject, ActError> {
    serde_json::from_value(object.clone())
        .map_err(|error| ActError::Form(format!("it is no object: {error}")))
}

fn kind_of(key: &Key) -> Result<&'static Kind, ActError> {
    Ok(split(key.0)?.0)
}
