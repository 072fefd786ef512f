//! One kind from the API server into [`Life`]. Lists come through the watch where the API server supports that, so the
//! objects are trimmed one at a time.

use std::{collections::HashSet, fmt::Debug, pin::pin, sync::Arc};

use claimcheck_informer::{Kind, is_forbidden, is_unserved, is_unsupported};
use claimcheck_model::Stamp;
use futures::TryStreamExt;
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc::Sender, task::JoinSet};
use tracing::{debug, info, warn};

use crate::{
    life::{Followed, Seen},
    run::Shared,
};

/// A kind that can be watched and followed.
pub(crate) trait Watched:
    Followed + Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K: Followed + Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + Sync + 'static> Watched
    for K
{
}

/// Calls a macro with every kind that a monitor follows.
macro_rules! every_kind {
    ($call:ident) => {
        $call!(
            k8s_openapi::api::storage::v1::StorageClass,
            k8s_openapi::api::storage::v1::CSIDriver,
            k8s_openapi::api::storage::v1::CSINode,
            k8s_openapi::api::core::v1::Node,
            k8s_openapi::api::core::v1::PersistentVolume,
            k8s_openapi::api::core::v1::PersistentVolumeClaim,
            k8s_openapi::api::core::v1::Pod,
            k8s_openapi::api::storage::v1::VolumeAttachment,
            claimcheck_model::snapshot::VolumeSnapshot,
            claimcheck_model::snapshot::VolumeSnapshotContent
        )
    };
}
pub(crate) use every_kind;

/// Watches every kind, until the set is dropped.
pub(crate) fn watch(client: &Client, shared: &Arc<Shared>, listed: &Sender<()>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    macro_rules! spawn {
        ($($kind:ty),+) => {
            $(tasks.spawn(follow(Api::<$kind>::all(client.clone()), shared.clone(), listed.clone()));)+
        };
    }
    every_kind!(spawn);
    tasks
}

/// Follows one kind. `listed` is dropped when its first list is complete, or the kind is not available.
async fn follow<K: Watched>(api: Api<K>, shared: Arc<Shared>, listed: Sender<()>) {
    let mut listed = Some(listed);
    let (mut attempts, mut lists) = (0_u64, 0_u64);
    // Those of a list that may lack known objects: before the first attempt none is known.
    let mut uids = HashSet::new();
    shared.series.watches(K::CACHED_AS);
    let mut streaming = true;
    loop {
        let config = if streaming {
            watcher::Config::default().streaming_lists()
        } else {
            watcher::Config::default().any_semantic()
        };
        let mut changes = pin!(watcher(api.clone(), config).default_backoff());
        loop {
            match changes.try_next().await {
                Ok(Some(Event::Apply(object))) => {
                    let now = Stamp::now();
                    shared.change(|life| life.enter(object, Seen::Live(now), now));
                }
                Ok(Some(Event::Delete(object))) => {
                    let now = Stamp::now();
                    shared.change(|life| life.remove(object, Seen::Live(now), now));
                }
                Ok(Some(Event::Init)) => {
                    attempts += 1;
                    uids.clear();
                }
                Ok(Some(Event::InitApply(object))) => {
                    uids.extend(object.meta().uid.clone().filter(|_| attempts > 1));
                    shared.change(|life| life.enter(object, Seen::Listed, Stamp::now()));
                }
                Ok(Some(Event::InitDone)) => {
                    if attempts > 1 {
                        shared.change(|life| life.listed::<K>(&uids, Stamp::now()));
                    }
                    uids = HashSet::new();
                    lists += 1;
                    if lists > 1 {
                        shared.series.listed_again(K::CACHED_AS);
                    }
                    debug!(kind = K::CACHED_AS.name(), "listed");
                    drop(listed.take());
                }
                Ok(None) => return,
                Err(error) if streaming && is_unsupported(&error) => {
                    streaming = false;
                    break;
                }
                Err(error) if is_unavailable(K::CACHED_AS, &error) => {
                    if listed.take().is_some() {
                        info!(kind = K::CACHED_AS.name(), %error, "not served or not permitted; trying again");
                    }
                }
                Err(error) => {
                    warn!(kind = K::CACHED_AS.name(), %error, "the watch failed and will be restarted");
                }
            }
        }
    }
}

/// Whether a kind can be done without: snapshots are CRDs that a cluster may not have, or permit.
pub(crate) fn is_optional(kind: Kind) -> bool {
    matches!(kind, Kind::Snapshot | Kind::SnapshotContent)
}

/// Whether a kind is not available in this cluster.
fn is_unavailable(kind: Kind, error: &watcher::Error) -> bool {
    is_optional(kind) && (is_unserved(error) || is_forbidden(error))
}
