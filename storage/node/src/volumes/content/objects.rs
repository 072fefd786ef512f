//! The ConfigMaps and Secrets of volumes on this node: each is watched individually, from the first volume that
//! uses it to the last. A node may not read others, and does not need most of them. Upstream:
//! `pkg/kubelet/util/manager/watch_based_manager.go`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use claimcheck_informer::response;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;
use tokio_stream::StreamExt;

use super::{ObjectKind, ObjectRef};
use crate::volumes::VolumeKey;

/// An object's values by their keys.
pub type Values = BTreeMap<String, Vec<u8>>;

/// State of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It does not exist.
    Absent,
    /// It has these values.
    Present(Arc<Values>),
    /// The API server returned this error.
    Unreadable(String),
}

/// Snapshot of objects.
pub type Snapshot = BTreeMap<ObjectRef, Known>;

/// A change of an object.
pub type ObjectUpdate = (ObjectRef, Known);

/// The receiver of changes; returns `false` when it has been dropped.
pub type Notify = Arc<dyn Fn(ObjectUpdate) -> bool + Send + Sync>;

/// The objects in use.
pub struct Objects {
    client: Client,
    notify: Notify,
    watched: BTreeMap<ObjectRef, Watched>,
    by_volume: BTreeMap<VolumeKey, BTreeSet<ObjectRef>>,
}

#[derive(Debug)]
struct Watched {
    users: BTreeSet<VolumeKey>,
    /// `None` until the first response.
    known: Option<Known>,
    _watch: Watch,
}

/// A watch, aborted when this value is dropped.
#[derive(Debug)]
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Objects {
    /// No object is used; changes of used ones must be passed to [`Objects::learn`].
    pub fn new(client: Client, notify: Notify) -> Self {
        Self { client, notify, watched: BTreeMap::new(), by_volume: BTreeMap::new() }
    }

    /// The volume uses exactly these objects.
    pub fn set_used<'a>(&mut self, volume: &VolumeKey, objects: impl Iterator<Item = &'a ObjectRef>) {
        let objects: BTreeSet<ObjectRef> = objects.cloned().collect();
        if objects.is_empty() {
            return self.release(volume);
        }
        for object in &objects {
            let watched = self.watched.entry(object.clone()).or_insert_with(|| Watched {
                users: BTreeSet::new(),
                known: None,
                _watch: Watch(start(&self.client, object, &self.notify)),
            });
            watched.users.insert(volume.clone());
        }
        let before = self.by_volume.insert(volume.clone(), objects.clone()).unwrap_or_default();
        for object in before.difference(&objects) {
            self.leave(volume, object);
        }
    }

    /// The volume uses no objects any more.
    pub fn release(&mut self, volume: &VolumeKey) {
        for object in self.by_volume.remove(volume).unwrap_or_default() {
            self.leave(volume, &object);
        }
    }

    fn leave(&mut self, volume: &VolumeKey, object: &ObjectRef) {
        if let Some(watched) = self.watched.get_mut(object) {
            watched.users.remove(volume);
            if watched.users.is_empty() {
                self.watched.remove(object);
            }
        }
    }

    /// Processes a change; returns the affected volumes.
    pub fn learn(&mut self, (object, known): ObjectUpdate) -> BTreeSet<VolumeKey> {
        let Some(watched) = self.watched.get_mut(&object) else { return BTreeSet::new() };
        // What was read once stands until there is something newer to read.
        let outage = matches!((&watched.known, &known), (Some(_), Known::Unreadable(_)));
        if outage || watched.known.as_ref() == Some(&known) {
            return BTreeSet::new();
        }
        watched.known = Some(known);
        watched.users.clone()
    }

    /// Whether no volume uses any.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty() && self.by_volume.is_empty()
    }

    /// The objects of a volume; `None` while one of them is still being requested.
    pub fn snapshot(&self, volume: &VolumeKey) -> Option<Snapshot> {
        let objects = self.by_volume.get(volume).into_iter().flatten();
        objects.map(|object| Some((object.clone(), self.watched.get(object)?.known.clone()?))).collect()
    }
}

fn start(client: &Client, object: &ObjectRef, notify: &Notify) -> AbortHandle {
    let (client, object, notify) = (client.clone(), object.clone(), notify.clone());
    let task = match object.kind {
        ObjectKind::ConfigMap => tokio::spawn(follow::<ConfigMap>(client, object, notify, config_map_values)),
        ObjectKind::Secret => tokio::spawn(follow::<Secret>(client, object, notify, secret_values)),
    };
    task.abort_handle()
}

/// The current state of an object: for a variable, which keeps its value from the start.
pub(crate) async fn fetch(client: &Client, object: &ObjectRef) -> Known {
    let (namespace, name) = (&object.key.namespace, &object.key.name);
    let found = match object.kind {
        ObjectKind::ConfigMap => {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            api.get_opt(name).await.map(|found| found.map(config_map_values))
        }
        ObjectKind::Secret => {
            let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
            api.get_opt(name).await.map(|found| found.map(secret_values))
        }
    };
    match found {
        Ok(Some(values)) => Known::Present(Arc::new(values)),
        Ok(None) => Known::Absent,
        Err(error) => Known::Unreadable(response::message(&error)),
    }
}

/// Reports all changes of the object, beginning with its current state.
async fn follow<K>(client: Client, object: ObjectRef, notify: Notify, values: fn(K) -> Values)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send,
    K: 'static,
{
    let api: Api<K> = Api::namespaced(client, &object.key.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", object.key.name));
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut listed = Known::Absent;
    while let Some(event) = events.next().await {
        let known = match event {
            Ok(watcher::Event::Init) => {
                listed = Known::Absent;
                continue;
            }
            Ok(watcher::Event::InitApply(found)) => {
                listed = Known::Present(Arc::new(values(found)));
                continue;
            }
            Ok(watcher::Event::InitDone) => listed.clone(),
            Ok(watcher::Event::Apply(found)) => Known::Present(Arc::new(values(found))),
            Ok(watcher::Event::Delete(_)) => Known::Absent,
            Err(error) => Known::Unreadable(response::watch_error(&error)),
        };
        if !notify((object.clone(), known)) {
            return;
        }
    }
}

fn config_map_values(map: ConfigMap) -> Values {
    let texts = map.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
    let bytes = map.binary_data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
    texts.chain(bytes).collect()
}

fn secret_values(secret: Secret) -> Values {
    secret.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect()
}
