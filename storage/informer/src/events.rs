//! Writes core/v1 Events, asynchronously to the work that they report.
//!
//! Like client-go's `tools/record`: a repeated event increases the count of the first one instead of being
//! written again. Recording never waits and never fails; when the API server is too slow, events that do not
//! fit the buffer are dropped, as upstream. The scheduler uses client-go's newer `tools/events`, see
//! [`EventRecorder::in_series`].

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    Metadata,
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::Backoff;

/// Maximum number of pending events; each is a few hundred bytes.
const BUFFER: usize = 4096;
/// Number of remembered events for deduplication, per component.
const REMEMBERED: usize = 512;

/// Minimum interval between counted repetitions: each count is a write.
const QUIET: Duration = Duration::from_secs(10);

/// When a series of events ends: `finishTime` in client-go's `tools/events/event_broadcaster.go`.
const SERIES_END: Duration = Duration::from_mins(6);

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Normal.
    Normal,
    /// Warning.
    Warning,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Records events on behalf of one component; clones share one writer.
#[derive(Clone)]
pub struct EventRecorder {
    requests: mpsc::Sender<Request>,
}

enum Request {
    Record(Box<Occurrence>),
    Flush(oneshot::Sender<()>),
}

/// Which events of a component are repetitions of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repetition {
    /// Those with the same message.
    SameMessage,
    /// Those with the same reason, whatever their message.
    SameReason,
}

/// An event without its time: the identity under which repetitions are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Occurrence {
    namespace: String,
    uid: String,
    name: String,
    kind: String,
    api_version: String,
    resource_version: Option<String>,
    field_path: Option<String>,
    event_type: EventType,
    reason: String,
    message: String,
}

impl EventRecorder {
    /// A recorder for `component` (such as `persistentvolume-controller`, upstream's names); its writer
    /// task ends with the last clone.
    pub fn new(client: Client, component: impl Into<String>) -> Self {
        Self::start(client, component.into(), Repetition::SameMessage)
    }

    /// A recorder like client-go's `tools/events`, which kube-scheduler uses: events of an object with the same reason
    /// within six minutes are one series with the message of the first, even if their own messages differ (`getKey` in
    /// `event_broadcaster.go`).
    pub fn in_series(client: Client, component: impl Into<String>) -> Self {
        Self::start(client, component.into(), Repetition::SameReason)
    }

    fn start(client: Client, component: String, repetition: Repetition) -> Self {
        let (requests, received) = mpsc::channel(BUFFER);
        let writer = Writer { client, component, repetition, written: WrittenEvents::default() };
        tokio::spawn(writer.run(received));
        Self { requests }
    }

    /// Records an event about `object` (see [`reference()`]). Returns at once.
    pub fn record(
        &self,
        object: &ObjectReference,
        event_type: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        let occurrence = Occurrence {
            namespace: object.namespace.clone().unwrap_or_default(),
            uid: object.uid.clone().unwrap_or_default(),
            name: object.name.clone().unwrap_or_default(),
            kind: object.kind.clone().unwrap_or_default(),
            api_version: object.api_version.clone().unwrap_or_default(),
            resource_version: object.resource_version.clone(),
            field_path: object.field_path.clone(),
            event_type,
            reason: reason.into(),
            message: message.into(),
        };
        if let Err(error) = self.requests.try_send(Request::Record(Box::new(occurrence))) {
            warn!(%error, "dropping an event");
        }
    }

    /// Returns once all events recorded so far are written (or were rejected).
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.requests.send(Request::Flush(done)).await.is_ok() {
            // An error means the runtime is shutting down, so that nothing will be written any more.
            let _ = written.await;
        }
    }
}

/// The object of an event.
pub fn reference<K>(object: &K) -> ObjectReference
where
    K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta>,
{
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

struct Writer {
    client: Client,
    component: String,
    repetition: Repetition,
    written: WrittenEvents,
}

impl Writer {
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(request) = requests.recv().await {
            match request {
                Request::Record(occurrence) => self.write(*occurrence).await,
                // The caller may have stopped waiting.
                Request::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn write(&mut self, occurrence: Occurrence) {
        // Events about cluster-scoped objects live in the default namespace, as upstream.
        let namespace =
            if occurrence.namespace.is_empty() { "default".to_owned() } else { occurrence.namespace.clone() };
        let events = Api::<Event>::namespaced(self.client.clone(), &namespace);
        let now = Timestamp::now();
        // A version that moved on does not make it another event.
        let mut identity = Occurrence { resource_version: None, ..occurrence.clone() };
        if self.repetition == Repetition::SameReason {
            identity.message.clear();
            self.written.end_series(&identity, now);
        }
        if let Some(earlier) = self.written.again(&identity, now) {
            let Some((name, count)) = earlier else { return };
            let patch = json!({"count": count, "lastTimestamp": Time(now)});
            match events.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => return,
                // Events expire: then this is a first one again.
                Err(kube::Error::Api(status)) if status.is_not_found() => self.written.forget(&identity),
                Err(error) => return warn!(%error, event = name, "cannot update the count of an event"),
            }
        }
        let event = self.event(occurrence, namespace, now);
        let params = PostParams::default();
        match persistently(|| events.create(&params, &event)).await {
            Ok(event) => self.written.first(identity, event.metadata.name.unwrap_or_default(), now),
            Err(error) => {
                warn!(%error, reason = identity.reason, object = identity.name, "cannot write an event")
            }
        }
    }

    fn event(&self, occurrence: Occurrence, namespace: String, now: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", occurrence.name, now.as_nanosecond())),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(occurrence.api_version),
                kind: Some(occurrence.kind),
                namespace: Some(occurrence.namespace).filter(|namespace| !namespace.is_empty()),
                name: Some(occurrence.name),
                uid: Some(occurrence.uid),
                resource_version: occurrence.resource_version,
                field_path: occurrence.field_path,
            },
            type_: Some(occurrence.event_type.name().to_owned()),
            reason: Some(occurrence.reason),
            message: Some(occurrence.message),
            source: Some(EventSource { component: Some(self.component.clone()), host: None }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(String::new()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        }
    }
}

/// Retries for about half a second on server errors: no other component will write the event.
async fn persistently<T, F>(mut request: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    for attempt in 1..=5 {
        match request().await {
            Err(kube::Error::Api(status)) if status.code >= 500 => {
                tokio::time::sleep(WRITING.delay(attempt)).await;
            }
            answer => return answer,
        }
    }
    request().await
}

const WRITING: Backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_secs(1) };

/// The last written events, and the number of repetitions of each.
#[derive(Default)]
struct WrittenEvents {
    events: HashMap<Occurrence, Series>,
    oldest_first: VecDeque<Occurrence>,
}

/// One event, and its repetitions.
struct Series {
    name: String,
    count: i32,
    counted: Timestamp,
}

impl WrittenEvents {
    /// For a repeated event: its name and new count, or `None` if it is too soon to count it.
    fn again(&mut self, occurrence: &Occurrence, now: Timestamp) -> Option<Option<(String, i32)>> {
        let series = self.events.get_mut(occurrence)?;
        if now.duration_since(series.counted).unsigned_abs() < QUIET {
            return Some(None);
        }
        series.count = series.count.saturating_add(1);
        series.counted = now;
        Some(Some((series.name.clone(), series.count)))
    }

    /// Forgets the event if it was not repeated for so long that its series has ended.
    fn end_series(&mut self, occurrence: &Occurrence, now: Timestamp) {
        let ended = |series: &Series| now.duration_since(series.counted).unsigned_abs() >= SERIES_END;
        if self.events.get(occurrence).is_some_and(ended) {
            self.forget(occurrence);
        }
    }

    fn first(&mut self, occurrence: Occurrence, name: String, now: Timestamp) {
        let series = Series { name, count: 1, counted: now };
        if self.events.insert(occurrence.clone(), series).is_none() {
            self.oldest_first.push_back(occurrence);
        }
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.events.remove(&oldest);
        }
    }

    fn forget(&mut self, occurrence: &Occurrence) {
        self.events.remove(occurrence);
        self.oldest_first.retain(|remembered| remembered != occurrence);
    }
}
