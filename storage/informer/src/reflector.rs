//! Lists and watches one kind, as client-go's reflector (`tools/cache/reflector.go`).
//!
//! The API server sends the present objects through the watch (`sendInitialEvents`, KEP-3157), one that does not
//! support that in a list; both come from its watch cache. Unlike kube's `watcher`, a reflector reports the version
//! of a list, and requires one that is not older than what it reported before: a list of an API server that lags
//! behind must not replace newer objects, and one of a restored etcd must.

use std::{cmp::Ordering, collections::HashMap, io, time::Duration};

use claimcheck_model::ObjectKey;
use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api,
    api::{ListParams, VersionMatch, WatchEvent, WatchParams},
    core::Status,
    runtime::watcher::Error,
};
use tokio::time::timeout;
use tracing::debug;

use crate::{
    informer::Watchable,
    store::{compare_versions, key_of},
};

/// Seconds after which the API server ends a watch.
const LIFETIME: u32 = 290;

/// How long a watch may be silent before its connection counts as broken: longer than it can last.
const SILENCE: Duration = Duration::from_secs(295);

/// The annotation of the bookmark after the present objects.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A change of the reflected objects.
pub enum Event<K> {
    /// All objects: at first, and after changes were missed.
    Listed(List<K>),
    /// An object was added or changed.
    Applied(K),
    /// An object was deleted; its last state.
    Deleted(K),
}

/// All objects of a kind at one version.
pub struct List<K> {
    /// The objects.
    pub objects: Vec<K>,
    /// The version.
    pub version: String,
    /// The version is lower than one that was seen before, as after an etcd was restored from a backup.
    pub rewound: bool,
}

type Changes<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// Where the reflection of a kind is.
enum State<K> {
    /// Changes may have been missed: the objects must be listed.
    Unlisted,
    /// Up to date at the version, without a watch.
    Listed,
    /// A watch is open.
    Watching(Changes<K>),
}

/// Reflects one kind.
pub struct Reflector<K> {
    source: Source<K>,
    state: State<K>,
    /// The version up to which everything was reported; empty before the first list.
    version: String,
    /// The API server rejected a list that is not older than the version, so the most recent one is requested.
    latest: bool,
}

impl<K: Watchable> Reflector<K> {
    /// A reflector of the objects that match the field selector.
    pub fn new(api: Api<K>, fields: Option<String>) -> Self {
        let source = Source { api, fields };
        Self { source, state: State::Unlisted, version: String::new(), latest: false }
    }

    /// Waits for the next event. After an error the reflection continues where it was; the caller delays it.
    pub async fn next_event(&mut self) -> Result<Event<K>, Error> {
        loop {
            match &mut self.state {
                State::Unlisted => return self.list().await.map(Event::Listed),
                State::Listed => match self.source.watch(&self.version, false).await {
                    Ok(changes) => self.state = State::Watching(changes),
                    Err(error) => {
                        if rejects_version(&error) {
                            self.state = State::Unlisted;
                        }
                        return Err(error);
                    }
                },
                State::Watching(changes) => match next(changes).await {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        self.reach(&object);
                        return Ok(Event::Applied(object));
                    }
                    Some(Ok(WatchEvent::Deleted(object))) => {
                        self.reach(&object);
                        return Ok(Event::Deleted(object));
                    }
                    Some(Ok(WatchEvent::Bookmark(mark))) => self.version = mark.metadata.resource_version,
                    Some(Ok(WatchEvent::Error(status))) => {
                        let error = Error::WatchError(status);
                        self.state = if rejects_version(&error) { State::Unlisted } else { State::Listed };
                        return Err(error);
                    }
                    // The stream goes on after an object that cannot be read, and ends if it is broken.
                    Some(Err(error)) => return Err(Error::WatchFailed(error)),
                    None => self.state = State::Listed,
                },
            }
        }
    }

    /// Lists the objects, through a watch if the API server supports that.
    async fn list(&mut self) -> Result<List<K>, Error> {
        let seen = if self.latest { "" } else { self.version.as_str() };
        let listed = match self.source.list_by_watch(seen).await {
            Err(error) if is_unsupported(&error) => {
                debug!(kind = K::CACHED_AS.name(), %error, "no list through a watch; requesting a plain one");
                // At first any version will do.
                let any = if seen.is_empty() { "0" } else { seen };
                self.source.list_plainly((!self.latest).then_some(any)).await
            }
            listed => listed,
        };
        match listed {
            Ok((objects, version, state)) => {
                let rewound = compare_versions(&version, &self.version) == Ordering::Less;
                (self.state, self.latest) = (state, false);
                self.version.clone_from(&version);
                Ok(List { objects, version, rewound })
            }
            Err(error) => {
                self.latest |= rejects_version(&error);
                Err(error)
            }
        }
    }

    fn reach(&mut self, object: &K) {
        if let Some(version) = &object.metadata().resource_version {
            self.version.clone_from(version);
        }
    }
}

/// The requests of a reflector.
struct Source<K> {
    api: Api<K>,
    /// The field selector, if any.
    fields: Option<String>,
}

/// The objects, their version, and how to continue from there.
type Listing<K> = (Vec<K>, String, State<K>);

impl<K: Watchable> Source<K> {
    /// The objects through a watch, at a version that is not older than `seen`; the most recent one if that is empty.
    async fn list_by_watch(&self, seen: &str) -> Result<Listing<K>, Error> {
        let mut changes = self.watch(seen, true).await?;
        let mut objects: HashMap<ObjectKey, K> = HashMap::new();
        loop {
            match next(&mut changes).await {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    objects.insert(key_of(&object), object);
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    objects.remove(&key_of(&object));
                }
                Some(Ok(WatchEvent::Bookmark(mark))) => {
                    if mark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        let objects = objects.into_values().collect();
                        return Ok((objects, mark.metadata.resource_version, State::Watching(changes)));
                    }
                }
                Some(Ok(WatchEvent::Error(status))) => return Err(Error::WatchError(status)),
                Some(Err(error)) => return Err(Error::WatchFailed(error)),
                None => {
                    let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "the watch ended within its list");
                    return Err(Error::WatchFailed(kube::Error::ReadEvents(cut)));
                }
            }
        }
    }

    /// The objects in one list, at a version that is not older than `seen`; the most recent one without. It has no
    /// pages: those would be read from etcd.
    async fn list_plainly(&self, seen: Option<&str>) -> Result<Listing<K>, Error> {
        let params = ListParams {
            field_selector: self.fields.clone(),
            version_match: seen.map(|_| VersionMatch::NotOlderThan),
            resource_version: seen.map(str::to_owned),
            ..ListParams::default()
        };
        let list = self.api.list(&params).await.map_err(Error::InitialListFailed)?;
        let version = list.metadata.resource_version.ok_or(Error::NoResourceVersion)?;
        Ok((list.items, version, State::Listed))
    }

    /// A watch from this version, or of the present objects at first.
    async fn watch(&self, version: &str, send_initial_events: bool) -> Result<Changes<K>, Error> {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(LIFETIME),
            bookmarks: true,
            send_initial_events,
            ..WatchParams::default()
        };
        let changes = self.api.watch(&params, version).await.map_err(Error::WatchStartFailed)?;
        Ok(changes.boxed())
    }
}

/// The next event of a watch; `None` if it ended, or its connection broke silently.
async fn next<K>(changes: &mut Changes<K>) -> Option<kube::Result<WatchEvent<K>>> {
    timeout(SILENCE, changes.next()).await.ok().flatten()
}

/// Whether the API server no longer has the version (410), or does not have it yet: it lags behind, or its etcd was
/// restored from a backup. Upstream: `isExpiredError` and `isTooLargeResourceVersionError`.
fn rejects_version(error: &Error) -> bool {
    answer(error)
        .is_some_and(|status| status.code == 410 || status.message.contains("Too large resource version"))
}

/// Whether the API server does not list through a watch: before 1.27, without the feature `WatchList` (422), or with
/// an etcd that is too old (500).
pub fn is_unsupported(error: &Error) -> bool {
    answer(error).is_some_and(|status| matches!(status.code, 400 | 422 | 500))
}

/// The API server's answer in an error.
fn answer(error: &Error) -> Option<&Status> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(&**status),
        _ => None,
    }
}
