//! The shared watch cache: one reflector per kind keeps a [`World`] up to date and notifies subscribers.
//!
//! Like client-go's shared informer factory: a process that runs several controllers shares one informer, so
//! each object is sent and parsed once. Unlike client-go, successful writes are entered at once
//! ([`Informer::apply`]), so the next plan sees them and does not repeat them.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use claimcheck_model::{
    ObjectKey,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent},
    reference_grant::ReferenceGrant,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent},
    volume_populator::VolumePopulator,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{
        CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
    },
};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc,
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

use crate::{
    Backoff,
    reflector::{Event, Reflector},
    response,
    world::{Cached, Change, Kind, KindSet, World},
};

/// A kind that can be both cached and watched.
pub trait Watchable: Cached + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug {}

impl<K: Cached + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Watchable for K {}

/// Watch options. The default watches everything.
#[derive(Clone, Debug, Default)]
pub struct Options {
    fields: BTreeMap<Kind, String>,
}

impl Options {
    /// Watches only the objects of `kind` that match this field selector, such as
    /// `spec.nodeName=node-1` for the pods of a node.
    #[must_use]
    pub fn fields(mut self, kind: Kind, selector: impl Into<String>) -> Self {
        self.fields.insert(kind, selector.into());
        self
    }
}

/// The kinds without a complete first list, with the error of the last attempt; empty during the first. Also the followed
/// objects that could not be read, by their keys.
pub type Pending = BTreeMap<(Kind, Option<ObjectKey>), String>;

/// An object that is watched by its name, and in the cache, until this is dropped.
pub struct Followed {
    kind: Kind,
    key: ObjectKey,
    shared: Arc<Shared>,
    watch: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.watch.abort();
        self.shared.write().release(self.kind, &self.key);
        self.shared.no_longer_pending(self.kind, Some(&self.key));
    }
}

/// A handle to the shared cache; clones are the same cache. The watchers end with the last handle.
#[derive(Clone)]
pub struct Informer {
    shared: Arc<Shared>,
    /// The kinds that [`Informer::synced`] waits for.
    used: KindSet,
    /// Dropping it ends the watchers. A mutex only because a join set is not `Sync`-shared.
    _watchers: Arc<Mutex<JoinSet<()>>>,
}

struct Shared {
    world: RwLock<World>,
    subscribers: Mutex<Vec<Subscriber>>,
    pending: watch::Sender<Pending>,
    /// The kinds that were listed.
    listed: watch::Sender<KindSet>,
}

struct Subscriber {
    kinds: KindSet,
    changes: mpsc::UnboundedSender<Change>,
}

impl Informer {
    /// Starts watching `kinds`. Needs a tokio runtime. Failing watches are logged and restarted with backoff,
    /// so this cannot fail; [`Informer::synced`] returns when the cache is complete.
    pub fn start(client: Client, kinds: KindSet, options: &Options) -> Self {
        let shared = Arc::new(Shared {
            world: RwLock::default(),
            subscribers: Mutex::default(),
            pending: watch::Sender::new(kinds.iter().map(|kind| ((kind, None), String::new())).collect()),
            listed: watch::Sender::new(KindSet::default()),
        });
        let mut watchers = JoinSet::new();
        for kind in kinds.iter() {
            let fields = options.fields.get(&kind).cloned();
            let (client, shared) = (client.clone(), shared.clone());
            match kind {
                Kind::Claim => watchers.spawn(follow::<PersistentVolumeClaim>(client, fields, shared)),
                Kind::Volume => watchers.spawn(follow::<PersistentVolume>(client, fields, shared)),
                Kind::Class => watchers.spawn(follow::<StorageClass>(client, fields, shared)),
                Kind::Pod => watchers.spawn(follow::<Pod>(client, fields, shared)),
                Kind::Node => watchers.spawn(follow::<Node>(client, fields, shared)),
                Kind::Attachment => watchers.spawn(follow::<VolumeAttachment>(client, fields, shared)),
                Kind::CsiDriver => watchers.spawn(follow::<CSIDriver>(client, fields, shared)),
                Kind::CsiNode => watchers.spawn(follow::<CSINode>(client, fields, shared)),
                Kind::Capacity => watchers.spawn(follow::<CSIStorageCapacity>(client, fields, shared)),
                Kind::Lease => watchers.spawn(follow::<Lease>(client, fields, shared)),
                Kind::AttributesClass => {
                    watchers.spawn(follow::<VolumeAttributesClass>(client, fields, shared))
                }
                Kind::Snapshot => watchers.spawn(follow::<VolumeSnapshot>(client, fields, shared)),
                Kind::SnapshotContent => {
                    watchers.spawn(follow::<VolumeSnapshotContent>(client, fields, shared))
                }
                Kind::SnapshotClass => watchers.spawn(follow::<VolumeSnapshotClass>(client, fields, shared)),
                Kind::GroupSnapshot => watchers.spawn(follow::<VolumeGroupSnapshot>(client, fields, shared)),
                Kind::GroupSnapshotContent => {
                    watchers.spawn(follow::<VolumeGroupSnapshotContent>(client, fields, shared))
                }
                Kind::GroupSnapshotClass => {
                    watchers.spawn(follow::<VolumeGroupSnapshotClass>(client, fields, shared))
                }
                Kind::ReferenceGrant => watchers.spawn(follow::<ReferenceGrant>(client, fields, shared)),
                Kind::Populator => watchers.spawn(follow::<VolumePopulator>(client, fields, shared)),
            };
        }
        Self { shared, used: kinds, _watchers: Arc::new(Mutex::new(watchers)) }
    }

    /// The same cache for a user of these kinds alone: [`Informer::synced`] waits for no other kind, which might never
    /// be listed for lack of a permission.
    #[must_use]
    pub fn for_user_of(&self, kinds: KindSet) -> Self {
        Self { used: kinds, ..self.clone() }
    }

    /// The current world. The guard blocks updates, and cannot be held across an await: plan, then drop it.
    pub fn read(&self) -> RwLockReadGuard<'_, World> {
        self.shared.read()
    }

    /// Enters the response to a successful write (or a fresh GET) at once.
    pub fn apply<K: Watchable>(&self, object: K) {
        self.shared.change(|world| world.apply(slim(object)));
    }

    /// Enters the effect of a successful write that did not return the object (a pod's binding). Ignored if
    /// the cache has another version by now; the watch delivers the true one.
    pub fn assume<K: Watchable>(&self, object: K) {
        self.shared.change(|world| world.assume(slim(object)));
    }

    /// Watches one object of a kind that is not watched as a whole: a client may be permitted to read only some of them.
    pub fn follow<K: Watchable>(&self, api: Api<K>, key: ObjectKey) -> Followed {
        let (fields, shared) = (format!("metadata.name={}", key.name), self.shared.clone());
        let watch =
            tokio::spawn(reflect(api, Some(fields), Some(key.clone()), shared.clone())).abort_handle();
        Followed { kind: K::CACHED_AS, key, shared, watch }
    }

    /// Removes an object that was found to be deleted.
    pub fn forget(&self, kind: Kind, key: &ObjectKey) {
        self.shared.change(|world| world.forget(kind, key));
    }

    /// Changes of these kinds, beginning with all present objects as additions, each sent after the world has
    /// it. The channel is unbounded: a subscriber must only receive and enqueue.
    pub fn subscribe(&self, kinds: KindSet) -> mpsc::UnboundedReceiver<Change> {
        let (changes, receiver) = mpsc::unbounded_channel();
        // Under the world's lock, so that no change falls between the replay and the subscription.
        let world = self.shared.write();
        for change in world.replay(kinds) {
            // The receiver exists here, so this cannot fail.
            let _ = changes.send(change);
        }
        self.shared.subscribers().push(Subscriber { kinds, changes });
        receiver
    }

    /// Returns once the first list of every served kind is in the world.
    pub async fn synced(&self) {
        let mut pending = self.pending();
        // The sender is part of `self`, so waiting cannot fail.
        let is_used =
            |(kind, object): &(Kind, Option<ObjectKey>)| object.is_none() && self.used.contains(*kind);
        let _ = pending.wait_for(|pending| !pending.keys().any(is_used)).await;
    }

    /// The kinds that [`Informer::synced`] of a user of all kinds waits for, and the reason.
    pub fn pending(&self) -> watch::Receiver<Pending> {
        self.shared.pending.subscribe()
    }

    /// Returns once the objects of this kind have been listed: if it is one of a CRD, not before the API server serves
    /// it. Never returns for a kind that this informer does not watch.
    pub async fn listed(&self, kind: Kind) {
        let mut listed = self.shared.listed.subscribe();
        // As above.
        let _ = listed.wait_for(|kinds| kinds.contains(kind)).await;
    }
}

impl Shared {
    // A panic while the lock was held can only come from a bug in an index; going on with the world as it
    // is beats bringing down every controller.
    fn read(&self) -> RwLockReadGuard<'_, World> {
        self.world.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, World> {
        self.world.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribers(&self) -> std::sync::MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn no_longer_pending(&self, kind: Kind, object: Option<&ObjectKey>) {
        let key = (kind, object.cloned());
        self.pending.send_if_modified(|pending| pending.remove(&key).is_some());
    }

    /// Records why the kind or object is still pending, if it is.
    fn still_pending(&self, kind: Kind, object: Option<&ObjectKey>, reason: String) {
        let key = (kind, object.cloned());
        self.pending.send_if_modified(|pending| match pending.get_mut(&key) {
            Some(known) if *known == reason => false,
            None if object.is_none() => false,
            Some(_) | None => {
                pending.insert(key, reason);
                true
            }
        });
    }

    /// Changes the world and notifies the subscribers, in the order in which the changes were made.
    fn change<C: IntoIterator<Item = Change>>(&self, change: impl FnOnce(&mut World) -> C) {
        let mut world = self.write();
        for change in change(&mut world) {
            self.subscribers().retain(|subscriber| {
                !subscriber.kinds.contains(change.kind) || subscriber.changes.send(change.clone()).is_ok()
            });
        }
    }
}

/// Reflects one kind forever.
async fn follow<K: Watchable>(client: Client, fields: Option<String>, shared: Arc<Shared>) {
    reflect(Api::<K>::all(client), fields, None, shared).await;
}

/// Reflects what an API and a field selector select: a kind, or `only` this object.
async fn reflect<K: Watchable>(
    api: Api<K>,
    fields: Option<String>,
    only: Option<ObjectKey>,
    shared: Arc<Shared>,
) {
    let only = only.as_ref();
    let mut delays = Delays::default();
    let mut reflector = Reflector::<K>::new(api, fields);
    let mut synced = false;
    loop {
        let event = reflector.next_event().await;
        if event.is_ok() {
            delays.succeeded();
        }
        match event {
            Ok(Event::Listed(list)) => {
                let objects = list.objects.into_iter().map(|object| Arc::new(slim(object)));
                shared.change(|world| world.relist(objects, only, &list.version, list.rewound));
                if list.rewound {
                    warn!(
                        kind = K::CACHED_AS.name(),
                        "the API server lost its latest writes, as when etcd is restored from a backup"
                    );
                }
                shared.listed.send_if_modified(|kinds| {
                    let before = *kinds;
                    *kinds = before.union(KindSet::of(if only.is_none() { &[K::CACHED_AS] } else { &[] }));
                    *kinds != before
                });
                shared.no_longer_pending(K::CACHED_AS, only);
                synced = true;
                debug!(kind = K::CACHED_AS.name(), objects = K::store(&shared.read()).len(), "listed");
            }
            Ok(Event::Applied(object)) => shared.change(|world| world.apply(slim(object))),
            Ok(Event::Deleted(object)) => shared.change(|world| world.remove(&object)),
            Err(error) => {
                let dispensable = is_unserved(&error) || (is_recent(K::CACHED_AS) && is_forbidden(&error));
                if !dispensable {
                    warn!(kind = K::CACHED_AS.name(), %error, "the watch failed and will be restarted");
                    // What was read of an object stands.
                    if only.is_none() || !synced {
                        shared.still_pending(K::CACHED_AS, only, response::watch_error(&error));
                    }
                } else if !synced {
                    synced = true;
                    shared.no_longer_pending(K::CACHED_AS, only);
                    info!(
                        kind = K::CACHED_AS.name(),
                        %error,
                        "not served by this API server, or not permitted; checking again periodically"
                    );
                }
                sleep(delays.failed()).await;
            }
        }
    }
}

/// Kinds that earlier versions did not watch: a role that was written for those lacks the right to, and all that
/// concerns other kinds must still work.
fn is_recent(kind: Kind) -> bool {
    let of_groups = [Kind::GroupSnapshot, Kind::GroupSnapshotContent, Kind::GroupSnapshotClass];
    of_groups.contains(&kind) || kind.is_optional()
}

/// Whether the API server does not permit listing and watching the kind.
pub fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else { return false };
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

/// Whether the API server does not serve the kind: one of a CRD is missing until the CRD exists.
pub fn is_unserved(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else { return false };
    // Where a group has no kind at all, a stock API server answers in plain words, without a reason.
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Drops the managed fields, which every object has and no controller reads.
fn slim<K: Cached>(mut object: K) -> K {
    object.metadata_mut().managed_fields = None;
    object
}

const WATCH_BACKOFF: Backoff = Backoff { base: Duration::from_millis(50), max: Duration::from_secs(30) };

/// The delays after failures of a reflector. A failure soon after the last one is another attempt at the same, even if
/// something was received in between: or a server that only accepts connections would be called in a loop.
#[derive(Debug)]
pub struct Delays {
    backoff: Backoff,
    failures: u32,
    /// Time of the last failure, and the delay after it.
    last: Option<(Instant, Duration)>,
}

impl Default for Delays {
    fn default() -> Self {
        Self { backoff: WATCH_BACKOFF, failures: 0, last: None }
    }
}

impl Delays {
    /// The delay after a failure.
    pub fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let delay = self.backoff.delay(self.failures);
        self.last = Some((Instant::now(), delay));
        delay
    }

    /// Records a success.
    pub fn succeeded(&mut self) {
        if self.last.is_none_or(|(failed, waited)| failed.elapsed() > 2 * waited) {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::{Delays, is_forbidden, is_unserved, watcher};

    #[test]
    fn a_kind_is_not_served_whether_or_not_its_group_is() {
        let answered = |message: &str, reason: &str, code| {
            let status = Status::failure(message, reason).with_code(code).boxed();
            is_unserved(&watcher::Error::InitialListFailed(kube::Error::Api(status)))
        };
        assert!(answered("the server could not find the requested resource", "NotFound", 404));
        // As the client reads what is no `Status`.
        assert!(answered("404 page not found", "Failed to parse error data", 404));
        assert!(!answered("volumesnapshots is forbidden", "Forbidden", 403));
        let status = Status::failure("volumegroupsnapshots is forbidden", "Forbidden").with_code(403).boxed();
        assert!(is_forbidden(&watcher::Error::WatchStartFailed(kube::Error::Api(status))));
        assert!(!answered("too old resource version", "Expired", 410));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_only_begins_does_not_end_the_backoff() {
        let mut delays = Delays::default();
        let first = delays.failed();
        let mut last = first;
        for _ in 0..20 {
            tokio::time::sleep(last).await;
            // The list begins, and fails.
            delays.succeeded();
            let next = delays.failed();
            assert!(next >= last, "{next:?} after {last:?}");
            last = next;
        }
        assert!(last > 100 * first, "{last:?}");
        tokio::time::sleep(3 * last).await;
        delays.succeeded();
        assert_eq!(delays.failed(), first, "it was healthy in between");
    }
}
