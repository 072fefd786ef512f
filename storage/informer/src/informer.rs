//! The shared watch cache: one watcher per kind keeps a [`World`] up to date and notifies subscribers.
//!
//! Like client-go's shared informer factory: a process that runs several controllers shares one informer, so
//! each object is sent and parsed once. Unlike client-go, successful writes are entered at once
//! ([`Informer::apply`]), so the next plan sees them and does not repeat them.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use claimcheck_model::{
    ObjectKey,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent},
};
use futures::StreamExt;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{
        CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
    },
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, utils::Backoff as RetryDelays, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, sync::watch, task::JoinSet, time::Instant};
use tracing::{debug, info, warn};

use crate::{
    Backoff,
    store::key_of,
    world::{Cached, Change, Kind, KindSet, World},
};

/// A kind that can be both cached and watched.
pub trait Watchable: Cached + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug {}

impl<K: Cached + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Watchable for K {}

/// Watch options. The default watches everything by list and watch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    fields: BTreeMap<Kind, String>,
    streaming_lists: bool,
    page_size: Option<u32>,
}

impl Options {
    /// Watches only the objects of `kind` that match this field selector, such as
    /// `spec.nodeName=node-1` for the pods of a node.
    #[must_use]
    pub fn fields(mut self, kind: Kind, selector: impl Into<String>) -> Self {
        self.fields.insert(kind, selector.into());
        self
    }

    /// Gets the initial objects through the watch (`sendInitialEvents`, KEP-3157), which saves the API server a
    /// list, instead of by list and watch.
    #[must_use]
    pub fn streaming_lists(mut self) -> Self {
        self.streaming_lists = true;
        self
    }

    /// Page size of the initial list; kube's default is 500.
    #[must_use]
    pub fn page_size(mut self, objects: u32) -> Self {
        self.page_size = Some(objects);
        self
    }

    fn config(&self, kind: Kind) -> watcher::Config {
        let mut config = watcher::Config::default();
        if let Some(selector) = self.fields.get(&kind) {
            config = config.fields(selector);
        }
        if let Some(objects) = self.page_size {
            config = config.page_size(objects);
        }
        if self.streaming_lists { config.streaming_lists() } else { config }
    }
}

/// A handle to the shared cache; clones are the same cache. The watchers end with the last handle.
#[derive(Clone)]
pub struct Informer {
    shared: Arc<Shared>,
    /// Dropping it ends the watchers. A mutex only because a join set is not `Sync`-shared.
    _watchers: Arc<Mutex<JoinSet<()>>>,
}

struct Shared {
    world: RwLock<World>,
    subscribers: Mutex<Vec<Subscriber>>,
    /// The kinds without a complete first list.
    pending: watch::Sender<usize>,
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
            pending: watch::Sender::new(kinds.iter().count()),
        });
        let mut watchers = JoinSet::new();
        for kind in kinds.iter() {
            let config = options.config(kind);
            let (client, shared) = (client.clone(), shared.clone());
            match kind {
                Kind::Claim => watchers.spawn(follow::<PersistentVolumeClaim>(client, config, shared)),
                Kind::Volume => watchers.spawn(follow::<PersistentVolume>(client, config, shared)),
                Kind::Class => watchers.spawn(follow::<StorageClass>(client, config, shared)),
                Kind::Pod => watchers.spawn(follow::<Pod>(client, config, shared)),
                Kind::Node => watchers.spawn(follow::<Node>(client, config, shared)),
                Kind::Attachment => watchers.spawn(follow::<VolumeAttachment>(client, config, shared)),
                Kind::CsiDriver => watchers.spawn(follow::<CSIDriver>(client, config, shared)),
                Kind::CsiNode => watchers.spawn(follow::<CSINode>(client, config, shared)),
                Kind::Capacity => watchers.spawn(follow::<CSIStorageCapacity>(client, config, shared)),
                Kind::Lease => watchers.spawn(follow::<Lease>(client, config, shared)),
                Kind::AttributesClass => {
                    watchers.spawn(follow::<VolumeAttributesClass>(client, config, shared))
                }
                Kind::Snapshot => watchers.spawn(follow::<VolumeSnapshot>(client, config, shared)),
                Kind::SnapshotContent => {
                    watchers.spawn(follow::<VolumeSnapshotContent>(client, config, shared))
                }
                Kind::SnapshotClass => watchers.spawn(follow::<VolumeSnapshotClass>(client, config, shared)),
            };
        }
        Self { shared, _watchers: Arc::new(Mutex::new(watchers)) }
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
        self.shared.change(|world| K::store_mut(world).assume(Arc::new(slim(object))).map(Change::from));
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
        let mut pending = self.shared.pending.subscribe();
        // The sender is part of `self`, so waiting cannot fail.
        let _ = pending.wait_for(|pending| *pending == 0).await;
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

/// Watches one kind forever.
async fn follow<K: Watchable>(client: Client, config: watcher::Config, shared: Arc<Shared>) {
    let delays = Delays { backoff: WATCH_BACKOFF, failures: 0, last: None };
    let mut events = watcher(Api::<K>::all(client), config).backoff(delays).boxed();
    let mut listing = Listing::<K>::default();
    let mut synced = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listing.begin(&shared.read()),
            Ok(watcher::Event::InitApply(object)) => {
                listing.seen(&object);
                shared.change(|world| world.apply(slim(object)));
            }
            Ok(watcher::Event::InitDone) => {
                shared.change(|world| listing.finish(world));
                if !synced {
                    synced = true;
                    shared.pending.send_modify(|pending| *pending -= 1);
                }
                debug!(kind = K::CACHED_AS.name(), objects = K::store(&shared.read()).len(), "listed");
            }
            Ok(watcher::Event::Apply(object)) => shared.change(|world| world.apply(slim(object))),
            Ok(watcher::Event::Delete(object)) => {
                shared.change(|world| K::store_mut(world).remove(&object).map(Change::from));
            }
            Err(error) if is_unserved(&error) => {
                if !synced {
                    synced = true;
                    shared.pending.send_modify(|pending| *pending -= 1);
                    info!(
                        kind = K::CACHED_AS.name(),
                        "not served by this API server; checking again periodically"
                    );
                }
            }
            Err(error) => {
                warn!(kind = K::CACHED_AS.name(), %error, "the watch failed and will be restarted")
            }
        }
    }
}

/// Whether the API server does not serve the kind: one of a CRD is missing until the CRD exists.
pub fn is_unserved(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else { return false };
    // Where a group has no kind at all, a stock API server answers in plain words, without a reason.
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// A list in progress: the objects held when it began that it has not returned yet.
struct Listing<K> {
    unseen: HashMap<ObjectKey, Arc<K>>,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self { unseen: HashMap::new() }
    }
}

impl<K: Cached> Listing<K> {
    fn begin(&mut self, world: &World) {
        self.unseen = K::store(world).iter().map(|object| (key_of(&**object), object.clone())).collect();
    }

    fn seen(&mut self, object: &K) {
        self.unseen.remove(&key_of(object));
    }

    /// Removes objects that the list did not return. An object entered or changed since the list began stays:
    /// the watch, which continues from the list's version, reports its deletion.
    fn finish(&mut self, world: &mut World) -> Vec<Change> {
        let store = K::store_mut(world);
        let unseen = std::mem::take(&mut self.unseen);
        let gone = unseen.into_iter().filter_map(|(key, object)| {
            let unchanged = store.get(&key).is_some_and(|held| Arc::ptr_eq(held, &object));
            unchanged.then(|| store.remove(&object)).flatten().map(Change::from)
        });
        gone.collect()
    }
}

/// Drops the managed fields, which every object has and no controller reads.
fn slim<K: Cached>(mut object: K) -> K {
    object.metadata_mut().managed_fields = None;
    object
}

const WATCH_BACKOFF: Backoff = Backoff { base: Duration::from_millis(50), max: Duration::from_secs(30) };

/// [`Backoff`] in the form that kube's streams require.
///
/// They reset it with every event, and the first event of an attempt is its start: so it counts as healthy only
/// when an event comes later than the attempt, or a dead server would be called in a loop.
struct Delays {
    backoff: Backoff,
    failures: u32,
    /// Time of the last failure, and the delay after it.
    last: Option<(Instant, Duration)>,
}

impl Iterator for Delays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let delay = self.backoff.delay(self.failures);
        self.last = Some((Instant::now(), delay));
        Some(delay)
    }
}

impl RetryDelays for Delays {
    fn reset(&mut self) {
        if self.last.is_none_or(|(failed, waited)| failed.elapsed() > 2 * waited) {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::PersistentVolume;
    use kube::core::Status;

    use super::{Delays, Listing, RetryDelays, WATCH_BACKOFF, is_unserved, watcher};
    use crate::{
        testing::{volume, world},
        world::World,
    };

    fn names(world: &World) -> Vec<&str> {
        let mut names: Vec<_> =
            world.volumes.iter().filter_map(|volume| volume.metadata.name.as_deref()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_list_takes_out_what_it_does_not_have_but_for_what_changed_meanwhile() {
        let named = |name: &str| volume(name, "", "1Gi");
        let mut world = world([named("listed").into(), named("gone").into(), named("touched").into()]);
        let mut listing = Listing::<PersistentVolume>::default();
        listing.begin(&world);
        listing.seen(&named("listed"));
        world.apply(named("written"));
        world.volumes.apply(Arc::new(volume("touched", "", "2Gi")));
        let changes = listing.finish(&mut world);
        assert_eq!(changes.iter().map(|change| change.key.name.as_str()).collect::<Vec<_>>(), ["gone"]);
        assert_eq!(names(&world), ["listed", "touched", "written"]);
    }

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
        assert!(!answered("too old resource version", "Expired", 410));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_only_begins_does_not_end_the_backoff() {
        let mut delays = Delays { backoff: WATCH_BACKOFF, failures: 0, last: None };
        let first = delays.next().unwrap();
        let mut last = first;
        for _ in 0..20 {
            tokio::time::sleep(last).await;
            // The list begins, and fails.
            delays.reset();
            let next = delays.next().unwrap();
            assert!(next >= last, "{next:?} after {last:?}");
            last = next;
        }
        assert!(last > 100 * first, "{last:?}");
        tokio::time::sleep(3 * last).await;
        delays.reset();
        assert_eq!(delays.next(), Some(first), "it was healthy in between");
    }
}
