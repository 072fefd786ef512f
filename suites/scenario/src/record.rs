//! What happens on one side: versions of objects from watches, and calls of the driver.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client,
    core::DynamicObject,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::Value;
use tokio::sync::watch;

use crate::objects::{CAPACITY, KINDS, Kind, scenario_of};

/// Kind, namespace and name.
pub type Key = (&'static str, String, String);

/// One version of an object.
#[derive(Clone)]
pub struct Version {
    pub key: Key,
    /// `None` once it is deleted.
    pub object: Option<Value>,
}

/// A call of the driver.
#[derive(Clone, Debug)]
pub struct Call {
    pub scenario: String,
    pub method: &'static str,
    /// The volume, or snapshot.
    pub of: String,
    pub arguments: Value,
}

#[derive(Default)]
pub struct Store {
    pub versions: Vec<Version>,
    pub latest: BTreeMap<Key, Value>,
    pub calls: Vec<Call>,
    /// The scenario of objects, also of deleted ones.
    owners: HashMap<Key, String>,
    activity: HashMap<String, Instant>,
}

impl Store {
    fn put(&mut self, kind: &'static Kind, object: DynamicObject, exists: bool) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let key: Key = (kind.kind, namespace, name);
        let value = serde_json::to_value(&object).unwrap();
        if let Some(scenario) = self.scenario(&key, &value) {
            self.activity.insert(scenario.clone(), Instant::now());
            self.owners.insert(key.clone(), scenario);
        }
        if exists {
            self.latest.insert(key.clone(), value.clone());
        } else {
            self.latest.remove(&key);
        }
        self.versions.push(Version { key, object: exists.then_some(value) });
    }

    fn scenario(&self, key: &Key, object: &Value) -> Option<String> {
        if let Some(known) = self.owners.get(key) {
            return Some(known.clone());
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let prefix = |name: &str| name.split_once('.').map(|(scenario, _)| scenario.to_owned());
        match key.0 {
            "Event" => {
                let kind = Kind::named(&text("/involvedObject/kind")?)?;
                let namespace = text("/involvedObject/namespace").unwrap_or_default();
                let of = (
                    kind.kind,
                    if kind.namespaced { namespace } else { String::new() },
                    text("/involvedObject/name")?,
                );
                if kind.namespaced {
                    Some(scenario_of(&of.1).to_owned())
                } else {
                    self.owners.get(&of).cloned().or_else(|| prefix(&of.2))
                }
            }
            "VolumeAttachment" => prefix(&text("/spec/nodeName")?),
            CAPACITY => prefix(&text("/storageClassName")?),
            _ if !key.1.is_empty() => Some(scenario_of(&key.1).to_owned()),
            _ => prefix(&key.2).or_else(|| {
                let namespace = text("/spec/claimRef/namespace")
                    .or_else(|| text("/spec/volumeSnapshotRef/namespace"))
                    .or_else(|| text("/spec/volumeGroupSnapshotRef/namespace"))?;
                Some(scenario_of(&namespace).to_owned())
            }),
        }
    }

    pub fn owner(&self, key: &Key) -> Option<&str> {
        self.owners.get(key).map(String::as_str)
    }
}

/// The record of one side; clones are the same.
#[derive(Clone)]
pub struct Record {
    store: Arc<Mutex<Store>>,
    tick: Arc<watch::Sender<u64>>,
}

impl Record {
    pub fn new() -> Self {
        Self { store: Arc::default(), tick: Arc::new(watch::channel(0).0) }
    }

    pub fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.store.lock().unwrap())
    }

    /// Watches all kinds until the runtime ends.
    pub fn watch(&self, client: &Client) {
        for kind in KINDS.iter().filter(|kind| kind.recorded) {
            let (record, client) = (self.clone(), client.clone());
            tokio::spawn(async move {
                let api = Api::<DynamicObject>::all_with(client, &kind.resource());
                let mut events = watcher(api, watcher::Config::default()).boxed();
                while let Some(event) = events.next().await {
                    let (object, exists) = match event {
                        Ok(Event::Apply(object) | Event::InitApply(object)) => (object, true),
                        Ok(Event::Delete(object)) => (object, false),
                        Ok(Event::Init | Event::InitDone) => continue,
                        // The CRDs of snapshots are installed first, so an error passes. Without a pause, a task whose
                        // connections are refused at once would never let the runtime end.
                        Err(_) => {
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            continue;
                        }
                    };
                    record.change(|store| store.put(kind, object, exists));
                }
            });
        }
    }

    pub fn call(&self, call: Call) {
        self.change(|store| {
            store.activity.insert(call.scenario.clone(), Instant::now());
            store.calls.push(call);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Store)) {
        change(&mut self.store.lock().unwrap());
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
                ticks.changed().await.unwrap();
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
