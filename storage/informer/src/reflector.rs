//! Lists and watches one kind, as client-go's reflector (`tools/cache/reflector.go`).
//!
//! The API server sends the present objects through the watch (`sendInitialEvents`, KEP-3157), one that does not
//! support that in a list; both come from its watch cache. Unlike kube's `watcher`, a reflector reports the version
//! of a list, and requires one that is not older than what it reported before: a list of an API server that lags
//! behind must not replace newer objects, and one of a restored etcd must.

use std::{cmp::Ordering, collections::HashMap, io, mem, time::Duration};

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

/// How much longer than it can last a watch may be silent before its connection counts as broken.
const MARGIN: Duration = Duration::from_secs(5);

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

/// A step of a reflection, for consumers that do not hold all objects of a list at once.
#[derive(Debug)]
pub enum Step<K> {
    /// A list starts: at first, after changes were missed, and again if one was interrupted.
    Started,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    Complete {
        /// Its version.
        version: String,
        /// The version of the list is older than one that was seen: the server has been restored.
        rewound: bool,
    },
    /// A watch continues where an earlier one ended.
    Continued,
    /// An object was added or changed.
    Applied(K),
    /// An object was deleted, also within a list; its last state.
    Deleted(K),
}

type Changes<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// Where the reflection of a kind is.
enum State<K> {
    /// Changes may have been missed: the objects must be listed.
    Unlisted,
    /// The objects arrive through a watch.
    Listing(Changes<K>),
    /// The rest of a plain list, and its version.
    Items(std::vec::IntoIter<K>, String),
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
        let source = Source { api, fields, lifetime: LIFETIME };
        Self { source, state: State::Unlisted, version: String::new(), latest: false }
    }

    /// Ends watches after so many seconds: a connection that broke silently is noticed little later.
    #[must_use]
    pub fn lifetime(mut self, seconds: u32) -> Self {
        self.source.lifetime = seconds;
        self
    }

    /// Waits for the next event. After an error the reflection continues where it was; the caller delays it.
    pub async fn next_event(&mut self) -> Result<Event<K>, Error> {
        let mut objects: HashMap<ObjectKey, K> = HashMap::new();
        loop {
            match self.next_step().await? {
                Step::Started => objects.clear(),
                Step::Listed(object) => {
                    objects.insert(key_of(&object), object);
                }
                Step::Complete { version, rewound } => {
                    let objects = objects.into_values().collect();
                    return Ok(Event::Listed(List { objects, version, rewound }));
                }
                Step::Continued => {}
                Step::Applied(object) => return Ok(Event::Applied(object)),
                Step::Deleted(object) if matches!(self.state, State::Listing(_)) => {
                    objects.remove(&key_of(&object));
                }
                Step::Deleted(object) => return Ok(Event::Deleted(object)),
            }
        }
    }

    /// Waits for the next step. After an error within a list, that starts again.
    pub async fn next_step(&mut self) -> Result<Step<K>, Error> {
        loop {
            match &mut self.state {
                State::Unlisted => {
                    self.start_list().await?;
                    return Ok(Step::Started);
                }
                State::Listing(changes) => match self.source.next(changes).await {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        return Ok(Step::Listed(object));
                    }
                    Some(Ok(WatchEvent::Deleted(object))) => return Ok(Step::Deleted(object)),
                    Some(Ok(WatchEvent::Bookmark(mark))) => {
                        if mark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                            if let State::Listing(changes) = mem::replace(&mut self.state, State::Listed) {
                                self.state = State::Watching(changes);
                            }
                            return Ok(self.complete(mark.metadata.resource_version));
                        }
                    }
                    Some(Ok(WatchEvent::Error(status))) => {
                        let error = Error::WatchError(status);
                        if is_unsupported(&error) {
                            self.list_plainly(&error).await?;
                            return Ok(Step::Started);
                        }
                        return Err(self.interrupted(error));
                    }
                    Some(Err(error)) => return Err(self.interrupted(Error::WatchFailed(error))),
                    None => {
                        let cut =
                            io::Error::new(io::ErrorKind::UnexpectedEof, "the watch ended within its list");
                        let error = Error::WatchFailed(kube::Error::ReadEvents(cut));
                        return Err(self.interrupted(error));
                    }
                },
                State::Items(items, version) => match items.next() {
                    Some(object) => return Ok(Step::Listed(object)),
                    None => {
                        let version = mem::take(version);
                        self.state = State::Listed;
                        return Ok(self.complete(version));
                    }
                },
                State::Listed => match self.source.watch(&self.version, false).await {
                    Ok(changes) => {
                        self.state = State::Watching(changes);
                        return Ok(Step::Continued);
                    }
                    Err(error) => {
                        if rejects_version(&error) {
                            self.state = State::Unlisted;
                        }
                        return Err(error);
                    }
                },
                State::Watching(changes) => match self.source.next(changes).await {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        self.reach(&object);
                        return Ok(Step::Applied(object));
                    }
                    Some(Ok(WatchEvent::Deleted(object))) => {
                        self.reach(&object);
                        return Ok(Step::Deleted(object));
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

    /// Lists the objects again: what was reported is no longer true.
    pub fn list_again(&mut self) {
        (self.state, self.version, self.latest) = (State::Unlisted, String::new(), false);
    }

    /// Lists the objects, through a watch if the API server supports that.
    async fn start_list(&mut self) -> Result<(), Error> {
        let seen = if self.latest { "" } else { self.version.as_str() };
        match self.source.watch(seen, true).await {
            Ok(changes) => self.state = State::Listing(changes),
            Err(error) if is_unsupported(&error) => self.list_plainly(&error).await?,
            Err(error) => return Err(self.interrupted(error)),
        }
        Ok(())
    }

    /// Lists the objects without a watch, after this error of a list through one.
    async fn list_plainly(&mut self, error: &Error) -> Result<(), Error> {
        debug!(kind = K::CACHED_AS.name(), %error, "no list through a watch; requesting a plain one");
        // At first any version will do.
        let seen = if self.version.is_empty() { "0" } else { self.version.as_str() };
        match self.source.list_plainly((!self.latest).then_some(seen)).await {
            Ok((items, version)) => self.state = State::Items(items.into_iter(), version),
            Err(error) => return Err(self.interrupted(error)),
        }
        Ok(())
    }

    fn complete(&mut self, version: String) -> Step<K> {
        let rewound = compare_versions(&version, &self.version) == Ordering::Less;
        self.latest = false;
        self.version.clone_from(&version);
        Step::Complete { version, rewound }
    }

    /// A list failed, and starts again.
    fn interrupted(&mut self, error: Error) -> Error {
        self.latest |= rejects_version(&error);
        self.state = State::Unlisted;
        error
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
    /// Seconds after which the API server ends a watch.
    lifetime: u32,
}

impl<K: Watchable> Source<K> {
    /// The objects in one list, at a version that is not older than `seen`; the most recent one without. It has no
    /// pages: those would be read from etcd.
    async fn list_plainly(&self, seen: Option<&str>) -> Result<(Vec<K>, String), Error> {
        let params = ListParams {
            field_selector: self.fields.clone(),
            version_match: seen.map(|_| VersionMatch::NotOlderThan),
            resource_version: seen.map(str::to_owned),
            ..ListParams::default()
        };
        let list = self.api.list(&params).await.map_err(Error::InitialListFailed)?;
        let version = list.metadata.resource_version.ok_or(Error::NoResourceVersion)?;
        Ok((list.items, version))
    }

    /// A watch from this version; or one of the present objects at first, at a version that is not older, or the most
    /// recent one without a version. The latter may take long, so it does not end early.
    async fn watch(&self, version: &str, send_initial_events: bool) -> Result<Changes<K>, Error> {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(if send_initial_events { LIFETIME } else { self.lifetime }),
            bookmarks: true,
            send_initial_events,
            ..WatchParams::default()
        };
        let changes = self.api.watch(&params, version).await.map_err(Error::WatchStartFailed)?;
        Ok(changes.boxed())
    }

    /// The next event of a watch; `None` if it ended, or its connection broke silently.
    async fn next(&self, changes: &mut Changes<K>) -> Option<kube::Result<WatchEvent<K>>> {
        let silence = Duration::from_secs(self.lifetime.into()) + MARGIN;
        timeout(silence, changes.next()).await.ok().flatten()
    }
}

/// Whether the API server no longer has the version (410), or does not have it yet: it lags behind, or its etcd was
/// restored from a backup. Upstream: `isExpiredError` and `isTooLargeResourceVersionError`.
fn rejects_version(error: &Error) -> bool {
    answer(error)
        .is_some_and(|status| status.code == 410 || status.message.contains("Too large resource version"))
}

/// Whether the API server does not list through a watch: before 1.27, without the feature `WatchList` (422), or with
/// an etcd that is too old (500).
fn is_unsupported(error: &Error) -> bool {
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
