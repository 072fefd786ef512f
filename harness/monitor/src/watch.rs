//! One kind from the API server into [`Life`](crate::life::Life). Lists come through the watch where the API server
//! supports that, so the objects are trimmed one at a time. A list is never older than what was seen before, or newer
//! objects would count as deleted.

use std::{collections::HashSet, fmt::Debug, sync::Arc};

use claimcheck_informer::{Delays, Kind, Reflector, Step, is_forbidden, is_unserved};
use claimcheck_model::Stamp;
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc::Sender, task::JoinSet, time::sleep};
use tracing::{debug, info, warn};

use crate::{
    active::MEMORY_SECONDS,
    life::{Followed, Seen},
    rights,
    run::Shared,
};

/// Seconds after which a watch ends and continues. A connection that broke silently is noticed a few seconds later:
/// before the state of deleted objects is removed, see [`MEMORY_SECONDS`].
const WATCH_SECONDS: u32 = 40;
const _: () = assert!(WATCH_SECONDS as f64 + 10.0 < MEMORY_SECONDS);

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
    let kind = K::CACHED_AS;
    let mut listed = Some(listed);
    let (mut attempts, mut lists) = (0_u64, 0_u64);
    // Those of a list that may lack known objects: before the first attempt none is known.
    let mut uids = HashSet::new();
    let (mut reflector, mut delays) = (Reflector::new(api, None).lifetime(WATCH_SECONDS), Delays::default());
    shared.series.watches(kind);
    loop {
        let step = match reflector.next_step().await {
            Ok(step) => step,
            Err(error) => {
                if is_optional(kind) && (is_unserved(&error) || is_forbidden(&error)) {
                    drop(listed.take());
                }
                report::<K>(&shared, &error);
                sleep(delays.failed()).await;
                continue;
            }
        };
        delays.succeeded();
        if !matches!(step, Step::Started) && shared.watched(kind) {
            info!(kind = kind.name(), "watched");
        }
        let now = Stamp::now();
        match step {
            Step::Started => {
                attempts += 1;
                uids.clear();
            }
            Step::Listed(object) => {
                uids.extend(object.meta().uid.clone().filter(|_| attempts > 1));
                shared.change(|life| life.enter(object, Seen::Listed, now));
            }
            Step::Complete { rewound, .. } => {
                if attempts > 1 {
                    shared.change(|life| life.listed::<K>(&uids, now));
                }
                uids = HashSet::new();
                lists += 1;
                if lists > 1 {
                    shared.series.listed_again(kind);
                }
                debug!(kind = kind.name(), "listed");
                drop(listed.take());
                if rewound {
                    warn!(
                        kind = kind.name(),
                        "the API server lost its latest writes, as when etcd is restored from a backup"
                    );
                    shared.change(|life| life.start_again::<K>(now));
                    reflector.list_again();
                }
            }
            Step::Continued => {}
            Step::Applied(object) => shared.change(|life| life.enter(object, Seen::Live(now), now)),
            Step::Deleted(object) => shared.change(|life| life.remove(object, Seen::Live(now), now)),
        }
    }
}

/// Whether a kind can be done without: snapshots are CRDs that a cluster may not have, or permit.
pub(crate) fn is_optional(kind: Kind) -> bool {
    matches!(kind, Kind::Snapshot | Kind::SnapshotContent)
}

/// Reports that a watch failed, and will be restarted: once for each reason.
fn report<K: Watched>(shared: &Shared, error: &watcher::Error) {
    let (kind, reason) = (K::CACHED_AS, rights::reason::<K>(error));
    // A cluster without the CRDs lacks nothing.
    let is_missing = is_optional(kind) && is_unserved(error);
    if !shared.unwatched(kind, &reason, !is_missing) {
        debug!(kind = kind.name(), reason, "the watch failed again");
    } else if is_missing {
        info!(kind = kind.name(), reason, "not served; trying again");
    } else {
        warn!(kind = kind.name(), reason, "the watch failed and will be restarted");
    }
}
