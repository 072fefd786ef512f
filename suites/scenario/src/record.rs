//! What happens on one side: versions of objects from watches, and calls of the driver.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Client,
    core::{DynamicObject, ObjectList},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    kind::{CAPACITY, Kind},
    name::scenario_of,
    reference::Key,
};

/// One version of an object.
#[derive(Clone, Debug)]
pub struct Version {
    /// Which object.
    pub key: Key,
    /// `None` once it is deleted.
    pub object: Option<Value>,
    /// Its resource version, also of a deletion: versions of all kinds are numbered in the order of their writes
    /// (KEP-5504), while the watches of two kinds deliver in any order. `None` if it is no number.
    pub number: Option<u64>,
}

/// A call of the driver.
#[derive(Clone, Debug)]
pub struct Call {
    /// The scenario of its volume.
    pub scenario: String,
    /// The method.
    pub method: &'static str,
    /// The volume, or snapshot.
    pub of: String,
    /// What of the request is compared.
    pub arguments: Value,
}

/// Which objects are recorded.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Those of all scenarios: names without a namespace begin with a scenario's and a dot.
    All,
    /// Those of one scenario: names without a namespace begin with its name and a hyphen.
    One(String),
}

impl Scope {
    /// The scenario of an object without a namespace.
    fn of_name(&self, name: &str) -> Option<String> {
        match self {
            Self::All => name.split_once('.').map(|(scenario, _)| scenario.to_owned()),
            Self::One(scenario) => {
                name.strip_prefix(scenario.as_str())?.starts_with('-').then(|| scenario.clone())
            }
        }
    }

    /// The scenario of an object in a namespace.
    fn of_namespace(&self, namespace: &str) -> Option<String> {
        let scenario = scenario_of(namespace);
        match self {
            Self::All => Some(scenario.to_owned()),
            Self::One(one) => (one == scenario).then(|| scenario.to_owned()),
        }
    }
}

/// What was seen.
#[derive(Debug)]
pub struct Store {
    /// Each version of each object, in the order in which they were seen.
    pub versions: Vec<Version>,
    /// The last version of each object that exists.
    pub latest: BTreeMap<Key, Value>,
    /// The calls of the driver.
    pub calls: Vec<Call>,
    /// The scenario of objects, also of deleted ones.
    owners: HashMap<Key, String>,
    activity: HashMap<String, Instant>,
    /// The kinds of which the objects that existed before have been seen.
    listed: BTreeSet<&'static str>,
    scope: Scope,
}

impl Store {
    fn put(&mut self, kind: &'static Kind, object: &DynamicObject, exists: bool) {
        let key = key_of(kind, object);
        let mut value = serde_json::to_value(object).unwrap_or_default();
        // Objects of a list do not have them.
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(kind.kind);
        match self.scenario(&key, &value) {
            Some(scenario) => {
                self.activity.insert(scenario.clone(), Instant::now());
                self.owners.insert(key.clone(), scenario);
            }
            // Of a cluster in use, where most objects are not the scenario's. It may name a node or a class.
            None if matches!(self.scope, Scope::One(_)) => {
                if !kind.namespaced && exists {
                    self.latest.insert(key, value);
                } else {
                    self.latest.remove(&key);
                }
                return;
            }
            None => {}
        }
        if exists {
            self.latest.insert(key.clone(), value.clone());
        } else {
            self.latest.remove(&key);
        }
        let number = number(&object.metadata.resource_version);
        self.versions.push(Version { key, object: exists.then_some(value), number });
    }

    fn scenario(&self, key: &Key, object: &Value) -> Option<String> {
        if let Some(known) = self.owners.get(key) {
            return Some(known.clone());
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let prefix = |name: &str| self.scope.of_name(name);
        match key.0 {
            "Event" => {
                let kind = Kind::named(&text("/involvedObject/kind")?)?;
                let namespace = text("/involvedObject/namespace").unwrap_or_default();
                let of = (
                    kind.kind,
                    if kind.namespaced { namespace } else { String::new() },
                    text("/involvedObject/name")?,
                );
                match kind.namespaced {
                    true => self.scope.of_namespace(&of.1),
                    false => self.owners.get(&of).cloned().or_else(|| prefix(&of.2)),
                }
            }
            "VolumeAttachment" => prefix(&text("/spec/nodeName")?).or_else(|| {
                let volume = ("PersistentVolume", String::new(), text("/spec/source/persistentVolumeName")?);
                self.owners.get(&volume).cloned()
            }),
            CAPACITY => prefix(&text("/storageClassName")?),
            _ if !key.1.is_empty() => self.scope.of_namespace(&key.1),
            _ => prefix(&key.2).or_else(|| {
                let namespace = text("/spec/claimRef/namespace")
                    .or_else(|| text("/spec/volumeSnapshotRef/namespace"))
                    .or_else(|| text("/spec/volumeGroupSnapshotRef/namespace"))?;
                self.scope.of_namespace(&namespace)
            }),
        }
    }

    /// Whether all objects of a kind that existed when its watch began have been seen.
    pub fn is_listed(&self, kind: &Kind) -> bool {
        self.listed.contains(kind.kind)
    }

    /// Each version of the objects of a kind, in the order in which they were seen, also of those that are deleted.
    pub fn seen(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        let versions = self.versions.iter().filter(move |version| version.key.0 == kind);
        versions.filter_map(|version| version.object.as_ref())
    }

    /// Whether everything that had happened to the objects of a kind when they were listed has been seen.
    pub fn has_reached(&self, kind: &Kind, listed: &ObjectList<DynamicObject>) -> bool {
        let is_seen = |key: &Key, number: Option<u64>| {
            self.versions.iter().rev().any(|version| version.key == *key && version.number >= number)
        };
        let existing: BTreeMap<Key, Option<u64>> = listed
            .iter()
            .map(|object| (key_of(kind, object), number(&object.metadata.resource_version)))
            .collect();
        let end = number(&listed.metadata.resource_version);
        let mut latest = self.latest.keys().filter(|key| key.0 == kind.kind);
        existing.iter().all(|(key, number)| is_seen(key, *number))
            // The others are newer than the list, or their deletion has not been delivered yet.
            && latest.all(|key| existing.contains_key(key) || is_seen(key, end))
    }

    /// The objects of a kind that exist and are a scenario's.
    pub fn own(&self, kind: &'static str) -> impl Iterator<Item = (&Key, &Value)> {
        self.latest.iter().filter(move |(key, _)| key.0 == kind && self.owners.contains_key(*key))
    }

    /// The scenario of an object.
    pub fn owner(&self, key: &Key) -> Option<&str> {
        self.owners.get(key).map(String::as_str)
    }
}

fn key_of(kind: &Kind, object: &DynamicObject) -> Key {
    let metadata = &object.metadata;
    (kind.kind, metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// A resource version as a number.
fn number(resource_version: &Option<String>) -> Option<u64> {
    resource_version.as_ref()?.parse().ok()
}

/// The record of one side; clones are the same.
#[derive(Clone, Debug)]
pub struct Record {
    store: Arc<Mutex<Store>>,
    tick: Arc<watch::Sender<u64>>,
}

impl Record {
    /// An empty record.
    pub fn new(scope: Scope) -> Self {
        let store = Store {
            versions: Vec::new(),
            latest: BTreeMap::new(),
            calls: Vec::new(),
            owners: HashMap::new(),
            activity: HashMap::new(),
            listed: BTreeSet::new(),
            scope,
        };
        Self { store: Arc::new(Mutex::new(store)), tick: Arc::new(watch::channel(0).0) }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what was seen.
    pub fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.store())
    }

    /// Watches a kind, in one namespace or all, until the returned future is dropped.
    pub fn watch(
        &self,
        client: &Client,
        kind: &'static Kind,
        namespace: Option<&str>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let api = kind.api(client, namespace);
        let record = self.clone();
        async move {
            let mut events = watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let (object, exists) = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => (object, true),
                    Ok(Event::Delete(object)) => (object, false),
                    Ok(Event::Init) => continue,
                    Ok(Event::InitDone) => {
                        record.change(|store| {
                            store.listed.insert(kind.kind);
                        });
                        continue;
                    }
                    // A CRD that is installed later, so an error passes. Without a pause, a task whose connections are
                    // refused at once would never let the runtime end.
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                record.change(|store| store.put(kind, &object, exists));
            }
        }
    }

    /// Adds a version of an object of a scenario.
    pub fn version(&self, key: Key, object: Option<Value>, scenario: &str) {
        self.change(|store| {
            match &object {
                Some(object) => drop(store.latest.insert(key.clone(), object.clone())),
                None => drop(store.latest.remove(&key)),
            }
            store.owners.insert(key.clone(), scenario.to_owned());
            store.versions.push(Version { key, object, number: None });
        });
    }

    /// Adds a call.
    pub fn call(&self, call: Call) {
        self.change(|store| {
            store.activity.insert(call.scenario.clone(), Instant::now());
            store.calls.push(call);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Store)) {
        change(&mut self.store());
        self.tick.send_modify(|tick| *tick += 1);
    }

    /// Waits until this holds; `None` if it does not in time.
    pub async fn until<T>(&self, limit: Duration, mut holds: impl FnMut(&Store) -> Option<T>) -> Option<T> {
        let mut ticks = self.tick.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = self.read(&mut holds) {
                    return found;
                }
                if ticks.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(limit, waiting).await.ok()
    }

    /// Waits until nothing has happened in the scenario for so long, or the limit has passed.
    pub async fn quiet(&self, scenario: &str, quiet: Duration, limit: Duration) {
        let end = Instant::now() + limit;
        let begin = Instant::now();
        loop {
            let last = self.read(|store| store.activity.get(scenario).copied()).unwrap_or(begin).max(begin);
            let rest = quiet.saturating_sub(last.elapsed());
            if rest.is_zero() || Instant::now() > end {
                return;
            }
            // What is waited for is that nothing happens.
            tokio::time::sleep(rest).await;
        }
    }
}
