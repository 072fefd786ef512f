//! Object changes, from watches of the API server. Separate watches, not a controller's cache: a cache has
//! only the newest state, and a phase may start and end between two reads.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;

use claimcheck_model::{
    Stamp,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::{Change, Object, Observation, Scope};

/// Watches every kind that delimits a phase, and sends each change in the scope as it arrives, until the receiver is
/// dropped. Failed watches are restarted with backoff: objects missing from a new list are sent as deleted.
///
/// Returns once each served kind was listed, so that objects created afterwards are observed from their creation.
/// Dropping the set ends the watches.
pub async fn watch<I>(client: Client, scope: Scope, evidence: UnboundedSender<I>) -> JoinSet<()>
where
    I: From<Observation> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let (listed, mut lists) = tokio::sync::mpsc::channel(1);
    macro_rules! spawn {
        ($($kind:ty),+) => {
            $(
                let api = Api::<$kind>::all(client.clone());
                tasks.spawn(follow(api, scope.clone(), evidence.clone(), listed.clone()));
            )+
        };
    }
    spawn!(CSIDriver, CSINode, Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment);
    spawn!(VolumeSnapshot, VolumeSnapshotContent);
    drop(listed);
    while lists.recv().await.is_some() {}
    tasks
}

/// Follows one kind. `listed` is dropped when the first list is complete.
async fn follow<K, I>(
    api: Api<K>,
    scope: Scope,
    evidence: UnboundedSender<I>,
    listed: tokio::sync::mpsc::Sender<()>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    Object: From<K>,
    I: From<Observation> + Send + 'static,
{
    let mut listed = Some(listed);
    let mut known = Known::default();
    let mut changes = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    loop {
        let changed = match changes.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                // A kind that the cluster does not have is skipped.
                if claimcheck_informer::is_unserved(&error) {
                    drop(listed.take());
                }
                tracing::debug!(%error, "a watch failed and is restarted");
                continue;
            }
        };
        if matches!(changed, watcher::Event::InitDone) {
            drop(listed.take());
        }
        let observed = known.apply(changed, Stamp::now()).into_iter();
        for change in observed.filter(|change| scope.includes(&change.object)) {
            if evidence.send(Observation::Watch(Box::new(change)).into()).is_err() {
                return;
            }
        }
    }
}

/// The last observed version of each object of a kind, by uid: objects missing from a later list were deleted
/// unobserved.
struct Known<K> {
    objects: HashMap<String, K>,
    listing: HashSet<String>,
}

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), listing: HashSet::new() }
    }
}

impl<K: Resource + Clone> Known<K>
where
    Object: From<K>,
{
    /// The changes in a watch event.
    fn apply(&mut self, event: watcher::Event<K>, at: Stamp) -> Vec<Change> {
        match event {
            watcher::Event::Apply(object) => vec![self.seen(object, at)],
            watcher::Event::Delete(object) => {
                self.objects.remove(uid(&object));
                vec![Change { at, object: object.into(), deleted: true }]
            }
            watcher::Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                self.listing.insert(uid(&object).to_owned());
                vec![self.seen(object, at)]
            }
            watcher::Event::InitDone => {
                let missed = self.objects.extract_if(|uid, _| !self.listing.contains(uid));
                missed.map(|(_, object)| Change { at, object: object.into(), deleted: true }).collect()
            }
        }
    }

    fn seen(&mut self, object: K, at: Stamp) -> Change {
        self.objects.insert(uid(&object).to_owned(), object.clone());
        Change { at, object: object.into(), deleted: false }
    }
}

fn uid<K: Resource>(object: &K) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.into());
        pod
    }

    fn deleted(changes: &[Change]) -> Vec<(&str, bool)> {
        changes.iter().map(|c| (c.object.metadata().uid.as_deref().unwrap(), c.deleted)).collect()
    }

    #[test]
    fn an_object_missing_from_a_second_list_is_deleted() {
        let mut known = Known::default();
        let at = Stamp::default();
        for event in [Init, InitApply(pod("a")), InitApply(pod("b")), InitDone, Apply(pod("c"))] {
            assert!(known.apply(event, at).iter().all(|change| !change.deleted));
        }
        assert_eq!(deleted(&known.apply(Delete(pod("a")), at)), [("a", true)]);
        known.apply(Init, at);
        known.apply(InitApply(pod("c")), at);
        assert_eq!(deleted(&known.apply(InitDone, at)), [("b", true)]);
    }
}
