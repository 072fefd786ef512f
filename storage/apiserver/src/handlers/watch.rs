//! watch: the changes of a collection since a version, as a stream of JSON lines or protobuf frames.
//!
//! Every watch reads the history of its resource from its own position and sleeps on the version of the last
//! change, so replay and live delivery are one loop, always in order, and a slow reader delays no other: when
//! the history no longer has its position, it gets 410 and lists again. One of a single name or node is sent its changes
//! instead, and not woken by others.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Accepted, Call, Form, options};
use crate::faults::Faults;
use crate::protobuf;
use crate::request::Query;
use crate::resources::Resource;
use crate::response::{self, Answer, Encoding};
use crate::selectors::Selector;
use crate::status::{Result, Status};
use crate::store::{Change, ChangeKind, Follower, Object, Store, TooOld, Topic};
use crate::table::Table;

/// Changes read from the history, and objects of the present, at a time.
const BATCH: usize = 256;
/// Bytes of a piece of the stream after which no event is added. With `BATCH`, this bounds the memory of a watch, however
/// many objects and readers exist.
const PIECE: usize = 256 * 1024;
/// Duration of a watch without a timeout; upstream chooses 30 to 60 minutes at random.
const LIFETIME: Duration = Duration::from_secs(45 * 60);
/// Interval of bookmarks on an idle watch that allows them.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// The start of a watch.
enum Start {
    /// After this version.
    After(u64),
    /// With the existing objects, as `ADDED`.
    Present {
        /// Whether a bookmark marks their end.
        bookmark: bool,
    },
}

/// Starts a stream.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let resource = call.path.resource;
    let seconds = options::integer(&call.query, "timeoutSeconds")?;
    options::integer(&call.query, "limit")?;
    let selector =
        Selector::parse(resource, call.query.get("labelSelector"), call.query.get("fieldSelector"))?;
    options::check_list(&call.query, true)?;
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    let lifetime = seconds.map_or(LIFETIME, Duration::from_secs);
    let mut bookmarks = tokio::time::interval_at(Instant::now() + BOOKMARKS, BOOKMARKS);
    bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch {
        store: call.api.store.clone(),
        stop: call.api.stop.clone(),
        faults: call.api.faults.clone(),
        writer: Writer { resource, accepted: call.negotiate()?, headed: Cell::new(false) },
        selector,
        namespace: call.path.namespace.clone(),
        name: call.path.name.clone(),
        bookmarks: call.query.flag("allowWatchBookmarks").then_some(bookmarks),
        end: Instant::now() + lifetime,
        position: 0,
        follower: None,
        present: Vec::new().into_iter(),
        end_of_present: false,
        ready: Vec::new(),
        ended: false,
    };
    let by_name = watch.name.as_deref().map(|name| Topic::Name(name.into()));
    let topic = by_name.or_else(|| watch.selector.topic());
    match start(&call.query, call.store().version())? {
        Start::After(version) => watch.position = version,
        Start::Present { bookmark } => watch.begin_with_present(topic.as_ref(), bookmark),
    }
    if let Some(topic) = topic {
        watch.follow(topic);
    }
    let encoding = watch.writer.accepted.encoding;
    Ok(response::stream(encoding.stream_type(), watch.into_frames()))
}

fn start(query: &Query, current: u64) -> Result<Start> {
    let version = match query.get("resourceVersion") {
        None => 0,
        Some(text) => options::version(text).map_err(Status::unclassified)?,
    };
    let initial = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
    match (initial, version) {
        // The present is at least as new as any version that was ever given out.
        (Some(true), version) if version > current => Err(Status::version_too_large(version, current)),
        (Some(true), _) => Ok(Start::Present { bookmark: query.flag("allowWatchBookmarks") }),
        // As upstream, who names no version gets the present with its end, who names 0 without.
        (None, 0) => {
            let bookmark = query.get("resourceVersion").is_none() && query.flag("allowWatchBookmarks");
            Ok(Start::Present { bookmark })
        }
        // Without initial events the oldest version means: from now on.
        (Some(false), 0) => Ok(Start::After(current)),
        (_, version) => Ok(Start::After(version)),
    }
}

struct Watch {
    store: Arc<Store>,
    stop: CancellationToken,
    faults: Faults,
    writer: Writer,
    selector: Selector,
    namespace: Option<String>,
    name: Option<String>,
    bookmarks: Option<Interval>,
    end: Instant,
    /// The version up to which everything has been sent, after the objects of the present.
    position: u64,
    /// The changes of its topic, if the watch has one.
    follower: Option<Follower>,
    /// The objects of the present that have not been sent.
    present: std::vec::IntoIter<Arc<Object>>,
    /// Whether a bookmark has to be sent after them.
    end_of_present: bool,
    /// The next piece of the stream.
    ready: Vec<u8>,
    ended: bool,
}

impl Watch {
    fn begin_with_present(&mut self, topic: Option<&Topic>, bookmark: bool) {
        let storage = self.writer.resource.storage;
        let (objects, version) = self.store.list_topic(storage, self.namespace.as_deref(), topic);
        self.present = objects.into_iter();
        self.end_of_present = bookmark;
        self.position = version;
    }

    fn follow(&mut self, topic: Topic) {
        let storage = self.writer.resource.storage;
        // If its version is too old, the first read of the history finds out, too.
        self.follower = Follower::new(self.store.clone(), storage, topic, self.position).ok();
    }

    fn into_frames(self) -> BoxStream<'static, Bytes> {
        stream::unfold(self, |mut watch| async move {
            let frame = watch.next().await?;
            Some((frame, watch))
        })
        .boxed()
    }

    /// All pending frames, in one piece; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut wake = self.store.subscribe(self.writer.resource.storage);
        loop {
            if !self.ready.is_empty() {
                self.ended |= self.faults.drops_watch(self.writer.resource.plural);
                return Some(Bytes::from(std::mem::take(&mut self.ready)));
            }
            if self.ended {
                return None;
            }
            wake.mark_unchanged();
            if self.advance() {
                continue;
            }
            let bookmark = async {
                match &mut self.bookmarks {
                    Some(interval) => interval.tick().await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                match &mut self.follower {
                    Some(follower) => follower.wait().await,
                    None => wake.changed().await.is_ok(),
                }
            };
            tokio::select! {
                // Unless the kind was removed with its definition, or the watch is too far behind.
                changed = changed => self.ended = !changed,
                _ = bookmark => {
                    // Nothing is pending, so everything up to the present has been sent. The version is
                    // read first: what comes in between is then sent after the bookmark.
                    let version = self.store.version();
                    if !self.advance() && version > self.position {
                        self.position = version;
                        self.writer.bookmark(version, false, &mut self.ready);
                    }
                }
                () = sleep_until(self.end) => self.ended = true,
                () = self.stop.cancelled() => self.ended = true,
            }
        }
    }

    /// Adds the next events to `ready`; false if there are none.
    fn advance(&mut self) -> bool {
        self.advance_present() || self.advance_changes()
    }

    fn advance_present(&mut self) -> bool {
        let begins_with = self.present.len();
        while self.ready.len() < PIECE
            && begins_with - self.present.len() < BATCH
            && let Some(object) = self.present.next()
        {
            if self.selects(&object) {
                self.writer.object(ChangeKind::Added, &object, &mut self.ready);
            }
        }
        if self.present.len() == 0 && std::mem::take(&mut self.end_of_present) {
            self.writer.bookmark(self.position, true, &mut self.ready);
            return true;
        }
        begins_with > 0
    }

    fn advance_changes(&mut self) -> bool {
        if self.follower.is_some() {
            let mut advanced = false;
            while self.ready.len() < PIECE
                && let Some(change) = self.follower.as_mut().and_then(Follower::next)
            {
                self.position = change.version();
                self.change(&change);
                advanced = true;
            }
            return advanced;
        }
        match self.store.changes(self.writer.resource.storage, self.position, BATCH) {
            Ok(changes) => {
                for change in &changes {
                    self.position = change.version();
                    self.change(change);
                    if self.ready.len() >= PIECE {
                        break;
                    }
                }
                !changes.is_empty()
            }
            Err(TooOld { oldest }) => {
                let message = format!("too old resource version: {} ({oldest})", self.position);
                let status = Status::expired(message).to_value();
                self.writer.event("ERROR", &status, &mut self.ready);
                self.ended = true;
                true
            }
        }
    }

    fn selects(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| *object.key.namespace == *namespace)
            && self.name.as_deref().is_none_or(|name| *object.key.name == *name)
            && self.selector.matches(object)
    }

    /// Adds the event of a change, if it is visible to this watch. An object that begins to match the selector
    /// appears as added, one that no longer matches as deleted.
    fn change(&mut self, change: &Change) {
        let was = change.previous.as_deref().is_some_and(|previous| self.selects(previous));
        let is = change.kind != ChangeKind::Deleted && self.selects(&change.object);
        let kind = match (was, is) {
            (false, false) => return,
            (false, true) => ChangeKind::Added,
            (true, true) => ChangeKind::Modified,
            (true, false) => ChangeKind::Deleted,
        };
        // With the state that matched: `convertToWatchEvent` in apiserver pkg/storage/cacher/cache_watcher.go.
        if kind == ChangeKind::Deleted
            && change.kind != ChangeKind::Deleted
            && let Some(previous) = &change.previous
        {
            let last = Object::new(previous.key.clone(), change.version(), previous.value.clone());
            return self.writer.object(kind, &last, &mut self.ready);
        }
        self.writer.object(kind, &change.object, &mut self.ready);
    }
}

/// The format of one watch's events.
struct Writer {
    resource: &'static Resource,
    accepted: Accepted,
    /// Whether the columns of the table have been sent.
    headed: Cell<bool>,
}

impl Writer {
    /// Appends the event of an object. Its encoding is that of the stored object, which all watches share, so that a
    /// watch only copies it.
    fn object(&self, kind: ChangeKind, object: &Object, frames: &mut Vec<u8>) {
        let Self { resource, accepted, .. } = self;
        match (&accepted.form, accepted.encoding) {
            (Form::Table(table), _) => self.table(kind.name(), table, &object.value, object.version, frames),
            (Form::Whole, Encoding::Protobuf) => {
                let (version, message) = (resource.api_version(), resource.protobuf(object));
                protobuf::put_watch_frame(frames, kind.name(), &version, resource.kind, message);
            }
            (Form::Metadata, Encoding::Protobuf) => {
                let frame = protobuf::watch_frame(kind.name(), &accepted.write(resource, object));
                frames.extend_from_slice(&frame);
            }
            (Form::Whole | Form::Metadata, Encoding::Json | Encoding::Yaml) => {
                frames.extend_from_slice(b"{\"type\":\"");
                frames.extend_from_slice(kind.name().as_bytes());
                frames.extend_from_slice(b"\",\"object\":");
                accepted.append(resource, object, frames);
                frames.extend_from_slice(b"}\n");
            }
        }
    }

    /// Appends the event with a table of one object; only the first has columns.
    fn table(&self, kind: &str, table: &Table, object: &Value, version: u64, frames: &mut Vec<u8>) {
        let metadata = json!({ "resourceVersion": version.to_string() });
        let table = match self.headed.replace(true) {
            false => table.render([object], &metadata),
            true => table.render_rows([object], &metadata),
        };
        self.event(kind, &self.accepted.versioned(table), frames);
    }

    fn bookmark(&self, version: u64, initial_events_end: bool, frames: &mut Vec<u8>) {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if initial_events_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let resource = self.resource;
        let (kind, api_version, empty) = match &self.accepted.form {
            Form::Whole => (resource.kind, resource.api_version(), resource.empty),
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned(), ""),
            Form::Table(table) => {
                // As of any object, with the row of an empty one: `asTable` in apiserver
                // pkg/endpoints/handlers/response.go.
                let text = format!("{{\"metadata\":{metadata}{}}}", resource.empty);
                let object: Value = serde_json::from_str(&text).unwrap_or_default();
                return self.table("BOOKMARK", table, &object, version, frames);
            }
        };
        if self.accepted.encoding == Encoding::Protobuf {
            let object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
            return self.event("BOOKMARK", &object, frames);
        }
        let text = format!(
            "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\
             \"metadata\":{metadata}{empty}}}}}\n"
        );
        frames.extend_from_slice(text.as_bytes());
    }

    /// Appends the event with an object that has its kind.
    fn event(&self, kind: &str, object: &Value, frames: &mut Vec<u8>) {
        match self.accepted.encoding {
            Encoding::Json | Encoding::Yaml => {
                let text = format!("{}\n", json!({ "type": kind, "object": object }));
                frames.extend_from_slice(text.as_bytes());
            }
            Encoding::Protobuf => {
                frames.extend_from_slice(&protobuf::watch_frame(kind, &protobuf::encode(object)));
            }
        }
    }
}
